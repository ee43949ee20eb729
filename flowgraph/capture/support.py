"""Which edge kinds work for a model, and why not where they do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from flowgraph import mixing
from flowgraph.capture.record import BEHIND_CROSS, FrozenNorm, LayerRecord
from flowgraph.capture.survey import HybridModelError, Survey, survey
from flowgraph.errors import FlowgraphError

_THERE = torch.zeros(1, 1, 1)
_NORM = FrozenNorm(gain=_THERE, bias=None, sigma=_THERE, centred=True)


@dataclass(frozen=True)
class Support:
    """Which edge kinds work for a model."""

    parts: Mapping[str, Mapping[str, str | None]]
    """Edge kind -> part -> None where it works there, else the reason why not; empty where ``refusal`` is given.
    Parts are ``encoder``, ``decoder`` and ``cross`` of an encoder-decoder model, ``self`` of any other."""
    refusal: str | None = None
    """Why the model cannot be traced at all."""
    hybrid: str | None = None
    """Why the model is refused unless ``hybrid="skip"``, which ``parts`` then speaks of."""

    @property
    def kinds(self) -> dict[str, str | None]:
        """Edge kind -> None where it works for the model as a whole, else the reason why not."""
        if self.refusal is not None:
            return dict.fromkeys(mixing.names(), self.refusal)
        return {kind: _for_the_whole(reasons) for kind, reasons in self.parts.items()}

    def working_parts(self, kind: str) -> list[str]:
        """The parts of the model that ``kind`` works for."""
        return [part for part, reason in self.parts.get(kind, {}).items() if reason is None]

    def to_dict(self) -> dict[str, Any]:
        """Plain values: ``edges``, and ``hybrid`` where it is the condition."""
        edges: dict[str, Any] = {
            kind: {"works": why is None, "why_not": why} for kind, why in self.kinds.items()
        }
        for kind, reasons in self.parts.items():
            if len(reasons) > 1:
                edges[kind]["parts"] = dict(reasons)
        return {"edges": edges} | ({"hybrid": self.hybrid} if self.hybrid is not None else {})


def support(model: Any) -> Support:
    """What works for ``model`` (loaded); of a model with layers without attention, what ``hybrid="skip"`` gives."""
    hybrid = None
    try:
        try:
            survey(model)
        except HybridModelError as error:
            hybrid = str(error).removeprefix("model: ").partition("; ")[0]
        return Support(supported_parts(model, "skip"), hybrid=hybrid)
    except FlowgraphError as error:
        return Support({}, refusal=str(error).removeprefix("model: "))


def supported_kinds(model: Any, hybrid: str = "error") -> dict[str, str | None]:
    """Edge kind -> None where it works for ``model`` (loaded) as a whole, else the reason why not.

    A model that cannot be traced at all has the same reason for every kind; ``hybrid`` as in
    ``flowgraph.trace``.
    """
    found = support(model)
    if hybrid == "error" and found.hybrid is not None:
        found = Support({}, refusal=f"{found.hybrid}; pass hybrid='skip' to pass over them")
    return found.kinds


def _for_the_whole(reasons: Mapping[str, str | None]) -> str | None:
    """The reason that bars a graph of all parts: cross-attention's own before one that follows from it."""
    return reasons.get("cross") or next(filter(None, reasons.values()), None)


def supported_parts(model: Any, hybrid: str = "error") -> dict[str, dict[str, str | None]]:
    """:attr:`Support.parts` of ``model`` (loaded). Raises ``FlowgraphError`` where it cannot be traced at all."""
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
