"""Norm with the residual stream: ``||p[i, j] + d[i, j] x[i]||``, ``d`` the identity.

Limits: one matrix for all heads; leaves out the norm on the stream of post-norm blocks
(``norm-residual-ln``). ``p[i, j]`` is what ``sum_h A[h, i, j] f[h, j]`` adds to the stream, after a norm or
scale on the attention output where the block has one. Kobayashi et al. 2021
(10.18653/v1/2021.emnlp-main.373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowgraph.mixing import EdgeKind
from flowgraph.mixing.parts import parts_of

if TYPE_CHECKING:
    from torch import Tensor

    from flowgraph.capture.record import LayerRecord


def norm_residual(record: LayerRecord) -> Tensor:
    """(T, T) float64."""
    return parts_of(record, "stream").norms()


KIND = EdgeKind(
    "norm-residual",
    all_heads=norm_residual,
    holds_residual=True,
    needs=("values", "output_weight", "stream"),
)
