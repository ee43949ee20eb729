"""Push-relabel in NumPy, by array operations over whole levels and many pairs at once.

Limits first: a single pair costs as much Python as a batch does, so on one pair a compiled solver is faster.
Made for many pairs of one graph.

The method is that of Goldberg & Tarjan (1988, 10.1145/48014.61051) with these choices:

* heights are exact distances, found anew before each wave of pushes by a backward breadth-first search (global
  relabelling: Cherkassky & Goldberg 1997, 10.1007/PL00009180); nodes beyond a gap in the heights drop out;
* a wave discharges all active nodes of all pairs, the greatest height first, so that excess runs down through
  all heights; a node splits what it sends in proportion to the room of its admissible arcs;
* most waves look ahead (:meth:`flowgraph.solvers.preflow.Preflow.wave`): a few cheap rounds find out what each
  node can send on, so that little is sent where it cannot go on. Every fourth wave discharges plainly, which
  bounds their number: after it a node with excess has no admissible arc left, so its height grows;
* a preflow is enough for the value: a pair is done when no excess has a way to the end. What is left over goes
  back in one pass over the levels (:func:`flowgraph.solvers.residual.repaired`) where a flow is asked for.

Every value is certified: the preflow is checked against the capacities, and its value against the capacity of
the cut around the nodes that have no way to the end. What fails (by rounding, where capacities of 1e6 stand
beside 1e-12) is finished by augmenting widest paths, or raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers.base import TOLERANCE, FlowResult, check_pair
from flowgraph.solvers.network import Arcs, Network
from flowgraph.solvers.preflow import Preflow
from flowgraph.solvers.residual import Deadline, certified

BATCH_BYTES = 24 * 2**20
"""Bound on the arrays of one batch of pairs: a share of the processor's cache."""

PLAN_BYTES = 12 * 2**20
"""Bound on the arrays of the pairs whose first wave is planned together."""

FIRST_ROUNDS = 30
"""Rounds of looking ahead in the first wave, where they are cheap: all pairs still share the residual graph."""

ROUNDS = 3
PLAIN_EVERY = 4
MAX_WAVES = 400
"""Pairs not done by then are finished one by one."""

KEEP = 0.7
"""Share of pairs of a batch still at work at which the others are dropped from its arrays."""

DONE = 1e-13
"""Excess that may be left, relative to the value, in a pair that is done; certified afterwards."""


class PushRelabelSolver:
    """Push-relabel of our own: NumPy alone, many pairs at once, every value certified.

    Memory: about ``PLAN_BYTES`` and twice ``BATCH_BYTES``, or the arrays of one pair where those are larger.
    """

    name = "push-relabel"

    def prepare(self, graph: LayeredGraph) -> PreparedPushRelabel:
        return PreparedPushRelabel(graph)


class PreparedPushRelabel:
    """One graph; the part of it between two levels is converted when first asked for."""

    def __init__(self, graph: LayeredGraph) -> None:
        graph.require_unsigned("push-relabel")
        self._graph = graph
        self._section = lru_cache(maxsize=64)(lambda upper, lower: _Section(graph, upper, lower))

    def solve(self, source: Node, sink: Node, *, time_limit: float | None = None) -> FlowResult:
        """Certified maximum flow; ``time_limit`` in seconds is looked at between waves."""
        source, sink = check_pair(self._graph, source, sink)
        return self._finish(source, sink, Deadline(time_limit, f"push-relabel on {source} to {sink}"))

    def values(
        self,
        sources: Sequence[Node],
        sinks: Sequence[Node],
        time_limit: float | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> np.ndarray:
        """(sources, sinks): the certified value of every pair. ``time_limit`` in seconds is for all of them
        together and looked at between waves."""
        pairs = [check_pair(self._graph, source, sink) for sink in sinks for source in sources]
        deadline = Deadline(time_limit, f"push-relabel on {len(sources)} x {len(sinks)} pairs")
        result = np.zeros(len(pairs))
        for members, state in self._batches(pairs):
            for done, now, rows, _ in _waves(state, deadline):
                values, sure = _certified_values(now, rows)
                result[members[done]] = values
                for k in members[done][~sure]:
                    source, sink = pairs[k]
                    result[k] = self._finish(source, sink, deadline).value
                if progress is not None:
                    progress(len(done))
        return result.reshape(len(sinks), len(sources)).T

    def _batches(self, pairs: Sequence[tuple[Node, Node]]) -> Iterator[tuple[np.ndarray, Preflow]]:
        """Numbers of pairs and their state with a first wave planned, pairs of one batch about equally hard."""
        groups: dict[tuple[int, int], list[int]] = {}
        for k, (source, sink) in enumerate(pairs):
            groups.setdefault((source[0], sink[0]), []).append(k)
        for levels, numbers in groups.items():
            network = self._section(*levels).network
            many = max(1, PLAN_BYTES // network.node_bytes)
            few = max(1, BATCH_BYTES // max(1, network.arc_bytes + network.node_bytes))
            for first in range(0, len(numbers), many):
                members = np.array(numbers[first : first + many])
                positions = np.array([(pairs[k][0][1], pairs[k][1][1]) for k in members])
                state = _planned(network, positions[:, 0], positions[:, 1])
                order = np.argsort(state.shortfall(), kind="stable")
                for start in range(0, len(order), few):
                    batch = order[start : start + few]
                    yield members[batch], state.take(batch)

    def _finish(self, source: Node, sink: Node, deadline: Deadline) -> FlowResult:
        """One pair to the end: preflow, flow, cut, and augmenting paths for what rounding left."""
        section = self._section(source[0], sink[0])
        start, end = np.array([source[1]]), np.array([sink[1]])
        state = _planned(section.network, start, end)
        ((_, state, _, waves),) = _waves(state, deadline)
        flow = section.block_flow(state, source[1], sink[1])
        return certified(self._graph, source, sink, flow, "push-relabel", {"waves": waves}, deadline)


def _planned(network: Network, starts: np.ndarray, ends: np.ndarray) -> Preflow:
    """New pairs with their first wave planned but not committed: until then they take node arrays alone."""
    state = Preflow(network, starts, ends)
    state.relabel()
    state.plan(FIRST_ROUNDS)
    return state


def _waves(state: Preflow, deadline: Deadline) -> Iterator[tuple[np.ndarray, Preflow, np.ndarray, int]]:
    """Commit the planned wave, then relabel and push until no pair is left. Yields pairs that are done: their
    numbers in the batch, a state and their numbers in that, the waves it took. Pairs not done after ``MAX_WAVES``
    come last, as they are."""
    numbers = np.arange(state.count)
    active = np.ones(state.count, bool)
    for wave in range(1, MAX_WAVES):
        deadline.check()
        state.commit()
        state.relabel()
        done = np.flatnonzero(active & (state.left() <= DONE * state.value))
        if done.size:
            yield numbers[done], state, done, wave
            active[done] = False
            if not active.any():
                return
            state.retire(done)
        if active.mean() <= KEEP:
            state, numbers = state.take(np.flatnonzero(active)), numbers[active]
            active = active[active]
        state.plan(0 if wave % PLAIN_EVERY == 0 else ROUNDS)
    yield numbers[active], state, np.flatnonzero(active), MAX_WAVES


def _certified_values(state: Preflow, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of some pairs, and whether a preflow and a cut prove each within half the tolerance."""
    value, cut, fault = state.certificate(pairs)
    slack = 0.5 * TOLERANCE * np.maximum(1.0, value)
    return value, (cut - value <= slack) & (fault <= slack)


class _Section:
    """The part of a graph that a flow between two of its levels can use, as a :class:`Network`.

    Levels are numbered in the order of the flow, the upper one first. Those that no block leads to from the
    upper one, or from which none leads to the lower one, are left out: nothing that enters them arrives.
    """

    def __init__(self, graph: LayeredGraph, upper: int, lower: int) -> None:
        self._graph = graph
        levels = _levels_between(graph, upper, lower)
        number = {level: k for k, level in enumerate(levels)}
        blocks: dict[tuple[int, int], list[int]] = {}
        for k, block in enumerate(graph.blocks):
            if block.upper in number and block.lower in number:
                blocks.setdefault((number[block.upper], number[block.lower]), []).append(k)
        self._blocks = list(blocks.values())
        arcs = [
            Arcs(tail, head, np.sum([graph.blocks[k].capacity for k in members], axis=0))
            for (tail, head), members in blocks.items()
        ]
        self.network = Network([graph.levels[level].size for level in levels], arcs)

    def block_flow(self, state: Preflow, start: int, end: int) -> list[np.ndarray]:
        """The preflow of a batch of one pair as one array a block; parallel blocks are filled in turn."""
        result = [np.zeros(block.capacity.shape) for block in self._graph.blocks]
        last = self.network.end
        for arc, members, flow in zip(self.network.arcs, self._blocks, state.flow, strict=True):
            if flow is None:
                continue
            left = np.zeros(arc.capacity.shape)
            rows = slice(start, start + 1) if arc.tail == 0 else slice(None)
            columns = slice(end, end + 1) if arc.head == last else slice(None)
            left[rows, columns] = flow[0]
            for k in members:
                result[k] = np.minimum(left, self._graph.blocks[k].capacity)
                left -= result[k]
        return result


def _levels_between(graph: LayeredGraph, upper: int, lower: int) -> list[int]:
    """Both levels and those on the way from one to the other along blocks, from the upper one down."""
    ends = {(b.upper, b.lower) for b in graph.blocks if b.capacity.any()}
    reached, reaching = {upper}, {lower}
    for u, v in sorted(ends, reverse=True):
        if u in reached:
            reached.add(v)
    for u, v in sorted(ends, key=lambda pair: pair[1]):
        if v in reaching:
            reaching.add(u)
    between = {k for k in reached & reaching if lower < k < upper}
    return [upper, *sorted(between, reverse=True), lower]
