"""What a comparison found: figures, verdicts, growth; as a dictionary and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.bench.runner import TASKS
from flowgraph.solvers.base import TOLERANCE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = "flowgraph bench 1"

ROUNDING = 1e-6
"""A value off by more than the promise of 1e-9 but by less than this is inexact, as integer solvers are; else wrong."""

STATUSES = ("ok", "timeout", "raised", "died", "not offered")


@dataclass(frozen=True)
class Measurement:
    """One task of one solver on one graph."""

    status: str
    """One of ``STATUSES``; figures of runs that ended well are kept whatever came after."""
    message: str | None = None
    """What was raised, or how the process ended."""
    clock: str = "cpu"
    """Which seconds the median is of: ``cpu`` or ``wall``."""
    first_seconds: float | None = None
    """The first run, by the wall clock, nothing cached, all pairs together."""
    wall_seconds: tuple[float, ...] = ()
    """Of each repeat: of a build, of one pair (the mean of the pairs), of a whole matrix."""
    cpu_seconds: tuple[float, ...] = ()
    """The same by the CPU time of the solver's process, all its threads together."""
    peak_bytes: int | None = None
    difference: float | None = None
    """Largest ``|value - certified| / max(1, certified)``."""
    fault: str | None = None
    """Why a certificate does not hold."""

    @property
    def seconds(self) -> tuple[float, ...]:
        """Of each repeat, by ``clock``."""
        return self.cpu_seconds if self.clock == "cpu" else self.wall_seconds

    @property
    def median(self) -> float | None:
        """Median of the repeats in seconds; None unless all went well."""
        return median(self.seconds) if self.status == "ok" and self.seconds else None

    @property
    def quartiles(self) -> tuple[float, float] | None:
        """Lower and upper quartile of the repeats."""
        if self.median is None:
            return None
        low, high = np.quantile(self.seconds, [0.25, 0.75])
        return float(low), float(high)


@dataclass(frozen=True)
class Entry:
    """One solver on one graph."""

    solver: str
    tasks: dict[str, Measurement]

    @property
    def difference(self) -> float | None:
        """Over all tasks; None where no value was found."""
        return max((m.difference for m in self.tasks.values() if m.difference is not None), default=None)

    @property
    def certificate(self) -> str:
        """``held``, ``failed``, ``none`` (the solver gives values alone) or ``unknown`` (no flow was found)."""
        flow = self.tasks.get("flow")
        if flow is None or flow.status == "not offered":
            return "none" if flow else "unknown"
        if flow.fault is not None:
            return "failed"
        return "unknown" if flow.first_seconds is None else "held"

    @property
    def verdict(self) -> str:
        """The worst that is known: ``wrong``, ``raised``, ``died``, ``timeout``, ``inexact`` or ``right``."""
        off = self.difference
        if self.certificate == "failed" or (off is not None and off > ROUNDING):
            return "wrong"
        for status in ("died", "raised"):
            if any(m.status == status for m in self.tasks.values()):
                return status
        if off is not None and off > TOLERANCE:
            return "inexact"
        return "timeout" if any(m.status == "timeout" for m in self.tasks.values()) else "right"

    @property
    def messages(self) -> list[str]:
        """Faults and errors, each once, with the tasks they befell."""
        found: dict[str, list[str]] = {}
        for task, m in self.tasks.items():
            for text in (m.fault, m.message if m.status in ("raised", "died") else None):
                if text is not None:
                    found.setdefault(text, []).append(task)
        return [f"{', '.join(tasks)}: {text}" for text, tasks in found.items()]

    @property
    def peak_bytes(self) -> int | None:
        return max((m.peak_bytes for m in self.tasks.values() if m.peak_bytes is not None), default=None)


@dataclass(frozen=True)
class GraphReport:
    """All solvers on one graph."""

    name: str
    family: str
    """Graphs of one family differ in size alone; growth is fitted within it."""
    layers: int
    tokens: int
    """Nodes of the top level."""
    nodes: int
    edges: int
    pairs: int
    """Pairs that ``value`` and ``flow`` take one by one."""
    matrix_pairs: int
    certified: int
    """Pairs whose values are certified; differences are taken there."""
    entries: dict[str, Entry]


@dataclass(frozen=True)
class Growth:
    """``seconds ~ size ** exponent`` by least squares on the logarithms of the medians."""

    family: str
    solver: str
    task: str
    exponent: float
    points: int
    residual: float
    """Root mean square of what the fit leaves, in natural logarithms: 0.1 is about 10 %."""


@dataclass(frozen=True)
class Report:
    """Solvers side by side on one or more graphs."""

    graphs: list[GraphReport]
    settings: dict[str, Any]
    machine: dict[str, Any]
    versions: dict[str, str]
    not_installed: list[str] = field(default_factory=list)

    @property
    def against(self) -> str:
        """What growth is measured against: ``tokens`` where all graphs have as many layers, else ``edges``."""
        return "tokens" if len({g.layers for g in self.graphs}) <= 1 else "edges"

    def points(self, task: str) -> Iterator[tuple[str, str, list[tuple[int, Measurement]]]]:
        """``(family, solver, [(size, measurement), ...])`` by size, of the graphs where ``task`` was asked for."""
        series: dict[tuple[str, str], list[tuple[int, Measurement]]] = {}
        for graph in self.graphs:
            for name, entry in graph.entries.items():
                if task in entry.tasks:
                    place = series.setdefault((graph.family, name), [])
                    place.append((getattr(graph, self.against), entry.tasks[task]))
        for (family, solver), found in series.items():
            yield family, solver, sorted(found, key=lambda point: point[0])

    def growth(self) -> list[Growth]:
        """Fits for every solver and task with medians at two sizes or more."""
        return [
            fit
            for task in TASKS
            for family, solver, points in self.points(task)
            if (fit := _fit(family, solver, task, points)) is not None
        ]

    def show(self) -> None:
        """Print the tables of :mod:`flowgraph.bench.tables` and what belongs to them."""
        from rich.console import Console

        from flowgraph.bench.tables import report_lines, report_tables

        console = Console(highlight=False)
        for table in report_tables(self):
            console.print(table)
        for line in report_lines(self):
            console.print(line, markup=False)

    def plot(self, path: str | PathLike[str] | None = None) -> Figure:
        """Time against size, log-log, a panel a task; see :func:`flowgraph.bench.picture.growth_picture`."""
        from flowgraph.bench.picture import growth_picture

        return growth_picture(self, path)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, and stable.

        ``format``: ``"flowgraph bench 1"``. ``machine``, ``versions``, ``settings``, ``not_installed`` (peers without
        their library). ``against``: ``"tokens"`` or ``"edges"``. ``growth``: a list of ``family``, ``solver``,
        ``task``, ``exponent``, ``points``, ``residual``. ``graphs``: a list of ``name``, ``family``, ``layers``,
        ``tokens``, ``nodes``, ``edges``, ``pairs``, ``matrix_pairs``, ``certified`` and ``solvers``; a solver has
        ``solver``, ``verdict``, ``difference``, ``certificate``, ``peak_bytes``, ``messages`` and ``tasks``: for each
        of ``build``, ``value``, ``flow``, ``matrix`` that was asked for, ``status``, ``message``, ``median``,
        ``quartiles``, ``clock`` (which of the following two they are of), ``wall_seconds``, ``cpu_seconds``,
        ``first_seconds``, ``peak_bytes``, ``difference``, ``fault``. Seconds of ``value`` and ``flow`` are for one
        pair. A figure that is not known is null, never a number that
        stands for something else; ``difference`` is the text ``"infinite"`` for a value that is no number.
        """
        return {
            "format": FORMAT,
            "machine": self.machine,
            "versions": self.versions,
            "settings": self.settings,
            "not_installed": self.not_installed,
            "against": self.against,
            "growth": [vars(fit) for fit in self.growth()],
            "graphs": [_graph_dict(graph) for graph in self.graphs],
        }


def _fit(family: str, solver: str, task: str, points: list[tuple[int, Measurement]]) -> Growth | None:
    known = [(size, m.median) for size, m in points if m.median]
    if len({size for size, _ in known}) < 2:
        return None
    x, y = np.log(np.array(known, dtype=np.float64)).T
    slope, start = np.polyfit(x, y, 1)
    rest = float(np.sqrt(np.mean((y - slope * x - start) ** 2)))
    return Growth(family, solver, task, float(slope), len(known), rest)


def _graph_dict(graph: GraphReport) -> dict[str, Any]:
    facts = {key: value for key, value in vars(graph).items() if key != "entries"}
    return facts | {"solvers": [_entry_dict(entry) for entry in graph.entries.values()]}


def _entry_dict(entry: Entry) -> dict[str, Any]:
    return {
        "solver": entry.solver,
        "verdict": entry.verdict,
        "difference": _plain(entry.difference),
        "certificate": entry.certificate,
        "peak_bytes": entry.peak_bytes,
        "messages": entry.messages,
        "tasks": {
            task: vars(m)
            | {
                "median": m.median,
                "quartiles": m.quartiles,
                "difference": _plain(m.difference),
            }
            for task, m in entry.tasks.items()
        },
    }


def _plain(difference: float | None) -> float | str | None:
    return "infinite" if difference == float("inf") else difference
