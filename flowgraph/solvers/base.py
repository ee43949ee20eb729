"""What a solver is, what it answers, and how an answer is certified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from flowgraph.errors import CertificateError, FlowgraphError, wrong_object
from flowgraph.graph import LayeredGraph, Node, check_graph

TOLERANCE = 1e-9
"""Values agree within ``TOLERANCE * max(1, value)``."""


@dataclass(frozen=True, eq=False)
class FlowResult:
    """A maximum flow of one pair, with the cut that proves it.

    ``edge_flow``: one array a block of the graph, shaped as its capacities. ``cut``: one boolean mask a level,
    True on the source side. ``cut_value``: capacity from the source side to the sink side.
    ``stats``: what the solver cares to tell (seconds, phases, why it was chosen).
    """

    value: float
    edge_flow: tuple[np.ndarray, ...] = field(repr=False)
    cut: tuple[np.ndarray, ...] = field(repr=False)
    cut_value: float
    solver: str
    source: Node
    sink: Node
    stats: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class PreparedSolver(Protocol):
    """A solver with one graph converted; answers many pairs."""

    def solve(self, source: Node, sink: Node, *, time_limit: float | None = None) -> FlowResult:
        """Maximum flow from ``source`` to ``sink`` (source above sink; both valid nodes of the graph).

        ``time_limit``: seconds; past it :class:`~flowgraph.errors.TimeLimitError`.
        """
        ...


class Solver(Protocol):
    """Converts a graph once. A prepared solver may also have ``values(sources, sinks, time_limit=None,
    progress=None) -> (len(sources), len(sinks))`` where it has a faster way to many values than one flow after
    another; ``progress(k)`` is called with the number of pairs just finished."""

    name: str

    def prepare(self, graph: LayeredGraph) -> PreparedSolver: ...


def check_pair(graph: LayeredGraph, source: Any, sink: Any) -> tuple[Node, Node]:
    """Both as nodes, the source above the sink; else an error that says which and why."""
    upper, lower = graph.check_node(source, "source"), graph.check_node(sink, "sink")
    if upper == lower:
        raise FlowgraphError(f"source, sink: both are {upper}; a flow needs two nodes")
    if upper[0] <= lower[0]:
        raise FlowgraphError(
            f"source, sink: source {upper} does not lie above sink {lower}; edges run from later levels to "
            "earlier ones, so pass the explained node as source and the input as sink"
        )
    return upper, lower


def cut_value(graph: LayeredGraph, cut: Sequence[np.ndarray]) -> float:
    """Capacity of the edges from the True side of ``cut`` (one mask a level) to the False side."""
    return float(
        sum(
            b.capacity[np.ix_(np.asarray(cut[b.upper], bool), ~np.asarray(cut[b.lower], bool))].sum()
            for b in graph.blocks
        )
    )


def check_flow(graph: LayeredGraph, result: FlowResult, *, tolerance: float = TOLERANCE) -> None:
    """Certify ``result``: a flow within capacity and conserved, whose value is that of a cut, is maximum.

    Weak duality: no flow exceeds any cut's capacity, so a flow and a cut of one value prove each other. The
    check reads only the graph's capacities and the result's arrays, never the solver. Raises
    :class:`~flowgraph.errors.CertificateError` with the first thing found wrong; ``tolerance`` is relative to
    ``max(1, value)``.
    """
    check_graph(graph, "pass the graph the flow was computed on")
    if not isinstance(result, FlowResult):
        raise wrong_object("result", result, "FlowResult", "pass what fg.max_flow returned")
    source, sink = check_pair(graph, result.source, result.sink)
    slack = tolerance * max(1.0, abs(result.value))
    if not np.isfinite(result.value) or result.value < -slack:
        raise CertificateError(f"value: {result.value} is not a flow value")
    _check_shapes(graph, result)
    _check_bounds(graph, result, slack)
    _check_conservation(graph, result, source, sink, slack)
    _check_cut(graph, result, source, sink, slack)


def _check_shapes(graph: LayeredGraph, result: FlowResult) -> None:
    shapes = [b.capacity.shape for b in graph.blocks]
    if [np.shape(f) for f in result.edge_flow] != shapes:
        raise CertificateError(
            f"edge_flow: shapes {[np.shape(f) for f in result.edge_flow]}, the graph's blocks have {shapes}"
        )
    sizes = [(level.size,) for level in graph.levels]
    if [np.shape(m) for m in result.cut] != sizes:
        raise CertificateError(
            f"cut: shapes {[np.shape(m) for m in result.cut]}, the graph's levels have {sizes}"
        )


def _check_bounds(graph: LayeredGraph, result: FlowResult, slack: float) -> None:
    for number, (block, flow) in enumerate(zip(graph.blocks, result.edge_flow, strict=True)):
        if not np.isfinite(flow).all():
            raise CertificateError(f"edge_flow: block {number} has entries that are not finite")
        excess = np.maximum(flow - block.capacity, -np.asarray(flow))
        worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
        if excess[worst] > slack:
            i, j = (int(k) for k in worst)
            raise CertificateError(
                f"edge_flow: {flow[worst]:.12g} on the edge ({block.upper}, {i}) -> ({block.lower}, {j}), "
                f"whose capacity is {block.capacity[worst]:.12g}"
            )


def _check_conservation(
    graph: LayeredGraph, result: FlowResult, source: Node, sink: Node, slack: float
) -> None:
    net = [np.zeros(level.size) for level in graph.levels]
    for block, flow in zip(graph.blocks, result.edge_flow, strict=True):
        net[block.upper] += flow.sum(1)
        net[block.lower] -= flow.sum(0)
    net[source[0]][source[1]] -= result.value
    net[sink[0]][sink[1]] += result.value
    for k, level in enumerate(net):
        worst = int(np.argmax(np.abs(level)))
        if abs(level[worst]) > slack:
            raise CertificateError(
                f"edge_flow: not conserved at node ({k}, {worst}): net flow differs by {level[worst]:.12g} "
                f"from what a flow of value {result.value:.12g} from {source} to {sink} has there"
            )


def _check_cut(graph: LayeredGraph, result: FlowResult, source: Node, sink: Node, slack: float) -> None:
    if not result.cut[source[0]][source[1]] or result.cut[sink[0]][sink[1]]:
        raise CertificateError(f"cut: does not part source {source} from sink {sink}")
    actual = cut_value(graph, result.cut)
    if abs(actual - result.cut_value) > slack:
        raise CertificateError(
            f"cut_value: {result.cut_value:.12g} claimed, the cut's edges hold {actual:.12g}"
        )
    if abs(actual - result.value) > slack:
        raise CertificateError(
            f"value: a flow of {result.value:.12g} and a cut of {actual:.12g}; one is not optimal"
        )
