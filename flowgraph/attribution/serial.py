"""Attributions as JSON: everything but the graph, numbers exact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from flowgraph.errors import FlowgraphError

if TYPE_CHECKING:
    from flowgraph.attribution.result import Attribution

FORMAT = "flowgraph attribution 1"
"""Its number changes if a key changes its meaning."""


def to_dict(attribution: Attribution) -> dict[str, Any]:
    """The plain values of :meth:`Attribution.to_json`."""
    return {
        "format": FORMAT,
        "method": attribution.method,
        "edges": attribution.edges,
        "level": attribution.level,
        "tokens": list(attribution.tokens),
        "target_tokens": list(attribution.target_tokens),
        "positions": _listed(attribution.positions),
        "target_positions": _listed(attribution.target_positions),
        "scores": attribution.scores.tolist(),
        "special": _listed(attribution.special),
        "word_ids": _listed(attribution.word_ids),
        "target_special": _listed(attribution.target_special),
        "target_word_ids": _listed(attribution.target_word_ids),
        "held_by": None if attribution.held_by is None else attribution.held_by.tolist(),
        "meta": dict(attribution.meta),
    }


def write_json(values: dict[str, Any], path: str | PathLike[str] | None) -> str:
    """``values`` as text; with ``path`` it is written there too."""
    text = json.dumps(values, allow_nan=False)  # ASCII: half an emoji cannot be encoded otherwise
    if path is not None:
        from flowgraph.export.files import replacing

        with replacing(path) as file:
            file.write(text.encode())
    return text


def read_json(source: str | PathLike[str]) -> dict[str, Any]:
    """Fields of the attribution that ``source``, JSON text or the path of a file of it, holds."""
    text = source if isinstance(source, str) and source.lstrip().startswith("{") else _read(source)
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise FlowgraphError(f"source: not JSON ({error}); pass what Attribution.to_json wrote") from None
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise FlowgraphError(f"source: not a {FORMAT!r} file; pass what Attribution.to_json wrote")
    return values


def _listed(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _read(path: str | PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FlowgraphError(f"source: {str(path)!r} cannot be read: {error}") from None
