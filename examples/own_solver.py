"""A solver of your own beside the others: the class below is all it takes.

Run this file for a picture, or let the command line run it, on any graphs::

    python examples/own_solver.py own.png
    flowgraph bench --load examples/own_solver.py --sizes 6x16 --solver boykov-kolmogorov,igraph
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import networkx as nx
import numpy as np
from networkx.algorithms.flow import boykov_kolmogorov

import flowgraph as fg


class BoykovKolmogorov:
    def prepare(self, graph):
        network = graph.to_networkx()  # nodes (level, position), edges with their capacity

        def solve(source, sink, *, time_limit=None):
            value, flow = nx.maximum_flow(network, source, sink, flow_func=boykov_kolmogorov)
            cut_value, (above, _) = nx.minimum_cut(network, source, sink, flow_func=boykov_kolmogorov)
            edge_flow = tuple(np.zeros(block.capacity.shape) for block in graph.blocks)
            for block, array in zip(graph.blocks, edge_flow, strict=True):
                for i, j in zip(*np.nonzero(block.capacity), strict=True):
                    array[i, j] = flow[block.upper, i][block.lower, j]
            cut = tuple(
                np.array([(k, p) in above for p in range(v.size)]) for k, v in enumerate(graph.levels)
            )
            return fg.FlowResult(value, edge_flow, cut, cut_value, "boykov-kolmogorov", source, sink)

        return SimpleNamespace(solve=solve)


fg.solvers.register("boykov-kolmogorov", BoykovKolmogorov())


def main(path: str = "own_solver.png") -> None:
    from flowgraph.bench import compare, generate

    graphs = {f"4x{tokens}": generate(4, tokens) for tokens in (4, 8)}
    report = compare(graphs, solvers=["boykov-kolmogorov", "igraph", "push-relabel"], repeats=3)
    report.show()
    report.plot(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
