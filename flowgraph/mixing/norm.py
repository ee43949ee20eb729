"""Norm of the attended vectors: ``A[h, i, j] ||f[h, j]||`` for a head, ``||sum_h A[h, i, j] f[h, j]||`` for
all.

Limits: leaves out the residual stream and every norm. ``f[h, j] = v[h, j] W_O[h]``, the value bias in, the
output bias out. ``heads="all"`` sums the heads' vectors before the norm, so heads that cancel count for
nothing. Kobayashi et al. 2020 (10.18653/v1/2020.emnlp-main.574).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowgraph.mixing import EdgeKind
from flowgraph.mixing.parts import double, parts_of

if TYPE_CHECKING:
    from torch import Tensor

    from flowgraph.capture.record import LayerRecord


def head_norms(record: LayerRecord) -> Tensor:
    """``||f[h, j]||``: (H, Tk) float64."""
    return parts_of(record, "projection").head_norms()


def norm_per_head(record: LayerRecord) -> Tensor:
    """``A[h, i, j] ||f[h, j]||``: (H, Tq, Tk) float64."""
    return double(record.weights) * head_norms(record)[:, None, :]


def norm(record: LayerRecord) -> Tensor:
    """``||sum_h A[h, i, j] f[h, j]||``: (Tq, Tk) float64."""
    return parts_of(record, "projection").norms()


def extras(record: LayerRecord) -> dict[str, Tensor]:
    return {"norms": head_norms(record)}


KIND = EdgeKind(
    "norm",
    per_head=norm_per_head,
    all_heads=norm,
    cross=True,
    needs=("values", "output_weight"),
    extras=extras,
)
