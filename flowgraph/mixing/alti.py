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
from flowgraph.mixing.parts import Parts, blocks, double, parts_of, stream_after_attention, working_dtype

if TYPE_CHECKING:
    from torch import Tensor

    from flowgraph.capture.record import LayerRecord


TILE_KEYS = 8
TILE_BYTES = 2**20
"""Size of the piece of parts that exists at one time: small enough to stay in cache."""


def alti(record: LayerRecord) -> Tensor:
    """(T, T) float64."""
    parts = parts_of(record, "attention-norm")
    output = _output(record)  # (T, D)
    left = _remainders(parts, output, working_dtype(record.weights)).T
    left.diagonal().copy_(torch.linalg.vector_norm(output - parts.diagonal(), ord=1, dim=-1))
    whole = torch.linalg.vector_norm(output, ord=1, dim=-1)
    return (whole[:, None] - left).clamp_(min=0)


def _remainders(parts: Parts, output: Tensor, dtype: torch.dtype) -> Tensor:
    """(Tk, Tq) float64: ``||y[i] - t[i, j]||`` with the stream's own part left out, made in ``dtype``."""
    weights = parts.weights.to(output.device).to(dtype)
    if parts.divisor is not None:
        weights = weights / parts.divisor[:, None].to(dtype)
    output = output.to(dtype)
    heads, count, width = len(weights), *output.shape
    left = output.new_empty(count, count)
    for keys in blocks(count, dtype.itemsize * heads * (width + count), 4 * TILE_BYTES):
        vectors = parts.head_vectors(keys, dtype).contiguous()  # (keys, H, D)
        by_key = weights[:, :, keys].permute(2, 1, 0).contiguous()  # (keys, Tq, H)
        for few in blocks(len(vectors), 1, TILE_KEYS):
            for rows in blocks(count, dtype.itemsize * TILE_KEYS * width, TILE_BYTES):
                base = output[rows].expand(few.stop - few.start, -1, -1)
                remainder = torch.baddbmm(base, by_key[few, rows], vectors[few], alpha=-1)  # (few, rows, D)
                left[keys][few, rows] = remainder.abs_().sum(-1)
    return left.double()


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
