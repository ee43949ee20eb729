"""Norm with residual stream and layer norm: the ``norm-residual`` parts through the norm after attention.

Limits: one matrix for all heads; in blocks with no norm on the stream (pre-norm, parallel) it is
``norm-residual``. The norm is frozen at the vector it saw: a part loses its own mean (LayerNorm only), is
divided by the actual ``sqrt(variance + eps)``, multiplied by the gain; no bias. Kobayashi et al. 2021
(10.18653/v1/2021.emnlp-main.373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flowgraph.mixing import EdgeKind
from flowgraph.mixing.parts import parts_of, whole_of

if TYPE_CHECKING:
    from torch import Tensor

    from flowgraph.capture.record import LayerRecord


def norm_residual_ln(record: LayerRecord) -> Tensor:
    """(T, T) float64."""
    return parts_of(record, "attention-norm").norms()


def mixing_ratio(record: LayerRecord) -> Tensor:
    """``m / (m + k)``: (T,) float64, ``m`` the norm of the sum of all parts from other tokens, ``k`` that of
    the token's own part; 0 where both are 0."""
    kept = parts_of(record, "attention-norm").diagonal()
    kept_norm = torch.linalg.vector_norm(kept, dim=-1)
    mixed_norm = torch.linalg.vector_norm(whole_of(record, "attention-norm") - kept, dim=-1)
    both = kept_norm + mixed_norm
    return torch.where(both > 0, mixed_norm / both.clamp(min=torch.finfo(both.dtype).tiny), 0.0)


def extras(record: LayerRecord) -> dict[str, Tensor]:
    return {"mixing-ratio": mixing_ratio(record)}


KIND = EdgeKind(
    "norm-residual-ln",
    all_heads=norm_residual_ln,
    holds_residual=True,
    needs=("values", "output_weight", "stream"),
    needs_in={"post-norm": ("attention_norm",)},
    extras=extras,
)
