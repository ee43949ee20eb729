"""Exact flows by igraph on small parts of a stack of levels.

A flow within a subgraph is a flow of the graph: where it reaches an upper bound of the whole graph, both are the
maximum, and the other edges need not be looked at. igraph's time is in the number of edges, so a subgraph with
a tenth of them answers ten times faster. Which edges matter follows from how flows run in attention graphs:
most nodes pass little on, for which their residual edge and a few strong ones are enough; a flow spreads out
along the whole row of its target, near the top, and gathers along the whole column of its input; and it
crosses the rows of nodes that much attention goes to (sinks).

Levels are 1 .. L - 1 here: level L is the target's row of ``M[L]``, level 0 the input's column of ``M[1]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Rung:
    """How much of a stack a subgraph keeps."""

    strong: int
    """Strongest edges of each row and of each column."""
    sinks: int
    """Rows kept whole in each block: the nodes that most capacity enters."""
    feeders: int
    """Columns kept whole in the lowest blocks: the nodes with the largest edges into the input."""
    depth: int = 2
    """Blocks from the top in which the target's row is whole, and from the bottom in which feeders' columns are."""


RUNGS = (Rung(2, 4, 8), Rung(8, 16, 16))


class Skeleton:
    """The part of a rung's subgraph that does not depend on the pair: one mask for each inner block."""

    def __init__(self, matrices: Sequence[np.ndarray], rung: Rung) -> None:
        self.matrices, self.rung = matrices, rung
        # matrices[b] joins level b + 1 to level b; inner blocks are b = 1 .. L - 2
        self.keep: dict[int, np.ndarray] = {
            b: _strong_edges(matrices[b], matrices[b + 1].sum(0), rung) for b in range(1, len(matrices) - 1)
        }

    @property
    def num_edges(self) -> int:
        return int(sum(np.count_nonzero(mask) for mask in self.keep.values()))


def _strong_edges(matrix: np.ndarray, entering: np.ndarray, rung: Rung) -> np.ndarray:
    """(T, T) bool: the diagonal, the strongest of each row and column, and whole rows of the busiest nodes."""
    size = len(matrix)
    keep = np.eye(size, dtype=bool)
    count = min(rung.strong, size)
    np.put_along_axis(keep, np.argpartition(-matrix, count - 1, axis=1)[:, :count], True, axis=1)
    np.put_along_axis(keep, np.argpartition(-matrix, count - 1, axis=0)[:count], True, axis=0)
    keep[np.argsort(-entering, kind="stable")[: rung.sinks]] = True
    return keep & (matrix > 0)


class SinkGraph:
    """A rung's subgraph for one sink, as an igraph graph that answers one source row after another.

    Parameters
    ----------
    skeleton
        Shared by all sinks.
    into_sink
        (T,) capacities from the nodes of level 1 to the sink.
    column
        Position of the sink, whose column is kept whole in every block; None for a sink that stands for a
        whole level (a hub).
    reach
        Optional ``reach[b]`` (T,) bool for level b = 1 .. L - 1: nodes that can lie on a path at all.
    """

    def __init__(
        self,
        skeleton: Skeleton,
        into_sink: np.ndarray,
        column: int | None = None,
        reach: dict[int, np.ndarray] | None = None,
    ) -> None:
        matrices, rung = skeleton.matrices, skeleton.rung
        self._size, self._top = len(into_sink), len(matrices) - 1
        self._source = self._top * self._size
        self._sink = self._source + 1
        builder = _EdgeList()
        feeders = np.argsort(-into_sink, kind="stable")[: rung.feeders]
        slots = []
        for b in range(1, self._top):
            keep = skeleton.keep[b].copy()
            if column is not None:
                keep[:, column] = True
            if b <= rung.depth:
                keep[:, feeders] = True
            keep &= matrices[b] > 0
            if reach is not None:
                keep &= reach[b + 1][:, None] & reach[b]
            self._add_block(builder, b, keep, matrices[b])
            if b >= self._top - rung.depth:
                slots.append((b, np.where(keep, 0.0, matrices[b])))
        nodes = np.flatnonzero(into_sink > 0)
        builder.add(self._node(1, nodes), self._sink, into_sink[nodes])
        self._fixed = builder.capacities()
        everyone = np.arange(self._size)
        builder.add(self._source, self._node(self._top, everyone))
        # A slot is a second half of one node of level b + 1, chosen pair by pair: it holds the edges of the
        # node's row that the skeleton left out, and the node reaches it without limit.
        self._extra = []
        for number, (b, rest) in enumerate(slots):
            slot = self._sink + 1 + number
            builder.add(self._node(b + 1, everyone), slot)
            builder.add(slot, self._node(b, everyone))
            self._extra.append(rest)
        self.num_edges = builder.count
        self._graph = builder.graph(self._sink + 1 + len(slots))
        self._closed = [0.0] * self._size

    def value(self, row: np.ndarray, position: int | None = None) -> float:
        """Maximum flow from a source with capacities ``row`` (T,) onto level L - 1.

        ``position``: the target's own position, whose rows are opened whole near the top.
        """
        capacity = self._fixed + row.tolist()
        for rest in self._extra:
            gate = self._closed.copy()
            if position is None:
                capacity += gate + self._closed
            else:
                # no more than the row's whole capacity can pass a node that the source feeds
                gate[position] = float(rest[position].sum())
                capacity += gate + rest[position].tolist()
        return self._graph.maxflow_value(self._source, self._sink, capacity)

    def _add_block(self, builder: _EdgeList, b: int, keep: np.ndarray, matrix: np.ndarray) -> None:
        rows, columns = np.nonzero(keep)
        builder.add(self._node(b + 1, rows), self._node(b, columns), matrix[rows, columns])

    def _node(self, level: int, positions: Any) -> Any:
        return (level - 1) * self._size + positions


class WholeGraph:
    """All inner edges of a stack as one igraph graph; the target's row and the input's column vary by pair."""

    def __init__(self, matrices: Sequence[np.ndarray]) -> None:
        size, top = len(matrices[0]), len(matrices) - 1
        self._source, self._sink = top * size, top * size + 1
        builder = _EdgeList()
        for b in range(1, top):
            rows, columns = np.nonzero(matrices[b])
            builder.add(b * size + rows, (b - 1) * size + columns, matrices[b][rows, columns])
        self._fixed = builder.capacities()
        everyone = np.arange(size)
        builder.add(self._source, (top - 1) * size + everyone)
        builder.add(everyone, self._sink)
        self.num_edges = builder.count
        self._graph = builder.graph(self._sink + 1)

    def value(self, row: np.ndarray, column: np.ndarray) -> float:
        """Maximum flow; ``row`` (T,) of ``M[L]`` leaves the target, ``column`` (T,) of ``M[1]`` enters the input."""
        return self._graph.maxflow_value(
            self._source, self._sink, self._fixed + row.tolist() + column.tolist()
        )


def pair_value(
    matrices: Sequence[np.ndarray], row: np.ndarray, column: np.ndarray, reach: Sequence[np.ndarray]
) -> float:
    """Exact maximum flow of one pair; ``reach[b - 1]``: indices of the nodes of level b = 1 .. L - 1 on its paths."""
    starts = np.concatenate([[0], np.cumsum([len(nodes) for nodes in reach])])
    source, sink = int(starts[-1]), int(starts[-1]) + 1
    builder = _EdgeList()
    for b in range(1, len(matrices) - 1):
        block = matrices[b][np.ix_(reach[b], reach[b - 1])]
        rows, columns = np.nonzero(block)
        builder.add(starts[b] + rows, starts[b - 1] + columns, block[rows, columns])
    builder.add(source, starts[-2] + np.arange(len(reach[-1])), row[reach[-1]])
    builder.add(np.arange(len(reach[0])), sink, column[reach[0]])
    return builder.graph(sink + 1).maxflow_value(source, sink, builder.capacities())


class _EdgeList:
    """Edges and capacities gathered block by block."""

    def __init__(self) -> None:
        self._tails: list[int] = []
        self._heads: list[int] = []
        self._capacities: list[float] = []

    def add(self, tails: Any, heads: Any, capacities: np.ndarray | None = None) -> None:
        tails, heads = np.broadcast_arrays(tails, heads)
        self._tails += tails.tolist()
        self._heads += heads.tolist()
        if capacities is not None:
            self._capacities += capacities.tolist()

    @property
    def count(self) -> int:
        return len(self._tails)

    def capacities(self) -> list[float]:
        return self._capacities

    def graph(self, nodes: int) -> Any:
        import igraph

        return igraph.Graph(n=nodes, edges=list(zip(self._tails, self._heads, strict=True)), directed=True)
