"""What of a page fits into its budget of bytes, and what the page says of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.export.page.document import METHOD_NAMES, Content, library_bytes, render
from flowgraph.export.page.variants import Variant
from flowgraph.export.rows import Pruning, prune
from flowgraph.graph import LayeredGraph

# numbers are base64, 4 characters for 3 bytes; an edge has a node number and a capacity
_NUMBER_BYTES = 8 * 4 / 3
_EDGE_BYTES = (4 + 8) * 4 / 3

Scores = dict[tuple[str, int], np.ndarray]


def within_budget(variants: list[Variant], max_mb: float, first: dict[str, Any], title: str | None) -> str:
    """The page, made again with fewer edges until it fits: its size is known only when it is there."""
    library = library_bytes()
    room = max_mb * 1e6
    allowed, last = room, -1
    for _ in range(8):
        html = render(variants, _fit(variants, allowed, first), first, title)
        size = len(html.encode("utf-8", "replace")) - library
        if size <= room:
            return html
        if size == last:
            break  # nothing more can be left out
        last = size
        allowed = allowed * 0.92 * room / size if size < 4 * room else allowed - (size - room)
    raise FlowgraphError(
        f"max_mb: {max_mb} MB is too little even for the tokens and the largest edges ({size / 1e6:.2f} MB); "
        "pass a larger max_mb, or explain a shorter text"
    )


def _fit(variants: list[Variant], room: float, first: dict[str, Any]) -> Content:
    """Share the room out evenly among the variants."""
    each = (room - 40_000 - 120 * variants[0].graph.num_nodes) / len(variants)
    content = Content([], [], [])
    for variant in variants:
        pruning, kept = _fit_variant(variant, each, first["layer"])
        content.prunings.append(pruning)
        content.scores.append(kept)
        content.notes += _notes(variant, pruning, kept, len(variants) > 1)
    return content


def _fit_variant(variant: Variant, room: float, layer: int) -> tuple[Pruning, Scores]:
    """Scores of the layer that is looked at first, then edges, then the other scores."""
    kept: Scores = {}
    order = sorted(variant.scores, key=lambda key: (key[1] != layer, key[0] == "raw", -key[1]))

    def keep(key: tuple[str, int], share: float) -> None:
        nonlocal room
        size = variant.scores[key].size * _NUMBER_BYTES
        if size < share * room:
            kept[key] = variant.scores[key]
            room -= size

    for key in order:
        if key[1] == layer:
            keep(key, 0.75)
    pruning = _fit_edges(variant.graph, room)
    room -= sum(int(mask.sum()) for mask in pruning.keep) * _EDGE_BYTES
    for key in order:
        if key not in kept:
            keep(key, 1.0)
    return pruning, kept


def _fit_edges(graph: LayeredGraph, room: float) -> Pruning:
    """All edges, or of each node as many of the largest as there is room for."""
    if graph.num_edges * _EDGE_BYTES <= room:
        return prune(graph)
    sources = sum(graph.levels[k].size for k in {block.upper for block in graph.blocks})
    return prune(graph, top_k=max(1, int(room / _EDGE_BYTES / sources)))


def _notes(variant: Variant, pruning: Pruning, kept: Scores, several: bool) -> list[str]:
    """What the page says was left out."""
    where = f"{variant.kind}, {variant.head}: " if several else ""
    notes = []
    before = variant.graph.meta.get("pruning", "none")
    if before != "none":
        notes.append(
            f"{where}The graph was pruned before: {before}. Scores, flows and cuts are those of the rest."
        )
    if pruning.dropped_edges:
        notes.append(
            f"{where}To keep this file small only the {pruning.top_k} largest edges of each node are in it: "
            f"{pruning.dropped_edges} of {variant.graph.num_edges} edges are left out, "
            f"{pruning.dropped_mass / pruning.total_mass:.1%} of the capacity. Flows and cuts drawn here are those "
            "of the edges kept; the values of attention flow are of all edges."
        )
    missing = sorted({key for key in variant.scores if key not in kept})
    if missing:
        listed = "; ".join(f"{METHOD_NAMES.get(m, m)} of level {number}" for m, number in missing[:12])
        more = f" and {len(missing) - 12} more" if len(missing) > 12 else ""
        notes.append(f"{where}To keep this file small these scores are not in it: {listed}{more}.")
    return notes
