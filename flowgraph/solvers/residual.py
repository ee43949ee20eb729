"""From what a solver returned to a certified result: flow repaired, cut read off the residual graph.

A library's flow carries rounding residues (an edge over its capacity by 1e-16, a node that leaks as much),
and its cut may be wrong outright. Only the flow is taken from it. Everything else is derived here, and a flow
that is not maximum is augmented until it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowgraph.errors import CertificateError, TimeLimitError
from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers.base import FlowResult, check_flow, cut_value

GOAL = 1e-12
"""Gap between cut and flow, relative to the flow, at which augmenting stops."""

Masks = tuple[np.ndarray, ...]


class Deadline:
    """The time a caller gave, counted from now; ``None`` is for ever."""

    def __init__(self, time_limit: float | None, what: str) -> None:
        self.time_limit = time_limit
        self._what = what
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    def check(self) -> None:
        if self.time_limit is not None and self.seconds > self.time_limit:
            raise TimeLimitError(
                f"time_limit: {self._what} used more than the {self.time_limit:g} s it was given; "
                "raise the limit or take a faster solver"
            )


def certified(
    graph: LayeredGraph,
    source: Node,
    sink: Node,
    edge_flow: Sequence[np.ndarray],
    solver: str,
    stats: dict[str, Any],
    deadline: Deadline,
) -> FlowResult:
    """A certified maximum flow near ``edge_flow`` (one array a block), which may leak or fall short a little.

    Raises :class:`~flowgraph.errors.CertificateError` where no certificate can be had.
    """
    flow = repaired(graph, source, sink, edge_flow)
    augmentations = 0
    while True:
        value = _value(graph, source, flow)
        paths = _widest_paths(graph, source, flow)
        cut = _best_cut(graph, source, sink, flow, paths)
        gap = cut_value(graph, cut) - value
        amount = paths.width[sink[0]][sink[1]]
        # below one rounding of the value an augmentation changes nothing any more
        if gap <= GOAL * value or amount <= np.finfo(np.float64).eps * value:
            break
        deadline.check()
        _augment(graph, flow, paths, source, sink, amount)
        augmentations += 1
    if augmentations:
        stats = stats | {"augmentations": augmentations}
        flow = repaired(graph, source, sink, flow)
    value = _value(graph, source, flow)
    result = FlowResult(value, tuple(flow), cut, cut_value(graph, cut), solver, source, sink, stats)
    try:
        check_flow(graph, result)
    except CertificateError as error:
        raise CertificateError(
            f"{solver}: the flow from {source} to {sink} could not be certified: {error}"
        ) from None
    return result


def as_given(
    graph: LayeredGraph, source: Node, sink: Node, edge_flow: Sequence[np.ndarray], solver: str
) -> FlowResult:
    """``edge_flow`` (one array a block) and the cut its residual graph shows, nothing mended and nothing checked."""
    paths = _widest_paths(graph, source, edge_flow)
    cut = _best_cut(graph, source, sink, edge_flow, paths)
    value = _value(graph, source, edge_flow)
    return FlowResult(value, tuple(edge_flow), cut, cut_value(graph, cut), solver, source, sink)


def repaired(
    graph: LayeredGraph, source: Node, sink: Node, edge_flow: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """A flow within capacity and conserved at every node but the two ends, never more than ``edge_flow``.

    Downwards, a node that sends more than it gets sends less; then upwards, a node that gets more than it
    sends is sent less. Each pass settles a level for good: the edges it scales lead to levels still to come.
    """
    flow = [np.clip(f, 0.0, b.capacity) for b, f in zip(graph.blocks, edge_flow, strict=True)]
    _close(graph, source, sink, flow)
    for level in range(source[0] - 1, sink[0], -1):
        received, sent = _received(graph, flow, level), _sent(graph, flow, level)
        _scale(graph, flow, level, _ratio(received, sent), "upper")
    for level in range(sink[0] + 1, source[0]):
        received, sent = _received(graph, flow, level), _sent(graph, flow, level)
        _scale(graph, flow, level, _ratio(sent, received), "lower")
    return flow


def _close(graph: LayeredGraph, source: Node, sink: Node, flow: list[np.ndarray]) -> None:
    """Zero what no flow between the two can use: edges that leave from beside or above the source, or arrive
    beside or below the sink."""
    for block, f in zip(graph.blocks, flow, strict=True):
        if block.upper > source[0] or block.lower < sink[0]:
            f[:] = 0.0
        if block.upper == source[0]:
            f[np.arange(len(f)) != source[1]] = 0.0
        if block.lower == sink[0]:
            f[:, np.arange(f.shape[1]) != sink[1]] = 0.0


def _received(graph: LayeredGraph, flow: Sequence[np.ndarray], level: int) -> np.ndarray:
    parts = [f.sum(0) for b, f in zip(graph.blocks, flow, strict=True) if b.lower == level]
    return np.sum(parts, axis=0) if parts else np.zeros(graph.levels[level].size)


def _sent(graph: LayeredGraph, flow: Sequence[np.ndarray], level: int) -> np.ndarray:
    parts = [f.sum(1) for b, f in zip(graph.blocks, flow, strict=True) if b.upper == level]
    return np.sum(parts, axis=0) if parts else np.zeros(graph.levels[level].size)


def _ratio(wanted: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """``min(1, wanted / actual)``, 1 where ``actual`` is 0."""
    return np.divide(wanted, actual, out=np.ones_like(actual), where=actual > wanted)


def _scale(graph: LayeredGraph, flow: list[np.ndarray], level: int, ratio: np.ndarray, end: str) -> None:
    for block, f in zip(graph.blocks, flow, strict=True):
        if getattr(block, end) == level:
            f *= ratio[:, None] if end == "upper" else ratio


def _value(graph: LayeredGraph, source: Node, flow: Sequence[np.ndarray]) -> float:
    return float(_sent(graph, flow, source[0])[source[1]])


@dataclass
class _Paths:
    """Widest paths from one node in the residual graph. ``width[k][p]``: the most that one path can bring to
    node (k, p), 0 where none leads. ``via[k][p]``: the block of its last arc, ``-1 - block`` where that arc
    runs up (taking flow back), and ``origin[k][p]`` the position that arc starts from."""

    width: list[np.ndarray]
    via: list[np.ndarray]
    origin: list[np.ndarray]


def _widest_paths(
    graph: LayeredGraph, source: Node, flow: Sequence[np.ndarray], backward: bool = False
) -> _Paths:
    """From ``source`` to every node; with ``backward`` from every node to ``source`` (arcs turned round).

    Bellman-Ford by levels: a sweep relaxes all arcs of a block at once; ends when a sweep changes nothing.
    """
    paths = _Paths(
        [np.zeros(level.size) for level in graph.levels],
        [np.zeros(level.size, np.int64) for level in graph.levels],
        [np.zeros(level.size, np.int64) for level in graph.levels],
    )
    paths.width[source[0]][source[1]] = np.inf
    spare = [b.capacity - f for b, f in zip(graph.blocks, flow, strict=True)]
    down, up = (flow, spare) if backward else (spare, flow)
    order = sorted(range(len(graph.blocks)), key=lambda k: -graph.blocks[k].upper)
    changed = True
    while changed:
        changed = False
        for k in order:
            b = graph.blocks[k]
            changed |= _relax(paths, b.upper, b.lower, down[k], k)
        for k in reversed(order):
            b = graph.blocks[k]
            changed |= _relax(paths, b.lower, b.upper, up[k].T, -1 - k)
    return paths


def _relax(paths: _Paths, start: int, end: int, room: np.ndarray, via: int) -> bool:
    """Widen paths to level ``end`` by arcs from level ``start`` with ``room`` (start size, end size)."""
    if not paths.width[start].any():
        return False
    through = np.minimum(paths.width[start][:, None], room)
    best = through.argmax(0)
    width = through[best, np.arange(room.shape[1])]
    wider = width > paths.width[end]
    paths.width[end][wider] = width[wider]
    paths.via[end][wider] = via
    paths.origin[end][wider] = best[wider]
    return bool(wider.any())


def _best_cut(
    graph: LayeredGraph, source: Node, sink: Node, flow: Sequence[np.ndarray], paths: _Paths
) -> Masks:
    """The lesser of two cuts: what the source reaches by paths wider than the widest to the sink, and the
    complement of what reaches the sink so.

    No threshold to choose: with w the width of the widest path from source to sink, both part source from
    sink, and no arc across has more than w of room. So with w at rounding size the cut is the flow's value to
    rounding, whatever residues other arcs hold.
    """
    width = paths.width[sink[0]][sink[1]]
    back = _widest_paths(graph, sink, flow, backward=True)
    near_source = tuple(w > width for w in paths.width)
    near_sink = tuple(w <= width for w in back.width)
    return min((near_source, near_sink), key=lambda cut: cut_value(graph, cut))


def _augment(
    graph: LayeredGraph, flow: list[np.ndarray], paths: _Paths, source: Node, sink: Node, amount: float
) -> None:
    """Send ``amount`` along the widest path, in place."""
    # a width is set from its predecessor's and only when it grows, so following predecessors closes no cycle
    level, position = sink
    while (level, position) != source:
        via, origin = int(paths.via[level][position]), int(paths.origin[level][position])
        if via >= 0:
            flow[via][origin, position] += amount
            level, position = graph.blocks[via].upper, origin
        else:
            flow[-1 - via][position, origin] -= amount
            level, position = graph.blocks[-1 - via].lower, origin
