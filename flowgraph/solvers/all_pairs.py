"""All pairs of one level at once: bounds and certificates first, exact flows for what they leave open.

A pair is settled when a feasible flow meets an upper bound, both within ``SLACK * max(1, bound)``; the bound is then
its value. Pairs that no certificate settles are solved exactly, so that an adversarial graph costs time and
nothing else. What is decided, and in which order, depends on the graph alone, never on the clock: the same
graph gives the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flowgraph import solvers
from flowgraph.errors import CertificateError
from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers import bounds
from flowgraph.solvers.hub import find_hub
from flowgraph.solvers.many import Progress, pair_values
from flowgraph.solvers.residual import Deadline
from flowgraph.solvers.sparse import RUNGS, SinkGraph, Skeleton, WholeGraph, pair_value

SLACK = 1e-10
"""A flow this near to an upper bound (relative to ``max(1, bound)``) settles the pair; ten times below the promise."""

_SMALL_PAIR = 1500
"""Edges below which a graph made for one pair is cheaper than a sparse subgraph."""

_SMALL_WHOLE = 12_000
"""Edges below which the whole graph, made once, is cheaper than a graph made for one pair."""

_SMALL_STACK = 3000
"""Inner edges below which no certificate is cheaper than one flow after another."""

_TRIED_ENOUGH = 64
"""Pairs after which a rung's success decides whether it is used again."""


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
            _advance(progress, result.size)
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
        pairs = _OpenPairs(self._below[level - 1][rows], self._settled, progress)
        pairs.settle(pairs.upper <= 0, "no path")
        if _inner_edges(matrices) < _SMALL_STACK:
            _solve_small(matrices, rows, columns, pairs, time_limit)
            return pairs.upper
        if level - 1 in self._exact:
            pairs.settle_above(bounds.climb(matrices[-1][rows], self._below[level - 2]), "levels below")
        if pairs.any_open():
            from_above = bounds.from_targets(matrices, rows)
            pairs.tighten(from_above[0][:, columns])
            pairs.tighten(bounds.meet(from_above, self._below))
            pairs.settle(pairs.upper <= 0, "no path")
            if _hub_is_worth_it(level, pairs):
                hub = find_hub(matrices, rows, columns, pairs.upper, pairs.slack)
                if hub is not None:
                    pairs.settle_above(hub.lower_bounds(), "hub")
            if pairs.any_open():
                _Exact(matrices, rows, columns, from_above, self._below, pairs, time_limit).run()
        return pairs.upper


class _OpenPairs:
    """Upper bounds of all pairs of a level; a settled pair's bound is its value."""

    def __init__(self, upper: np.ndarray, counter: Counter[str], progress: Progress | None) -> None:
        self.upper = upper.copy()
        self.open = np.ones(upper.shape, dtype=bool)
        self._counter, self._progress = counter, progress

    @property
    def slack(self) -> np.ndarray:
        return SLACK * np.maximum(1.0, self.upper)

    def any_open(self) -> bool:
        return bool(self.open.any())

    def tighten(self, upper: np.ndarray) -> None:
        np.minimum(self.upper, upper, out=self.upper, where=self.open)

    def settle(self, which: np.ndarray, step: str) -> None:
        newly = which & self.open
        self.open &= ~newly
        self._count(step, int(newly.sum()))

    def settle_above(self, lower: np.ndarray, step: str) -> None:
        """Settle the pairs whose lower bound meets the upper one."""
        self.settle(lower >= self.upper - self.slack, step)

    def meets(self, row: int, column: int, flow: float, step: str) -> bool:
        """Settle one pair if a feasible ``flow`` meets its bound."""
        bound = self.upper[row, column]
        if flow < bound - SLACK * max(1.0, bound):
            return False
        self.fix(row, column, bound, step, flow)
        return True

    def fix(self, row: int, column: int, value: float, step: str, flow: float | None = None) -> None:
        bound, flow = self.upper[row, column], value if flow is None else flow
        if flow > bound + SLACK * max(1.0, bound):
            raise CertificateError(
                f"solver: igraph found a flow of {flow:.12g} where no flow can exceed {bound:.12g} "
                f"(row {row}, column {column}); please report the graph"
            )
        self.upper[row, column] = min(value, bound)
        self.open[row, column] = False
        self._count(step, 1)

    def _count(self, step: str, pairs: int) -> None:
        if pairs:
            self._counter[step] += pairs
            _advance(self._progress, pairs)


class _Exact:
    """Pair by pair, one sink after another: sparse subgraphs first, then every edge that can matter."""

    def __init__(
        self,
        matrices: Sequence[np.ndarray],
        rows: np.ndarray,
        columns: np.ndarray,
        from_above: Sequence[np.ndarray],
        from_below: Sequence[np.ndarray],
        pairs: _OpenPairs,
        time_limit: float | None,
    ) -> None:
        self._matrices, self._rows, self._columns = matrices, rows, columns
        self._above, self._below, self._pairs = from_above, from_below, pairs
        self._time_limit = time_limit
        self._inner = range(1, len(matrices))
        # counts in float32: up to T^2 edges a block, exact to 2^24, and only compared
        self._seen = [(from_above[b] > 0).astype(np.float32) for b in self._inner]
        self._partial = any(not seen.all() for seen in self._seen)
        whole = _inner_edges(matrices)
        self._ladder = _ladder(matrices, whole)
        self._whole: WholeGraph | None = None
        self._whole_edges = whole

    def run(self) -> None:
        for column in np.flatnonzero(self._pairs.open.any(0)):
            for group in self._groups(np.flatnonzero(self._pairs.open[:, column])):
                self._solve_sink(int(column), group)

    def _groups(self, rows: np.ndarray) -> list[np.ndarray]:
        """Targets that share a subgraph: all of them, or neighbours where each sees only a part of the nodes."""
        return np.array_split(rows, max(1, len(rows) // 24)) if self._partial else [rows]

    def _solve_sink(self, column: int, rows: np.ndarray) -> None:
        reaching = [self._below[b - 1][:, column] > 0 for b in self._inner]
        edges = self._edges_between(rows, reaching)
        small = (edges < _SMALL_PAIR) & (self._whole_edges > _SMALL_WHOLE)
        for row in rows[small]:
            self._solve_alone(int(row), column, reaching)
        rest = rows[~small]
        for step in self._ladder:
            if len(rest) and step.pays():
                rest = self._try_rung(step, column, rest, reaching)
        for row in rest:
            self._solve_whole(
                int(row), column, reaching, int(self._edges_between(np.array([row]), reaching)[0])
            )

    def _edges_between(self, rows: np.ndarray, reaching: list[np.ndarray]) -> np.ndarray:
        """(rows,): at most how many inner edges lie between nodes that a target reaches and that reach the sink."""
        counts = [seen[rows] @ on.astype(np.float32) for seen, on in zip(self._seen, reaching, strict=True)]
        return sum((a * b for a, b in zip(counts[1:], counts[:-1], strict=True)), np.zeros(len(rows)))

    def _try_rung(self, step: _Step, column: int, rows: np.ndarray, reaching: list[np.ndarray]) -> np.ndarray:
        """Rows that the rung's subgraph leaves open."""
        reach = None
        if self._partial:
            reach = {
                b: (seen[rows] > 0).any(0) & on
                for b, seen, on in zip(self._inner, self._seen, reaching, strict=True)
            }
        position = int(self._columns[column])
        graph = SinkGraph(step.skeleton, self._matrices[0][:, position], position, reach)
        left = []
        for row in rows:
            target = int(self._rows[row])
            flow = _timed(self._time_limit, graph.value, self._matrices[-1][target], target)
            if not step.count(self._pairs.meets(int(row), column, flow, "sparse subgraph")):
                left.append(row)
        return np.array(left, dtype=int)

    def _solve_whole(self, row: int, column: int, reaching: list[np.ndarray], edges: int) -> None:
        if 4 * edges < self._whole_edges > _SMALL_WHOLE:
            self._solve_alone(row, column, reaching)
            return
        if self._whole is None:
            self._whole = WholeGraph(self._matrices)
        out, into = self._ends(row, column)
        self._pairs.fix(row, column, _timed(self._time_limit, self._whole.value, out, into), "whole graph")

    def _solve_alone(self, row: int, column: int, reaching: list[np.ndarray]) -> None:
        nodes = [np.flatnonzero((seen[row] > 0) & on) for seen, on in zip(self._seen, reaching, strict=True)]
        out, into = self._ends(row, column)
        value = _timed(self._time_limit, pair_value, self._matrices, out, into, nodes)
        self._pairs.fix(row, column, value, "nodes between")

    def _ends(self, row: int, column: int) -> tuple[np.ndarray, np.ndarray]:
        return self._matrices[-1][self._rows[row]], self._matrices[0][:, self._columns[column]]


class _Step:
    """A rung, and how often it was enough so far."""

    def __init__(self, skeleton: Skeleton, whole_edges: int) -> None:
        self.skeleton = skeleton
        self._cost = skeleton.num_edges / whole_edges if whole_edges else 1.0
        self._tried = self._enough = 0

    def pays(self) -> bool:
        """A rung is worth its cost while it settles a larger share of pairs than its share of the edges."""
        return self._tried < _TRIED_ENOUGH or self._enough > self._cost * self._tried

    def count(self, enough: bool) -> bool:
        self._tried += 1
        self._enough += enough
        return enough


def _ladder(matrices: Sequence[np.ndarray], whole_edges: int) -> list[_Step]:
    """Rungs that leave out more than half of the edges."""
    skeletons = [Skeleton(matrices, rung) for rung in RUNGS]
    return [_Step(s, whole_edges) for s in skeletons if 2 * s.num_edges < whole_edges]


def _hub_is_worth_it(level: int, pairs: _OpenPairs) -> bool:
    """Below six levels a hub cannot spread; it costs one half-height flow for each row and column."""
    return level >= 6 and bool(pairs.open.sum() > 3 * sum(pairs.open.shape))


def _inner_edges(matrices: Sequence[np.ndarray]) -> int:
    """Edges between the target's row and the input's column."""
    return sum(int(np.count_nonzero(m)) for m in matrices[1:-1])


def _solve_small(
    matrices: Sequence[np.ndarray],
    rows: np.ndarray,
    columns: np.ndarray,
    pairs: _OpenPairs,
    time_limit: float | None,
) -> None:
    """One flow after another on one graph."""
    whole = WholeGraph(matrices)
    for row, column in np.argwhere(pairs.open).tolist():
        value = _timed(time_limit, whole.value, matrices[-1][rows[row]], matrices[0][:, columns[column]])
        pairs.fix(row, column, value, "whole graph")


def _timed(time_limit: float | None, solve: Callable[..., float], *arguments: Any) -> float:
    """One flow; a call into C cannot be interrupted, so the limit is looked at when it returns."""
    if time_limit is None:
        return solve(*arguments)
    deadline = Deadline(time_limit, "igraph on one pair")
    value = solve(*arguments)
    deadline.check()
    return value


def _advance(progress: Progress | None, pairs: int) -> None:
    if progress is not None:
        progress(pairs)
