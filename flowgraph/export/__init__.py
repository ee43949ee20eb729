"""Ways to look at a graph or an attribution: files for other programs, pictures, one interactive page.

``graphml``, ``gexf``, ``json``: the graph for other programs, from the rows of ``rows``. ``plot``: pictures
by matplotlib. ``page``: one self-contained HTML file by Bokeh. Nothing heavy is imported before it is used.
"""
