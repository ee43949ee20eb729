"""Is what was captured what the model did? Checks of one record against the model's own outputs."""

from __future__ import annotations

import torch

from flowgraph import mixing
from flowgraph.capture.record import LayerRecord
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
    again, given = record.rerun(record.attention_output, positions).double(), record.block_output.double()
    off = (again - given).abs().amax(-1)
    allowed = _ROUNDING[record.block_output.dtype] * max(1.0, float(given.abs().max()))
    if not float(off.max()) <= allowed:
        raise FlowgraphError(
            f"verify: layer {record.layer}, position {int(off.argmax())}: the block run again differs from "
            f"its own output by {float(off.max()):.3g} (allowed {allowed:.3g}); flowgraph would misread "
            "this model"
        )
