"""Reports: growth, tables and pictures from known figures."""

from __future__ import annotations

import io

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

import flowgraph as fg
from flowgraph.bench.report import Entry, GraphReport, Measurement, Report
from flowgraph.bench.tables import report_lines, report_tables

SIZES = (10, 20, 40, 80)
FACTORS = (0.9, 1.1, 1.0)


def measured(seconds, status="ok", **more):
    """Repeats around ``seconds``, whose median it is."""
    return Measurement(status, cpu_seconds=tuple(f * seconds for f in FACTORS), **more)


def report_of(entries, sizes=SIZES, layers=6):
    """``entries(tokens) -> {solver: {task: measurement}}``."""
    graphs = [
        GraphReport(
            name=f"{layers}x{tokens}",
            family="graphs",
            layers=layers,
            tokens=tokens,
            nodes=(layers + 1) * tokens,
            edges=layers * tokens**2,
            pairs=5,
            matrix_pairs=tokens**2,
            certified=64,
            entries={name: Entry(name, tasks) for name, tasks in entries(tokens).items()},
        )
        for tokens in sizes
    ]
    settings = {"clock": "cpu", "repeats": 3, "threads": 1, "pairs": 5, "time_limit": 5.0}
    machine = {
        "processor": "a processor",
        "cores": 2,
        "usable_cores": 1,
        "memory_bytes": 2**33,
        "load_average": [1.0, 1.0, 1.0],
    }
    return Report(graphs, settings, machine, {"numpy": "2.0"}, ["or-tools"])


@pytest.fixture
def report():
    """``cubic`` times out on the largest graph, ``flat`` never."""

    def entries(tokens):
        late = Measurement("timeout", "longer than 5 s")
        return {
            "cubic": {
                "build": measured(1e-6 * tokens),
                "matrix": late if tokens == 80 else measured(1e-5 * tokens**3, difference=2e-16),
            },
            "flat": {"build": measured(1e-3), "matrix": measured(0.5, difference=1e-3)},
        }

    return report_of(entries)


def text_of(tables, width=200):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    for table in tables:
        console.print(table)
    return console.file.getvalue()


def test_growth_is_the_slope_of_the_logarithms(report):
    fits = {(fit.solver, fit.task): fit for fit in report.growth()}
    assert fits["cubic", "matrix"].exponent == pytest.approx(3)
    assert fits["cubic", "matrix"].points == 3  # a timeout is no point
    assert fits["cubic", "build"].exponent == pytest.approx(1)
    assert fits["cubic", "build"].points == 4
    assert fits["flat", "matrix"].exponent == pytest.approx(0)
    assert max(fit.residual for fit in fits.values()) < 1e-12


def test_the_residual_tells_a_bad_fit():
    times = {10: 1.0, 20: 4.0, 40: 1.0}
    (fit,) = report_of(
        lambda tokens: {"odd": {"build": measured(times[tokens])}}, sizes=(10, 20, 40)
    ).growth()
    assert fit.exponent == pytest.approx(0)
    assert fit.residual == pytest.approx(np.log(4) * np.sqrt(2) / 3)


def test_one_size_has_no_growth():
    report = report_of(lambda tokens: {"one": {"build": measured(1.0)}}, sizes=(10,))
    assert report.growth() == []
    assert len(report_tables(report)) == 1


def test_growth_is_against_edges_where_layers_differ():
    shallow = report_of(lambda tokens: {"s": {"build": measured(1e-6 * 2 * tokens**2)}}, (10, 20), layers=2)
    deep = report_of(lambda tokens: {"s": {"build": measured(1e-6 * 8 * tokens**2)}}, (30,), layers=8)
    assert (shallow.against, deep.against) == ("tokens", "tokens")
    both = Report([*shallow.graphs, *deep.graphs], {}, {}, {})
    assert both.against == "edges"
    (fit,) = both.growth()
    assert fit.exponent == pytest.approx(1)


def test_median_and_quartiles_are_of_the_clock_that_was_chosen():
    both = {"wall_seconds": (4.0, 8.0, 6.0), "cpu_seconds": (1.0, 2.0, 3.0)}
    assert Measurement("ok", clock="wall", **both).median == 6.0
    assert Measurement("ok", clock="cpu", **both).quartiles == (1.5, 2.5)
    assert Measurement("timeout", clock="cpu", **both).median is None


@pytest.mark.parametrize(
    ("tasks", "verdict"),
    [
        ({"value": Measurement("ok", difference=1e-12)}, "right"),
        ({"value": Measurement("ok", difference=1.1e-9)}, "inexact"),
        ({"value": Measurement("ok", difference=1.1e-6)}, "wrong"),
        ({"value": Measurement("ok", difference=float("inf"))}, "wrong"),
        ({"value": Measurement("ok", difference=0.0), "flow": Measurement("ok", fault="leaks")}, "wrong"),
        ({"value": Measurement("ok", difference=1e-8), "matrix": Measurement("timeout")}, "inexact"),
        ({"value": Measurement("ok", difference=0.0), "matrix": Measurement("timeout")}, "timeout"),
        ({"value": Measurement("ok", difference=0.1), "matrix": Measurement("raised")}, "wrong"),
        ({"value": Measurement("timeout"), "matrix": Measurement("raised")}, "raised"),
        ({"value": Measurement("ok", difference=0.0), "flow": Measurement("not offered")}, "right"),
    ],
)
def test_the_verdict_is_the_worst_that_is_known(tasks, verdict):
    assert Entry("s", tasks).verdict == verdict


def test_the_table_shows_times_and_timeouts(report):
    text = text_of(report_tables(report))
    last = text[text.index("6x80") : text.index("Growth")]
    lines = last.splitlines()
    number, row = next((k, line) for k, line in enumerate(lines) if "cubic" in line)
    assert row.split()[:4] == ["cubic", "timeout", "80", "µs"]
    assert lines[number + 1].split() == ["±5%"]
    assert row.count("timeout") == 2
    assert "wrong" in next(line for line in last.splitlines() if "flat" in line)
    growth = text[text.index("Growth") :]
    assert "3.00 (3)" in growth
    assert "1.00 (4)" in growth


def test_right_and_fast_comes_first(report):
    text = text_of(report_tables(report)[:1])
    assert text.index("cubic") < text.index("flat")


def test_a_terminal_of_80_columns_shows_all():
    """All four tasks, the widest figures, and a name that must be folded."""

    def entries(tokens):
        each = measured(0.0203, difference=6.7e-16, peak_bytes=1234567890)
        return {"networkx-edmonds-karp": dict.fromkeys(("build", "value", "flow", "matrix"), each)}

    lines = text_of(report_tables(report_of(entries, sizes=(10,))), width=80).splitlines()
    heading = next(line for line in lines if "solver" in line)
    assert heading.split()[-3:] == ["by", "proof", "MB"]
    row = next(line for line in lines if "20.3 ms" in line)
    assert row.split("right")[1].split() == [*["20.3", "ms"] * 4, "7e-16", "unknown", "1234.6"]
    assert "…" not in "".join(lines)


def test_the_lines_tell_how_and_on_what(report):
    text = "\n".join(report_lines(report))
    assert "cpu seconds" in text
    assert "a processor, 1 of 2 cores, 8 GB" in text
    assert "not installed: or-tools" in text


def test_the_picture_is_drawn(report, tmp_path):
    figure = report.plot(tmp_path / "growth.png")
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert list(panels) == ["build", "whole matrix"]
    axes = panels["whole matrix"]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["cubic: 3.00 (timeout at 80)", "flat: -0.00"] or labels == [
        "cubic: 3.00 (timeout at 80)",
        "flat: 0.00",
    ]
    cubic = next(c for c in axes.containers if c.get_label().startswith("cubic"))
    assert list(cubic.lines[0].get_xdata()) == [10, 20, 40]
    assert list(cubic.lines[0].get_ydata()) == pytest.approx([1e-2, 8e-2, 0.64])
    assert matplotlib.image.imread(tmp_path / "growth.png").shape[0] > 300


def test_a_picture_of_nothing_is_an_error():
    report = report_of(lambda tokens: {"late": {"build": Measurement("timeout")}})
    with pytest.raises(fg.FlowgraphError, match="no solver has a time to draw"):
        report.plot()
