"""Is what was captured what the model did? Checks of one record against the model's own outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from flowgraph.capture.record import FrozenNorm, LayerRecord
from flowgraph.errors import FlowgraphError

_ROUNDING = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference by rounding alone, relative to the largest entry."""


def row_tolerance(dtype: torch.dtype) -> float:
    """How far from 1 rounding alone puts the sum of a row of attention."""
    return {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}.get(
        dtype, 1e-5
    )


def check_record(record: LayerRecord) -> None:
    """Raise ``FlowgraphError`` naming the layer where a record does not explain what the model computed."""
    check_mask(record)
    if record.values is not None and record.output_weight is not None and record.attention_output is not None:
        _close(
            record,
            "attention times values through the output projection",
            attended(record),
            record.attention_output,
        )
    if record.attention_norm is not None and record.attention_norm_output is not None:
        added = record.stream.double() + record.attention_output.double()
        _close(
            record,
            "the norm after attention",
            apply_norm(record.attention_norm, added),
            record.attention_norm_output,
        )
    if record.output_norm is not None and record.block_output is not None:
        added = record.attention_norm_output.double() + record.feed_forward_output.double()
        _close(
            record,
            "the norm after the feed-forward part",
            apply_norm(record.output_norm, added),
            record.block_output,
        )
    if record.rerun is not None and record.block_output is not None:
        positions = torch.arange(record.stream.shape[0], device=record.stream.device)
        _close(
            record,
            "the re-run of the block",
            record.rerun(record.attention_output, positions),
            record.block_output,
        )


def check_mask(record: LayerRecord) -> None:
    """Weights are finite, and 0 where the key is masked."""
    if not bool(torch.isfinite(record.weights).all()):
        raise FlowgraphError(
            f"model: attention of layer {record.layer} holds NaN or infinity; check weights and precision"
        )
    leaks = ((record.weights != 0) & ~record.visible).nonzero()
    if len(leaks):
        head, query, key = leaks[0].tolist()
        raise FlowgraphError(
            f"model: layer {record.layer}, head {head}: position {query} attends to position {key}, which its mask hides "
            f"({len(leaks)} such weights)"
        )


def attended(record: LayerRecord) -> Tensor:
    """``sum_h A[h] V[h // group] W_O[h] + b_O``, (Tq, D), in float64."""
    group = record.num_heads // record.values.shape[0]
    values = record.values.double().repeat_interleave(group, dim=0)  # (H, Tk, d)
    output = torch.einsum("hij,hjd,hde->ie", record.weights.double(), values, record.output_weight.double())
    return output if record.output_bias is None else output + record.output_bias.double()


def apply_norm(norm: FrozenNorm, vectors: Tensor) -> Tensor:
    """A frozen norm on (T, D), bias in."""
    centred = vectors - vectors.mean(-1, keepdim=True) if norm.centred else vectors
    output = norm.gain.double() * centred / norm.sigma[:, None]
    return output if norm.bias is None else output + norm.bias.double()


def _close(record: LayerRecord, what: str, ours: Tensor, theirs: Tensor) -> None:
    tolerance = _ROUNDING.get(theirs.dtype, 2e-5)
    scale = max(1.0, float(theirs.abs().max()))
    off = (ours.double() - theirs.double()).abs().amax(-1)
    worst = float(off.max())
    if not worst <= tolerance * scale:
        raise FlowgraphError(
            f"model: layer {record.layer}, position {int(off.argmax())}: {what} differs from the model's own output by "
            f"{worst:.3g} (allowed {tolerance * scale:.3g}); flowgraph would misread this model, so it is refused"
        )
