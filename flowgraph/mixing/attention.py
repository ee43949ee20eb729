"""The attention weight itself: ``A[h, i, j]``, the mean over heads for ``heads="all"``.

Limits: none; the weight alone says nothing of what is read.
Abnar & Zuidema 2020 (10.18653/v1/2020.acl-main.385).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowgraph.mixing import EdgeKind

if TYPE_CHECKING:
    from torch import Tensor

    from flowgraph.capture.record import LayerRecord


def attention(record: LayerRecord) -> Tensor:
    """``(H, Tq, Tk)``; rows sum to 1 but for what an attention sink has taken."""
    return record.weights


KIND = EdgeKind("attention", per_head=attention, rows_sum_to_one=True, cross=True)
