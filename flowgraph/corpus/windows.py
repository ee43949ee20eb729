"""Windows: a fixed number of input records, the unit of resuming."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from flowgraph.corpus.index import ERRORS, Index, Known
from flowgraph.corpus.records import Record


@dataclass(frozen=True)
class Member:
    """A record in its window."""

    record: Record
    key: str
    occurrence: int
    wanted: bool
    """False for a record that has its rows (or its error) already; it still takes part in forming batches."""
    attempt: int
    """How often it will have been tried."""


@dataclass(frozen=True)
class Task:
    """A window with something to compute."""

    number: int
    """Of the window, from 0."""
    members: tuple[Member, ...]

    @property
    def wanted(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.wanted)

    @property
    def name(self) -> str:
        """The shard's file name: window and records, so that the same work always has the same name."""
        digest = hashlib.sha256("".join(member.key for member in self.wanted).encode()).hexdigest()
        return f"{self.number:08d}-{digest[:12]}.parquet"


def make_tasks(
    records: Iterable[Record],
    index: Index,
    *,
    size: int,
    retry_errors: bool,
    on_window: Callable[[list[Known]], None],
) -> Iterator[Task]:
    """The windows of the input in order, but for those that are done; ``on_window`` is told of each."""
    stream = iter(records)
    number = 0
    while window := list(islice(stream, size)):
        known = index.meet(window)
        on_window(known)
        task = Task(number, tuple(_member(k, retry_errors) for k in known))
        if task.wanted:
            yield task
        number += 1


def _member(known: Known, retry_errors: bool) -> Member:
    wanted = known.place is None or (retry_errors and known.place == ERRORS)
    return Member(known.record, known.key, known.occurrence, wanted, known.attempt + 1)
