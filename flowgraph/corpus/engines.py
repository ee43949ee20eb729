"""Where workers run. An engine maps tasks to reports, in any order, a bounded number of tasks at a time.

``engine(spec, tasks, workers, stop) -> Iterator[Report]``: no task is taken after ``stop`` is set, and those under way
are finished.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from flowgraph.corpus.windows import Task
from flowgraph.errors import FlowgraphError, FlowgraphWarning

if TYPE_CHECKING:
    from flowgraph.corpus.worker import Report, Worker, WorkerSpec

_QUEUED = 1
"""Tasks that wait for each worker, so that none idles while its next window is read."""

_DEATHS = 3
"""Deaths of workers without a window done in between, after which the run gives up."""

_MOST_WORKERS = 10_000

ENGINES = ("local", "ray")


def run_here(spec: WorkerSpec, tasks: Iterable[Task], stop: threading.Event) -> Iterator[Report]:
    """One worker, in this process."""
    worker: Worker | None = None
    for task in tasks:
        if stop.is_set():
            return
        worker = worker or spec.make()
        if stop.is_set():  # while the model was loaded
            return
        yield worker(task)


def run_local(
    spec: WorkerSpec, tasks: Iterable[Task], workers: int, stop: threading.Event
) -> Iterator[Report]:
    """Processes of their own, spawned and never forked: a fork of a process with threads may hang.

    A worker that dies (out of memory, killed) costs the windows that were under way, which start again.
    """
    waiting = iter(tasks)
    again: list[Task] = []
    deaths = 0
    finishing = False
    while True:
        pool = _Pool(spec, workers)
        try:
            for report in pool.run(again, waiting, stop, finish=finishing):
                deaths = 0
                yield report
            return
        except BrokenProcessPool:
            if stop.is_set():
                # a scheduler's signal reaches the workers too: what they had begun is finished, once more and no more
                if finishing or not pool.has_begun():
                    return
                finishing = True
            deaths += 1
            if deaths >= _DEATHS:
                raise FlowgraphError(
                    f"workers: a worker died {deaths} times without a window done (out of memory?); finished shards "
                    "are intact: try fewer --workers, a smaller --batch or a smaller --window"
                ) from None
            warnings.warn("workers: one died; its windows start again", FlowgraphWarning, stacklevel=2)
            again = pool.unfinished()
        finally:
            pool.close()


class _Pool:
    """Worker processes, and the tasks they have."""

    def __init__(self, spec: WorkerSpec, workers: int) -> None:
        self._workers = workers
        self._running: dict[Future[Report | None], Task] = {}
        context = multiprocessing.get_context("spawn")
        # no locks, which a worker could die with
        self._stopped, self._begun = context.RawValue("b", 0), context.RawValue("b", 0)
        self._executor = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_begin, initargs=(spec, self._stopped, self._begun)
        )

    def run(
        self, first: list[Task], tasks: Iterator[Task], stop: threading.Event, *, finish: bool
    ) -> Iterator[Report]:
        """``first``, then ``tasks`` until ``stop`` is set; what is not begun then is left, but if ``finish``."""
        for task in first:
            self._submit(task)
        while True:
            if not stop.is_set():
                room = self._workers * (1 + _QUEUED) - len(self._running)
                for task in islice(tasks, max(0, room)):
                    self._submit(task)
            else:
                self._stopped.value = not finish
                self._drop_queued()
            if not self._running:
                return
            done, _ = wait(self._running, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                report = future.result()
                del self._running[future]
                if report is not None:
                    yield report

    def _submit(self, task: Task) -> None:
        # known before it is submitted: the pool may be broken already, and then the task must not be lost
        future: Future[Report | None] = Future()
        self._running[future] = task
        with _deaf_to_ctrl_c():
            submitted = self._executor.submit(_work, task)
        del self._running[future]
        self._running[submitted] = task

    def _drop_queued(self) -> None:
        for future in list(self._running):
            if future.cancel():
                del self._running[future]

    def unfinished(self) -> list[Task]:
        return sorted(self._running.values(), key=lambda task: task.number)

    def has_begun(self) -> bool:
        """Whether any worker has begun a window."""
        return bool(self._begun.value)

    def close(self) -> None:
        """End the workers: at once, where they still have work."""
        processes = list((self._executor._processes or {}).values())
        if self._running:
            for process in processes:
                process.terminate()
        self._executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started meanwhile do not hear Ctrl-C, from their first moment on; this one hears it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


# --- in the worker's process ----------------------------------------------------------------------------------

_spec: WorkerSpec | None = None
_stopped: Any = None
_begun: Any = None
_worker: Worker | None = None


def _begin(spec: WorkerSpec, stopped: Any, begun: Any) -> None:
    """Nothing that can fail: an error here would be told to nobody."""
    global _spec, _stopped, _begun
    _spec, _stopped, _begun = spec, stopped, begun
    # Ctrl-C reaches every process of the terminal; the run decides what becomes of the windows under way
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """A run that was killed leaves no workers behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(task: Task) -> Report | None:
    """None for a window that was not begun when the run was asked to stop."""
    global _worker
    if _worker is None and not _stopped.value:
        assert _spec is not None
        _worker = _spec.make()
    if _worker is None or _stopped.value:
        return None
    _begun.value = 1
    return _worker(task)


Engine = Callable[["WorkerSpec", Iterable[Task], threading.Event], "Iterator[Report]"]


def find_engine(name: str, workers: int, ray_address: str | None) -> Engine:
    """An engine by name. ``workers=0``: in this process."""
    if isinstance(workers, bool) or not isinstance(workers, int) or not 0 <= workers <= _MOST_WORKERS:
        raise FlowgraphError(
            f"workers: {workers!r} is not a number of processes up to {_MOST_WORKERS}; pass 1 or more"
        )
    if name == "ray":
        from flowgraph.corpus.ray_engine import run_on_ray

        return lambda spec, tasks, stop: run_on_ray(spec, tasks, max(1, workers), stop, ray_address)
    if name != "local":
        raise FlowgraphError(f"engine: unknown engine {name!r}; choose one of {', '.join(ENGINES)}")
    if ray_address is not None:
        raise FlowgraphError(f"ray_address: {ray_address!r} is for engine 'ray'; pass engine='ray' as well")
    if workers == 0:
        return run_here
    return lambda spec, tasks, stop: run_local(spec, tasks, workers, stop)
