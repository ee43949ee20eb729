"""A solver from one function over the edge table: the shortest way to bring a solver of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers.base import FlowResult, check_pair
from flowgraph.solvers.residual import Deadline, as_given

EdgeFunction = Callable[[Mapping[str, np.ndarray], int, int], Any]
"""``(edges, source, sink) -> flow on each edge``: the columns of :meth:`~flowgraph.graph.LayeredGraph.edges`, two
node numbers, and one number an edge in their order."""


class FunctionSolver:
    """Answers with what a function says, unmended, so that a certificate speaks of the function.

    The cut is read off the residual graph of its flow. A time limit is looked at after each call.
    """

    def __init__(self, name: str, function: EdgeFunction) -> None:
        self.name, self.function = name, function

    def prepare(self, graph: LayeredGraph) -> PreparedFunction:
        graph.require_unsigned(self.name)
        return PreparedFunction(self, graph)


class PreparedFunction:
    """The edge table of one graph."""

    def __init__(self, solver: FunctionSolver, graph: LayeredGraph) -> None:
        self._solver, self._graph = solver, graph
        self._edges = graph.edges()
        for column in self._edges.values():
            column.flags.writeable = False  # every call reads the same

    def solve(self, source: Node, sink: Node, *, time_limit: float | None = None) -> FlowResult:
        """The function's flow; whether it is a maximum is for :func:`flowgraph.check_flow` to say."""
        graph, name = self._graph, self._solver.name
        source, sink = check_pair(graph, source, sink)
        deadline = Deadline(time_limit, f"{name} on {source} to {sink}")
        numbers = [int(graph.offsets[level]) + position for level, position in (source, sink)]
        found = np.asarray(self._solver.function(self._edges, *numbers))
        deadline.check()
        if found.shape != (graph.num_edges,) or found.dtype.kind not in "fiu":
            raise FlowgraphError(
                f"solver: {name} returned {found.dtype} values of shape {found.shape}; return the flow on each of "
                f"the {graph.num_edges} edges, in their order"
            )
        return as_given(graph, source, sink, graph.by_block(found), name)
