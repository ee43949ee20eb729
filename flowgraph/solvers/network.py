"""The network that a batch of pairs shares: levels, arc matrices between them, and products with those.

A pair is one node of the first level and one of the last; its capacities are the shared ones, cut down to the
two nodes' own rows and columns there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Arcs:
    """All arcs from level ``tail`` to level ``head``; ``capacity`` (n, m)."""

    tail: int
    head: int
    capacity: np.ndarray


class Network:
    """Levels 0 to D in the order of the flow: from one node of level 0 to one node of level D."""

    def __init__(self, sizes: list[int], arcs: list[Arcs]) -> None:
        self.sizes = sizes
        self.arcs = arcs
        self.end = len(sizes) - 1
        self.leaving = [[a for a, arc in enumerate(arcs) if arc.tail == k] for k in range(len(sizes))]
        self.arriving = [[a for a, arc in enumerate(arcs) if arc.head == k] for k in range(len(sizes))]

    @property
    def node_bytes(self) -> int:
        """Of the arrays over nodes, for one pair."""
        return 100 * sum(self.sizes)

    @property
    def arc_bytes(self) -> int:
        """Of room, flow and scratch of the arcs between inner levels, for one pair."""
        inner = [arc.capacity.size for arc in self.arcs if arc.tail != 0 and arc.head != self.end]
        return 16 * sum(inner) + 16 * max(inner, default=0)

    def capacities(self, starts: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
        """One (B or 1, n, m) an arc matrix, levels 0 and D cut down to each pair's node; starts, ends (B,)."""
        return [self._capacity(arc, starts, ends) for arc in self.arcs]

    def _capacity(self, arc: Arcs, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        if arc.tail == 0 and arc.head == self.end:
            return arc.capacity[starts, ends][:, None, None]  # (B, 1, 1)
        if arc.tail == 0:
            return arc.capacity[starts][:, None, :]  # (B, 1, m)
        if arc.head == self.end:
            return arc.capacity.T[ends][:, :, None]  # (B, n, 1)
        return arc.capacity[None]  # (1, n, m)


def times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """(B or 1, n, m) times (B, m), summed over m -> (B, n)."""
    if len(matrix) == 1:
        return vector @ matrix[0].T
    return np.matmul(matrix, vector[:, :, None])[:, :, 0]


def times_turned(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """(B or 1, n, m) times (B, n), summed over n -> (B, m)."""
    if len(matrix) == 1:
        return vector @ matrix[0]
    return np.matmul(vector[:, None, :], matrix)[:, 0, :]
