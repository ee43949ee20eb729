"""Pictures by matplotlib: heat map, levels side by side, bars, the layered graph, patches over an image.

Every function takes an attribution or plain arrays with tokens, returns a ``matplotlib`` figure and, given a
path, writes it (``.png``, ``.svg`` or ``.pdf``). Figures grow with the number of tokens until labels would
have to overlap; then every second, third, ... label is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.capacity import normalise_rows
from flowgraph.errors import FlowgraphError
from flowgraph.export.figure import (
    FONT,
    LARGEST,
    PITCH,
    SCALE,
    colour_bar,
    colours,
    finish,
    label_axis,
    new_figure,
    side,
)
from flowgraph.export.labels import visible
from flowgraph.export.scores import Scores, one_target, read_scores
from flowgraph.graph import LayeredGraph, check_graph

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINE = "#0b3c6f"
_FEWEST_LINES, _LINES_A_NODE = 300, 5  # drawn between two levels
_LARGEST_PANEL = 6.8  # inches


def heatmap(
    attribution: Any,
    path: str | PathLike[str] | None = None,
    *,
    tokens: Sequence[str] | None = None,
    target_tokens: Sequence[str] | None = None,
    title: str | None = None,
    vmax: float | None = None,
    scale: str = "auto",
) -> Figure:
    """Targets × inputs as a heat map; a stack of levels is drawn by :func:`levels`.

    Parameters
    ----------
    attribution
        An :class:`~flowgraph.attribution.Attribution`, or an array ``(targets, inputs)``.
    tokens, target_tokens
        Labels of columns and rows, where an array is given (default: positions; rows as columns).
    vmax
        The largest value of the colour scale; default: the largest score.
    scale
        ``"linear"``, ``"sqrt"`` (small scores can be told apart), or ``"auto"``: the square root where nearly
        all scores are small beside the largest, and from the least score up where all are large. The colour bar
        says which.
    """
    shown = read_scores(attribution, tokens, target_tokens)
    if shown.values.ndim == 3:
        return levels(
            attribution, path, tokens=tokens, target_tokens=target_tokens, title=title, vmax=vmax, scale=scale
        )
    rows, columns = shown.values.shape
    width, height = side(columns), side(rows)
    figure = new_figure(width + 2.2, height + 1.6)
    axes = figure.subplots()
    painted = colours(shown.values, vmax, scale)
    image = axes.imshow(shown.values, aspect="auto", interpolation="nearest", **painted)
    label_axis(axes.xaxis, shown.tokens, width / columns)
    label_axis(axes.yaxis, shown.target_tokens, height / rows)
    axes.set(xlabel="input token", ylabel="target token")
    axes.set_title(shown.title if title is None else title, fontsize=FONT + 3, parse_math=False)
    colour_bar(figure, image, axes, height)
    return finish(figure, path)


def levels(
    attribution: Any,
    path: str | PathLike[str] | None = None,
    *,
    tokens: Sequence[str] | None = None,
    target_tokens: Sequence[str] | None = None,
    title: str | None = None,
    vmax: float | None = None,
    scale: str = "auto",
) -> Figure:
    """All levels as small heat maps with one colour scale; ``attribution`` made with ``level="all"``.

    Other parameters as for :func:`heatmap`.
    """
    shown = read_scores(attribution, tokens, target_tokens)
    if shown.values.ndim != 3:
        raise FlowgraphError(
            f"attribution: scores of shape {shown.values.shape} are one level; make it with level='all'"
        )
    count, rows, columns = shown.values.shape
    across = min(count, 3)
    down = math.ceil(count / across)
    width = min(side(columns), _LARGEST_PANEL)
    height = min(side(rows), width * rows / columns + 0.5)
    figure = new_figure(across * (width + 0.3) + 2.0, down * (height + 0.5) + 1.2)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    painted = colours(shown.values, vmax, scale)
    for number, axes in enumerate(grid.flat):
        if number >= count:
            axes.set_visible(False)
            continue
        image = axes.imshow(shown.values[number], aspect="auto", interpolation="nearest", **painted)
        axes.set_title(f"level {number + 1}", fontsize=FONT + 1)
        last_in_column = number + across >= count
        axes.tick_params(labelbottom=last_in_column, labelleft=number % across == 0)
        label_axis(axes.xaxis, shown.tokens, width / columns)
        label_axis(axes.yaxis, shown.target_tokens, height / rows)
    figure.suptitle(shown.title if title is None else title, fontsize=FONT + 3, parse_math=False)
    colour_bar(figure, image, list(grid.flat), height)
    return finish(figure, path)


def bars(
    attribution: Any,
    path: str | PathLike[str] | None = None,
    *,
    target: int | str | None = None,
    tokens: Sequence[str] | None = None,
    target_tokens: Sequence[str] | None = None,
    top: int | None = None,
    title: str | None = None,
) -> Figure:
    """What one target holds of each input: one bar a token, in the order of the text.

    ``target``: a row of the scores or its token; may be left out where there is one. ``top``: only the inputs
    with the largest scores. Of a stack of levels the top one is shown.
    """
    shown = read_scores(attribution, tokens, target_tokens)
    row = one_target(shown, target)
    values = (shown.values if shown.values.ndim == 2 else shown.values[-1])[row]
    kept = np.arange(len(values)) if top is None else np.sort(np.argsort(-values, kind="stable")[:top])
    height = max(1.2, min(LARGEST, len(kept) * 1.25 * PITCH))
    figure = new_figure(5.5, height + 0.9)
    axes = figure.subplots()
    axes.barh(np.arange(len(kept)), values[kept], color=_LINE, height=0.75)
    axes.set_ylim(len(kept) - 0.4, -0.6)
    label_axis(axes.yaxis, [shown.tokens[k] for k in kept], height / len(kept))
    axes.tick_params(axis="x", labelsize=FONT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("score", fontsize=FONT + 1)
    default = f"{shown.title}, target {visible(shown.target_tokens[row])!r} ({row})"
    axes.set_title(default if title is None else title, fontsize=FONT + 2, parse_math=False)
    return finish(figure, path)


def layered(
    graph: LayeredGraph,
    path: str | PathLike[str] | None = None,
    *,
    methods: Mapping[str, Any] | None = None,
    target: int | None = None,
    least: float = 0.02,
    title: str | None = None,
) -> Figure:
    """The layered graph, tokens down and levels across; widths of edges are capacities.

    ``methods``: name -> scores of every level ``(L, targets, inputs)`` (an attribution with ``level="all"``,
    or an array), one panel each. There an edge from node ``(l, i)`` to position ``j`` one level below has the
    width of the score of *input* ``j`` for that node, each node's scores divided by their sum, as in figure 1
    of Abnar & Zuidema 2020 (10.18653/v1/2020.acl-main.385). Widths are relative to the largest of the panel.
    ``target``: draw what leaves this position of the top level darker. ``least``: edges below this share of
    the largest are left out, as are, of many edges between two levels, all but five a node; the picture says so.
    """
    check_graph(graph)
    graph.require_unsigned("a picture of the graph")
    panels = _panels(graph, methods)
    tallest = max(level.size for level in graph.levels)
    height = max(1.6, min(LARGEST, tallest * 1.15 * PITCH))
    width = max(1.8, 0.62 * len(graph.levels))
    figure = new_figure(len(panels) * (width + 1.1) + 0.6, height + 1.3)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, blocks) in zip(grid, panels.items(), strict=True):
        _draw_edges(axes, blocks, least=least, target=target, top=len(graph.levels) - 1, height=height)
        _draw_nodes(axes, graph, height, tallest)
        axes.set_title(name, fontsize=FONT + 2, parse_math=False)
    figure.suptitle(_graph_title(graph) if title is None else title, fontsize=FONT + 3, parse_math=False)
    left_out = f"edges below {least:.0%} of a panel's largest"
    if any(np.count_nonzero(v) > _most_lines(v) for blocks in panels.values() for *_, v in blocks):
        left_out += f" and, between two levels, all but the {_LINES_A_NODE} largest a node"
    figure.supxlabel(f"level ({left_out} are left out)", fontsize=FONT)
    return finish(figure, path)


def patches(
    attribution: Any,
    image: Any,
    path: str | PathLike[str] | None = None,
    *,
    target: int | str | None = None,
    grid: tuple[int, int] | None = None,
    title: str | None = None,
) -> Figure:
    """What one target holds of each patch, over the image.

    ``image``: ``(height, width)`` or ``(height, width, 3 or 4)``, or what ``numpy.asarray`` makes one of (a
    PIL image); numbers from 0 to 1, or 0 to 255. ``grid``: rows and columns of patches; default: what the
    trace says (``meta["image"]``). Tokens before the patches (class, registers) are named with their scores.
    """
    shown = read_scores(attribution, None, None)
    row = one_target(shown, target)
    values = (shown.values if shown.values.ndim == 2 else shown.values[-1])[row]
    rows, columns = _patch_grid(shown, grid)
    prefix = len(values) - rows * columns
    if prefix < 0:
        raise FlowgraphError(
            f"grid: {rows} × {columns} patches for {len(values)} inputs; pass the grid of the image"
        )
    pixels = _pixels(image)
    figure = new_figure(8.6, 4.4)
    left, right = figure.subplots(1, 2)
    left.imshow(pixels)
    left.set_title("image", fontsize=FONT + 1)
    right.imshow(np.repeat(pixels.mean(-1, keepdims=True), 3, -1))
    extent = (-0.5, pixels.shape[1] - 0.5, pixels.shape[0] - 0.5, -0.5)
    drawn = right.imshow(
        values[prefix:].reshape(rows, columns), cmap=SCALE, alpha=0.65, extent=extent, vmin=0, aspect="auto"
    )
    right.set_aspect("equal")
    for axes in (left, right):
        axes.set(xticks=[], yticks=[])
    default = f"{shown.title}, target {visible(shown.target_tokens[row])!r}"
    right.set_title(default if title is None else title, fontsize=FONT + 1, parse_math=False)
    before = ", ".join(f"{visible(shown.tokens[k])} {values[k]:.3g}" for k in range(prefix))
    if before:
        right.set_xlabel(f"not shown: {before}", fontsize=FONT, parse_math=False)
    figure.colorbar(drawn, ax=right, shrink=0.8).ax.tick_params(labelsize=FONT)
    return finish(figure, path)


def _panels(
    graph: LayeredGraph, methods: Mapping[str, Any] | None
) -> dict[str, list[tuple[int, int, np.ndarray]]]:
    """Panel title -> edges as (upper level, lower level, widths ``(upper size, lower size)``)."""
    if not methods:
        return {"capacity": [(b.upper, b.lower, b.capacity) for b in graph.blocks]}
    if not graph.is_stack:
        raise FlowgraphError(
            "methods: panels of several methods need a plain stack of levels; this graph has several inputs, "
            "so leave methods out, or draw heat maps"
        )
    panels = {}
    for name, scores in methods.items():
        values = np.abs(np.asarray(getattr(scores, "scores", scores), dtype=float))
        shape = (graph.num_layers, graph.levels[-1].size, graph.levels[0].size)
        if values.shape != shape:
            raise FlowgraphError(
                f"methods: {name!r} has scores of shape {values.shape}, the graph needs {shape}; compute "
                "them with level='all' and all targets and inputs"
            )
        shares = normalise_rows(values)
        panels[name] = [(k + 1, k, shares[k]) for k in range(len(shares))]
    return panels


def _graph_title(graph: LayeredGraph) -> str:
    residual = graph.meta.get("residual")
    rule = "no residual added" if residual is None else f"residual {residual:g}"
    return f"{graph.meta.get('edges', 'custom')}, {rule}"


def _draw_edges(
    axes: Axes,
    blocks: Iterable[tuple[int, int, np.ndarray]],
    *,
    least: float,
    target: int | None,
    top: int,
    height: float,
) -> None:
    from matplotlib.collections import LineCollection

    blocks = list(blocks)
    largest = max((float(values.max(initial=0.0)) for _, _, values in blocks), default=0.0) or 1.0
    for upper, lower, values in blocks:
        i, j = np.nonzero(values >= max(least * largest, _least_drawn(values), np.finfo(float).tiny))
        share = values[i, j] / largest
        order = np.argsort(share, kind="stable")  # wide lines over thin ones
        i, j, share = i[order], j[order], share[order]
        ends = np.stack(
            [np.stack([np.full(len(i), upper), i], -1), np.stack([np.full(len(j), lower), j], -1)], 1
        )
        strength = share if target is None or upper != top else np.where(i == target, share, 0.25 * share)
        widths = 0.2 + 2.3 * share
        # fainter where the lines side by side would be higher than the picture: all of them alike and wide
        crowd = max(1.0, float(widths.sum()) / (72 * height))
        colours = np.tile((0.043, 0.235, 0.435, 1.0), (len(i), 1))
        colours[:, 3] = (0.08 + 0.92 * strength) / crowd
        axes.add_collection(LineCollection(list(ends), linewidths=widths, colors=colours, zorder=1))


def _most_lines(values: np.ndarray) -> int:
    """How many lines are drawn between two levels: of more none can be followed."""
    return max(_FEWEST_LINES, _LINES_A_NODE * len(values))


def _least_drawn(values: np.ndarray) -> float:
    """The least of the largest widths that are drawn between two levels; 0 where all are."""
    most = _most_lines(values)
    return float(np.partition(values.ravel(), -most)[-most]) if values.size > most else 0.0


def _draw_nodes(axes: Axes, graph: LayeredGraph, height: float, tallest: int) -> None:
    for k, level in enumerate(graph.levels):
        axes.scatter([k] * level.size, range(level.size), s=6, color="black", zorder=2, linewidths=0)
    bottom, top = graph.levels[0], graph.levels[-1]
    axes.set_xlim(-0.25, len(graph.levels) - 0.75)
    axes.set_ylim(tallest - 0.5, -0.5)
    axes.set_xticks(range(len(graph.levels)))
    axes.tick_params(axis="x", labelsize=FONT, length=1.5)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    pitch = height / tallest
    label_axis(axes.yaxis, bottom.tokens, pitch)
    if top.tokens != bottom.tokens:
        other = axes.secondary_yaxis("right")
        label_axis(other.yaxis, top.tokens, pitch)
        other.spines["right"].set_visible(False)


def _patch_grid(shown: Scores, grid: tuple[int, int] | None) -> tuple[int, int]:
    if grid is not None:
        return int(grid[0]), int(grid[1])
    facts = shown.meta.get("image")
    if not facts:
        raise FlowgraphError(
            "grid: the attribution does not say how many patches there are; pass (rows, columns)"
        )
    return int(facts["rows"]), int(facts["columns"])


def _pixels(image: Any) -> np.ndarray:
    """``(height, width, 3)`` in [0, 1]."""
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, -1)
    if pixels.ndim != 3 or pixels.shape[-1] not in (3, 4) or 0 in pixels.shape:
        raise FlowgraphError(
            f"image: shape {pixels.shape}; pass (height, width) or (height, width, 3), channels last"
        )
    scale = 255.0 if np.issubdtype(pixels.dtype, np.integer) else 1.0
    return np.clip(pixels[..., :3].astype(float) / scale, 0.0, 1.0)
