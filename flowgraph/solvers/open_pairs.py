"""The pairs of one level: which are settled, by what, and how far the others can still be."""

from __future__ import annotations

from collections import Counter

import numpy as np

from flowgraph.errors import CertificateError
from flowgraph.solvers.many import Progress

SLACK = 1e-10
"""A flow this near to an upper bound (relative to ``max(1, bound)``) settles the pair; ten times below the promise."""


class OpenPairs:
    """Upper bounds of all pairs of a level; a settled pair's bound is its value."""

    def __init__(self, upper: np.ndarray, counter: Counter[str], progress: Progress | None) -> None:
        self.upper = upper.copy()
        self._lower = np.zeros_like(self.upper)
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
        """Settle the pairs whose lower bound, this one or an earlier one, meets the upper one."""
        np.maximum(self._lower, lower, out=self._lower)
        self.settle(self._lower >= self.upper - self.slack, step)

    def share_settled(self, lower: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> float:
        """Which share of the open pairs of some rows and columns such lower bounds would settle."""
        cells = np.ix_(rows, columns)
        met = (lower >= self.upper[cells] - self.slack[cells]) & self.open[cells]
        return float(met.sum() / max(self.open[cells].sum(), 1))

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
            advance(self._progress, pairs)


def advance(progress: Progress | None, pairs: int) -> None:
    """Tell ``progress``, if anyone listens, that ``pairs`` more are done."""
    if progress is not None:
        progress(pairs)
