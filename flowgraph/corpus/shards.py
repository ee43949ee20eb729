"""Shards: what one window left, as a Parquet file under ``data/`` and, where records failed, one under ``errors/``.

A window is done when its file under ``data/`` has its name, rows in it or not; its errors are written before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from flowgraph.corpus.index import DATA, ERRORS, REMOVED, Index
from flowgraph.corpus.schema import DATA as DATA_COLUMNS
from flowgraph.corpus.schema import ERRORS as ERROR_COLUMNS
from flowgraph.corpus.schema import Column, arrow_schema, dictionary_columns
from flowgraph.corpus.store import Store

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile, ParquetWriter

FOLDERS = (DATA, ERRORS, REMOVED)
_METADATA = b"flowgraph"
_ROW_GROUP = 1 << 20
"""Scores in a row group; what is in memory before it is written."""


@dataclass(frozen=True)
class Rows:
    """Rows of one record that differ in level and target: ``scores[k]`` belongs to ``levels[k]``, ``targets[k]``."""

    id: str
    content_hash: str
    occurrence: int
    record: str
    tokens: tuple[str, ...]
    method: str
    edges: str
    levels: np.ndarray
    """(n,) int32"""
    targets: Sequence[int | None]
    target_tokens: Sequence[str]
    scores: np.ndarray
    """(n, tokens) float64"""
    seconds: float

    def __len__(self) -> int:
        return len(self.scores)


class ShardWriter:
    """The shard of one window while it is computed: rows go out in groups, so that memory stays bounded."""

    def __init__(
        self,
        store: Store,
        name: str,
        facts: Mapping[str, Any],
        columns: tuple[Column, ...] = DATA_COLUMNS,
    ) -> None:
        self._store, self._name, self._facts, self._columns = store, name, facts, columns
        self._writer: ParquetWriter | None = None
        self._waiting: list[Rows] = []
        self._scores_waiting = 0
        self._errors: list[dict[str, Any]] = []
        self.rows = 0

    def add(self, rows: Rows) -> None:
        self._waiting.append(rows)
        self._scores_waiting += rows.scores.size
        self.rows += len(rows)
        if self._scores_waiting >= _ROW_GROUP:
            self._flush()

    def write(self, table: pyarrow.Table) -> None:
        """Rows of any columns, as they are; inside ``writing``."""
        assert self._writer is not None
        self._writer.write_table(table)

    def fail(self, **error: Any) -> None:
        """Note a record that has no rows; the columns of ``errors/``."""
        self._errors.append(error)

    def _flush(self) -> None:
        if self._waiting:
            self.write(_table(self._waiting))
        self._waiting, self._scores_waiting = [], 0

    @contextmanager
    def writing(self) -> Iterator[ShardWriter]:
        """Rows and errors added inside the block are there when it ends, and none of them if it raises."""
        with (
            self._store.replacing(f"{DATA}/{self._name}", before=self._write_errors) as file,
            _parquet_writer(file, arrow_schema(self._columns), self._facts) as self._writer,
        ):
            yield self
            self._flush()
        if not self._errors:
            self._store.remove(f"{ERRORS}/{self._name}")

    def _write_errors(self) -> None:
        if self._errors:
            write_shard(self._store, ERRORS, self._name, _error_table(self._errors), self._facts)


def _table(rows: Sequence[Rows]) -> pyarrow.Table:
    import pyarrow as pa

    counts = np.array([len(r) for r in rows])
    owner = np.repeat(np.arange(len(rows)), counts)

    def repeated(name: str) -> Any:
        return pa.array([getattr(r, name) for r in rows]).take(pa.array(owner))

    widths = np.concatenate([np.full(len(r), r.scores.shape[1], dtype=np.int64) for r in rows])
    columns = {
        name: repeated(name) for name in ("id", "content_hash", "record", "method", "edges", "seconds")
    } | {
        "occurrence": repeated("occurrence").cast(pa.int32()),
        "tokens": repeated("tokens"),
        "level": pa.array(np.concatenate([r.levels for r in rows]), pa.int32()),
        "target": pa.array([t for r in rows for t in r.targets], pa.int32()),
        "target_token": pa.array([t for r in rows for t in r.target_tokens], pa.string()),
        "scores": pa.ListArray.from_arrays(
            pa.array(np.concatenate([[0], np.cumsum(widths)]), pa.int32()),
            pa.array(np.concatenate([r.scores.ravel() for r in rows]), pa.float64()),
        ),
    }
    schema = arrow_schema(DATA_COLUMNS)
    return pa.table([columns[name] for name in schema.names], schema=schema)


@contextmanager
def _parquet_writer(
    file: IO[bytes], schema: pyarrow.Schema, facts: Mapping[str, Any]
) -> Iterator[ParquetWriter]:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(
        file,
        schema.with_metadata({_METADATA: json.dumps(facts, sort_keys=True)}),
        compression="zstd",
        use_dictionary=dictionary_columns(schema.names),
        write_page_checksum=True,
    ) as writer:
        yield writer


def write_shard(store: Store, folder: str, name: str, table: pyarrow.Table, facts: Mapping[str, Any]) -> None:
    """A whole shard from a table."""
    with (
        store.replacing(f"{folder}/{name}") as file,
        _parquet_writer(file, table.schema, facts) as writer,
    ):
        writer.write_table(table)


# --- reading ------------------------------------------------------------------------------------------------


class DamagedShardError(Exception):
    """A file that is no whole shard."""


@contextmanager
def _opened(store: Store, path: str) -> Iterator[ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with store.open(path) as file:
        try:
            yield pq.ParquetFile(file, page_checksum_verification=True)
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise DamagedShardError(f"{path}: {error}") from error


def read_facts(store: Store, folder: str, name: str) -> dict[str, Any]:
    """What the writer noted about the shard. DamagedShardError for anything but a whole shard."""
    with _opened(store, f"{folder}/{name}") as parquet:
        return _facts(parquet)


def _facts(parquet: ParquetFile) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((parquet.schema_arrow.metadata or {})[_METADATA])
    return facts


def read_shard(store: Store, folder: str, name: str) -> tuple[pyarrow.Table, dict[str, Any]]:
    with _opened(store, f"{folder}/{name}") as parquet:
        return parquet.read(), _facts(parquet)


def load_index(store: Store, index: Index) -> list[str]:
    """Fill the index from the shards; returns the paths of damaged ones, which are gone afterwards."""
    damaged = []
    done = set(store.names(DATA))
    for folder in (ERRORS, REMOVED, DATA):
        for name in store.names(folder):
            if folder == ERRORS and name not in done:  # killed before the window was done
                store.remove(f"{folder}/{name}")
                continue
            try:
                index.add(folder, _keys(store, folder, name))
            except DamagedShardError:
                damaged.append(f"{folder}/{name}")
                store.remove(f"{folder}/{name}")
    return damaged


def _keys(store: Store, folder: str, name: str) -> list[tuple[str, str, int]]:
    """``(key, id, attempt)`` of the records in a shard, each once."""
    columns = ["record", "id", *(["attempt"] if folder == ERRORS else [])]
    found: dict[str, tuple[str, str, int]] = {}
    with _opened(store, f"{folder}/{name}") as parquet:
        _facts(parquet)
        for batch in parquet.iter_batches(columns=columns):
            attempts: Iterable[int] = (
                batch.column("attempt").to_pylist() if folder == ERRORS else [0] * len(batch)
            )
            for row in zip(
                batch.column("record").to_pylist(), batch.column("id").to_pylist(), attempts, strict=True
            ):
                found[row[0]] = row
    return list(found.values())


# --- after a pass -------------------------------------------------------------------------------------------


def tidy_data(store: Store, index: Index, columns: tuple[Column, ...] = DATA_COLUMNS) -> None:
    """Bring ``data/`` in step with the input, read to its end.

    Rows of records that the input does not hold any more go to ``removed/``, those of records that came back return,
    and line numbers that serve as ids follow their lines. Each file is replaced in one step, and a run killed between
    two of them does the rest the next time.
    """
    for name in sorted({*store.names(DATA), *store.names(REMOVED)}):
        _tidy_pair(store, index, name, arrow_schema(columns))


def _tidy_pair(store: Store, index: Index, name: str, schema: pyarrow.Schema) -> None:
    import pyarrow as pa

    parts = {f: read_shard(store, f, name) for f in (DATA, REMOVED) if name in store.names(f)}
    facts = next(iter(parts.values()))[1]
    before = {f: parts[f][0].cast(schema) if f in parts else schema.empty_table() for f in (DATA, REMOVED)}
    # a kill between the two writes leaves rows in both places
    doubled = pa.array(np.isin(_strings(before[REMOVED]), _strings(before[DATA])))
    rest = before[REMOVED].filter(pa.compute.invert(doubled))
    rows = pa.concat_tables([before[DATA], rest])
    keys = rows.column("record").to_pylist()
    now = {key: index.current(key) for key in dict.fromkeys(keys)}
    here = pa.array([now[key] is not None for key in keys], pa.bool_())
    names = pa.array(
        [
            old if (place := now[key]) is None else place["id"]
            for key, old in zip(keys, rows.column("id").to_pylist(), strict=True)
        ],
        pa.string(),
    )
    rows = rows.set_column(schema.get_field_index("id"), "id", names)
    after = {REMOVED: rows.filter(pa.compute.invert(here)), DATA: rows.filter(here)}
    # rows are written to where they go before they leave where they were
    order = (REMOVED, DATA) if len(after[REMOVED]) > len(before[REMOVED]) else (DATA, REMOVED)
    for folder in order:
        if not after[folder].equals(before[folder]):
            _replace_or_remove(store, folder, name, after[folder], facts)


def _strings(table: pyarrow.Table) -> np.ndarray:
    return np.asarray(table.column("record").to_pylist(), dtype=object).astype(str)


def _replace_or_remove(
    store: Store, folder: str, name: str, table: pyarrow.Table, facts: Mapping[str, Any]
) -> None:
    if len(table) or folder == DATA:  # an empty shard says that its window is done
        write_shard(store, folder, name, table, facts)
    else:
        store.remove(f"{folder}/{name}")


def tidy_errors(store: Store, index: Index, *, complete: bool) -> None:
    """Take out of ``errors/`` what is overtaken: records that have rows by now, earlier failures of a record.

    After a pass to the end of the input (``complete``) also records that the input does not hold any more; the
    others get their present lines.
    """
    for name in store.names(ERRORS):
        table, facts = read_shard(store, ERRORS, name)
        rows = [row for row in table.to_pylist() if index.failed(row["record"], row["attempt"])]
        if complete:
            rows = [row | now for row in rows if (now := index.current(row["record"])) is not None]
        if rows != table.to_pylist():
            _replace_or_remove(store, ERRORS, name, _error_table(rows), facts)


def _error_table(errors: list[dict[str, Any]]) -> pyarrow.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(errors, schema=arrow_schema(ERROR_COLUMNS))
