"""What holds a flow: the edges of a minimum cut, and which side of a pair its value depends on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers.base import FlowResult

HELD_BY = ("target", "input", "between")
"""What may hold a flow; see :func:`held_by`."""


class CutEdge(NamedTuple):
    """One edge of a minimum cut."""

    source: Node
    target: Node
    source_token: str
    target_token: str
    capacity: float


def cut_edges(graph: LayeredGraph, result: FlowResult) -> list[CutEdge]:
    """The edges from the source side of ``result.cut`` to its sink side, the largest capacity first."""
    edges = []
    for block in graph.blocks:
        crossing = np.outer(result.cut[block.upper], ~np.asarray(result.cut[block.lower], bool))
        upper, lower = graph.levels[block.upper].tokens, graph.levels[block.lower].tokens
        edges += [
            CutEdge((block.upper, i), (block.lower, j), upper[i], lower[j], float(block.capacity[i, j]))
            for i, j in np.argwhere(crossing & (block.capacity > 0)).tolist()
        ]
    return sorted(edges, key=lambda edge: (-edge.capacity, edge.source, edge.target))


def held_by(
    graph: LayeredGraph, values: np.ndarray, level: int, rows: np.ndarray, columns: Sequence[Node]
) -> np.ndarray:
    """``(rows, columns)`` of names: what each maximum flow of ``values`` is equal to.

    ``"input"``: all that can enter the input at its first level, so that the value says nothing of the target;
    ``"target"``: all that can leave the target, so that it says nothing of the input; ``"between"``: a cut that
    depends on both. A value held by input and target alike counts as ``"input"``. ``level``: index into
    ``graph.levels``.
    """
    leaving = sum(
        (b.capacity.sum(1) for b in graph.blocks if b.upper == level), np.zeros(graph.levels[level].size)
    )
    entering = {
        k: sum((b.capacity.sum(0) for b in graph.blocks if b.lower == k), np.zeros(graph.levels[k].size))
        for k in graph.inputs
    }
    names = np.full(values.shape, "between", dtype="<U7")
    slack = 1e-9 * np.maximum(1.0, values)
    names[values >= leaving[rows][:, None] - slack] = "target"
    names[values >= np.array([entering[k][p] for k, p in columns]) - slack] = "input"
    return names
