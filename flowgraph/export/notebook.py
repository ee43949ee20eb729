"""What attributions and graphs show of themselves in a notebook: a picture and a table, small, free of scripts."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.errors import MissingDependencyError
from flowgraph.export.labels import visible

if TYPE_CHECKING:
    from flowgraph.attribution import Attribution
    from flowgraph.graph import LayeredGraph

_PICTURED = 64
"""Tokens up to which the heat map is drawn; larger ones are for :meth:`Attribution.plot`."""
_ROWS, _BEST = 12, 5


def attribution_html(attribution: Attribution) -> str:
    """One ``<div>``: what it is, the heat map (where matplotlib is there), the largest inputs of each target.

    Styles stand on the elements themselves, so that none reaches the rest of the notebook.
    """
    from lxml.html import builder as E
    from lxml.html import tostring

    parts: list[Any] = [E.P(E.STRONG(_headline(attribution)))]
    picture = _picture(attribution)
    if picture is not None:
        parts.append(E.IMG(src=f"data:image/png;base64,{picture}", alt="heat map", style="max-width: 40em"))
    parts.append(E.TABLE(_heading(E), *_rows(E, attribution)))
    if len(attribution.target_tokens) > _ROWS:
        parts.append(E.P(f"{len(attribution.target_tokens) - _ROWS} more targets are left out here."))
    return str(tostring(E.DIV(*parts), encoding="unicode"))


def _headline(attribution: Attribution) -> str:
    rows, columns = attribution.scores.shape[-2:]
    model = attribution.meta.get("model")
    where = "all levels" if attribution.level == "all" else f"level {attribution.level}"
    return f"{attribution.method} over {attribution.edges}, {where}, {rows} × {columns} tokens" + (
        f", {visible(str(model), max_length=60)}" if model else ""
    )


def graph_html(graph: LayeredGraph) -> str:
    """One ``<div>``: what the graph is, its picture where it is small, and a table of its levels."""
    from lxml.html import builder as E
    from lxml.html import tostring

    parts: list[Any] = [E.P(E.STRONG(repr(graph).strip("<>")))]
    small = max(level.size for level in graph.levels) <= _PICTURED and not graph.signed
    picture = _encoded(lambda plot: plot.layered(graph)) if small else None
    if picture is not None:
        parts.append(
            E.IMG(src=f"data:image/png;base64,{picture}", alt="layered graph", style="max-width: 40em")
        )
    parts.append(
        E.TABLE(
            E.TR(*(E.TH(name) for name in ("level", "nodes", "edges down", "tokens"))), *_levels(E, graph)
        )
    )
    return str(tostring(E.DIV(*parts), encoding="unicode"))


def _levels(E: Any, graph: LayeredGraph) -> list[Any]:
    """One row a level, inputs first: name, size, edges that leave it, its first tokens."""
    rows = []
    for k, level in enumerate(graph.levels):
        edges = sum(int(np.count_nonzero(b.capacity)) for b in graph.blocks if b.upper == k)
        tokens = " ".join(visible(token) for token in level.tokens[:_ROWS])
        more = " …" if level.size > _ROWS else ""
        cells = (visible(level.name), str(level.size), str(edges), tokens + more)
        rows.append(E.TR(*(E.TD(cell, style="text-align: left") for cell in cells)))
    return rows


def _picture(attribution: Attribution) -> str | None:
    """The heat map as base64 of a PNG; None where it would be large."""
    if max(attribution.scores.shape[-2:]) > _PICTURED or attribution.scores.ndim == 3:
        return None
    return _encoded(lambda plot: plot.heatmap(attribution))


def _encoded(draw: Callable[[Any], Any]) -> str | None:
    """A picture as base64 of a PNG; None where matplotlib is not installed. ``draw`` is given the plot module."""
    from flowgraph.export import plot
    from flowgraph.export.figure import to_bytes

    try:
        return base64.b64encode(to_bytes(draw(plot), dpi=80)).decode("ascii")
    except MissingDependencyError:
        return None


def _heading(E: Any) -> Any:
    return E.TR(E.TH("target"), E.TH("largest inputs", colspan=str(_BEST)), style="text-align: left")


def _rows(E: Any, attribution: Attribution) -> list[Any]:
    """One row a target: its token, then the inputs with the largest scores."""
    rows = []
    for number, token in enumerate(attribution.target_tokens[:_ROWS]):
        best = attribution.top(_BEST, target=number)
        cells = [
            # a token written from right to left would pull the number before it
            E.TD(E.E.bdi(visible(score.token)), f" {score.score:.3f}", style="text-align: left")
            for score in best
        ]
        rows.append(E.TR(E.TH(visible(token), scope="row", style="text-align: left"), *cells))
    return rows
