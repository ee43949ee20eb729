"""File formats: bytes to rows, a bad row for every record that cannot be read.

A format is a function from a file and an :class:`InputOptions` to an iterator of :class:`Row`; ``FORMATS`` names them.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import IO, Any, NamedTuple

from flowgraph.corpus.lines import LONGEST, Line, read_lines
from flowgraph.errors import FlowgraphError

_FIRST = 1000
"""Records that tell which columns there are."""

_NO_HEADER = ", or --no-header for a table whose first line is a record (columns 1, 2, ...)"


class Row(NamedTuple):
    """One record as the format gives it."""

    line: int
    values: Mapping[str, Any] | None
    """Column -> value; None for a bad record."""
    problem: str | None = None
    data: bytes = b""
    """The bytes of a bad record."""


@dataclass(frozen=True)
class InputOptions:
    """Where the texts stand."""

    form: str | None = None
    """``jsonl``, ``csv``, ``tsv``, ``parquet`` or ``text``; None: by the file's name."""
    text_column: str = "text"
    pair_columns: tuple[str, str] | None = None
    id_column: str | None = None
    """None: ``id`` where there is such a column."""
    header: bool = True
    """False: a table whose first line is a record; its columns are called ``1``, ``2``, ..."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        return (self.text_column,) if self.pair_columns is None else self.pair_columns

    @property
    def id_name(self) -> str:
        return "id" if self.id_column is None else self.id_column


def read_text(file: IO[bytes], options: InputOptions) -> Iterator[Row]:
    """A line a text."""
    for line in read_lines(file):
        yield _decoded(line, lambda text: {options.text_column: text})


def read_jsonl(file: IO[bytes], options: InputOptions) -> Iterator[Row]:
    """An object a line; blank lines between them are no records."""
    for line in read_lines(file):
        if line.data.strip():
            yield _decoded(line, _json_object)


def _json_object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise _BadRowError(f"broken JSON: {error.msg} at column {error.colno}") from None
    except (RecursionError, ValueError) as error:  # brackets without end; numbers of thousands of digits
        raise _BadRowError(f"broken JSON: {error}") from None
    if not isinstance(value, dict):
        raise _BadRowError(f"not a JSON object, but a {type(value).__name__}")
    return value


def read_csv(file: IO[bytes], options: InputOptions) -> Iterator[Row]:
    """Comma-separated values as in RFC 4180: a quoted value may hold commas, quotes written twice, and line ends."""
    lines = _Pushback(read_lines(file))
    yield from _with_header(_csv_rows(lines), options)


def read_tsv(file: IO[bytes], options: InputOptions) -> Iterator[Row]:
    """Tab-separated values as registered with IANA: a line a record, quotes are characters like any other."""
    rows = (_decoded(line, lambda text: text.split("\t")) for line in read_lines(file))
    yield from _with_header(rows, options)


def read_parquet(file: IO[bytes], options: InputOptions) -> Iterator[Row]:
    """Row groups one at a time; only the columns that are needed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:  # pragma: no cover (the corpus extra is installed where tests run)
        from flowgraph.errors import missing_dependency

        raise missing_dependency("pyarrow", "corpus", "reading Parquet") from None
    try:
        parquet = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise FlowgraphError(f"input: it is no Parquet file ({error}); pass --input-format") from None
    present = parquet.schema_arrow.names
    check_columns(present, options)
    wanted = [*options.text_columns, *({options.id_name} & set(present))]
    for column in wanted:
        _check_arrow_type(column, parquet.schema_arrow.field(column).type, options)
    line = 0
    for batch in parquet.iter_batches(batch_size=256, columns=wanted):
        columns = [_arrow_values(batch.column(name)) for name in batch.schema.names]
        for values in zip(*columns, strict=True):
            line += 1
            yield Row(line, dict(zip(batch.schema.names, values, strict=True)))


def _check_arrow_type(column: str, kind: Any, options: InputOptions) -> None:
    """Refuse a column whose type no value of it can mend."""
    import pyarrow.types as types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    strings = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    numbers = () if column in options.text_columns else (types.is_integer, types.is_floating)
    if any(fits(inner) for fits in (*strings, *numbers)):
        return
    argument = _argument_of(column, options)
    remedy = (
        "decode it from its encoding" if types.is_binary(inner) or types.is_large_binary(inner) else "cast it"
    )
    raise FlowgraphError(
        f"{argument}: the column {column!r} is of type {kind}, not string{' or a number' if numbers else ''}; {remedy} "
        f"to string before it is written as Parquet, or pass another --{argument.replace('_', '-')}"
    )


def _arrow_values(column: Any) -> list[Any]:
    """Python values; bytes for each string that is not UTF-8."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        import pyarrow as pa

        large = pa.types.is_large_string(column.type)
        return [
            _decoded_or_bytes(v) for v in column.view(pa.large_binary() if large else pa.binary()).to_pylist()
        ]


def _decoded_or_bytes(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


FORMATS: dict[str, Callable[[IO[bytes], InputOptions], Iterator[Row]]] = {
    "jsonl": read_jsonl,
    "csv": read_csv,
    "tsv": read_tsv,
    "parquet": read_parquet,
    "text": read_text,
}

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lzma")


def format_of(name: str) -> str:
    """The format that a file's name tells of; plain text for any other name."""
    bare = name.lower()
    for suffix in _COMPRESSED:
        bare = bare.removesuffix(suffix)
    return next((form for suffix, form in _SUFFIXES.items() if bare.endswith(suffix)), "text")


def check_options(form: str, options: InputOptions) -> None:
    """Refuse what the format cannot heed."""
    if form == "text":
        given = {
            "pair_columns": options.pair_columns is not None,
            "id_column": options.id_column is not None,
            "text_column": options.text_column != InputOptions.text_column,
        }
        for argument in (name for name, there in given.items() if there):
            raise FlowgraphError(
                f"{argument}: plain text has no columns; pass JSON Lines, CSV, TSV or Parquet, or --input-format"
            )
    if not options.header and form not in ("csv", "tsv"):
        raise FlowgraphError(
            f"header: --no-header is for CSV and TSV, and the input is read as {form}; leave it out"
        )


def check_columns(present: Sequence[str], options: InputOptions, hint: str = "") -> None:
    """Refuse a table without the columns asked for, or with several of one name."""
    asked = [*options.text_columns, *([options.id_column] if options.id_column is not None else [])]
    for column in [*asked, options.id_name]:
        argument = _argument_of(column, options)
        if column in asked and column not in present:
            raise FlowgraphError(
                f"{argument}: the input has no column {column!r}, only {', '.join(map(repr, present[:20]))}; pass "
                f"--{argument.replace('_', '-')}{hint}"
            )
        if present.count(column) > 1:
            raise FlowgraphError(
                f"{argument}: the input has {present.count(column)} columns called {column!r}; give them names of "
                f"their own{hint}"
            )


def check_objects(rows: Iterator[Row], options: InputOptions) -> Iterator[Row]:
    """The same rows; refused where none of the first thousand has a column asked for.

    A later one without it is a bad record, or has no id.
    """
    first: list[Row] = []
    present: dict[str, None] = {}
    asked = {*options.text_columns, options.id_column} - {None}
    for row in islice(rows, _FIRST):
        first.append(row)
        present |= dict.fromkeys(row.values or ())
        if asked <= present.keys():
            break
    if any(row.values is not None for row in first):
        check_columns(list(present), options)
    return chain(first, rows)


def _argument_of(column: str, options: InputOptions) -> str:
    if column not in options.text_columns:
        return "id_column"
    return "text_column" if options.pair_columns is None else "pair_columns"


class _BadRowError(Exception):
    """Why one record cannot be read."""


def _decoded(line: Line, parse: Callable[[str], Any]) -> Row:
    if not line.whole:
        return Row(line.number, None, f"line longer than {LONGEST} bytes", line.data)
    try:
        return Row(line.number, parse(line.data.decode()))
    except UnicodeDecodeError as error:
        byte = line.data[error.start]
        return Row(line.number, None, f"invalid UTF-8: byte 0x{byte:02x} at {error.start}", line.data)
    except _BadRowError as error:
        return Row(line.number, None, str(error), line.data)


# --- tables -------------------------------------------------------------------------------------------------


def _with_header(rows: Iterator[Any], options: InputOptions) -> Iterator[Row]:
    """Rows of fields as rows of columns."""
    columns: list[str] | None = None
    for row in rows:
        if row.values is None:
            if columns is None and options.header:
                raise FlowgraphError(f"input: its header cannot be read ({row.problem}); pass --no-header?")
            yield row
            continue
        fields = list(row.values)
        if columns is None:
            columns = fields if options.header else [str(k) for k in range(1, len(fields) + 1)]
            check_columns(columns, options, _NO_HEADER if options.header else "")
            if options.header:
                continue
        if len(fields) != len(columns):
            problem = f"{len(fields)} fields where the table has {len(columns)} columns"
            yield Row(row.line, None, problem, repr(fields).encode("utf-8", "surrogatepass"))
        else:
            yield Row(row.line, dict(zip(columns, fields, strict=True)))


class _Pushback:
    """Lines that can be taken back: those of a record that turned out to be none."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines, self._waiting = lines, deque[Line]()
        self.taken: list[Line] = []

    def start(self) -> Line | None:
        """The first line of the next record; None at the end."""
        self.taken = []
        line = self._waiting.popleft() if self._waiting else next(self._lines, None)
        if line is not None:
            self._waiting.appendleft(line)
        return line

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._waiting.popleft() if self._waiting else next(self._lines)
        self.taken.append(line)
        # bytes that are no UTF-8 come back as they were, for the record to be refused alone
        return line.data.decode("utf-8", "surrogateescape") + "\n"

    def give_back(self) -> None:
        """All lines of this record but the first."""
        self._waiting.extendleft(reversed(self.taken[1:]))


def _csv_rows(lines: _Pushback) -> Iterator[Any]:
    """Rows of fields. A quote that is never closed costs its own line, not the rest of the file."""
    reader = csv.reader(lines, strict=True)
    while (first := lines.start()) is not None:
        if not first.whole:
            next(lines)
            yield Row(first.number, None, f"line longer than {LONGEST} bytes", first.data)
            continue
        try:
            fields = next(reader)
            "".join(fields).encode()
        except csv.Error as error:
            lines.give_back()
            yield Row(first.number, None, f"broken CSV: {error}", first.data)
        except UnicodeEncodeError:
            yield Row(first.number, None, "invalid UTF-8", b"\n".join(line.data for line in lines.taken))
        else:
            if fields:  # a blank line is no record
                yield Row(first.number, fields)  # type: ignore[arg-type]
