"""Solvers side by side: each checked first, then all timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowgraph.bench.child import Child, ChildDiedError, SolverRaisedError
from flowgraph.bench.contestants import choose, missing_peers, require_libraries
from flowgraph.bench.machine import machine, versions
from flowgraph.bench.reference import Reference, certify, difference
from flowgraph.bench.report import Entry, GraphReport, Measurement, Report
from flowgraph.bench.runner import TASKS, First, GraphParts, NotOfferedError
from flowgraph.errors import FlowgraphError, TimeLimitError
from flowgraph.graph import LayeredGraph
from flowgraph.progress import progress_bar

CLOCKS = ("cpu", "wall")

_WARMING = 30.0
"""Seconds for the warm-up at least: it imports the solver's libraries, on a busy machine beside all the others."""


_RANGES = {
    "pairs": (1, 10**9),
    "certified": (1, 10**9),
    "repeats": (1, 10**6),
    "threads": (1, 4096),
    "seed": (0, 2**128),
}


@dataclass(frozen=True)
class Settings:
    """How solvers are compared."""

    tasks: tuple[str, ...] = TASKS
    pairs: int = 5
    """Pairs that are solved one by one."""
    certified: int = 64
    """Pairs whose certified values the others are compared with; at least ``pairs``."""
    repeats: int = 5
    time_limit: float = 10.0
    """Seconds, of the clock, for one run of a task and for all its repeats together."""
    clock: str = "cpu"
    """``cpu``: seconds of the solver's process, so that others on a busy machine do not count. ``wall``: for solvers
    that wait for something, such as a GPU."""
    threads: int = 1
    seed: int = 0
    """Of the pairs drawn."""

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise FlowgraphError(f"{name}: {value!r} is not a whole number from {least} to {most}")
        if not (isinstance(self.time_limit, (int, float)) and 0 < self.time_limit < float("inf")):
            raise FlowgraphError(f"time_limit: {self.time_limit!r} is not a number of seconds above 0")
        if self.clock not in CLOCKS:
            raise FlowgraphError(f"clock: unknown clock {self.clock!r}; choose cpu or wall")
        unknown = [task for task in self.tasks if task not in TASKS]
        if unknown or not self.tasks:
            raise FlowgraphError(
                f"tasks: {', '.join(map(repr, unknown)) or 'none named'}; choose from {', '.join(TASKS)}"
            )


def compare(
    graphs: Mapping[str, LayeredGraph],
    *,
    solvers: Iterable[str] | None = None,
    families: Mapping[str, str] | None = None,
    progress: bool | Callable[[int], None] = False,
    **settings: Any,
) -> Report:
    """Every solver on every graph.

    Each solver runs in a process of its own, with pinned threads, after a warm-up on another graph. Its first run of
    a task is checked (values against certified ones, flows by :func:`flowgraph.check_flow`) and not timed; then all
    solvers are timed in turns, ``repeats`` times. A solver that is wrong, raises, crashes or takes too long is
    reported as such, and the others go on.

    Parameters
    ----------
    graphs
        Graphs by name, with capacities that are not negative.
    solvers
        Names; None: ``auto``, all registered solvers (also your own) and all installed peers.
    families
        Name of a graph -> what it is one of; growth is fitted within a family. Default: one for all.
    progress
        A bar on standard error, or a function called with the number of steps just finished.
    settings
        ``tasks`` (of ``build``, ``value``, ``flow``, ``matrix``; ``build`` is always done), ``pairs``, ``certified``,
        ``repeats``, ``time_limit``, ``clock``, ``threads``, ``seed``: see :class:`Settings`.
    """
    options = _settings(settings)
    require_libraries()
    if not graphs:
        raise FlowgraphError("graphs: none given; pass at least one, by name")
    chosen = choose(solvers)
    blobs = {name: _packed(name, solver) for name, solver in chosen.items()}
    steps = len(graphs) * len(chosen) * len(options.tasks) * 2
    with progress_bar(progress, "comparing solvers", steps) as advance:
        reports = [
            _Contest(name, graph, blobs, options, advance or (lambda _: None)).run(
                (families or {}).get(name, "graphs")
            )
            for name, graph in graphs.items()
        ]
    about = vars(options) | {"tasks": list(options.tasks)}
    return Report(reports, about, machine(), versions(), missing_peers() if solvers is None else [])


class _Contest:
    """All solvers on one graph."""

    def __init__(
        self,
        name: str,
        graph: LayeredGraph,
        solvers: Mapping[str, bytes | FlowgraphError],
        settings: Settings,
        advance: Callable[[int], Any],
    ) -> None:
        self._name, self._graph, self._settings, self._advance = name, graph, settings, advance
        self._reference = certify(graph, max(settings.certified, settings.pairs), settings.seed)
        if not len(self._reference.values):
            raise FlowgraphError(f"graphs: {name!r} has no input below its top level, so no flow")
        work = (
            GraphParts.of(graph),
            self._reference.pairs(settings.pairs),
            self._reference.sources,
            self._reference.sinks,
        )
        self._lanes = {
            solver: _Lane(blob, work, settings, self._reference) for solver, blob in solvers.items()
        }

    def run(self, family: str) -> GraphReport:
        try:
            for lane in self._lanes.values():
                lane.start()
            for task in self._settings.tasks:
                for lane in self._lanes.values():
                    lane.check(task)
                    self._advance(1)
            for turn in range(self._settings.repeats):
                self._turn(turn)
            self._advance(len(self._lanes) * len(self._settings.tasks))
        finally:
            for lane in self._lanes.values():
                lane.close()
        return self._report(family)

    def _turn(self, turn: int) -> None:
        """Every solver once; each turn begins with another, so that none is always first."""
        lanes = list(self._lanes.values())
        start = turn % len(lanes)
        for task in self._settings.tasks:
            for lane in lanes[start:] + lanes[:start]:
                lane.sample(task)

    def _report(self, family: str) -> GraphReport:
        graph, reference = self._graph, self._reference
        return GraphReport(
            name=self._name,
            family=family,
            layers=graph.num_layers,
            tokens=len(reference.sources),
            nodes=graph.num_nodes,
            edges=graph.num_edges,
            pairs=len(reference.pairs(self._settings.pairs)),
            matrix_pairs=len(reference.sources) * len(reference.sinks),
            certified=len(reference.values),
            entries={name: Entry(name, lane.measurements) for name, lane in self._lanes.items()},
        )


class _Lane:
    """One solver on one graph: its process, begun anew where a task ended it, and what is known of it so far."""

    def __init__(
        self,
        blob: bytes | FlowgraphError,
        work: tuple[Any, ...],
        settings: Settings,
        reference: Reference,
    ) -> None:
        self._blob, self._work, self._settings, self._reference = blob, work, settings, reference
        self._child: Child | None = None
        self._ready = False
        self._loops: dict[str, int] = {}
        self.measurements: dict[str, Measurement] = {}

    def start(self) -> None:
        """Begin a process; it starts while others do."""
        if isinstance(self._blob, bytes):
            self._child, self._ready = Child(self._settings.threads, self._settings.clock), False

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def check(self, task: str) -> None:
        """The first run of ``task``: status, values, certificates, memory. Without a graph built there is none."""
        build = self.measurements.get("build")
        if build is not None and build.status != "ok":
            self.measurements[task] = replace(build, first_seconds=None, peak_bytes=None)
        else:
            self.measurements[task] = self._guarded(task, self._first)

    def sample(self, task: str) -> None:
        """One repeat, unless the task failed or has had its time."""
        known = self.measurements[task]
        if known.status == "ok" and sum(known.seconds) * self._work_of(task) < self._settings.time_limit:
            self.measurements[task] = self._guarded(task, self._repeat)

    def _guarded(self, task: str, step: Callable[[str], Measurement]) -> Measurement:
        """``step``, or what is known of ``task`` so far with how it ended."""
        known = self.measurements.get(task, Measurement("ok", clock=self._settings.clock))
        if isinstance(self._blob, FlowgraphError):
            return replace(known, status="raised", message=str(self._blob))
        try:
            self._prepare(task)
            return step(task)
        except NotOfferedError:
            return replace(known, status="not offered")
        except TimeLimitError as error:
            status = ("timeout", str(error))
        except ChildDiedError as error:
            status = ("died", str(error))
        except SolverRaisedError as error:
            return replace(known, status="raised", message=str(error))
        self._child = None
        return replace(known, status=status[0], message=status[1])

    def _prepare(self, task: str) -> None:
        """A living process with the graph, built but for the task of building."""
        if self._child is None:
            self.start()
        assert self._child is not None
        if not self._ready:
            self._child.load(self._blob, *self._work)
            self._child.call("warm_up", limit=max(_WARMING, self._settings.time_limit))
            self._ready = True
            if task != "build":
                self._child.call("first", "build", limit=self._settings.time_limit)

    def _first(self, task: str) -> Measurement:
        first: First = self._call("first", task)
        self._loops[task] = first.loops
        return Measurement(
            "ok",
            clock=self._settings.clock,
            first_seconds=first.seconds,
            peak_bytes=first.peak_bytes,
            difference=None if first.values is None else self._difference(task, first.values),
            fault=first.fault,
        )

    def _repeat(self, task: str) -> Measurement:
        known = self.measurements[task]
        wall, cpu = self._call("sample", task, self._loops[task])
        return replace(known, wall_seconds=(*known.wall_seconds, wall), cpu_seconds=(*known.cpu_seconds, cpu))

    def _call(self, method: str, *arguments: Any) -> Any:
        assert self._child is not None
        return self._child.call(method, *arguments, limit=self._settings.time_limit)

    def _difference(self, task: str, found: np.ndarray) -> float:
        expected = self._reference.values
        if task == "matrix":
            shape = (len(self._reference.sources), len(self._reference.sinks))
            if found.shape != shape:
                return float("inf")
            return difference(found[tuple(self._reference.places.T)], expected)
        return difference(found, expected[: self._settings.pairs])

    def _work_of(self, task: str) -> int:
        """Single pairs of a sample, whose seconds are those of one pair."""
        return len(self._reference.pairs(self._settings.pairs)) if task in ("value", "flow") else 1


def _settings(given: Mapping[str, Any]) -> Settings:
    unknown = set(given) - set(Settings.__dataclass_fields__)
    if unknown:
        raise FlowgraphError(
            f"settings: unknown {', '.join(sorted(unknown))}; there are {', '.join(Settings.__dataclass_fields__)}"
        )
    settings = Settings(**given)
    return replace(settings, tasks=tuple(task for task in TASKS if task == "build" or task in settings.tasks))


def _packed(name: str, solver: Any) -> bytes | FlowgraphError:
    """The solver as it travels to its process; what hinders it counts as raised by the solver."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(solver))
    except Exception as error:
        return FlowgraphError(
            f"{name} cannot be sent to a process of its own: {type(error).__name__}: {error}"
        )
