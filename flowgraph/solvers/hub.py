"""Hubs for all pairs: half-height flows that settle a whole matrix.

Let ``u`` be capacities on the nodes of a level m in the middle, U their sum; ``a_i`` the maximum flow from target i
onto that level under these node capacities, ``b_j`` from that level, each node sending at most u, to input j.
Then ``F(i, j) >= a_i + b_j - U`` for **every** pair: the first flow leaves ``U - a_i`` of the hub unfilled, the
second wants ``b_j`` of it, and the part both agree on, node by node, is at least the difference. (Node by node:
``sum_k min(x_k, y_k) >= sum_k (x_k + y_k - u_k)``; flows scaled down at a node scale down along their paths.)
Where this meets an upper bound the pair is settled, after T + T half-height flows instead of T * T whole ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowgraph.solvers.open_pairs import OpenPairs
from flowgraph.solvers.sparse import Rung, SinkGraph, Skeleton

HUB_RUNGS = (Rung(4, 4, 8), Rung(16, 8, 16), None)
"""Subgraphs tried one after another; None is the whole graph."""

_PROBES = 6
"""Rows and columns tried first, spread evenly."""


_OPEN = 3
"""Open pairs for each flow of a hub from which on it is tried."""

_WORTH = 1
"""Pairs that each flow of a hub must settle on average."""


class EvenHub:
    """A hub of one capacity on all nodes of the middle level, ``total`` together, in a rung's subgraph."""

    def __init__(self, matrices: Sequence[np.ndarray], total: float, rung: Rung | None) -> None:
        size, middle = len(matrices[0]), len(matrices) // 2
        self._total = total
        node_capacity = np.full(size, total / size)
        rung = rung or Rung(size, 0, 0)
        self._above = _half(matrices[middle:], node_capacity, rung)
        self._below = _half([m.T for m in reversed(matrices[:middle])], node_capacity, rung)

    def lower_bounds(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """(R, C): ``a_i + b_j - U``."""
        return _values(*self._above, rows)[:, None] + _values(*self._below, columns) - self._total


def settle_by_hubs(
    matrices: Sequence[np.ndarray], rows: np.ndarray, columns: np.ndarray, pairs: OpenPairs
) -> None:
    """An even hub in denser and denser subgraphs, each where a few probes promise enough."""
    for rung in HUB_RUNGS:
        i, j = np.flatnonzero(pairs.open.any(1)), np.flatnonzero(pairs.open.any(0))
        flows = len(i) + len(j)
        if pairs.open.sum() <= _OPEN * flows:
            return
        hub = EvenHub(matrices, float(pairs.upper.max()), rung)
        few_i, few_j = _spread(i), _spread(j)
        probes = hub.lower_bounds(rows[few_i], columns[few_j])
        if pairs.share_settled(probes, few_i, few_j) * pairs.open.sum() > _WORTH * flows:
            lower = np.zeros(pairs.open.shape)
            lower[np.ix_(i, j)] = hub.lower_bounds(rows[i], columns[j])
            pairs.settle_above(lower, "hub")


def _half(
    matrices: Sequence[np.ndarray], node_capacity: np.ndarray, rung: Rung
) -> tuple[SinkGraph, np.ndarray]:
    """The subgraph between the hub (its nodes drain into one sink) and the rows of the outermost matrix.

    Called with transposed matrices for the lower half: flow from hub to input is flow from input to hub, reversed.
    """
    size = len(node_capacity)
    # the hub's drain takes the place of block 0, which only its column of capacities stands for
    stack = [np.zeros((size, size)), *matrices]
    return SinkGraph(Skeleton(stack, rung), node_capacity), matrices[-1]


def _values(graph: SinkGraph, outermost: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return np.array([graph.value(outermost[p], int(p)) for p in positions])


def _spread(indices: np.ndarray) -> np.ndarray:
    return indices[np.unique(np.linspace(0, len(indices) - 1, min(len(indices), _PROBES)).astype(int))]
