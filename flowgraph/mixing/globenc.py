"""GlobEnc: the ``norm-residual-ln`` parts through the block's second norm.

Limits: one matrix for all heads; the feed-forward output itself is left out; in blocks with no norm on the
stream (pre-norm, parallel) it is ``norm-residual``. The second norm is frozen at the vector it saw, without
its bias.

The authors multiply the norms as they are in their rollout: that is ``normalize=False, residual=None`` of a
graph. By default a graph divides each row by its sum, as for every kind; the two rank tokens differently.
Modarressi et al. 2022 (10.18653/v1/2022.naacl-main.19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowgraph.mixing import EdgeKind
from flowgraph.mixing.parts import parts_of

if TYPE_CHECKING:
    from torch import Tensor

    from flowgraph.capture.record import LayerRecord


def globenc(record: LayerRecord) -> Tensor:
    """(T, T) float64."""
    return parts_of(record, "output-norm").norms()


KIND = EdgeKind(
    "globenc",
    all_heads=globenc,
    holds_residual=True,
    needs=("values", "output_weight", "stream"),
    needs_in={"post-norm": ("attention_norm", "output_norm")},
)
