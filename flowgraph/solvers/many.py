"""Values of many pairs from any prepared solver: its own fast way if it has one, else one flow after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flowgraph.graph import Node

Progress = Callable[[int], None]
"""Called with the number of pairs just finished."""


def pair_values(
    prepared: Any,
    sources: Sequence[Node],
    sinks: Sequence[Node],
    *,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> np.ndarray:
    """``(len(sources), len(sinks))`` maximum flow values.

    ``time_limit``: seconds for each pair; a solver with a fast way to many gets the sum of them.
    """
    if hasattr(prepared, "values"):
        whole = None if time_limit is None else time_limit * len(sources) * len(sinks)
        values = prepared.values(sources, sinks, time_limit=whole, progress=progress)
        return np.asarray(values, dtype=np.float64)
    values = np.empty((len(sources), len(sinks)))
    for row, source in enumerate(sources):
        for column, sink in enumerate(sinks):
            values[row, column] = prepared.solve(source, sink, time_limit=time_limit).value
            if progress is not None:
                progress(1)
    return values
