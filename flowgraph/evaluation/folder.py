"""An evaluation kept in a folder, by the parts that runs over a corpus are made of.

``data/`` holds the result of each text, ``errors/`` why a text has none, both in shards of one window that are there
whole or not at all; ``manifest.json`` the settings. A run that was killed goes on where it was, and a second one on the
same folder is refused while the first lives.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from flowgraph.corpus.index import DATA, ERRORS
from flowgraph.corpus.manifest import Kind, fingerprint, versions
from flowgraph.corpus.run import run_records
from flowgraph.corpus.schema import Column, arrow_schema
from flowgraph.corpus.shards import ShardWriter, read_shard
from flowgraph.corpus.store import Store
from flowgraph.corpus.summary import Summary
from flowgraph.corpus.weights import hash_of_loaded
from flowgraph.corpus.windows import Member, Task
from flowgraph.corpus.worker import Report, Sink
from flowgraph.evaluation.answers import Answer, Asked, Asker
from flowgraph.evaluation.plan import name_of
from flowgraph.evaluation.records import WINDOW, ItemRecord, Outcome, counted
from flowgraph.evaluation.report import TextResult

COLUMNS = (
    Column("id", "string", "the text's id, else its line"),
    Column("content_hash", "string", "SHA-256 of text, label and candidates as JSON"),
    Column("occurrence", "int32", "0, or how many records of the same id and content stood before it"),
    Column(
        "record", "string", "key of the record: a hash of id (where there is one), content and occurrence"
    ),
    Column("result", "string", "JSON of flowgraph.evaluation.report.TextResult"),
)
KIND = Kind("flowgraph evaluation run 1", COLUMNS)


def evaluate_into(
    out: str | PathLike[str],
    asker: Asker,
    records: Sequence[ItemRecord],
    advance: Callable[[int], None] | None,
    retry_errors: bool,
) -> Outcome:
    """All of them, those apart whose answers ``out`` holds.

    Raises :class:`FlowgraphError` for a folder in use, or begun with another model or settings (with what differs);
    :class:`~flowgraph.corpus.run.StoppedError` after Ctrl-C, or where every text failed.
    """
    store = Store(out)
    identity = {
        "settings": asker.plan.describe(asker.tokenizer),
        "model": hash_of_loaded(asker.model, asker.tokenizer),
        "versions": versions(),
    }
    writer = _Writer(store, fingerprint(identity), asker, advance)
    run_records(
        _Source(records),
        store,
        writer.work,
        identity,
        kind=KIND,
        model_name=name_of(asker.model),
        window=WINDOW,
        retry_errors=retry_errors,
        observe=_Known(advance),
    )
    return Outcome.of(records, read_answers(store))


class _Source:
    """Records at hand."""

    argument = "texts"
    fraction = None

    def __init__(self, records: Sequence[ItemRecord]) -> None:
        self._records = records

    def __iter__(self) -> Iterator[ItemRecord]:
        return iter(self._records)


@dataclass(frozen=True)
class _Writer:
    """Makes a shard of every task, in this process."""

    store: Store
    fingerprint: str
    asker: Asker
    advance: Callable[[int], None] | None

    def work(self, tasks: Iterable[Task], stop: threading.Event) -> Iterator[Report]:
        for task in tasks:
            if stop.is_set():
                return
            yield self._shard(task)

    def _shard(self, task: Task) -> Report:
        report = Report(task.number, started=time.time())
        facts = {"fingerprint": self.fingerprint, "window": task.number}
        writer = ShardWriter(self.store, task.name, facts, COLUMNS)
        sink = Sink(writer, report)
        with writer.writing():
            rows = []
            asked = [Asked(member.record.item, member.key, member.wanted) for member in task.members]  # type: ignore[attr-defined]
            for place, answer in counted(self.asker.answers(asked), self.advance):
                member = task.members[place]
                if isinstance(answer, TextResult):
                    rows.append(_row(member, answer))
                    sink.done(member, answer.facts["size"])
                else:
                    sink.fail(member, answer)
            _write(writer, rows)
        report.rows, report.ended = len(rows), time.time()
        return report


def _row(member: Member, result: TextResult) -> dict[str, Any]:
    return {
        "id": member.record.id,
        "content_hash": member.record.content,
        "occurrence": member.occurrence,
        "record": member.key,
        "result": json.dumps(result.to_dict(), allow_nan=False),
    }


def _write(writer: ShardWriter, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    writer.write(pa.Table.from_pylist(rows, schema=arrow_schema(COLUMNS)))


class _Known:
    """Tells ``advance`` of texts that have their answers already."""

    def __init__(self, advance: Callable[[int], None] | None) -> None:
        self._advance, self._told = advance, 0

    def __call__(self, summary: Summary, fraction: float | None) -> None:
        known = summary.known + summary.known_errors
        if self._advance is not None and known > self._told:
            self._advance(known - self._told)
        self._told = known


def read_answers(store: Store) -> dict[str, Answer]:
    """By key, of a folder that a run has been to the end of."""
    answers: dict[str, Answer] = {row["record"]: row["reason"] for row in _rows(store, ERRORS)}
    for row in _rows(store, DATA):
        answers[row["record"]] = TextResult.from_dict(json.loads(row["result"]))
    return answers


def _rows(store: Store, folder: str) -> Iterator[dict[str, Any]]:
    for name in store.names(folder):
        yield from read_shard(store, folder, name)[0].to_pylist()
