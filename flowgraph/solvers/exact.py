"""Exact flows of the pairs that no certificate settled: sparse subgraphs first, then every edge that can matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flowgraph.solvers.open_pairs import OpenPairs
from flowgraph.solvers.residual import Deadline
from flowgraph.solvers.sparse import RUNGS, SinkGraph, Skeleton, WholeGraph, pair_value

_SMALL_PAIR = 1500
"""Edges below which a graph made for one pair is cheaper than a sparse subgraph."""

_SMALL_WHOLE = 12_000
"""Edges below which the whole graph, made once, is cheaper than a graph made for one pair."""

_TRIED_ENOUGH = 64
"""Pairs after which a rung's success decides whether it is used again."""


class PairByPair:
    """Pair by pair, one sink after another: sparse subgraphs first, then every edge that can matter."""

    def __init__(
        self,
        matrices: Sequence[np.ndarray],
        rows: np.ndarray,
        columns: np.ndarray,
        from_above: Sequence[np.ndarray],
        from_below: Sequence[np.ndarray],
        pairs: OpenPairs,
        time_limit: float | None,
    ) -> None:
        self._matrices, self._rows, self._columns = matrices, rows, columns
        self._above, self._below, self._pairs = from_above, from_below, pairs
        self._time_limit = time_limit
        self._inner = range(1, len(matrices))
        # counts in float32: up to T^2 edges a block, exact to 2^24, and only compared
        self._seen = [(from_above[b] > 0).astype(np.float32) for b in self._inner]
        self._partial = any(not seen.all() for seen in self._seen)
        whole = inner_edges(matrices)
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


def solve_small(
    matrices: Sequence[np.ndarray],
    rows: np.ndarray,
    columns: np.ndarray,
    pairs: OpenPairs,
    time_limit: float | None,
) -> None:
    """One flow after another on one graph."""
    whole = WholeGraph(matrices)
    for row, column in np.argwhere(pairs.open).tolist():
        value = _timed(time_limit, whole.value, matrices[-1][rows[row]], matrices[0][:, columns[column]])
        pairs.fix(row, column, value, "whole graph")


def inner_edges(matrices: Sequence[np.ndarray]) -> int:
    """Edges between the target's row and the input's column."""
    return sum(int(np.count_nonzero(m)) for m in matrices[1:-1])


def _timed(time_limit: float | None, solve: Callable[..., float], *arguments: Any) -> float:
    """One flow; a call into C cannot be interrupted, so the limit is looked at when it returns."""
    if time_limit is None:
        return solve(*arguments)
    deadline = Deadline(time_limit, "igraph on one pair")
    value = solve(*arguments)
    deadline.check()
    return value
