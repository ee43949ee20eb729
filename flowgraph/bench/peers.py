"""Packaged maximum-flow solvers that are not flowgraph's, with the interface of flowgraph's.

They are here to be compared with, not to be trusted: OR-Tools and SciPy know integers only, so capacities are scaled
and rounded (2^50 and 2^30 of the largest capacity's power of two); PyMaxflow consumes its graph, which is built anew
for each pair. The extra ``bench`` installs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from flowgraph.graph import LayeredGraph, Node


class Peer:
    """A packaged solver: ``prepare(graph)``, then ``values(sources, sinks)``."""

    def __init__(self, name: str, module: str, make: Callable[[_Edges], Callable[[int, int], float]]) -> None:
        self.name, self.module, self._make = name, module, make

    @property
    def installed(self) -> bool:
        return find_spec(self.module) is not None

    def prepare(self, graph: LayeredGraph) -> PreparedPeer:
        graph.require_unsigned(self.name)
        return PreparedPeer(graph, self._make(_Edges(graph)))


class PreparedPeer:
    """A graph in the peer's own form."""

    def __init__(self, graph: LayeredGraph, value: Callable[[int, int], float]) -> None:
        self._offsets, self._value = graph.offsets, value

    def values(
        self,
        sources: Sequence[Node],
        sinks: Sequence[Node],
        time_limit: float | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> np.ndarray:
        """(sources, sinks) values, one pair after another."""
        result = np.zeros((len(sources), len(sinks)))
        for row, (k, p) in enumerate(sources):
            for column, (m, q) in enumerate(sinks):
                result[row, column] = self._value(int(self._offsets[k] + p), int(self._offsets[m] + q))
                if progress is not None:
                    progress(1)
        return result


class _Edges:
    """Edge columns of a graph as each peer wants them."""

    def __init__(self, graph: LayeredGraph) -> None:
        table = graph.edges()
        self.tails, self.heads, self.capacity = table["source"], table["target"], table["capacity"]
        self.num_nodes = graph.num_nodes

    def scaled(self, bits: int) -> tuple[np.ndarray, float]:
        """Capacities as integers below ``2 ** bits``, and the factor they were multiplied by."""
        largest = float(self.capacity.max(initial=0.0))
        factor = 2.0 ** (bits - 1 - int(np.ceil(np.log2(largest)))) if largest > 0 else 1.0
        return np.rint(self.capacity * factor).astype(np.int64), factor


def _ortools(edges: _Edges) -> Callable[[int, int], float]:
    from ortools.graph.python.max_flow import SimpleMaxFlow

    capacity, factor = edges.scaled(51)
    native = SimpleMaxFlow()
    native.add_arcs_with_capacity(edges.tails.astype(np.int32), edges.heads.astype(np.int32), capacity)

    def value(source: int, sink: int) -> float:
        native.solve(source, sink)
        return native.optimal_flow() / factor

    return value


def _scipy(edges: _Edges) -> Callable[[int, int], float]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    capacity, factor = edges.scaled(31)
    shape = (edges.num_nodes, edges.num_nodes)
    matrix = csr_array((capacity.astype(np.int32), (edges.tails, edges.heads)), shape=shape)

    def value(source: int, sink: int) -> float:
        return maximum_flow(matrix, source, sink, method="dinic").flow_value / factor

    return value


def _pymaxflow(edges: _Edges) -> Callable[[int, int], float]:
    import maxflow

    nothing = np.zeros(len(edges.capacity))
    unlimited = 3.0 * float(edges.capacity.sum()) + 1.0

    def value(source: int, sink: int) -> float:
        graph = maxflow.Graph[float](edges.num_nodes, len(edges.capacity))
        graph.add_nodes(edges.num_nodes)
        graph.add_edges(edges.tails, edges.heads, edges.capacity, nothing)
        graph.add_tedge(source, unlimited, 0.0)
        graph.add_tedge(sink, 0.0, unlimited)
        return graph.maxflow()

    return value


def _edmonds_karp(edges: _Edges) -> Callable[[int, int], float]:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(edges.num_nodes))
    columns = (edges.tails.tolist(), edges.heads.tolist(), edges.capacity.tolist())
    graph.add_edges_from((u, v, {"capacity": c}) for u, v, c in zip(*columns, strict=True))

    def value(source: int, sink: int) -> float:
        return nx.maximum_flow_value(graph, source, sink, flow_func=nx.algorithms.flow.edmonds_karp)

    return value


PEERS = {
    peer.name: peer
    for peer in (
        Peer("or-tools", "ortools", _ortools),
        Peer("scipy", "scipy", _scipy),
        Peer("pymaxflow", "maxflow", _pymaxflow),
        Peer("networkx-edmonds-karp", "networkx", _edmonds_karp),
    )
}
"""By name; ``networkx-edmonds-karp`` is what the code of Abnar & Zuidema (2020) calls."""
