"""Time against size, drawn by matplotlib."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.export.figure import finish, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from flowgraph.bench.report import Measurement, Report

_TITLES = {"build": "build", "value": "one value", "flow": "one flow and cut", "matrix": "whole matrix"}
_DASHES = ("-", "--", ":", "-.")


def growth_picture(report: Report, path: str | PathLike[str] | None = None) -> Figure:
    """A panel a task, log-log: medians, bars from the fastest to the slowest repeat, and the fitted exponent.

    One colour a solver, one dash a family of graphs. A graph on which a solver has no time (timeout, error) has no
    point, and the legend says so. Written to ``path`` (``.png``, ``.svg``, ``.pdf``).
    """
    tasks = [task for task in _TITLES if any(m.median for _, _, s in report.points(task) for _, m in s)]
    if not tasks:
        raise FlowgraphError("plot: no solver has a time to draw; raise time_limit")
    solvers = list(dict.fromkeys(name for graph in report.graphs for name in graph.entries))
    families = list(dict.fromkeys(graph.family for graph in report.graphs))
    figure = new_figure(4.6 * len(tasks), 3.4 + 0.2 * len(solvers) * len(families))
    fits = {(f.task, f.family, f.solver): f for f in report.growth()}
    for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        for family, solver, points in report.points(task):
            style = {
                "color": f"C{solvers.index(solver) % 10}",
                "linestyle": _DASHES[families.index(family) % 4],
            }
            name = solver if len(families) == 1 else f"{solver}, {family}"
            fit = fits.get((task, family, solver))
            exponent = "" if fit is None else f": {fit.exponent:.2f}"
            _series(axes, points, name + exponent + _missing(points, report.against), style)
        _dress(axes, _TITLES[task], report)
    return finish(figure, path)


def _series(axes: Any, points: list[tuple[int, Measurement]], label: str, style: dict[str, Any]) -> None:
    known = [(size, m.median, m.seconds) for size, m in points if m.median is not None]
    sizes, middles = [k[0] for k in known], np.array([k[1] for k in known])
    spread = np.array([[m - min(s), max(s) - m] for _, m, s in known]).T if known else np.zeros((2, 0))
    axes.errorbar(sizes, middles, yerr=spread, label=label, marker="o", markersize=3, linewidth=1.2, **style)


def _missing(points: list[tuple[int, Measurement]], against: str) -> str:
    """`` (timeout at 64, 128)``"""
    gaps: dict[str, list[str]] = {}
    for size, m in points:
        if m.status not in ("ok", "not offered"):
            gaps.setdefault(m.status, []).append(str(size))
    if all(m.status == "not offered" for _, m in points):
        return " (not offered)"
    return "".join(f" ({status} at {', '.join(sizes)})" for status, sizes in gaps.items())


def _dress(axes: Any, title: str, report: Report) -> None:
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator, ScalarFormatter

    sizes = sorted({getattr(graph, report.against) for graph in report.graphs})
    axes.set(xscale="log", yscale="log", ylabel="seconds")
    axes.set_xlabel(report.against)
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(title, fontsize=10)
    axes.tick_params(labelsize=8)
    axes.grid(which="major", linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    grown = any(len({size for size, _ in points}) > 1 for _, _, points in report.points("build"))
    axes.legend(
        fontsize=7,
        frameon=False,
        title="growth: seconds ~ " + report.against + "^" if grown else None,
        title_fontsize=7,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
    )
