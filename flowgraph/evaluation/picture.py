"""Correlations by level, and erasure curves, drawn by matplotlib."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.export.figure import finish, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from flowgraph.evaluation.report import Evaluation

_COLOURS = {"raw": "#8c8c8c", "rollout": "#e69f00", "flow": "#0072b2"}
_DASHES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 3)), (0, (8, 2)))
_TITLES = {"all": "all tokens", "content": "without special tokens"}


def levels_picture(evaluation: Evaluation, path: str | PathLike[str] | None = None) -> Figure:
    """Spearman by level: importances across, rules for tokens down; one line a method (colour) and edge kind (dash),
    bands the bootstrap intervals, dotted the random baseline. Written to ``path`` (``.png``, ``.svg``, ``.pdf``)."""
    across, down = evaluation.axes["against"], evaluation.axes["tokens"]
    figure = new_figure(2.9 * len(across) + 1.6, 2.4 * len(down) + 0.6)
    grid = figure.subplots(len(down), len(across), squeeze=False, sharex=True, sharey=True)
    for row, rule in zip(grid, down, strict=True):
        for axes, against in zip(row, across, strict=True):
            _panel(axes, evaluation, against, rule)
            axes.set_title(f"{against}, {_TITLES[rule]}", fontsize=8)
        row[0].set_ylabel("Spearman's rho", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("level", fontsize=8)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=7, frameon=False)
    return finish(figure, path)


def _panel(axes: Any, evaluation: Evaluation, against: str, rule: str) -> None:
    levels = np.arange(1, evaluation.levels + 1)
    for dash, kind in zip(
        _repeated(_DASHES, len(evaluation.axes["edges"])), evaluation.axes["edges"], strict=True
    ):
        for method in evaluation.axes["methods"]:
            found = evaluation.find(method, edges=kind, against=against, tokens=rule)
            colour = _COLOURS[method]
            axes.plot(
                levels,
                [s.mean for s in found],
                color=colour,
                linestyle=dash,
                marker=".",
                label=f"{method} {kind}",
            )
            axes.fill_between(
                levels, [s.low for s in found], [s.high for s in found], color=colour, alpha=0.15
            )
    (random,) = evaluation.find("random", against=against, tokens=rule)
    if not random.count:
        axes.text(0.5, 0.5, "all equal: no order", transform=axes.transAxes, ha="center", fontsize=8)
    axes.axhline(random.mean, color="black", linestyle=":", linewidth=0.8, label="random")
    axes.set_xticks(levels)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _repeated(values: tuple[Any, ...], count: int) -> list[Any]:
    return [values[k % len(values)] for k in range(count)]


def curves_picture(evaluation: Evaluation, path: str | PathLike[str] | None = None) -> Figure:
    """Mean drop of the score against the share of tokens blanked: left the highest first (the deletion curve; faster is
    better), right all but the highest; one line a ranking. Written to ``path``."""
    if not evaluation.curves:
        raise FlowgraphError(
            "erasure: nothing was erased, so there are no curves; evaluate with erasure=True"
        )
    figure = new_figure(8.2, 3.2)
    left, right = figure.subplots(1, 2, sharey=True)
    shares = evaluation.meta["curve"]
    dashes = dict(
        zip(
            evaluation.axes["edges"],
            _repeated(_DASHES, len(evaluation.axes["edges"])),
            strict=True,
        )
    )
    for curve in evaluation.curves:
        style = {
            "color": _COLOURS.get(curve.method, "black" if curve.method == "random" else None),
            "linestyle": ":" if curve.edges is None else dashes[curve.edges],
            "label": " ".join(filter(None, (curve.method, curve.edges))),
        }
        left.plot(shares, curve.deletion, **style)
        right.plot(shares, curve.insertion, **style)
    for axes, title in ((left, "highest blanked"), (right, "all but the highest blanked")):
        axes.set_title(title, fontsize=8)
        axes.set_xlabel("share of tokens", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("drop of the score", fontsize=8)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", fontsize=7, frameon=False)
    return finish(figure, path)
