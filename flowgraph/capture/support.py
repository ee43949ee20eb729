"""Which edge kinds work for a model, and why not where they do not."""

from __future__ import annotations

from typing import Any

import torch

from flowgraph import mixing
from flowgraph.capture.record import FrozenNorm, LayerRecord
from flowgraph.capture.survey import Survey, survey
from flowgraph.errors import FlowgraphError

_THERE = torch.zeros(1, 1, 1)
_NORM = FrozenNorm(gain=_THERE, bias=None, sigma=_THERE, centred=True)


def supported_kinds(model: Any, hybrid: str = "error") -> dict[str, str | None]:
    """Edge kind -> None where it works for ``model`` (loaded), else the reason why not.

    A model that cannot be traced at all has the same reason for every kind; ``hybrid`` as in
    ``flowgraph.trace``.
    """
    try:
        found = survey(model, hybrid)
    except FlowgraphError as error:
        return dict.fromkeys(mixing.names(), str(error).removeprefix("model: "))
    return {name: why_not(mixing.get(name), found, found.crossed) for name in mixing.names()}


def why_not(kind: mixing.EdgeKind, found: Survey, crossed: bool) -> str | None:
    """The reason why ``kind`` cannot be had from these blocks; None where it can.

    ``crossed``: cross-attention takes part.
    """
    for block in found.blocks:
        reason = kind.refusal(_sketch(block.layout.kind, dict(block.layout.missing), block.number))
        if reason is not None:
            return reason
    if crossed:
        return kind.refusal(_sketch("cross", {}, 1))
    return None


def _sketch(block: Any, missing: dict[str, str], number: int) -> LayerRecord:
    """A record that says what is there and what is missing, and nothing else."""
    fields: dict[str, Any] = {
        name: None if name in missing else _THERE
        for name in ("values", "output_weight", "stream", "attention_output", "block_output")
    }
    norms: dict[str, Any] = {
        name: None if name in missing else _NORM for name in ("branch_norm", "attention_norm", "output_norm")
    }
    return LayerRecord(
        layer=number,
        weights=_THERE,
        visible=_THERE[0].bool(),
        output_bias=None,
        block=block,
        rerun=None if "rerun" in missing else _no_rerun,
        attention_norm_output=_THERE[0],
        feed_forward_output=_THERE[0],
        missing=missing,
        **fields,
        **norms,
    )


def _no_rerun(attention_output: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return attention_output
