"""What a trace tells beside its mixing matrices: norms of values, their spread, the mixing ratio.

NumPy alone; a trace holds the numbers, made while the model ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.errors import FlowgraphError, check_trace

if TYPE_CHECKING:
    from flowgraph.capture.trace import Trace


def norms(trace: Trace) -> Any:
    """``||f(x)||``, the length of what head ``h`` of layer ``l`` reads from token ``j``: (L, H, T) float64.

    Beside the weights of ``trace["attention"]`` this is the other factor of the ``norm`` kind (Kobayashi et
    al. 2020, 10.18653/v1/2020.emnlp-main.574). Needs ``edges`` with ``"norm"``. An encoder–decoder trace
    gives a mapping of ``encoder``, ``decoder`` and ``cross``.
    """
    return _extra(trace, "norms", "norm")


def mixing_ratio(trace: Trace) -> Any:
    """How much of each token's new vector comes from other tokens: (L, T) float64, from 0 to 1.

    ``||sum of parts from others|| / (that + ||own part||)``, the parts those of ``norm-residual-ln``, which
    must be among the traced kinds (Kobayashi et al. 2021, 10.18653/v1/2021.emnlp-main.373). An encoder–decoder
    trace gives a mapping of ``encoder`` and ``decoder``.
    """
    return _extra(trace, "mixing-ratio", "norm-residual-ln")


def coefficient_of_variation(traces: Trace | Iterable[Trace]) -> np.ndarray:
    """Standard deviation over mean of ``||f(x)||`` over all tokens of one or many traces: (L, H).

    Heads with a small value read every token at much the same length, so that their weights tell nearly all.
    """
    given: list[Any] = [traces] if hasattr(traces, "meta") else list(traces)  # type: ignore[arg-type]
    if not given:
        raise FlowgraphError("traces: none given; pass a trace or a list of traces with the kind 'norm'")
    lengths = [norms(trace) for trace in given]
    if any(isinstance(one, Mapping) for one in lengths):
        raise FlowgraphError(
            "traces: an encoder–decoder trace has norms for encoder, decoder and cross; "
            "take fg.norms(trace)['encoder'] and divide its standard deviation by its mean"
        )
    together = np.concatenate(lengths, axis=2)  # (L, H, tokens)
    mean = together.mean(2)
    return np.divide(together.std(2), mean, out=np.zeros_like(mean), where=mean > 0)


def _extra(trace: Any, name: str, kind: str) -> Any:
    check_trace(trace)
    extras = getattr(trace, "extras", {})
    if name not in extras:
        traced = ", ".join(trace.kinds)
        raise FlowgraphError(
            f"trace: holds {traced}, and the {name.replace('-', ' ')} asked for needs {kind!r}; "
            f"trace with edges=({kind!r}, ...)"
        )
    found = extras[name]
    if isinstance(found, Mapping):
        return {part: np.asarray(array, np.float64) for part, array in found.items()}
    return np.asarray(found, np.float64)
