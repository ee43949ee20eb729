"""ALTI: how much of a position's output vector is lost when one token's part is taken away, in 1-norm.

    ``max(0, ||y[i]|| - ||y[i] - t[i, j]||)``

Limits: one matrix for all heads; the 1-norm has no Gram form, so the parts are made block by block, ``T * T *
D`` work a layer. Post-norm blocks: ``t`` are the ``norm-residual-ln`` parts and ``y`` that norm's actual
output; elsewhere ``t`` are the ``norm-residual`` parts and ``y`` is stream plus attention output, which a
parallel block never forms. Ferrando et al. 2022 (10.18653/v1/2022.emnlp-main.595).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

from flowgraph.mixing import EdgeKind
from flowgraph.mixing.parts import Parts, blocks, double, parts_of, stream_after_attention, working_dtype

if TYPE_CHECKING:
    from torch import Tensor

    from flowgraph.capture.record import LayerRecord


TILE_KEYS = 8
TILE_BYTES = 2**21
"""Size of the piece of parts that exists at one time: small enough to stay in cache."""


def alti(record: LayerRecord) -> Tensor:
    """(T, T) float64."""
    output = _output(record)  # (T, D)
    left = _remainders(parts_of(record, "attention-norm"), output, working_dtype(record.weights))
    whole = torch.linalg.vector_norm(output, ord=1, dim=-1)
    return (whole[:, None] - left.T).clamp_(min=0)


def _remainders(parts: Parts, output: Tensor, dtype: torch.dtype) -> Tensor:
    """(Tk, Tq) float64: ``||y[i] - t[i, j]||``, made in ``dtype``."""
    assert parts.own is not None
    weights = parts.weights.to(output.device).to(dtype)
    if parts.divisor is not None:
        weights = weights / parts.divisor[:, None].to(dtype)
    itself = weights.diagonal(dim1=1, dim2=2).T.contiguous()  # (T, H)
    others = (output - parts.own).to(dtype)
    output = output.to(dtype)
    count, width = output.shape
    left = output.new_empty(count, count)
    few_rows = max(1, TILE_BYTES // (dtype.itemsize * TILE_KEYS * width))
    made = output.new_empty(TILE_KEYS * min(few_rows, count) * width)  # one tile, used over and over
    for keys in blocks(count, dtype.itemsize * len(weights) * (width + count), 2 * TILE_BYTES):
        vectors = parts.head_vectors(keys, dtype).contiguous()  # (keys, H, D)
        by_key = weights[:, :, keys].permute(2, 1, 0).contiguous()  # (keys, Tq, H)
        for few in blocks(len(vectors), 1, TILE_KEYS):
            for rows in blocks(count, 1, few_rows):
                shape = (few.stop - few.start, rows.stop - rows.start, width)
                tile = torch.bmm(by_key[few, rows], vectors[few], out=made[: prod(shape)].view(shape))
                left[keys][few, rows] = tile.sub_(output[rows]).abs_().sum(-1)
        mine = (itself[keys, None] @ vectors)[:, 0]  # (keys, D)
        left.diagonal()[keys] = mine.sub_(others[keys]).abs_().sum(-1)
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
