"""``run_corpus``: from an input file to a folder of shards, and on from wherever an earlier run ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from flowgraph.corpus.engines import find_engine
from flowgraph.corpus.formats import InputOptions
from flowgraph.corpus.index import ERRORS, Index, Known, temporary_index
from flowgraph.corpus.lock import locked
from flowgraph.corpus.manifest import CORPUS, Kind, fingerprint, open_manifest, write_manifest
from flowgraph.corpus.reader import Reader
from flowgraph.corpus.records import Record
from flowgraph.corpus.settings import Settings, identity_of_run
from flowgraph.corpus.shards import FOLDERS, load_index, tidy_data, tidy_errors
from flowgraph.corpus.store import Store
from flowgraph.corpus.summary import Summary
from flowgraph.corpus.weights import hash_of_model, model_folder
from flowgraph.corpus.windows import Task, make_tasks
from flowgraph.corpus.worker import Report, WorkerSpec
from flowgraph.errors import FlowgraphError


class Observer(Protocol):
    """Who is told how far the run is."""

    def __call__(self, summary: Summary, fraction: float | None) -> None: ...


class Source(Protocol):
    """Where records come from."""

    argument: str
    """What the user called it."""

    def __iter__(self) -> Iterator[Record]: ...

    @property
    def fraction(self) -> float | None:
        """Share of it that has been read, where that is known."""


Work = Callable[[Iterable[Task], threading.Event], Iterator[Report]]
"""Tasks to reports, in any order; no task is taken once the event is set."""


class StoppedError(FlowgraphError):
    """The run ended before its input: interrupted, or too many records failed."""

    def __init__(self, message: str, summary: Summary, signal_number: int | None = None) -> None:
        super().__init__(message)
        self.summary, self.signal_number = summary, signal_number


def run_corpus(
    input: str | os.PathLike[str],
    out: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    settings: Settings | None = None,
    columns: InputOptions | None = None,
    workers: int = 1,
    engine: str = "local",
    ray_address: str | None = None,
    time_limit: float | None = None,
    max_errors: int | None = None,
    retry_errors: bool = False,
    observe: Observer | None = None,
) -> Summary:
    """Attribute every text of a data set; on a folder that holds a part of it already, the rest.

    Parameters
    ----------
    input
        A file at any address: JSON Lines, CSV, TSV, Parquet or plain text, by its name or ``columns.form``,
        compressed or not; ``-`` is standard input.
    out
        A folder at any address. ``data/`` gets the rows, ``errors/`` what failed, ``manifest.json`` the settings and
        the schema.
    model
        A folder, or a name on the hub.
    settings
        What is computed. A folder begun with other settings, weights or library versions is refused.
    workers
        Processes that hold the model; 0: this process, whose numerical libraries then have ``settings.threads`` threads
        from now on.
    engine, ray_address
        ``"local"``, or ``"ray"`` with the address of a cluster (None: a Ray of its own on this machine).
    time_limit
        Seconds for each flow; a text with a slower one is an error.
    max_errors
        Records that may fail in this run; with one more it ends.
    retry_errors
        Try records again that failed in earlier runs.

    Raises
    ------
    StoppedError
        After Ctrl-C (or SIGTERM), and past ``max_errors``. Finished shards are intact; the same call goes on.
    FlowgraphError
        For settings that cannot be used, a folder in use or begun otherwise, an input or folder that cannot be read
        or written.
    """
    settings = (settings or Settings()).checked()
    columns = columns or InputOptions()
    _check_max_errors(max_errors)
    if time_limit is not None and not time_limit > 0:
        raise FlowgraphError(
            f"time_limit: {time_limit!r} is not a number of seconds above 0; pass for example 60"
        )
    if time_limit is not None and "flow" not in settings.methods:
        raise FlowgraphError(f"time_limit: {time_limit!r} is for method 'flow' alone; leave it out")
    run_engine = find_engine(engine, workers, ray_address)
    folder = model_folder(os.fspath(model))
    model_hash = hash_of_model(folder)
    identity = identity_of_run(settings, columns, model_hash)
    store = Store(out)
    reader = Reader(os.fspath(input), columns)
    spec = WorkerSpec(
        model=os.fspath(model) if engine == "ray" else str(folder),
        out=_absolute(store),
        settings=settings,
        fingerprint=fingerprint(identity),
        time_limit=time_limit,
        model_hash=model_hash if engine == "ray" else None,
    )
    try:
        return run_records(
            reader,
            store,
            lambda tasks, stop: run_engine(spec, tasks, stop),
            identity,
            model_name=os.path.basename(os.fspath(model)),
            window=settings.window,
            max_errors=max_errors,
            retry_errors=retry_errors,
            observe=observe,
        )
    finally:
        reader.close()


def run_records(
    source: Source,
    store: Store,
    work: Work,
    identity: Mapping[str, Any],
    *,
    model_name: str,
    window: int,
    kind: Kind = CORPUS,
    max_errors: int | None = None,
    retry_errors: bool = False,
    observe: Observer | None = None,
) -> Summary:
    """Everything about a run but what is computed: ``work`` makes of each task a shard of ``kind`` in the ``store``.

    One run at a time on the folder, of one ``identity``; what its shards hold already is not asked for again.
    """
    store.make(*FOLDERS)
    with locked(store), temporary_index() as index, _signals() as stopped:
        manifest = open_manifest(store, kind, identity, model_name)
        run = _Run(store, source, index, kind, manifest, Summary(out=store.address), observe or _nobody)
        return run.go(work, window, stopped, max_errors=max_errors, retry_errors=retry_errors)


class _Stopped:
    """Whether to stop, and which signal said so."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.signal_number: int | None = None


class _Run:
    """One run on a locked folder."""

    def __init__(
        self,
        store: Store,
        source: Source,
        index: Index,
        kind: Kind,
        manifest: dict[str, Any],
        summary: Summary,
        observe: Observer,
    ) -> None:
        self._store, self._source, self._index, self._kind = store, source, index, kind
        self._manifest, self.summary, self._observe = manifest, summary, observe
        self._retry_errors = False

    def go(
        self,
        work: Work,
        window: int,
        stopped: _Stopped,
        *,
        max_errors: int | None,
        retry_errors: bool,
    ) -> Summary:
        start = time.monotonic()
        self._retry_errors = retry_errors
        self._store.sweep("", *FOLDERS)
        self.summary.damaged = load_index(self._store, self._index)
        tasks = make_tasks(
            self._source,
            self._index,
            size=window,
            retry_errors=retry_errors,
            on_window=self._count_window,
        )
        try:
            for report in work(tasks, stopped.event):
                self.summary.add(report)
                self._index.settle(report.done, report.failures)
                self._observe(self.summary, self._source.fraction)
                if max_errors is not None and self.summary.failed > max_errors:
                    stopped.event.set()
        finally:
            self.summary.seconds = time.monotonic() - start
        self._finish(complete=not stopped.event.is_set())
        self._raise_if_stopped(stopped, max_errors)
        return self.summary

    def _count_window(self, known: list[Known]) -> None:
        self.summary.records += len(known)
        self.summary.known += sum(k.place not in (None, ERRORS) for k in known)
        if not self._retry_errors:
            self.summary.known_errors += sum(k.place == ERRORS for k in known)
        self._observe(self.summary, self._source.fraction)

    def _finish(self, complete: bool) -> None:
        summary, index = self.summary, self._index
        summary.complete = complete
        summary.moved, summary.returned = index.moved, index.returned
        if complete:
            summary.removed = index.removed()
            if summary.removed or summary.moved or summary.returned:
                tidy_data(self._store, index, self._kind.data)
        if complete or index.untidy or summary.retried:
            tidy_errors(self._store, index, complete=complete)
        write_manifest(self._store, self._manifest | {"complete": complete, "last_run": summary.to_dict()})

    def _raise_if_stopped(self, stopped: _Stopped, max_errors: int | None) -> None:
        summary = self.summary
        if stopped.signal_number is not None:
            raise StoppedError(
                f"stopped after {summary.computed + summary.failed} records; the same command goes on from here",
                summary,
                stopped.signal_number,
            )
        reason = "; ".join(f"{text} ({count})" for text, count in summary.reasons.most_common(1))
        if stopped.event.is_set():
            raise StoppedError(
                f"max_errors: {summary.failed} records failed, {max_errors} may: most often {reason}; see errors/ in "
                f"{self._store.address!r}, and the same command goes on with a larger --max-errors",
                summary,
            )
        if summary.records and not summary.computed and not summary.known:
            raise StoppedError(
                f"{self._source.argument}: all {summary.records} records failed"
                f"{f': most often {reason}' if reason else ' (--retry-errors tries them again)'}; see errors/ in "
                f"{self._store.address!r}",
                summary,
            )


def _check_max_errors(value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise FlowgraphError(f"max_errors: {value!r} is not a number of records; pass 0 or more")


def _absolute(store: Store) -> str:
    """The address as another process finds it."""
    return store.root if store.local else store.address


def _nobody(summary: Summary, fraction: float | None) -> None:
    pass


@contextmanager
def _signals() -> Iterator[_Stopped]:
    """Ctrl-C and SIGTERM ask the run to end with the windows under way; a second one ends it at once."""
    stopped = _Stopped()

    def ask(number: int, _: FrameType | None) -> None:
        if stopped.signal_number is not None:
            raise KeyboardInterrupt
        stopped.signal_number = number
        stopped.event.set()
        # the only way of writing that a signal may interrupt anything with
        os.write(2, b"\nfinishing the windows under way; once more to stop at once\n")

    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    old: dict[int, Callable[..., Any] | int | None] = {
        number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
