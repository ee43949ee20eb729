"""igraph: push-relabel in C. The fastest packaged solver on single pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers.base import FlowResult, check_pair
from flowgraph.solvers.residual import Deadline, certified


class IgraphSolver:
    """Maximum flow by igraph's push-relabel.

    A time limit is looked at between pairs only: a call into C cannot be interrupted from Python, so a single
    pair runs to its end, and ``values`` stops after the pair during which time ran out. Of igraph's answer
    :meth:`~PreparedIgraph.solve` takes the flow alone; value and cut are read off the residual graph and
    certified.
    """

    name = "igraph"

    def prepare(self, graph: LayeredGraph) -> PreparedIgraph:
        return PreparedIgraph(graph)


class PreparedIgraph:
    """One graph as an ``igraph.Graph``, capacities in a list that every call shares."""

    def __init__(self, graph: LayeredGraph) -> None:
        import igraph

        graph.require_unsigned("igraph")
        self._graph = graph
        self._offsets = graph.offsets.tolist()
        edges = graph.edges()
        ends = np.column_stack([edges["source"], edges["target"]])
        self._native = igraph.Graph(n=graph.num_nodes, edges=ends, directed=True)
        # igraph counts every edge as 1 where no capacity is named: always pass it
        self._capacity: list[float] = edges["capacity"].tolist()

    def solve(self, source: Node, sink: Node, *, time_limit: float | None = None) -> FlowResult:
        """Certified maximum flow; ``time_limit`` is looked at after igraph's call."""
        source, sink = check_pair(self._graph, source, sink)
        deadline = Deadline(time_limit, f"igraph on {source} to {sink}")
        answer = self._native.maxflow(self._number(source), self._number(sink), self._capacity)
        deadline.check()
        flow = self._graph.by_block(np.asarray(answer.flow, dtype=np.float64))
        return certified(self._graph, source, sink, flow, "igraph", {"algorithm": "push-relabel"}, deadline)

    def values(
        self,
        sources: Sequence[Node],
        sinks: Sequence[Node],
        time_limit: float | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> np.ndarray:
        """(sources, sinks): igraph's value of every pair, the graph built once. ``time_limit`` in seconds is
        for all of them together and looked at between pairs."""
        pairs = [[check_pair(self._graph, source, sink) for sink in sinks] for source in sources]
        deadline = Deadline(time_limit, f"igraph on {len(sources)} x {len(sinks)} pairs")
        result = np.zeros((len(sources), len(sinks)))
        for row, line in enumerate(pairs):
            for column, (source, sink) in enumerate(line):
                result[row, column] = self._native.maxflow_value(
                    self._number(source), self._number(sink), self._capacity
                )
                deadline.check()
                if progress is not None:
                    progress(1)
        return result

    def _number(self, node: Node) -> int:
        return self._offsets[node[0]] + node[1]
