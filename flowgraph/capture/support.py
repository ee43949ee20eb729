"""Which edge kinds work for a model, and why not where they do not."""

from __future__ import annotations

from typing import Any

import torch

from flowgraph import mixing
from flowgraph.capture.record import BEHIND_CROSS, FrozenNorm, LayerRecord
from flowgraph.capture.survey import Survey, survey
from flowgraph.errors import FlowgraphError

_THERE = torch.zeros(1, 1, 1)
_NORM = FrozenNorm(gain=_THERE, bias=None, sigma=_THERE, centred=True)


def supported_kinds(model: Any, hybrid: str = "error") -> dict[str, str | None]:
    """Edge kind -> None where it works for ``model`` (loaded) as a whole, else the reason why not.

    A model that cannot be traced at all has the same reason for every kind; ``hybrid`` as in
    ``flowgraph.trace``.
    """
    try:
        parts = supported_parts(model, hybrid)
    except FlowgraphError as error:
        return dict.fromkeys(mixing.names(), str(error).removeprefix("model: "))
    return {kind: _for_the_whole(reasons) for kind, reasons in parts.items()}


def _for_the_whole(reasons: dict[str, str | None]) -> str | None:
    """The reason that bars a graph of all parts: cross-attention's own before one that follows from it."""
    return reasons.get("cross") or next(filter(None, reasons.values()), None)


def supported_parts(model: Any, hybrid: str = "error") -> dict[str, dict[str, str | None]]:
    """Edge kind -> part of ``model`` (loaded) -> None where it works there, else the reason why not.

    Parts are ``encoder``, ``decoder`` and ``cross`` of an encoder-decoder model, ``self`` of any other. Raises
    ``FlowgraphError`` for a model that cannot be traced at all.
    """
    found = survey(model, hybrid)
    return {name: reasons_by_part(mixing.get(name), found, found.crossed) for name in mixing.names()}


def reasons_by_part(kind: mixing.EdgeKind, found: Survey, crossed: bool) -> dict[str, str | None]:
    """Part -> the reason why ``kind`` cannot be had from its blocks; None where it can.

    ``crossed``: cross-attention takes part.
    """
    reasons: dict[str, str | None] = {}
    for block in found.blocks:
        behind = BEHIND_CROSS if crossed and block.layout.cross_projection else {}
        sketch = _sketch(block.layout.kind, {**behind, **block.layout.missing}, block.number)
        reasons[block.stack] = reasons.get(block.stack) or kind.refusal(sketch)
    if crossed:
        reasons["cross"] = kind.refusal(_sketch("cross", {}, 1))
    return reasons


def _sketch(block: Any, missing: dict[str, str], number: int) -> LayerRecord:
    """A record that says what is there and what is missing, and nothing else."""
    fields: dict[str, Any] = {
        name: None if name in missing else _THERE
        for name in (
            "values",
            "output_weight",
            "stream",
            "attention_output",
            "attention_norm_output",
            "feed_forward_output",
            "block_output",
        )
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
        missing=missing,
        **fields,
        **norms,
    )


def _no_rerun(attention_output: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return attention_output
