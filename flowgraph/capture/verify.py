"""Is what was captured what the model did? Checks of one record against the model's own outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from flowgraph import mixing
from flowgraph.capture.record import FrozenNorm, LayerRecord
from flowgraph.errors import FlowgraphError

_ROUNDING = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference by rounding alone, relative to the largest entry."""


def row_tolerance(dtype: torch.dtype) -> float:
    """How far from 1 rounding alone puts the sum of a row of attention."""
    return {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}[dtype]


def check_mask(record: LayerRecord) -> None:
    """Raise ``FlowgraphError`` unless weights are finite, and 0 where the key is masked."""
    if not bool(
        torch.isfinite(record.weights.sum(dtype=torch.float32))
    ):  # no weight is negative, so nothing cancels
        raise FlowgraphError(
            f"model: attention of layer {record.layer} holds NaN or infinity; check its weights and its "
            "precision"
        )
    hidden = ~record.visible
    if bool(hidden.any()) and bool((record.weights * hidden).any()):
        leaks = ((record.weights != 0) & hidden).nonzero()
        head, query, key = leaks[0].tolist()
        raise FlowgraphError(
            f"model: layer {record.layer}, head {head}: position {query} attends to position {key}, which "
            f"its mask hides ({len(leaks)} such weights in this layer)"
        )


def check_record(record: LayerRecord) -> None:
    """Raise ``FlowgraphError`` naming the layer where a record does not explain what the model computed.

    Parts plus biases give the module's outputs (:func:`flowgraph.mixing.check_decomposition`), and the
    re-run of the block on its own attention output gives its own output.
    """
    mixing.check_decomposition(record)
    if record.rerun is None or record.attention_output is None or record.block_output is None:
        return
    positions = torch.arange(len(record.attention_output), device=record.attention_output.device)
    again = record.rerun(record.attention_output, positions)
    _check_close(record.layer, "the block run again", again, record.block_output, _ROUNDING[again.dtype])


def check_norm(layer: int, name: str, norm: FrozenNorm, seen: Tensor, given: Tensor) -> None:
    """Raise ``FlowgraphError`` unless ``norm`` makes of the vectors it is frozen at what its module made of them.

    ``seen``, ``given``: (T, D), what the module read and gave.
    """
    centred = seen.double() - seen.double().mean(-1, keepdim=True) if norm.centred else seen.double()
    ours = norm.gain.double() * centred / norm.sigma[:, None]
    if norm.bias is not None:
        ours = ours + norm.bias.double()
    rounding = _ROUNDING[given.dtype]
    if not norm.centred:  # transformers' RMSNorm computes in float32 in a model in double precision too
        rounding = max(rounding, _ROUNDING[torch.float32])
    _check_close(layer, f"the {name.replace('_', ' ')} read from its weights", ours, given, rounding)


def _check_close(layer: int, what: str, ours: Tensor, given: Tensor, rounding: float) -> None:
    off = (ours.double() - given.double()).abs().amax(-1)
    allowed = rounding * max(1.0, float(given.abs().max()))
    if not float(off.max()) <= allowed:
        raise FlowgraphError(
            f"verify: layer {layer}, position {int(off.argmax())}: {what} differs from the model's own by "
            f"{float(off.max()):.3g} (allowed {allowed:.3g}); flowgraph would misread this model"
        )
