"""One hub for all pairs: half-height flows that settle a whole matrix.

Let ``u`` be capacities on the nodes of a level m in the middle, U their sum; ``a_i`` the maximum flow from target i
onto that level under these node capacities, ``b_j`` from that level, each node sending at most u, to input j.
Then ``F(i, j) >= a_i + b_j - U`` for **every** pair: the first flow leaves ``U - a_i`` of the hub unfilled, the
second wants ``b_j`` of it, and the part both agree on, node by node, is at least the difference. (Node by node:
``sum_k min(x_k, y_k) >= sum_k (x_k + y_k - u_k)``; flows scaled down at a node scale down along their paths.)
Where this meets an upper bound the pair is settled, after T + T half-height flows instead of T * T whole ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowgraph.solvers.sparse import Rung, SinkGraph, Skeleton

HUB_RUNG = Rung(4, 4, 8)
PROBES = 6
"""Rows and columns tried first, spread evenly; the hub is given up where they promise little."""


@dataclass(frozen=True)
class Hub:
    """Half-height flows to and from a hub level."""

    to_hub: np.ndarray
    """(R,): a_i."""
    from_hub: np.ndarray
    """(C,): b_j."""
    total: float
    """U."""

    def lower_bounds(self) -> np.ndarray:
        """(R, C)."""
        return self.to_hub[:, None] + self.from_hub - self.total


def find_hub(
    matrices: Sequence[np.ndarray],
    rows: np.ndarray,
    columns: np.ndarray,
    upper: np.ndarray,
    slack: np.ndarray,
) -> Hub | None:
    """An even hub over the middle level, or None where a few probes show that it would settle little.

    ``upper`` (R, C) upper bounds and ``slack`` (R, C) how near to them counts as settled.
    """
    size, middle = len(matrices[0]), len(matrices) // 2
    total = float(upper.max())
    node_capacity = np.full(size, total / size)
    above = _half(matrices[middle:], node_capacity)
    below = _half([m.T for m in reversed(matrices[:middle])], node_capacity)
    row_probes, column_probes = _spread(len(rows)), _spread(len(columns))
    probe = Hub(_values(*above, rows[row_probes]), _values(*below, columns[column_probes]), total)
    cells = np.ix_(row_probes, column_probes)
    if (probe.lower_bounds() >= upper[cells] - slack[cells]).mean() < 0.25:
        return None
    return Hub(_values(*above, rows), _values(*below, columns), total)


def _half(matrices: Sequence[np.ndarray], node_capacity: np.ndarray) -> tuple[SinkGraph, np.ndarray]:
    """The subgraph between the hub (its nodes drain into one sink) and the rows of the outermost matrix.

    Called with transposed matrices for the lower half: flow from hub to input is flow from input to hub, reversed.
    """
    size = len(node_capacity)
    # the hub's drain takes the place of block 0, which only its column of capacities stands for
    stack = [np.zeros((size, size)), *matrices]
    return SinkGraph(Skeleton(stack, HUB_RUNG), node_capacity), matrices[-1]


def _values(graph: SinkGraph, outermost: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return np.array([graph.value(outermost[p], int(p)) for p in positions])


def _spread(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, PROBES)).astype(int))
