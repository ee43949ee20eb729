"""Value zeroing: how far a position's output turns when one token's value vectors are set to zero.

    ``||u - u'||^2 / 2 = 1 - cos(out[i], out'[i])``, ``u`` and ``u'`` unit vectors

with ``out`` the block's output, before the model's final norm, and ``out'`` the same without token ``j``, the
block's input kept.

Limits: one matrix for all heads; what follows attention in the block runs for every visible pair, ``T`` times
the feed-forward work of a layer; refused where it cannot be re-run. The attention output without token ``j``
is that with all tokens less ``sum_h A[h, i, j] f[h, j]``, so attention itself never runs again. In parallel
blocks the feed-forward part does not read it, and nothing is re-run. Models in half precision are re-run in
float32, and distances are float64: with fewer digits the small ones vanish or turn negative. Rows hold no share
of the residual stream, though a graph adds none. Mohebbi et al. 2023 (10.18653/v1/2023.eacl-main.245).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flowgraph.errors import FlowgraphError
from flowgraph.mixing import EdgeKind
from flowgraph.mixing.parts import blocks, double, parts_of, working_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flowgraph.capture.record import LayerRecord

ROWS = 1024
"""Rows re-run at a time: enough for the matrix products, few enough for the feed-forward's inner vectors."""


def value_zeroing(record: LayerRecord) -> Tensor:
    """(T, T) float64."""
    if record.block == "parallel" and record.branch_norm is None:
        return _subtracted(record)
    return _rerun(record)


def _rerun(record: LayerRecord) -> Tensor:
    """Distances with everything after the output projection run again, many pairs at a time."""
    if record.rerun is None:
        raise FlowgraphError(
            f"edges: 'value-zeroing' cannot re-run what follows attention in layer {record.layer}"
        )
    parts = parts_of(record, "projection")
    # not as the model rounded it: where all of it is taken away, nothing must be left
    attended = parts.total()
    if record.output_bias is not None:
        attended = attended + double(record.output_bias)
    dtype = working_dtype(record.weights)
    attended, weights = attended.to(record.weights.device).to(dtype), record.weights.to(dtype)
    unit = _unit(double(_run_again(record.rerun, attended)))[0]
    count = len(attended)
    distances = unit.new_zeros(count, count)  # (keys, queries)
    for keys in blocks(count, count, ROWS):
        vectors = parts.head_vectors(keys, dtype).to(attended.device)  # (keys, H, D)
        by_key = weights[:, :, keys].permute(2, 1, 0)  # (keys, T, H)
        without = torch.baddbmm(
            attended.expand(len(by_key), -1, -1), by_key, vectors, alpha=-1
        )  # (keys, T, D)
        seen = record.visible[:, keys].T  # (keys, T)
        positions = seen.nonzero()[:, 1]  # (N,)
        changed = record.rerun(without[seen], positions)  # (N, D)
        distances[keys][seen.to(unit.device)] = _distance(unit[positions.to(unit.device)], double(changed))
    return distances.T


def _run_again(rerun: Callable[[Tensor, Tensor], Tensor], attention_output: Tensor) -> Tensor:
    """(T, D): the block's output by the re-run too, so that one rounding more or less is no distance."""
    positions = torch.arange(len(attention_output), device=attention_output.device)
    rows = blocks(len(positions), 1, ROWS)
    return torch.cat([rerun(attention_output[few], positions[few]) for few in rows])


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors and (..., 1) lengths; a zero vector stays zero."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    safe = length.clamp(min=torch.finfo(length.dtype).tiny)
    return vectors / safe, safe


def _distance(unit: Tensor, changed: Tensor) -> Tensor:
    """(N,) float64: ``||u - u'||^2 / 2`` of unit vectors (N, D) and of ``changed`` (N, D) made so."""
    return (_unit(changed)[0].sub_(unit)).square_().sum(-1) / 2


def _subtracted(record: LayerRecord) -> Tensor:
    """Distances where ``out'[i] = out[i] - p[i, j]``, from dot products and Gram matrices.

    With ``a = |out|``, ``c`` the length of ``p`` along ``out``, ``q`` its squared length across and ``b =
    |out'| = sqrt((a - c)^2 + q)``: ``1 - cos = (b - (a - c)) / b``, and where ``a > c`` that difference of
    nearly equal numbers is ``q / (b + a - c)``.
    """
    assert record.block_output is not None
    parts = replace(parts_of(record, "stream"), own=None)
    unit, length = _unit(double(record.block_output))  # (T, D), (T, 1)
    along = parts.along(unit)
    across = (parts.norms().square() - along.square()).clamp_(min=0)
    ahead = length - along
    shrunk = (ahead.square() + across).sqrt().clamp_(min=torch.finfo(across.dtype).tiny)
    return torch.where(ahead > 0, across / (shrunk + ahead.clamp(min=0)), shrunk - ahead) / shrunk


KIND = EdgeKind(
    "value-zeroing",
    all_heads=value_zeroing,
    holds_residual=True,
    needs=("values", "output_weight", "block_output"),
    needs_in={"post-norm": ("rerun",), "pre-norm": ("rerun",)},
)
