"""Comparing solvers: registered ones and packaged peers, side by side on real and generated graphs.

>>> from flowgraph.bench import compare, generate
>>> report = compare({"6x12": generate(6, 12)}, solvers=["auto", "igraph"])
>>> report.graphs[0].entries["igraph"].verdict
'right'

``compare(graphs)`` runs everyone; ``flowgraph bench`` is the same on the command line.
"""

from flowgraph.bench.comparison import Settings, compare
from flowgraph.bench.generate import KINDS, generate
from flowgraph.bench.peers import PEERS
from flowgraph.bench.report import Report

__all__ = ["KINDS", "PEERS", "Report", "Settings", "compare", "generate"]
