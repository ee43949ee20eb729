"""Joint flow: one maximum flow from a token to all inputs together, and each input's share of it.

Maximum flows are not unique, and their shares are not either: the share vectors of all maximum flows form the
base polytope of a polymatroid whose rank function is ``rho(X) =`` maximum flow to the inputs of X together
(Megiddo 1974, Optimal flows in networks with multiple sources and sinks). The one nearest to a given vector
in least squares is unique, and a separable convex problem over such a polytope falls apart by minimum
cuts (Fujishige 1980; Groenevelt 1991, Two algorithms for maximizing a separable concave function over a
polymatroid feasible region).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowgraph import solvers
from flowgraph.errors import FlowgraphError
from flowgraph.graph import Block, LayeredGraph, Level, Node, check_graph
from flowgraph.rollout import num_inputs, shares_of_inputs
from flowgraph.solvers.base import TOLERANCE, FlowResult


@dataclass(frozen=True, eq=False)
class JointFlow:
    """A maximum flow from one node to all inputs together."""

    value: float
    shares: np.ndarray
    """(inputs,) what arrives at each input; sums to ``value``. ``np.asarray(joint)`` gives it too."""
    edge_flow: tuple[np.ndarray, ...] = field(repr=False)
    """One array a block of the graph, shaped as its capacities."""
    source: Node

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.shares, dtype=dtype)


def joint_flow(graph: LayeredGraph, source: Node, *, solver: str = "igraph") -> JointFlow:
    """One maximum flow from ``source`` to all inputs together.

    ``source``: (index into ``graph.levels``, position). Of all maximum flows it is one whose shares are nearest
    (least squares) to the rollout row of ``source`` scaled to the same total; the shares are unique. Where every
    row of the graph sums to 1, rollout itself is such a flow, and the shares are the rollout row.
    """
    check_graph(graph)
    graph.require_unsigned("joint flow")
    source = graph.check_node(source, "source")
    if source[0] in graph.inputs:
        raise FlowgraphError(f"source: {source} is an input itself; pass a node of a higher level")
    problem = _SharedSink(graph, source, solver)
    total = problem.flow(problem.unlimited).value
    wish = shares_of_inputs(graph, source[0])[source[0]][source[1]]
    shares = _nearest_base(problem, wish * (total / wish.sum()) if wish.sum() > 0 else wish, total)
    result = problem.flow(np.maximum(shares, 0.0))
    return JointFlow(total, shares, result.edge_flow[: len(graph.blocks)], source)


class _SharedSink:
    """The graph with one more node, below all inputs, which each input drains into at a capacity of its own."""

    def __init__(self, graph: LayeredGraph, source: Node, solver: str) -> None:
        self._graph, self._source = graph, (source[0] + 1, source[1])
        self._solver = solvers.get(solver)
        self.size = num_inputs(graph)
        entering = [_entering(graph, k) for k in graph.inputs]
        # more than can enter an input can never drain from it: as good as no limit
        self.unlimited = np.concatenate(entering)

    def flow(self, drains: np.ndarray) -> FlowResult:
        """Maximum flow with these capacities (inputs,) out of the inputs; block order as in the graph, then drains."""
        levels = [Level("all inputs", 1, ("",)), *self._graph.levels]
        blocks = [Block(b.upper + 1, b.lower + 1, b.capacity) for b in self._graph.blocks]
        start = 0
        for k in self._graph.inputs:
            end = start + self._graph.levels[k].size
            blocks.append(Block(k + 1, 0, drains[start:end, None]))
            start = end
        return self._solver.prepare(LayeredGraph(levels, blocks)).solve(self._source, (0, 0))

    def drained_side(self, result: FlowResult) -> np.ndarray:
        """(inputs,) bool: inputs on the source side of the cut, whose drains are what holds the flow."""
        return np.concatenate([result.cut[k + 1] for k in self._graph.inputs]).astype(bool)


def _entering(graph: LayeredGraph, k: int) -> np.ndarray:
    blocks = (b.capacity.sum(0) for b in graph.blocks if b.lower == k)
    return sum(blocks, np.zeros(graph.levels[k].size))


def _nearest_base(problem: _SharedSink, wish: np.ndarray, total: float) -> np.ndarray:
    """(inputs,) the share vector of a maximum flow that is nearest to ``wish``.

    Decomposition: on a set G of inputs, those of A before it taken in full, the nearest vector that only has the right
    sum is ``wish`` plus a constant. If no subset Y of G asks for more than ``rho(A + Y) - rho(A)``, it is the
    answer. Else the most over-asking Y takes exactly what it can, and Y and the rest of G are solved apart.
    """
    shares = np.zeros(problem.size)
    todo = [(np.zeros(problem.size, bool), np.ones(problem.size, bool), 0.0, total)]
    while todo:
        before, ground, low, high = todo.pop()
        if not ground.any():
            continue
        shares[ground] = wish[ground] + (high - low - wish[ground].sum()) / ground.sum()
        drains = np.where(before, problem.unlimited, 0.0)
        drains[ground] = np.clip(shares[ground], 0.0, problem.unlimited[ground])
        result = problem.flow(drains)
        # flow = min over Y of rho(A + Y) + shares(G - Y); short of rho(A) + shares(G) by the most over-asking Y
        if low + np.maximum(shares[ground], 0.0).sum() - result.value <= TOLERANCE * max(1.0, total):
            continue
        greedy = ground & ~problem.drained_side(result) & (shares >= 0)
        rank = problem.flow(np.where(before | greedy, problem.unlimited, 0.0)).value
        if not greedy.any() or (greedy == ground).all():
            continue
        todo.append((before, greedy, low, rank))
        todo.append((before | greedy, ground & ~greedy, rank, high))
    return shares
