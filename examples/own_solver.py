"""A solver of your own beside the others: one function from edges to the flow on each of them.

Run this file for a picture, or let the command line run it, on any graphs::

    python examples/own_solver.py own.png
    flowgraph bench --load examples/own_solver.py --sizes 6x16 --solver boykov-kolmogorov,igraph

To convert a graph once for many pairs, register an object with ``prepare(graph)`` instead; ``flowgraph.solvers.base``
says what it returns.
"""

from __future__ import annotations

import sys

import networkx as nx

import flowgraph as fg


def solve(edges, source, sink):
    """Flow on each edge; ``source`` and ``sink`` are nodes as numbered in ``edges``."""
    ends = list(zip(edges["source"], edges["target"], strict=True))
    network = nx.DiGraph()
    for (tail, head), capacity in zip(ends, edges["capacity"], strict=True):
        network.add_edge(tail, head, capacity=capacity)
    _, flow = nx.maximum_flow(network, source, sink, flow_func=nx.algorithms.flow.boykov_kolmogorov)
    return [flow[tail][head] for tail, head in ends]


fg.solvers.register("boykov-kolmogorov", solve)


def main(path: str = "own_solver.png") -> None:
    from flowgraph.bench import compare, generate

    graphs = {f"4x{tokens}": generate(4, tokens) for tokens in (4, 8)}
    report = compare(graphs, solvers=["boykov-kolmogorov", "igraph", "push-relabel"], repeats=3)
    report.show()
    report.plot(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
