"""The page as one HTML document: what its scripts get, and the template around Bokeh's own script."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from flowgraph.errors import missing_dependency
from flowgraph.export.labels import visible
from flowgraph.export.page import figures
from flowgraph.export.page.variants import Variant
from flowgraph.export.rows import Pruning
from flowgraph.graph import LayeredGraph

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)
"""What the page may do: run its own script, show its own styles, load nothing."""

METHOD_NAMES = {"flow": "attention flow", "rollout": "attention rollout", "raw": "raw attention"}

_SCRIPTS = ("maxflow.js", "arrays.js", "layout.js", "drawing.js", "words.js", "controls.js")
_FIRST_EDGES = 1500  # edges shown at first, besides one a node: the residual edges are mostly the largest

# Bokeh's events and what the scripts do then; of two quick clicks the second is a double tap, wherever it is
_GRAPH_EVENTS = {"mousemove": "pointAt", "mouseleave": "leave", "tap": "chooseAt", "doubletap": "chooseAt"}
_HEAT_EVENTS = {"mousemove": "cellAt", "mouseleave": "leave", "tap": "chooseCell", "doubletap": "chooseCell"}


@dataclass
class Content:
    """What fits: kept edges of each variant, kept scores, and what the page says about the rest."""

    prunings: list[Pruning]
    scores: list[dict[tuple[str, int], np.ndarray]]
    notes: list[str]


def render(variants: list[Variant], content: Content, first: dict[str, Any], title: str | None) -> str:
    """The page as HTML."""
    try:
        from bokeh.models import CustomJS
    except ImportError:
        raise missing_dependency("bokeh", "view", "the page") from None

    graph = variants[0].graph
    sources = figures.sources()
    colours = figures.colour_mapper(variants[0].scores[first["method"], first["layer"]])
    drawn = figures.graph_figure(graph, sources)
    heat = figures.heat_figure(graph, sources, colours)
    for model, events in ((drawn, _GRAPH_EVENTS), (heat, _HEAT_EVENTS)):
        for event, act in events.items():
            model.js_on_event(event, CustomJS(code=f"window.flowgraph?.{act}(cb_obj)"))
    data = _data(variants, content, first)
    arguments = {"graph": drawn, "heat": heat, "colours": colours, "data": data, **sources}
    start = CustomJS(args=arguments, code="".join(map(_file, _SCRIPTS)))
    return _document([drawn, heat], start, graph, content.notes, title)


def library_bytes() -> int:
    """Size of Bokeh's core script, the one part of its library that the page holds."""
    try:
        from bokeh.resources import Resources
    except ImportError:
        raise missing_dependency("bokeh", "view", "the page") from None

    return sum(len(text.encode("utf-8")) for text in Resources(mode="inline", components=["bokeh"]).js_raw)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


# --- words --------------------------------------------------------------------------------------------------


def _document(
    roots: list[Any], start: Any, graph: LayeredGraph, notes: Sequence[str], title: str | None
) -> str:
    from bokeh.document import Document
    from bokeh.embed import file_html
    from bokeh.resources import INLINE
    from jinja2 import Template  # comes with Bokeh

    document = Document()
    for root in roots:
        document.add_root(root)
    document.js_on_event("document_ready", start)
    text = graph.meta.get("text")
    heading = title or f"What each token holds: {graph.meta.get('model') or 'layered graph'}"
    return file_html(
        document,
        INLINE,
        title=heading,
        template=Template(_file("page.html")),
        template_variables={
            "policy": POLICY,
            "style": _file("page.css"),
            "heading": _printable(heading),
            "text": _printable(text if isinstance(text, str) else " | ".join(map(str, text or ()))),
            "facts": _printable(_facts(graph)),
            "widths": figures.widths(graph),
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


# --- numbers ------------------------------------------------------------------------------------------------


def _data(variants: list[Variant], content: Content, first: dict[str, Any]) -> dict[str, Any]:
    """What the scripts get: plain values, and arrays as :func:`_packed`."""
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
        "names": METHOD_NAMES,
        "palette": {name: list(pair) for name, pair in figures.COLOURS.items()},
        "first_edges": min(_FIRST_EDGES + graph.num_nodes, 4 * _FIRST_EDGES),
        "least_pitch": figures.LEAST_PITCH,
        "first": first,
        "matrix": np.zeros((1, 1)),
        "variants": [
            {
                "kind": v.kind,
                "head": v.head,
                "scores": [
                    {"key": f"{method}/{number}", "method": method, "values": _packed(values)}
                    for (method, number), values in kept.items()
                ],
                **_packed_edges(v.graph, pruning),
            }
            for v, pruning, kept in zip(variants, content.prunings, content.scores, strict=True)
        ],
    }


def _packed_edges(graph: LayeredGraph, pruning: Pruning) -> dict[str, str]:
    """Kept edges in order of their sources: how many leave each node ``(V,)``, targets and capacities ``(E,)``."""
    offsets = graph.offsets
    pairs = list(zip(graph.blocks, pruning.keep, strict=True))
    source = np.concatenate([offsets[b.upper] + np.nonzero(keep)[0] for b, keep in pairs])
    target = np.concatenate([offsets[b.lower] + np.nonzero(keep)[1] for b, keep in pairs])
    capacity = np.concatenate([b.capacity[keep] for b, keep in pairs])
    order = np.argsort(source, kind="stable")
    return {
        "degree": _packed(np.bincount(source, minlength=graph.num_nodes).astype(np.int32)),
        "target": _packed(target[order].astype(np.int32)),
        "capacity": _packed(capacity[order]),
    }


def _packed(values: np.ndarray) -> str:
    """Base64 of the numbers, lowest byte first; a script turns into an array only those that are looked at."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode("ascii")
