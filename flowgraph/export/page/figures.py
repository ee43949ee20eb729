"""Bokeh's models of a page: the two figures, and the data sources that the page's scripts fill."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.export.figure import mostly_small
from flowgraph.export.labels import MAX_LENGTH, visible
from flowgraph.graph import LayeredGraph

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource
    from bokeh.plotting import figure as Figure

# light, dark, as in page.css; from the palette of Okabe & Ito, made to stay apart for every kind of colour vision
COLOURS = {
    "edges": ("#56708a", "#7d93a8"),
    "lit": ("#009e73", "#2fd6a8"),
    "flow": ("#0072b2", "#56b4e9"),
    "cut": ("#d55e00", "#ff8c3a"),
    "nodes": ("#1b1f24", "#e8edf2"),
    "marks": ("#d55e00", "#ff8c3a"),
}
LEAST_PITCH = 11  # pixels from label to label
_LINES = ("edges", "lit", "flow", "cut")  # from below to above


def sources() -> dict[str, ColumnDataSource]:
    """Empty columns by name."""
    from bokeh.models import ColumnDataSource

    columns: dict[str, tuple[str, ...]] = dict.fromkeys(_LINES, ("x0", "y0", "x1", "y1", "alpha", "width"))
    columns |= {"marks": ("x", "y"), "cells": ("x", "y"), "image": ("image", "x", "y", "dw", "dh")}
    return {name: ColumnDataSource({column: [] for column in names}) for name, names in columns.items()}


def graph_figure(graph: LayeredGraph, sources: dict[str, ColumnDataSource]) -> Figure:
    """Levels from left to right, tokens from top to bottom; edges, then what is lit, flow and cut over them."""
    count, tallest = len(graph.levels), max(level.size for level in graph.levels)
    pitch = _pitch(tallest)
    made = _plain_figure(_height(tallest), "graph", _head(graph))
    for name in _LINES:
        _draw_lines(made, name, sources[name])
    _draw_nodes(made, graph, min(6.0, pitch * 0.4), sources["marks"])
    _set_range(made.x_range, -0.3, count - 0.7)
    _set_range(made.y_range, tallest - 1 + _margin(tallest), -_margin(tallest))
    _label_graph(made, graph, pitch)
    return made


def heat_figure(graph: LayeredGraph, sources: dict[str, ColumnDataSource], colours: Any) -> Figure:
    """Targets from top to bottom, on the graph's rows; inputs from left to right."""
    from bokeh.models.annotations import ColorBar

    rows = max(level.size for level in graph.levels)
    columns = [token for k in graph.inputs for token in graph.levels[k].tokens]
    made = _plain_figure(_height(rows), "heat", _head(graph))
    options: dict[str, Any] = {"source": sources["image"], "color_mapper": colours, "name": "image"}
    # row 0 comes first, at the top of a range that runs down
    made.image("image", "x", "y", "dw", "dh", **options)
    outline: dict[str, Any] = {"fill_color": None, "line_width": 2.5, "line_color": COLOURS["cut"][1]}
    made.rect("x", "y", 1, 1, source=sources["cells"], name="cells", **outline)
    _set_range(made.x_range, -0.5, len(columns) - 0.5)
    _set_range(made.y_range, rows - 1 + _margin(rows), -_margin(rows))
    _label(made.xaxis[0], columns, _pitch(max(rows, len(columns))), turned=True)
    _label(made.yaxis[0], graph.levels[graph.layers[-1]].tokens, _pitch(rows))
    bar = ColorBar(color_mapper=colours, width=10, height=160, background_fill_alpha=0, location="top_left")
    made.add_layout(bar, "right")
    return made


def colour_mapper(values: np.ndarray) -> Any:
    """Cividis; small values are told apart by the square root where nearly all are small."""
    from bokeh.models import LinearColorMapper
    from bokeh.palettes import Cividis256

    palette = list(Cividis256)
    if mostly_small(values):
        palette = [palette[round(255 * math.sqrt(k / 255))] for k in range(256)]
    return LinearColorMapper(palette=palette, low=0, high=1, nan_color="rgba(128, 128, 128, 0.12)")


def widths(graph: LayeredGraph) -> dict[str, int]:
    """Pixels, labels included, that each picture takes where there is room, and the least it can be read at.

    Between the two the window decides (page.css), and labels follow (layout.js).
    """
    count = len(graph.levels)
    rows = max(level.size for level in graph.levels)
    columns = sum(graph.levels[k].size for k in graph.inputs)
    names = _longest(token for level in graph.levels for token in level.tokens)
    sides = 2 if graph.levels[graph.layers[-1]].tokens != graph.levels[graph.inputs[0]].tokens else 1
    at_graph, at_heat = sides * names + 20, names + 80  # the scale stands beside the heat map
    return {
        "graph": at_graph + max(420, min(70 * count, 360 + 22 * count)),
        "graph_least": at_graph + 24 * count,
        "heat": at_heat + max(320, math.ceil(columns * _pitch(max(rows, columns)))),
        "heat_least": at_heat + max(160, 3 * columns),
    }


def _longest(tokens: Iterable[str]) -> int:
    """Pixels that the longest label takes, at most."""
    return math.ceil(max(_pixels(visible(token)) for token in set(tokens)))


def _pixels(text: str) -> float:
    """Width of a text in the font of the labels; a wide character, as of Chinese, is a square."""
    return sum(11.5 if unicodedata.east_asian_width(c) in "WF" else 6.6 for c in text)


def _pitch(count: int) -> float:
    """Pixels from token to token."""
    return 26.0 if count <= 16 else 18.0 if count <= 40 else 13.0 if count <= 160 else 6.0


def _margin(count: int) -> float:
    """Rows above the middle of the first token's row: half a row, and room for the ring around a chosen token."""
    return max(0.5, 8.5 / _pitch(count))


def _height(count: int) -> float:
    """Pixels of a picture with ``count`` rows; the same for both, so that a token stands at one height."""
    return (count - 1 + 2 * _margin(count)) * _pitch(count)


def _head(graph: LayeredGraph) -> int:
    """Pixels above the pictures for labels that stand on end; the same for both, so that their rows align."""
    longest = _longest(token for k in graph.inputs for token in graph.levels[k].tokens)
    return 12 + max(longest, math.ceil(max(_pixels(level.name) for level in graph.levels)))


def _plain_figure(height: float, name: str, head: int) -> Figure:
    from bokeh.plotting import figure

    made = figure(
        name=name,
        sizing_mode="stretch_width",
        frame_height=math.ceil(height),
        min_border_top=head,
        min_border_bottom=8,
        toolbar_location=None,
        tools="",
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        x_axis_location="above",
    )
    made.grid.visible = False
    return made


def _draw_lines(made: Figure, name: str, source: ColumnDataSource) -> None:
    made.segment(
        "x0",
        "y0",
        "x1",
        "y1",
        source=source,
        name=name,
        line_color=COLOURS[name][0],
        line_alpha="alpha",
        line_width="width",
        line_dash="4 3" if name == "cut" else "solid",
        line_cap="round",
    )


def _draw_nodes(made: Figure, graph: LayeredGraph, size: float, marks: ColumnDataSource) -> None:
    x = [k for k, level in enumerate(graph.levels) for _ in range(level.size)]
    y = [p for level in graph.levels for p in range(level.size)]
    made.scatter(x, y, name="nodes", size=size, fill_color=COLOURS["nodes"][0], line_color=None)
    ring: dict[str, Any] = {"fill_color": None, "line_width": 2.5, "line_color": COLOURS["marks"][0]}
    made.scatter("x", "y", source=marks, name="marks", size=13, **ring)


def _label_graph(made: Figure, graph: LayeredGraph, pitch: float) -> None:
    from bokeh.models import LinearAxis

    _label(made.xaxis[0], [str(level.name) for level in graph.levels], LEAST_PITCH, cut=False)
    inputs, top = graph.levels[graph.inputs[0]].tokens, graph.levels[graph.layers[-1]].tokens
    _label(made.yaxis[0], inputs, pitch)
    if top != inputs:
        made.add_layout(LinearAxis(), "right")
        _label(made.yaxis[-1], top, pitch)


def _set_range(made: Any, start: float, end: float) -> None:
    """A range that stays."""
    made.start, made.end = start, end
    made.bounds = (min(start, end), max(start, end))


def _label(axis: Any, labels: Iterable[str], pitch: float, *, turned: bool = False, cut: bool = True) -> None:
    """Every k-th token, ``pitch`` pixels apart.

    By a formatter: its texts stay as they are, where those of ``major_label_overrides`` would be searched for
    mathematics between ``$$``.
    """
    from bokeh.models import CustomJSTickFormatter, FixedTicker

    names = [visible(label, max_length=MAX_LENGTH if cut else 100) for label in labels]
    step = max(1, math.ceil(LEAST_PITCH / pitch))
    axis.ticker = FixedTicker(ticks=list(range(0, len(names), step)))
    axis.formatter = CustomJSTickFormatter(args={"names": names}, code="return names[tick]")
    axis.major_label_text_font_size = "11px" if not cut or pitch * step >= 16 else "10px"
    axis.major_label_standoff = 3
    axis.axis_line_color = None
    axis.major_tick_out = 2
    axis.minor_tick_line_color = None
    if turned:
        axis.major_label_orientation = math.pi / 2
