"""What a picture shows: scores with their tokens, of an attribution or of plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from flowgraph.errors import FlowgraphError


class Scores(NamedTuple):
    """What a picture of an attribution shows."""

    values: np.ndarray
    """``(targets, inputs)`` or ``(L, targets, inputs)``."""
    tokens: list[str]
    target_tokens: list[str]
    title: str
    level: int | str
    meta: Mapping[str, Any]


def read_scores(
    attribution: Any, tokens: Sequence[str] | None = None, target_tokens: Sequence[str] | None = None
) -> Scores:
    """An attribution, or an array with tokens, as :class:`Scores`."""
    made = hasattr(attribution, "scores")
    values = np.asarray(attribution.scores if made else attribution, dtype=float)
    if values.ndim not in (2, 3) or 0 in values.shape or not np.isfinite(values).all():
        raise FlowgraphError(
            f"attribution: shape {values.shape}; pass an Attribution or finite scores (targets, inputs) or "
            "(levels, targets, inputs), none of them empty"
        )
    rows, columns = values.shape[-2:]
    names = _names(tokens, attribution.tokens if made else None, columns, "tokens")
    own = attribution.target_tokens if made else names if rows == columns else None
    return Scores(
        values,
        names,
        _names(target_tokens, own, rows, "target_tokens"),
        _title(attribution) if made else "",
        attribution.level if made else "",
        attribution.meta if made else {},
    )


def _title(attribution: Any) -> str:
    level = "all levels" if attribution.level == "all" else f"level {attribution.level}"
    return f"{attribution.method}, {attribution.edges}, {level}"


def _names(given: Sequence[str] | None, own: Sequence[str] | None, count: int, argument: str) -> list[str]:
    names = given if given is not None else own if own is not None else range(count)
    if isinstance(names, str) or len(names) != count:
        raise FlowgraphError(f"{argument}: {len(names)} given for {count} positions; pass a list of {count}")
    return [str(name) for name in names]


def one_target(shown: Scores, target: int | str | None) -> int:
    count = len(shown.target_tokens)
    if target is None:
        if count == 1:
            return 0
        raise FlowgraphError(
            f"target: this picture shows one of the {count}; pass 0 to {count - 1} or a token"
        )
    if isinstance(target, str):
        where = [k for k, token in enumerate(shown.target_tokens) if token == target]
        if len(where) == 1:
            return where[0]
        found = f"stands at {', '.join(map(str, where))}; pass one of these" if where else "is not among them"
        raise FlowgraphError(f"target: {target!r} {found} (targets: 0 to {count - 1})")
    if isinstance(target, (int, np.integer)) and not isinstance(target, bool) and -count <= target < count:
        return int(target) % count
    raise FlowgraphError(
        f"target: {target!r} is not one of {count} targets; pass 0 to {count - 1} or a token"
    )
