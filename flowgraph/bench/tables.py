"""A report as tables for the terminal, and the lines that belong to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from flowgraph.bench.report import Entry, GraphReport, Measurement, Report

_TASKS = {"build": "build", "value": "one\nvalue", "flow": "one\nflow", "matrix": "whole\nmatrix"}


def report_tables(report: Report) -> list[Table]:
    """A table a graph, the fastest right solver first; then one of growth, where there is more than one size."""
    tables = [_graph_table(graph) for graph in report.graphs]
    return [*tables, _growth_table(report)] if report.growth() else tables


def report_lines(report: Report) -> list[str]:
    """What solvers did wrong, how it was measured, and on what."""
    faults = [
        f"{graph.name}: {entry.solver}: {message}"
        for graph in report.graphs
        for entry in graph.entries.values()
        for message in entry.messages
    ]
    return [*faults, *_settings_lines(report)]


def _graph_table(graph: GraphReport) -> Table:
    title = f"{graph.name}: {graph.layers} layers, {graph.tokens} tokens, {graph.edges:,} edges"
    tasks = list(next(iter(graph.entries.values())).tasks)
    headings = [
        "solver",
        "verdict",
        *(_TASKS[task] for task in tasks),
        "off by",
        "proof",
        "MB",
    ]
    table = _table(title, headings)
    for entry in sorted(graph.entries.values(), key=_speed):
        table.add_row(
            entry.solver,
            entry.verdict,
            *(_time(entry.tasks[task]) for task in tasks),
            _number(entry.difference),
            entry.certificate,
            "–" if entry.peak_bytes is None else f"{entry.peak_bytes / 1e6:.1f}",
        )
    return table


def _speed(entry: Entry) -> tuple[float, ...]:
    """Those that are right or inexact first, then by the largest task."""
    times = [m.median or float("inf") for task, m in reversed(entry.tasks.items()) if task != "build"]
    return (float(entry.verdict in ("wrong", "raised", "died")), *times)


def _growth_table(report: Report) -> Table:
    fits = report.growth()
    tasks = [task for task in _TASKS if any(fit.task == task for fit in fits)]
    title = f"Growth: seconds ~ {report.against} to the power of (number of sizes)"
    table = _table(title, ["solver", "graphs", *(_TASKS[task] for task in tasks)])
    for solver, family in dict.fromkeys((fit.solver, fit.family) for fit in fits):
        by_task = {fit.task: fit for fit in fits if (fit.solver, fit.family) == (solver, family)}
        cells = [f"{by_task[t].exponent:.2f} ({by_task[t].points})" if t in by_task else "–" for t in tasks]
        table.add_row(solver, family, *cells)
    return table


def _table(title: str, headings: list[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        # all fits 80 columns, but for long names of solvers: those alone are folded
        table.add_column(
            heading, justify="left" if number < 2 else "right", overflow="fold", no_wrap=number > 0
        )
    return table


def _time(measured: Measurement) -> str:
    """Median and half the distance of the quartiles, or what happened instead."""
    if measured.median is None:
        return {"not offered": "–", "ok": "–"}.get(measured.status, measured.status)
    low, high = measured.quartiles or (measured.median, measured.median)
    return f"{_seconds(measured.median)}\n±{50 * (high - low) / measured.median:.0f}%"


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} µs"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0e}"


def _settings_lines(report: Report) -> list[str]:
    settings, machine = report.settings, report.machine
    lines = [
        f"{settings['clock']} seconds, median ± half the distance of the quartiles, of up to {settings['repeats']} "
        f"repeats in turns, {settings['threads']} thread(s); one value, one flow: mean of {settings['pairs']} pairs; "
        f"timeout: {settings['time_limit']:g} s",
        "off by: |value - certified| / max(1, certified) on certified pairs; inexact above 1e-9, wrong above 1e-6; "
        "proof: whether flow and cut certify each other; MB: most memory used beyond the graph",
        f"{machine['processor']}, {machine['usable_cores']} of {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GB, load {machine['load_average'][0]:.1f}; "
        + ", ".join(f"{name} {version}" for name, version in report.versions.items()),
    ]
    if report.not_installed:
        lines.append(
            f"not installed: {', '.join(report.not_installed)} (pip install 'attention-flowgraph[bench]')"
        )
    return lines
