"""The right answers: values that a flow and a cut prove, whoever found them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowgraph import solvers
from flowgraph.errors import CertificateError, FlowgraphError
from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers.base import check_flow

Pair = tuple[Node, Node]

_PROVERS = ("igraph", "push-relabel", "networkx")
"""In the order in which they are asked for a flow and a cut; what they answer is checked, not believed."""


@dataclass(frozen=True)
class Reference:
    """The pairs of one graph, top level to inputs, and the certified values of some of them."""

    sources: list[Node]
    """Rows of the whole matrix: all nodes of the top layer."""
    sinks: list[Node]
    """Columns of the whole matrix: all inputs below it."""
    places: np.ndarray
    """``(certified, 2)``: row and column of every certified pair, no pair twice, in random order."""
    values: np.ndarray
    """``(certified,)``: their maximum flows."""

    def pairs(self, count: int) -> list[Pair]:
        """The first ``count`` certified pairs: those that solvers are timed on one by one."""
        return [(self.sources[r], self.sinks[c]) for r, c in self.places[:count].tolist()]


def certify(graph: LayeredGraph, count: int, seed: int) -> Reference:
    """Certified values of ``count`` pairs drawn by ``seed`` (all pairs where there are no more)."""
    graph.require_unsigned("maximum flow")
    top = graph.layers[-1]
    sources = [(top, p) for p in range(graph.levels[top].size)]
    sinks = [(k, p) for k in graph.inputs if k < top for p in range(graph.levels[k].size)]
    total = len(sources) * len(sinks)
    drawn = np.random.default_rng(seed).permutation(total)[:count]
    places = np.column_stack(np.divmod(drawn, max(1, len(sinks))))
    prepared = {name: solvers.get(name).prepare(graph) for name in _PROVERS[:1]}
    values = [_certified_value(graph, prepared, sources[r], sinks[c]) for r, c in places.tolist()]
    return Reference(sources, sinks, places, np.array(values))


def _certified_value(graph: LayeredGraph, prepared: dict, source: Node, sink: Node) -> float:
    faults = []
    for name in _PROVERS:
        try:
            if name not in prepared:
                prepared[name] = solvers.get(name).prepare(graph)
            result = prepared[name].solve(source, sink)
            check_flow(graph, result)
            return result.value
        except CertificateError as error:
            faults.append(f"{name}: {error}")
    raise FlowgraphError(f"no solver could certify the flow from {source} to {sink}: {'; '.join(faults)}")


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest ``|found - expected| / max(1, expected)``, the measure of the promise; infinite for NaN."""
    found = np.asarray(found, dtype=np.float64)
    if found.shape != expected.shape:
        return float("inf")
    off = np.abs(found - expected) / np.maximum(1.0, expected)
    return float(np.where(np.isfinite(off), off, np.inf).max(initial=0.0))
