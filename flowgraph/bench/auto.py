"""``solver="auto"`` with the interface of a solver, so that it can be compared with the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flowgraph import solvers
from flowgraph.flow import attention_flow, choose_single
from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers.base import FlowResult
from flowgraph.solvers.many import pair_values


class AutoSolver:
    """What ``fg.max_flow`` and ``fg.attention_flow`` do where no solver is named."""

    name = "auto"

    def prepare(self, graph: LayeredGraph) -> PreparedAuto:
        return PreparedAuto(graph)


class PreparedAuto:
    """Single pairs go to the solver that ``auto`` chooses for them, a level's whole rows to ``attention_flow``.

    A whole matrix starts from the graph each time: what was learnt of it before is not used again.
    """

    def __init__(self, graph: LayeredGraph) -> None:
        graph.require_unsigned("maximum flow")
        self._graph = graph
        self._single = solvers.get(choose_single(graph)).prepare(graph)

    def solve(self, source: Node, sink: Node, *, time_limit: float | None = None) -> FlowResult:
        return self._single.solve(source, sink, time_limit=time_limit)

    def values(self, sources: Sequence[Node], sinks: Sequence[Node], **options: Any) -> np.ndarray:
        """(sources, sinks) values."""
        level = self._graph.layers.index(sources[0][0]) + 1 if sources[0][0] in self._graph.layers else None
        one_level = {k for k, _ in sources} == {sources[0][0]}
        if len(sources) * len(sinks) == 1 or level is None or not one_level:
            return pair_values(self._single, sources, sinks, **options)
        inputs = [(k, p) for k in self._graph.inputs for p in range(self._graph.levels[k].size)]
        columns = [inputs.index(sink) for sink in sinks]
        rows = [position for _, position in sources]
        return attention_flow(self._graph, level=level, targets=rows, inputs=columns)
