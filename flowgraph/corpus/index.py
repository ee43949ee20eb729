"""Which records are done: a SQLite table in a temporary file, so that memory does not grow with the corpus.

A cache of what the shards hold, made anew at every start and thrown away at the end.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from flowgraph.corpus.records import Record, key_of

DATA, ERRORS, REMOVED = "data", "errors", "removed"
"""Where a record's rows lie."""

_TABLES = """
create table seen (identity blob primary key, count integer) without rowid;
create table record (
    key text primary key, place text, id text, attempt integer, line integer -- of the input, 0: not met
) without rowid;
"""


class Known(NamedTuple):
    """A record of the input, and what is known of it."""

    record: Record
    key: str
    occurrence: int
    place: str | None
    """Where its rows lie; None for one that was never computed."""
    attempt: int
    """How often it failed so far."""


class Index:
    """Records by key."""

    def __init__(self, path: str) -> None:
        self._base = sqlite3.connect(path, isolation_level=None)
        # a cache: nothing to save if the process dies
        self._base.executescript("pragma journal_mode=off; pragma synchronous=off;" + _TABLES)
        self.moved = 0
        """Records without an id of their own whose line number changed."""
        self.returned = 0
        """Records whose rows had been put aside as removed."""
        self.untidy = False
        """True where a record that failed once has rows by now."""

    # --- from the shards --------------------------------------------------------------------------------

    def add(self, place: str, rows: Iterable[tuple[str, str, int]]) -> None:
        """Records ``(key, id, attempt)`` found in a shard. Add errors first, then removed ones, then data."""
        with self._transaction():
            for key, name, attempt in rows:
                self._add_one(place, key, name, attempt)

    def _add_one(self, place: str, key: str, name: str, attempt: int) -> None:
        old = self._find(key)
        if old is not None:
            self.untidy |= place in (DATA, ERRORS)
            if place == ERRORS and old[2] >= attempt:
                return
        self._base.execute(
            "insert or replace into record values (?, ?, ?, ?, 0)", (key, place, name, attempt)
        )

    def count(self, place: str) -> int:
        return int(self._base.execute("select count(*) from record where place = ?", (place,)).fetchone()[0])

    # --- from the input ---------------------------------------------------------------------------------

    def meet(self, records: Sequence[Record]) -> list[Known]:
        """What is known of the next records of the input, which count as met from now on."""
        with self._transaction():
            return [self._meet_one(record) for record in records]

    def _meet_one(self, record: Record) -> Known:
        occurrence = self._count(record.identity)
        key = key_of(record, occurrence)
        old = self._find(key)
        place, name, attempt = old if old is not None else (None, record.id, 0)
        self.moved += name != record.id
        self.returned += place == REMOVED
        self._base.execute(
            "insert or replace into record values (?, ?, ?, ?, ?)",
            (key, place, record.id, attempt, record.line),
        )
        return Known(record, key, occurrence, place, attempt)

    def _count(self, identity: bytes) -> int:
        row = self._base.execute(
            "insert into seen values (?, 1) on conflict do update set count = count + 1 returning count",
            (identity,),
        ).fetchone()
        return int(row[0]) - 1

    # --- after the pass ---------------------------------------------------------------------------------

    def removed(self) -> int:
        """Records with rows that the input, read to its end, does not hold any more."""
        query = "select count(*) from record where line = 0 and place = 'data'"
        return int(self._base.execute(query).fetchone()[0])

    def settle(self, done: Iterable[str], failures: Iterable[tuple[str, int]]) -> None:
        """These records have rows; these failed, at this attempt."""
        with self._transaction():
            self._base.executemany("update record set place = 'data' where key = ?", ((k,) for k in done))
            self._base.executemany(
                "update record set place = 'errors', attempt = ? where key = ?", ((n, k) for k, n in failures)
            )

    def current(self, key: str) -> dict[str, Any] | None:
        """The record's ``id`` and ``line`` in the input; None where the input does not hold it."""
        row = self._base.execute("select id, line from record where key = ? and line > 0", (key,)).fetchone()
        return None if row is None else {"id": row[0], "line": row[1]}

    def failed(self, key: str, attempt: int) -> bool:
        """True where this is the record's latest failure, and it has no rows."""
        old = self._find(key)
        return old is not None and old[0] != DATA and attempt >= old[2]

    def _find(self, key: str) -> tuple[str | None, str, int] | None:
        row = self._base.execute("select place, id, attempt from record where key = ?", (key,)).fetchone()
        return None if row is None else (row[0], str(row[1]), int(row[2]))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("begin")
        yield
        self._base.execute("commit")

    def close(self) -> None:
        self._base.close()


@contextmanager
def temporary_index() -> Iterator[Index]:
    """An index that is gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix="flowgraph-") as folder:
        index = Index(os.path.join(folder, "index.sqlite"))
        try:
            yield index
        finally:
            index.close()
