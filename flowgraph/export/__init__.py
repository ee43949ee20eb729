"""Ways to look at a graph or an attribution: files for other programs, pictures, one interactive page.

``graphml`` (read back by ``graphml_reader``), ``gexf``, ``json``: the graph for other programs, from the rows of
``rows``, spelt by ``literals`` and ``escape``. ``plot``: pictures by matplotlib of ``scores``, on a ``figure``.
``page``: one self-contained HTML file by Bokeh. ``notebook``: what objects show of themselves. Nothing heavy is
imported before it is used.
"""
