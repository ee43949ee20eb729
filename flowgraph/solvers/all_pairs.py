"""All pairs of one level at once: bounds and certificates first, exact flows for what they leave open.

A pair is settled when a feasible flow meets an upper bound, both within ``SLACK * max(1, bound)``; the bound is then
its value. Pairs that no certificate settles are solved exactly, so that an adversarial graph costs time and
nothing else. What is decided, and in which order, depends on the graph alone, never on the clock: the same
graph gives the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from flowgraph import solvers
from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers import bounds
from flowgraph.solvers.exact import PairByPair, inner_edges, solve_small
from flowgraph.solvers.hub import settle_by_hubs
from flowgraph.solvers.many import Progress, pair_values
from flowgraph.solvers.open_pairs import OpenPairs, advance

_SMALL_STACK = 3000
"""Inner edges below which no certificate is cheaper than one flow after another."""

_LEAST_HUB_LEVEL = 4
"""Below, a hub stands next to one of the ends and cannot spread."""


def prepare_auto(graph: LayeredGraph) -> AllPairs:
    """The automatic choice: certificates on a plain stack of equal levels, igraph pair by pair elsewhere."""
    even = len({level.size for level in graph.levels}) == 1
    return StackPairs(graph) if graph.is_stack and even else AllPairs(graph)


class AllPairs:
    """igraph pair by pair, for graphs that are no plain stack (encoder-decoder)."""

    def __init__(self, graph: LayeredGraph) -> None:
        self._graph = graph
        self._settled: Counter[str] = Counter()

    def values(
        self,
        level: int,
        rows: np.ndarray,
        sinks: Sequence[Node],
        *,
        time_limit: float | None = None,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """``(rows, sinks)``: maximum flows from positions ``rows`` of level index ``level``."""
        prepared = solvers.get("igraph").prepare(self._graph)
        self._settled["igraph, pair by pair"] += len(rows) * len(sinks)
        sources = [(level, int(r)) for r in rows]
        return pair_values(prepared, sources, sinks, time_limit=time_limit, progress=progress)

    def stats(self) -> dict[str, Any]:
        """``settled``: pairs settled by each step."""
        return {"settled": dict(self._settled)}


class StackPairs(AllPairs):
    """A plain stack of L blocks between levels of one size T.

    Memory: about ``(4 L + 20) T^2`` doubles, and igraph's graphs of at most ``L T^2`` edges.
    """

    def __init__(self, graph: LayeredGraph) -> None:
        super().__init__(graph)
        self._matrices = [b.capacity for b in graph.blocks]
        self._size = graph.levels[0].size
        self._columns = np.zeros(0, dtype=int)
        # _below[m - 1] (T, columns) bounds the flows of level m; level m is exact where _exact says so
        self._below: list[np.ndarray] = []
        self._exact: set[int] = set()

    def values(
        self,
        level: int,
        rows: np.ndarray,
        sinks: Sequence[Node],
        *,
        time_limit: float | None = None,
        progress: Progress | None = None,
    ) -> np.ndarray:
        columns = np.array([position for _, position in sinks], dtype=int)
        self._use_columns(columns)
        if level <= 2:
            result = self._closed_form(level, rows, columns)
            advance(progress, result.size)
        else:
            result = self._search(level, rows, columns, time_limit, progress)
        if np.array_equal(rows, np.arange(self._size)):
            self._remember(level, result)
        return result

    def _use_columns(self, columns: np.ndarray) -> None:
        if not np.array_equal(columns, self._columns) or not self._below:
            self._columns, self._exact = columns, set()
            self._below = [self._matrices[0][:, columns]]

    def _remember(self, level: int, flows: np.ndarray) -> None:
        """Exact flows of a whole level are the best bounds for the levels above."""
        if len(self._below) >= level:
            self._below[level - 1] = flows
            del self._below[level:]
            self._exact.add(level)

    def _closed_form(self, level: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """One level is the matrix itself; over two levels the paths share no edge: ``sum_k min(M_2, M_1)``."""
        self._bounds_below(level)
        self._settled["closed form"] += len(rows) * len(columns)
        if level == 1:
            return self._matrices[0][np.ix_(rows, columns)]
        return bounds.min_sum(self._matrices[1][rows], self._matrices[0][:, columns])

    def _bounds_below(self, level: int) -> None:
        entering = self._matrices[0][:, self._columns].sum(0)
        while len(self._below) < level:
            matrix = self._matrices[len(self._below)]
            self._below.append(bounds.next_to_inputs(matrix, self._below[-1], entering))

    def _search(
        self,
        level: int,
        rows: np.ndarray,
        columns: np.ndarray,
        time_limit: float | None,
        progress: Progress | None,
    ) -> np.ndarray:
        self._bounds_below(level)
        matrices = self._matrices[:level]
        pairs = OpenPairs(self._below[level - 1][rows], self._settled, progress)
        pairs.settle(pairs.upper <= 0, "no path")
        if inner_edges(matrices) < _SMALL_STACK:
            solve_small(matrices, rows, columns, pairs, time_limit)
            return pairs.upper
        if level - 1 in self._exact:
            pairs.settle_above(bounds.climb(matrices[-1][rows], self._below[level - 2]), "levels below")
        if pairs.any_open():
            from_above = bounds.from_targets(matrices, rows)
            pairs.tighten(from_above[0][:, columns])
            pairs.tighten(bounds.meet(from_above, self._below))
            pairs.settle(pairs.upper <= 0, "no path")
            self._settle_from_below(level, rows, pairs)
            if level >= _LEAST_HUB_LEVEL:
                settle_by_hubs(matrices, rows, columns, pairs)
            if pairs.any_open():
                PairByPair(matrices, rows, columns, from_above, self._below, pairs, time_limit).run()
        return pairs.upper

    def _settle_from_below(self, level: int, rows: np.ndarray, pairs: OpenPairs) -> None:
        """What the exact flows of lower levels say, against the tightened bounds."""
        if level - 1 in self._exact:
            lower = np.zeros(pairs.open.shape)
            # lower down flows from several nodes add up, and the largest of them says too little
            if level >= 5 and level - 2 in self._exact:
                below = self._below[level - 3]
                lower = bounds.climb_two(self._matrices[:level], rows, below, pairs.open)
            pairs.settle_above(lower, "levels below")
