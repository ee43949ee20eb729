"""ALTI: how much of a position's output vector is lost when one token's part is taken away, in 1-norm.

    ``max(0, ||y[i]|| - ||y[i] - t[i, j]||)``

Limits: one matrix for all heads; the 1-norm has no Gram form, so the parts are made block by block, ``T * T *
D`` work a layer. Post-norm blocks: ``t`` are the ``norm-residual-ln`` parts and ``y`` that norm's actual
output; elsewhere ``t`` are the ``norm-residual`` parts and ``y`` is stream plus attention output, which a
parallel block never forms. Ferrando et al. 2022 (10.18653/v1/2022.emnlp-main.595).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flowgraph.mixing import EdgeKind
from flowgraph.mixing.parts import blocks, double, parts_of, stream_after_attention, working_dtype

if TYPE_CHECKING:
    from torch import Tensor

    from flowgraph.capture.record import LayerRecord


def alti(record: LayerRecord) -> Tensor:
    """(T, T)."""
    parts = parts_of(record, "attention-norm")
    output = _output(record)  # (T, D)
    dtype = working_dtype(record.weights)
    rows = output.to(dtype)
    weights = record.weights.to(rows.device).to(dtype)
    if parts.divisor is not None:
        weights = weights / parts.divisor[:, None].to(dtype)
    heads, count, width = weights.shape[0], rows.shape[0], rows.shape[1]
    left = output.new_empty(count, count)  # (keys, queries): ||y[i] - t[i, j]||
    for keys in blocks(count, weights.itemsize * (count * (width + heads) + 2 * heads * width)):
        vectors = parts.head_vectors(keys, dtype).transpose(0, 1)  # (keys, H, D)
        by_key = weights[:, :, keys].permute(2, 1, 0)  # (keys, T, H)
        remainder = torch.baddbmm(rows.expand(len(by_key), -1, -1), by_key, vectors, alpha=-1)  # (keys, T, D)
        left[keys] = torch.linalg.vector_norm(remainder, ord=1, dim=-1).to(left.dtype)
    left.diagonal().copy_(torch.linalg.vector_norm(output - parts.diagonal(), ord=1, dim=-1))
    whole = torch.linalg.vector_norm(output, ord=1, dim=-1)
    return (whole - left).clamp_(min=0).T


def _output(record: LayerRecord) -> Tensor:
    """(T, D) float64: the vector that the parts make up, biases in."""
    if record.block == "post-norm":
        assert record.attention_norm_output is not None
        return double(record.attention_norm_output)
    return stream_after_attention(record)


KIND = EdgeKind(
    "alti",
    all_heads=alti,
    holds_residual=True,
    needs=("values", "output_weight", "stream", "attention_output"),
    needs_in={"post-norm": ("attention_norm", "attention_norm_output")},
)
