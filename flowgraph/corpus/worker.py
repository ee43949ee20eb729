"""What computes a window: holds the model once, and makes of every task a shard.

The same code under every engine. Nothing here depends on which worker gets which window, or when.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np

from flowgraph.attribution import Attribution, attribute_graph
from flowgraph.axes import Axis, find_targets
from flowgraph.corpus.settings import Settings
from flowgraph.corpus.shards import Rows, ShardWriter
from flowgraph.corpus.store import Store
from flowgraph.corpus.windows import Member, Task
from flowgraph.errors import (
    CertificateError,
    FlowgraphError,
    FlowgraphWarning,
    TimeLimitError,
    in_options,
)
from flowgraph.graph import LayeredGraph
from flowgraph.selection import resolve_levels

EVERY_TEXT = (
    "edges",
    "heads",
    "level",
    "model",
    "solver",
    "residual",
    "normalize",
    "device",
    "tokenizer",
    "hybrid",
    "out",
)
"""Arguments whose errors are no single text's: the run ends with them."""

_OPTIONS = {field.name: "--" + field.name.replace("_", "-") for field in fields(Settings)}
"""What stands in ``errors`` is read by people who typed a command."""


@dataclass(frozen=True)
class WorkerSpec:
    """All that a worker needs, in a form that can be sent to it."""

    model: str
    out: str
    settings: Settings
    fingerprint: str
    time_limit: float | None = None
    model_hash: str | None = None
    """Checked where the worker may see other files than the run does."""

    def make(self) -> Worker:
        """The worker, its model loaded; called in the process that is to hold it."""
        return Worker(self)


@dataclass
class Report:
    """What became of a window."""

    window: int
    texts: int = 0
    """Records with rows."""
    failed: int = 0
    tokens: int = 0
    rows: int = 0
    started: float = 0.0
    """``time.time()`` when the worker, its model loaded, began."""
    ended: float = 0.0
    peak_bytes: int = 0
    """Most memory the worker's process held so far."""
    retried: int = 0
    """Records that had failed before."""
    settled: Counter[str] = field(default_factory=Counter)
    """Pairs of attention flow, by the step that settled them."""
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    done: tuple[str, ...] = ()
    """Keys of the records with rows."""
    failures: tuple[tuple[str, int], ...] = ()
    """Keys of the records without, and how often they were tried."""


class Worker:
    """Loads the model when it is made; then a call a window."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self._settings = spec.settings
        use_threads(spec.settings.threads)
        self._model, self._tokenizer = _load(spec)
        self._encode, self._run_trace = _capture()
        self._store = Store(spec.out)

    def __call__(self, task: Task) -> Report:
        report = Report(task.number, started=time.time())
        writer = ShardWriter(
            self._store, task.name, {"fingerprint": self.spec.fingerprint, "window": task.number}
        )
        with writer.writing(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._compute(task, Sink(writer, report))
        report.warnings.update(
            _kind_of_warning(w) for w in caught if issubclass(w.category, FlowgraphWarning)
        )
        report.rows = writer.rows
        report.ended, report.peak_bytes = time.time(), peak_memory()
        return report

    # --- a window -----------------------------------------------------------------------------------------

    def _compute(self, task: Task, sink: Sink) -> None:
        readable = []
        for member in task.members:
            problem = member.record.problem
            if problem is None:
                try:
                    readable.append((member, self._shape(member)))
                    continue
                except Exception as error:  # a tokenizer's own complaint is the text's error
                    problem = reason_of(error)
            if member.wanted:
                sink.fail(member, problem)
        for batch in form_batches(readable, self._settings.batch):
            if any(member.wanted for member in batch):
                self._compute_batch(batch, sink)

    def _shape(self, member: Member) -> tuple[Any, ...]:
        """What must be equal in a batch: the shapes of all inputs."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the trace says the same again
            example = self._encode(
                self._model, self._tokenizer, member.record.text, truncate=self._settings.truncate
            )
        return example.shape_key

    def _compute_batch(self, batch: Sequence[Member], sink: Sink) -> None:
        start = time.perf_counter()
        try:
            traces = self._trace(batch)
        except Exception as error:
            raise_if_everyones(error)
            self._compute_alone(batch, sink, error)
            return
        share = (time.perf_counter() - start) / len(batch)
        for member, traced in zip(batch, traces, strict=True):
            if member.wanted:
                self._explain(member, traced, share, sink)

    def _compute_alone(self, batch: Sequence[Member], sink: Sink, error: Exception) -> None:
        """One text after another: one of them spoils the batch."""
        if len(batch) == 1:
            sink.fail(batch[0], reason_of(error))
            return
        for member in batch:
            if member.wanted:
                self._compute_batch([member], sink)

    def _trace(self, batch: Sequence[Member]) -> list[Any]:
        settings = self._settings
        return self._run_trace(
            self._model,
            self._tokenizer,
            [member.record.text for member in batch],
            edges=settings.edges,
            heads=settings.heads,
            truncate=settings.truncate,
            max_memory=settings.max_memory,
            hybrid=settings.hybrid,
        )

    def _explain(self, member: Member, traced: Any, share: float, sink: Sink) -> None:
        try:
            found = list(self._rows(member, traced, share, sink.report.settled))
        except Exception as error:
            raise_if_everyones(error)
            sink.fail(member, reason_of(error))
            return
        for rows in found:
            sink.writer.add(rows)
        sink.done(member, len(found[0].tokens))

    def _rows(self, member: Member, traced: Any, share: float, settled: Counter[str]) -> Iterator[Rows]:
        each = share / (len(self._settings.edges) * len(self._settings.methods))
        for edges in self._settings.edges:
            graphs: dict[bool, LayeredGraph] = {}
            for method in self._settings.methods:
                start = time.perf_counter()
                # raw attention shows a layer's own matrix, with no residual unless told
                bare = method == "raw" and self._settings.residual == "auto"
                if bare not in graphs:
                    graphs[bare] = self._graph(traced, edges, None if bare else self._settings.residual)
                make = partial(self._attributions, graphs[bare], method, settled)
                yield _join(member, method, edges, make, each, start)

    def _graph(self, traced: Any, edges: str, residual: Any) -> LayeredGraph:
        return LayeredGraph.from_trace(
            traced, edges=edges, residual=residual, negative=self._settings.negative
        )

    def _attributions(
        self, graph: LayeredGraph, method: str, settled: Counter[str]
    ) -> Iterator[tuple[list[int | None], Attribution]]:
        """For every selection of targets their positions (None: the mean of all), and the attribution."""
        settings = self._settings
        levels, _ = resolve_levels(graph, settings.level)
        flow: dict[str, Any] = {}
        if method == "flow":
            flow = {"solver": settings.solver, "normalize": settings.normalize}
        for target in settings.targets:
            targets = None if target == "each" else target
            rows = find_targets(targets, Axis.of_level(graph, levels[-1]), graph)
            attribution = attribute_graph(
                graph,
                method=method,
                level=settings.level,
                targets=targets,
                time_limit=self.spec.time_limit,
                **flow,
            )
            settled.update(attribution.meta.get("flow", {}).get("settled", {}))
            yield ([None] if rows.average else [int(p) for p in rows.named]), attribution


def _join(
    member: Member,
    method: str,
    edges: str,
    make: Callable[[], Iterator[tuple[list[int | None], Attribution]]],
    share: float,
    start: float,
) -> Rows:
    """The rows of one method and edge kind; a target chosen twice (CLS that is the last token too) counts once."""
    levels: list[int] = []
    targets: list[int | None] = []
    names: list[str] = []
    scores: list[np.ndarray] = []
    tokens: tuple[str, ...] = ()
    met: set[int | None] = set()
    for positions, attribution in make():
        tokens = attribution.tokens
        for row, position in enumerate(positions):
            if position in met:
                continue
            met.add(position)
            stack = np.atleast_2d(attribution.scores[..., row, :])  # (levels, inputs)
            first = 1 if attribution.level == "all" else int(attribution.level)
            levels += range(first, first + len(stack))
            targets += [position] * len(stack)
            names += [attribution.target_tokens[row]] * len(stack)
            scores.append(stack)
    return Rows(
        id=member.record.id,
        content_hash=member.record.content,
        occurrence=member.occurrence,
        record=member.key,
        tokens=tokens,
        method=method,
        edges=edges,
        levels=np.array(levels, dtype=np.int32),
        targets=targets,
        target_tokens=names,
        scores=np.concatenate(scores),
        seconds=share + time.perf_counter() - start,
    )


class Sink:
    """Where the records of a window end up, and the count of them."""

    def __init__(self, writer: ShardWriter, report: Report) -> None:
        self.writer, self.report = writer, report

    def done(self, member: Member, tokens: int) -> None:
        """The record has its rows."""
        self.report.texts += 1
        self.report.tokens += tokens
        self.report.retried += member.attempt > 1
        self.report.done += (member.key,)

    def fail(self, member: Member, reason: str) -> None:
        """The record has none."""
        self.writer.fail(
            id=member.record.id,
            line=member.record.line,
            content_hash=member.record.content,
            occurrence=member.occurrence,
            record=member.key,
            reason=reason,
            attempt=member.attempt,
        )
        self.report.failed += 1
        self.report.failures += ((member.key, member.attempt),)
        self.report.retried += member.attempt > 1
        self.report.reasons[reason] += 1


def form_batches(shaped: Sequence[tuple[Member, tuple[Any, ...]]], most: int) -> Iterator[list[Member]]:
    """Members of one shape, at most ``most`` at a time, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Member]] = {}
    for member, shape in shaped:
        groups.setdefault(shape, []).append(member)
    for group in groups.values():
        for start in range(0, len(group), most):
            yield group[start : start + most]


def reason_of(error: Exception) -> str:
    """Why a text has no rows, in one line."""
    text = re.sub(r"^text\[\d+\]", "text", " ".join(str(error).split()))
    if isinstance(error, FlowgraphError):
        return in_options(text, _OPTIONS)
    return f"{type(error).__name__}: {text}"


def raise_if_everyones(error: Exception, arguments: Sequence[str] = EVERY_TEXT) -> None:
    """An error of the settings or of the folder ends the run: it would be every text's."""
    if isinstance(error, (TimeLimitError, CertificateError)) or not isinstance(error, FlowgraphError):
        return
    if str(error).split(":")[0] in arguments:
        raise error


def _kind_of_warning(warning: warnings.WarningMessage) -> str:
    """What it is about, so that a million of them are counted and not kept."""
    return str(warning.message).split(":")[0]


# --- the process --------------------------------------------------------------------------------------------


def use_threads(count: int) -> None:
    """``count`` threads for torch and for every numerical library that is loaded, whatever the environment said."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(count)
    threadpool_limits(count)


def peak_memory() -> int:
    """Most bytes this process held so far; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _capture() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The model side, imported before the first text, so that what is wrong with it is no text's fault."""
    from flowgraph.capture.run import trace
    from flowgraph.capture.texts import example_from_text

    return example_from_text, trace


def _load(spec: WorkerSpec) -> tuple[Any, Any]:
    import os

    from flowgraph.capture.loading import load, move
    from flowgraph.corpus.weights import hash_of_model, model_folder

    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    folder = model_folder(spec.model)
    if spec.model_hash is not None and hash_of_model(folder) != spec.model_hash:
        raise FlowgraphError(
            f"model: {spec.model} has other weights on this machine than where the run was started; use one copy"
        )
    model, tokenizer = load(folder)
    move(model, spec.settings.device, _dtype(spec.settings.dtype))
    return model, tokenizer


def _dtype(name: str | None) -> Any:
    import torch

    return None if name is None else getattr(torch, name)
