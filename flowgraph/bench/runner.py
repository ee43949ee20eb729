"""One solver on one graph: what is run, timed and checked, inside a process of its own."""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowgraph.bench.generate import generate
from flowgraph.bench.memory import PeakMemory
from flowgraph.errors import CertificateError
from flowgraph.graph import Block, LayeredGraph, Level, Node
from flowgraph.solvers.base import check_flow
from flowgraph.solvers.many import pair_values

TASKS = ("build", "value", "flow", "matrix")
"""``build``: convert the graph. ``value``: the value of one pair. ``flow``: one pair with its flow and its cut.
``matrix``: the values of all pairs of the top level and the inputs."""

_LONG_ENOUGH = 0.01
"""Seconds that a sample should last; quicker work is done several times over."""
_MOST_LOOPS = 1000


@dataclass(frozen=True)
class GraphParts:
    """A graph as it is sent to another process, without what a solver has no use for."""

    levels: tuple[Level, ...]
    blocks: tuple[Block, ...]
    layers: tuple[int, ...]
    inputs: tuple[int, ...]

    @classmethod
    def of(cls, graph: LayeredGraph) -> GraphParts:
        return cls(graph.levels, graph.blocks, graph.layers, graph.inputs)

    def graph(self) -> LayeredGraph:
        return LayeredGraph(self.levels, self.blocks, layers=self.layers, inputs=self.inputs)


@dataclass(frozen=True)
class First:
    """What the first run of a task brought."""

    seconds: float
    peak_bytes: int | None
    """Most memory held during the run beyond what was held before the graph was built; None where unknown."""
    values: np.ndarray | None = None
    """``(pairs,)``, or for ``matrix`` ``(sources, sinks)``."""
    fault: str | None = None
    """Why a flow's certificate does not hold."""
    loops: int = 1
    """Times the task should be run for one sample."""


class NotOfferedError(Exception):
    """The solver has no way to do this task."""


class Runner:
    """Runs tasks of one solver; ``pairs`` one by one, ``sources`` and ``sinks`` as a matrix."""

    def __init__(
        self,
        solver: bytes,
        parts: GraphParts,
        pairs: list[tuple[Node, Node]],
        sources: list[Node],
        sinks: list[Node],
    ) -> None:
        self._solver = pickle.loads(solver)
        self._graph = parts.graph()
        self._pairs, self._sources, self._sinks = pairs, sources, sinks
        self._prepared: Any = None
        self._memory = PeakMemory()

    def warm_up(self) -> None:
        """Every task on a graph of six nodes: imports, compiled code, caches. Faults show on the real graph."""
        small = generate(2, 2)
        other = Runner(
            pickle.dumps(None), GraphParts.of(small), [((2, 0), (0, 1))], [(2, 0), (2, 1)], [(0, 0), (0, 1)]
        )
        other._solver = self._solver
        with suppress(Exception):
            for task in TASKS:
                other._run(task)
        gc.collect()
        self._memory = PeakMemory()

    def first(self, task: str) -> First:
        """Run ``task`` once, with its values, its certificates and its memory."""
        start = time.perf_counter()
        with self._memory:
            answer = self._run(task)
        seconds = time.perf_counter() - start
        loops = 1 if seconds > _LONG_ENOUGH else min(_MOST_LOOPS, int(_LONG_ENOUGH / max(seconds, 1e-9)) + 1)
        peak = self._memory.peak_bytes
        if task == "build":
            return First(seconds, peak, loops=loops)
        if task == "flow":
            values = np.array([float(result.value) for result in answer])
            return First(seconds, peak, values, self._fault(answer), loops)
        return First(seconds, peak, np.asarray(answer, dtype=np.float64), loops=loops)

    def sample(self, task: str, loops: int) -> tuple[float, float]:
        """Wall and CPU seconds of ``task``: a build, a pair (the mean of ``pairs``), or a matrix."""
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(loops):
            self._run(task)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        count = loops * (len(self._pairs) if task in ("value", "flow") else 1)
        return wall / count, cpu / count

    def threads(self) -> list[dict[str, Any]]:
        """The thread pools of the libraries loaded by now, and how many threads each may use."""
        from threadpoolctl import threadpool_info

        return [
            {"library": pool["internal_api"], "threads": pool["num_threads"]} for pool in threadpool_info()
        ]

    def _run(self, task: str) -> Any:
        return self._ways[task](self)

    def _build(self) -> None:
        self._prepared = None  # the old conversion goes before the new one comes
        self._prepared = self._solver.prepare(self._graph)

    def _values(self) -> np.ndarray:
        return np.array([pair_values(self._prepared, [s], [t])[0, 0] for s, t in self._pairs])

    def _flows(self) -> list[Any]:
        if not callable(getattr(self._prepared, "solve", None)):
            raise NotOfferedError
        return [self._prepared.solve(source, sink) for source, sink in self._pairs]

    def _matrix(self) -> np.ndarray:
        return pair_values(self._prepared, self._sources, self._sinks)

    _ways: dict[str, Callable[[Runner], Any]] = {  # noqa: RUF012
        "build": _build,
        "value": _values,
        "flow": _flows,
        "matrix": _matrix,
    }

    def _fault(self, results: list[Any]) -> str | None:
        """The first certificate that does not hold, on capacities that the solver cannot write to."""
        for (source, sink), result in zip(self._pairs, results, strict=True):
            if (result.source, result.sink) != (source, sink):
                return f"asked for {source} to {sink}, answered for {tuple(result.source)} to {tuple(result.sink)}"
            try:
                check_flow(self._graph, result)
            except CertificateError as error:
                return str(error)
        return None
