"""One self-contained interactive page: the layered graph beside the heat map, drawn by Bokeh.

Why Bokeh: its library is 1.3 MB, where Plotly's is 4.8, and ships inside the Python package; it draws on a
canvas, which holds ten thousand edges with ease; and a page works on its models (sources, figures, ranges)
through :class:`bokeh.models.CustomJS`, so what is added here is no chart code: only what is to be shown
(``page.js``) and the maximum flow of a pair that is clicked (``maxflow.js``).

The page loads nothing, and its Content-Security-Policy forbids it to. Tokens reach it as JSON and are written
by ``textContent`` or on a canvas, so nothing a text contains can run or become markup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.errors import FlowgraphError, missing_dependency
from flowgraph.export.files import replacing
from flowgraph.export.labels import visible
from flowgraph.export.plot import mostly_small
from flowgraph.export.rows import Pruning, prune
from flowgraph.graph import LayeredGraph

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource
    from bokeh.plotting import figure as Figure

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)
"""What the page may do: run its own script, show its own styles, load nothing."""

SMALL = 32
"""Tokens up to which flows of all pairs are computed when the page is made from a graph alone."""

_FIRST_EDGES = 1500  # edges shown at first, besides one a node: the residual edges are mostly the largest
_NAMES = {"flow": "attention flow", "rollout": "attention rollout", "raw": "raw attention"}

# light, dark, as in page.css; from the palette of Okabe & Ito, made to stay apart for every kind of colour vision
_COLOURS = {
    "edges": ("#56708a", "#7d93a8"),
    "lit": ("#009e73", "#2fd6a8"),
    "flow": ("#0072b2", "#56b4e9"),
    "cut": ("#d55e00", "#ff8c3a"),
    "nodes": ("#1b1f24", "#e8edf2"),
    "marks": ("#d55e00", "#ff8c3a"),
}

# bytes in the page: numbers are base64, 4 characters for 3 bytes; an edge has two node numbers and a capacity
_NUMBER_BYTES = 8 * 4 / 3
_EDGE_BYTES = (4 + 4 + 8) * 4 / 3


@dataclass
class Variant:
    """One graph the page can show: an edge kind and a head, with scores by method and layer number."""

    graph: LayeredGraph
    kind: str
    head: str
    scores: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)


@dataclass
class Content:
    """What fits: kept edges of each variant, kept scores, and what the page says about the rest."""

    prunings: list[Pruning]
    scores: list[dict[tuple[str, int], np.ndarray]]
    notes: list[str]


def page(
    subject: Any,
    path: str | PathLike[str] | None = None,
    *,
    max_mb: float = 5.0,
    title: str | None = None,
    all_flows: bool | None = None,
) -> str:
    """The page as HTML; with ``path`` it is written there too.

    Parameters
    ----------
    subject
        A :class:`LayeredGraph`, an :class:`~flowgraph.attribution.Attribution` with its graph, or a list of
        them over the same tokens: edge kinds and heads become choosers on the page.
    max_mb
        Megabytes the page may have besides Bokeh's library. What is too big is left out, smallest capacities
        first, and the page says what.
    all_flows
        Compute attention flow of all pairs of the top level; default: where there are at most 32 tokens.
        Attributions bring their own. Any other pair's flow is computed in the page when it is clicked.
    """
    if not isinstance(max_mb, (int, float)) or not max_mb > 0:
        raise FlowgraphError(f"max_mb: {max_mb!r} is not a size; pass megabytes above 0")
    variants = read_subject(subject)
    _add_scores(variants, all_flows)
    html = _within_budget(variants, max_mb, _first(subject, variants), title)
    if path is not None:
        with replacing(path) as file:
            file.write(html.encode("utf-8"))
    return html


# --- what the page is about -------------------------------------------------------------------------------


def read_subject(subject: Any) -> list[Variant]:
    """Variants of a graph, an attribution, or a list of them; those of one graph become one."""
    items = list(subject) if isinstance(subject, (list, tuple)) else [subject]
    if not items:
        raise FlowgraphError("subject: an empty list; pass a graph, an attribution, or a list of them")
    variants: list[Variant] = []
    for item in items:
        graph = item if isinstance(item, LayeredGraph) else getattr(item, "graph", None)
        if not isinstance(graph, LayeredGraph):
            raise FlowgraphError(
                f"subject: {type(item).__name__} without a graph; pass a LayeredGraph, or an attribution "
                "computed on one (from_json does not keep it)"
            )
        graph.require_unsigned("the page")
        if variants and [v.tokens for v in graph.levels] != [v.tokens for v in variants[0].graph.levels]:
            raise FlowgraphError("subject: graphs over different tokens; make one page for each text")
        variant = _variant_of(variants, graph)
        if item is not graph:
            variant.scores |= _whole_scores(item, graph)
    return variants


def _variant_of(variants: list[Variant], graph: LayeredGraph) -> Variant:
    """The variant of ``graph``, added where it is new; kinds and heads that clash are told apart by number."""
    for variant in variants:
        if variant.graph is graph or _same_capacities(variant.graph, graph):
            return variant
    meta = graph.meta
    head = meta.get("head")
    kind = str(meta.get("edges", "custom"))
    if any(v.kind == kind and v.graph.meta.get("residual") != meta.get("residual") for v in variants):
        kind += f", residual {meta.get('residual') or 0}"
    name = f"head {head}" if head is not None else str(meta.get("heads", "all"))
    taken = {(v.kind, v.head) for v in variants}
    while (kind, name) in taken:
        name += "′"
    variants.append(Variant(graph, kind, name))
    return variants[-1]


def _same_capacities(a: LayeredGraph, b: LayeredGraph) -> bool:
    return len(a.blocks) == len(b.blocks) and all(
        (x.upper, x.lower, x.kind) == (y.upper, y.lower, y.kind) and np.array_equal(x.capacity, y.capacity)
        for x, y in zip(a.blocks, b.blocks, strict=True)
    )


def _whole_scores(attribution: Any, graph: LayeredGraph) -> dict[tuple[str, int], np.ndarray]:
    """Scores by method and layer, where they cover all targets and inputs of the graph."""
    values = np.asarray(attribution.scores, dtype=float)
    stack = values if values.ndim == 3 else values[None]
    numbers = range(1, len(stack) + 1) if values.ndim == 3 else [int(attribution.level)]
    rule = (attribution.meta.get("flow") or {}).get("normalize")
    method = attribution.method if not rule else f"{attribution.method} ({rule})"
    width = sum(graph.levels[k].size for k in graph.inputs)
    return {
        (method, number): matrix
        for number, matrix in zip(numbers, stack, strict=True)
        if matrix.shape == (graph.levels[graph.layers[number - 1]].size, width)
    }


def _add_scores(variants: list[Variant], all_flows: bool | None) -> None:
    """Raw and rollout of every layer; flow of the top one where it is asked for or cheap."""
    from flowgraph.flow import attention_flow
    from flowgraph.rollout import raw, rollout

    for variant in variants:
        graph = variant.graph
        for number in range(1, graph.num_layers + 1):
            own = raw(graph, level=number)
            if own.shape[1] == sum(graph.levels[k].size for k in graph.inputs):
                variant.scores.setdefault(("raw", number), own)
            variant.scores.setdefault(("rollout", number), rollout(graph, level=number))
        small = max(level.size for level in graph.levels) <= SMALL
        top = ("flow", graph.num_layers)
        if top not in variant.scores and (small if all_flows is None else all_flows):
            variant.scores[top] = attention_flow(graph)


def _first(subject: Any, variants: list[Variant]) -> dict[str, Any]:
    """What is chosen at first: the attribution's method and level, and a pair worth seeing."""
    graph, scores = variants[0].graph, variants[0].scores
    item = subject[0] if isinstance(subject, (list, tuple)) else subject
    given = _whole_scores(item, graph) if item is not graph else {}
    method, layer = next(reversed(given)) if given else ("rollout", graph.num_layers)
    if not given and ("flow", layer) in scores:
        method = "flow"
    values = scores[method, layer]
    level = graph.levels[graph.layers[layer - 1]]
    target = level.size - 1 if graph.meta.get("causal") else 0
    special = np.concatenate(
        [graph.levels[k].special or [False] * graph.levels[k].size for k in graph.inputs]
    )
    # a token's own input is seldom news, nor is one the tokenizer added
    worth = np.where(special.astype(bool), -1.0, values[target])
    if len(worth) > target:
        worth[target] = -1.0
    return {"method": method, "layer": layer, "target": target, "input": int(np.argmax(worth))}


# --- what fits --------------------------------------------------------------------------------------------


def _within_budget(variants: list[Variant], max_mb: float, first: dict[str, Any], title: str | None) -> str:
    """The page, made again with fewer edges until it fits: its size is known only when it is there."""
    library = _library_bytes()
    room = max_mb * 1e6
    allowed, last = room, -1
    for _ in range(8):
        html = _render(variants, _fit(variants, allowed, first), first, title)
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
    """Share the room out: scores that are looked at first, then edges, then the other scores."""
    content = Content([], [], [])
    each = (room - 40_000 - 120 * variants[0].graph.num_nodes) / len(variants)
    for variant in variants:
        left = each
        graph = variant.graph
        order = sorted(variant.scores, key=lambda key: (key[1] != first["layer"], key[0] == "raw", -key[1]))
        kept: dict[tuple[str, int], np.ndarray] = {}
        for key in order:
            if key[1] == first["layer"] and variant.scores[key].size * _NUMBER_BYTES < 0.75 * left:
                kept[key] = variant.scores[key]
                left -= variant.scores[key].size * _NUMBER_BYTES
        pruning = _fit_edges(graph, left)
        left -= sum(int(mask.sum()) for mask in pruning.keep) * _EDGE_BYTES
        for key in order:
            if key not in kept and variant.scores[key].size * _NUMBER_BYTES < left:
                kept[key] = variant.scores[key]
                left -= variant.scores[key].size * _NUMBER_BYTES
        content.prunings.append(pruning)
        content.scores.append(kept)
        content.notes += _notes(variant, pruning, kept, len(variants) > 1)
    return content


def _fit_edges(graph: LayeredGraph, room: float) -> Pruning:
    """All edges, or of each node as many of the largest as there is room for."""
    if graph.num_edges * _EDGE_BYTES <= room:
        return prune(graph)
    sources = sum(graph.levels[k].size for k in {block.upper for block in graph.blocks})
    return prune(graph, top_k=max(1, int(room / _EDGE_BYTES / sources)))


def _notes(
    variant: Variant, pruning: Pruning, kept: dict[tuple[str, int], np.ndarray], several: bool
) -> list[str]:
    """What the page says was left out."""
    where = f"{variant.kind}, {variant.head}: " if several else ""
    notes = []
    if pruning.dropped_edges:
        notes.append(
            f"{where}To keep this file small only the {pruning.top_k} largest edges of each node are in it: "
            f"{pruning.dropped_edges} of {variant.graph.num_edges} edges are left out, "
            f"{pruning.dropped_mass / pruning.total_mass:.1%} of the capacity. Flows and cuts drawn here are those "
            "of the edges kept; the values of attention flow are of all edges."
        )
    missing = sorted({key for key in variant.scores if key not in kept})
    if missing:
        listed = "; ".join(f"{_NAMES.get(m, m)} of level {number}" for m, number in missing[:12])
        more = f" and {len(missing) - 12} more" if len(missing) > 12 else ""
        notes.append(f"{where}To keep this file small these scores are not in it: {listed}{more}.")
    return notes


# --- making it --------------------------------------------------------------------------------------------


def _render(variants: list[Variant], content: Content, first: dict[str, Any], title: str | None) -> str:
    try:
        from bokeh.embed import file_html
        from bokeh.models import CustomJS
        from bokeh.resources import INLINE
    except ImportError:
        raise missing_dependency("bokeh", "view", "the page") from None

    graph = variants[0].graph
    data = _data(variants, content, first)
    sources = _sources()
    drawn = _graph_figure(graph, sources)
    colours = _colour_mapper(variants[0].scores[first["method"], first["layer"]])
    heat = _heat_figure(graph, sources, colours)
    script = resources.files(__package__)
    code = script.joinpath("maxflow.js").read_text("utf-8") + script.joinpath("page.js").read_text("utf-8")
    start = CustomJS(
        args={"graph": drawn, "heat": heat, "colours": colours, "data": data, **sources}, code=code
    )
    for model, events in ((drawn, _GRAPH_EVENTS), (heat, _HEAT_EVENTS)):
        for event, act in events.items():
            model.js_on_event(event, CustomJS(code=f"window.flowgraph?.{act}(cb_obj)"))
    return _document(file_html, [drawn, heat], start, INLINE, graph, content.notes, title)


_GRAPH_EVENTS = {"mousemove": "pointAt", "mouseleave": "leave", "tap": "chooseAt"}
_HEAT_EVENTS = {"mousemove": "cellAt", "tap": "chooseCell"}


def _document(
    file_html: Any,
    roots: list[Any],
    start: Any,
    inline: Any,
    graph: LayeredGraph,
    notes: Sequence[str],
    title: str | None,
) -> str:
    from bokeh.document import Document
    from jinja2 import Template  # comes with Bokeh

    document = Document()
    for root in roots:
        document.add_root(root)
    document.js_on_event("document_ready", start)
    files = resources.files(__package__)
    meta = graph.meta
    text = meta.get("text")
    heading = title or f"What each token holds: {meta.get('model') or 'layered graph'}"
    return file_html(
        document,
        inline,
        title=heading,
        template=Template(files.joinpath("page.html").read_text("utf-8")),
        template_variables={
            "policy": POLICY,
            "style": files.joinpath("page.css").read_text("utf-8"),
            "heading": _printable(heading),
            "text": _printable(text if isinstance(text, str) else " | ".join(map(str, text or ()))),
            "facts": _printable(_facts(graph)),
            "notes": [_printable(note) for note in notes],
        },
    )


def _printable(text: str) -> str:
    """``text`` for the head of the page: invisible characters spelt out, lines kept."""
    return "\n".join(visible(line, max_length=20_000) if line.strip() else "" for line in text.split("\n"))


def _facts(graph: LayeredGraph) -> str:
    residual = graph.meta.get("residual")
    versions = graph.meta.get("versions") or {}
    parts = [
        f"{graph.num_nodes} nodes and {graph.num_edges} edges on {len(graph.levels)} levels",
        "no residual added" if residual is None else f"residual {residual:g}",
        "rows sum to 1" if graph.meta.get("normalize", True) else "rows as they are",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
    ]
    return "; ".join(part for part in parts if part)


def _data(variants: list[Variant], content: Content, first: dict[str, Any]) -> dict[str, Any]:
    """What ``page.js`` gets: plain values and arrays, which Bokeh packs as base64."""
    graph = variants[0].graph
    methods = [first["method"], *(m for v in variants for m, _ in v.scores), "flow"]
    return {
        "levels": [{"name": level.name, "size": level.size} for level in graph.levels],
        "layers": list(graph.layers),
        "inputs": list(graph.inputs),
        "offsets": graph.offsets.tolist(),
        "tokens": [list(level.tokens) for level in graph.levels],
        "labels": [[visible(token) for token in level.tokens] for level in graph.levels],
        "methods": list(dict.fromkeys(methods)),
        "names": _NAMES,
        "palette": {name: list(pair) for name, pair in _COLOURS.items()},
        "first_edges": min(_FIRST_EDGES + graph.num_nodes, 4 * _FIRST_EDGES),
        "first": first,
        "matrix": np.zeros((1, 1)),
        "variants": [
            {
                "kind": v.kind,
                "head": v.head,
                "scores": _packed_scores(kept),
                **_packed_edges(v.graph, pruning),
            }
            for v, pruning, kept in zip(variants, content.prunings, content.scores, strict=True)
        ],
    }


def _packed_scores(kept: dict[tuple[str, int], np.ndarray]) -> list[dict[str, Any]]:
    return [
        {"key": f"{method}/{number}", "method": method, "values": np.ascontiguousarray(values).ravel()}
        for (method, number), values in kept.items()
    ]


def _packed_edges(graph: LayeredGraph, pruning: Pruning) -> dict[str, np.ndarray]:
    """Columns of kept edges sorted by source, ``(E,)`` each: node numbers and capacities."""
    offsets = graph.offsets
    pairs = list(zip(graph.blocks, pruning.keep, strict=True))
    source = np.concatenate([offsets[b.upper] + np.nonzero(keep)[0] for b, keep in pairs])
    target = np.concatenate([offsets[b.lower] + np.nonzero(keep)[1] for b, keep in pairs])
    capacity = np.concatenate([b.capacity[keep] for b, keep in pairs])
    order = np.argsort(source, kind="stable")
    return {
        "source": source[order].astype(np.int32),
        "target": target[order].astype(np.int32),
        "capacity": capacity[order],
    }


def _library_bytes() -> int:
    """Size of Bokeh's core script, the one part of its library that the page holds."""
    try:
        from bokeh.resources import Resources
    except ImportError:
        raise missing_dependency("bokeh", "view", "the page") from None

    return sum(len(text.encode("utf-8")) for text in Resources(mode="inline", components=["bokeh"]).js_raw)


# --- Bokeh's models ---------------------------------------------------------------------------------------


def _sources() -> dict[str, ColumnDataSource]:
    from bokeh.models import ColumnDataSource

    lines: dict[str, list[float]] = {name: [] for name in ("x0", "y0", "x1", "y1", "alpha", "width")}
    return {name: ColumnDataSource(dict(lines)) for name in ("edges", "lit", "flow", "cut")} | {
        "marks": ColumnDataSource({"x": [], "y": []}),
        "cells": ColumnDataSource({"x": [], "y": []}),
        "image": ColumnDataSource({"image": [], "x": [], "y": [], "dw": [], "dh": []}),
    }


def _pitch(count: int) -> float:
    """Pixels from token to token."""
    return 26.0 if count <= 16 else 18.0 if count <= 40 else 13.0 if count <= 160 else 6.0


def _head(graph: LayeredGraph) -> int:
    """Pixels above the pictures for labels that stand on end; the same for both, so that their rows align."""
    longest = max(len(visible(token)) for k in graph.inputs for token in graph.levels[k].tokens)
    return 30 + math.ceil(6.6 * max(longest, max(len(level.name) for level in graph.levels)))


def _plain_figure(width: float, height: float, name: str, head: int) -> Figure:
    from bokeh.plotting import figure

    made = figure(
        name=name,
        frame_width=math.ceil(width),
        frame_height=math.ceil(height),
        min_border_top=head,
        min_border_bottom=8,
        toolbar_location=None,
        tools="tap",
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        x_axis_location="above",
    )
    made.grid.visible = False
    return made


def _graph_figure(graph: LayeredGraph, sources: dict[str, ColumnDataSource]) -> Figure:
    """Levels from left to right, tokens from top to bottom; edges, then what is lit, flow and cut over them."""
    from bokeh.models import ColumnDataSource, LinearAxis

    count, tallest = len(graph.levels), max(level.size for level in graph.levels)
    pitch = _pitch(tallest)
    made = _plain_figure(
        max(420.0, min(70.0 * count, 360 + 22.0 * count)), tallest * pitch, "graph", _head(graph)
    )
    for name in ("edges", "lit", "flow", "cut"):
        made.segment(
            "x0",
            "y0",
            "x1",
            "y1",
            source=sources[name],
            name=name,
            line_color=_COLOURS[name][0],
            line_alpha="alpha",
            line_width="width",
            line_dash="4 3" if name == "cut" else "solid",
            line_cap="round",
        )
    where = {
        "x": [k for k, level in enumerate(graph.levels) for _ in range(level.size)],
        "y": [p for level in graph.levels for p in range(level.size)],
    }
    made.scatter(
        "x",
        "y",
        source=ColumnDataSource(where),
        name="nodes",
        size=min(6.0, pitch * 0.4),
        fill_color=_COLOURS["nodes"][0],
        line_color=None,
    )
    made.scatter(
        "x", "y", source=sources["marks"], name="marks", size=13, fill_color=None, line_width=2.5,
        line_color=_COLOURS["marks"][0],
    )  # fmt: skip
    _set_range(made.x_range, -0.3, count - 0.7)
    _set_range(made.y_range, tallest - 0.5, -0.5)
    _label(
        made.xaxis[0],
        [str(level.name) for level in graph.levels],
        1,
        turned=count > 8 or len(graph.inputs) > 1,
    )
    _label(made.yaxis[0], graph.levels[graph.inputs[0]].tokens, pitch)
    top = graph.levels[graph.layers[-1]]
    if top.tokens != graph.levels[graph.inputs[0]].tokens:
        made.add_layout(LinearAxis(), "right")
        _label(made.yaxis[-1], top.tokens, pitch)
    return made


def _heat_figure(graph: LayeredGraph, sources: dict[str, ColumnDataSource], colours: Any) -> Figure:
    """Targets from top to bottom, on the graph's rows; inputs from left to right."""
    from bokeh.models.annotations import ColorBar

    rows = max(level.size for level in graph.levels)
    level = graph.levels[graph.layers[-1]]
    columns = [token for k in graph.inputs for token in graph.levels[k].tokens]
    pitch = _pitch(max(rows, len(columns)))
    made = _plain_figure(max(320.0, len(columns) * pitch), rows * _pitch(rows), "heat", _head(graph))
    options: dict[str, Any] = {"source": sources["image"], "color_mapper": colours, "name": "image"}
    made.image(
        "image", "x", "y", "dw", "dh", **options
    )  # row 0 comes first, at the top of a range that runs down
    made.rect(
        "x", "y", 1, 1, source=sources["cells"], name="cells", fill_color=None, line_width=2.5,
        line_color="#ff8c3a",
    )  # fmt: skip
    _set_range(made.x_range, -0.5, len(columns) - 0.5)
    _set_range(made.y_range, rows - 0.5, -0.5)
    _label(made.xaxis[0], columns, max(320.0, len(columns) * pitch) / len(columns), turned=True)
    _label(made.yaxis[0], level.tokens, _pitch(rows))
    made.add_layout(
        ColorBar(color_mapper=colours, width=10, height=160, background_fill_alpha=0, location=(0, 0)),
        "right",
    )
    return made


def _set_range(made: Any, start: float, end: float) -> None:
    """A range that stays."""
    made.start, made.end = start, end
    made.bounds = (min(start, end), max(start, end))


def _label(axis: Any, labels: Iterable[str], pitch: float, *, turned: bool = False) -> None:
    """Every k-th token as plain text (Bokeh would read ``$$`` as mathematics), ``pitch`` pixels apart."""
    from bokeh.models import FixedTicker, PlainText

    names = list(labels)
    step = max(1, math.ceil(11 / pitch)) if pitch > 1 else 1
    ticks = list(range(0, len(names), step))
    axis.ticker = FixedTicker(ticks=ticks)
    axis.major_label_overrides = {k: PlainText(text=visible(names[k])) for k in ticks}
    axis.major_label_text_font_size = "11px" if pitch <= 1 or pitch * step >= 16 else "10px"
    axis.major_label_standoff = 3
    axis.axis_line_color = None
    axis.major_tick_out = 2
    axis.minor_tick_line_color = None
    if turned:
        axis.major_label_orientation = math.pi / 2


def _colour_mapper(values: np.ndarray) -> Any:
    """Cividis; small values are told apart by the square root where nearly all are small."""
    from bokeh.models import LinearColorMapper
    from bokeh.palettes import Cividis256

    palette = list(Cividis256)
    if mostly_small(values):
        palette = [palette[round(255 * math.sqrt(k / 255))] for k in range(256)]
    return LinearColorMapper(palette=palette, low=0, high=1, nan_color="rgba(128, 128, 128, 0.12)")
