"""The input as a stream of records: memory does not grow with the file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from flowgraph.corpus.formats import FORMATS, InputOptions, Row, check_objects, check_options, format_of
from flowgraph.corpus.records import Record, content_of, content_of_bytes
from flowgraph.corpus.store import find_place
from flowgraph.errors import FlowgraphError

STANDARD_INPUT = "-"


class Reader:
    """Records of a file at any address, compressed or not, or of standard input (``-``)."""

    argument = "input"

    def __init__(self, address: str, options: InputOptions) -> None:
        self._options = options
        form = options.form or ("text" if address == STANDARD_INPUT else format_of(address))
        if form not in FORMATS:
            raise FlowgraphError(f"input_format: unknown format {form!r}; choose one of {', '.join(FORMATS)}")
        check_options(form, options)
        self.form, self._address = form, address
        self._raw, self._file, self._size = _open(address)

    def __iter__(self) -> Iterator[Record]:
        with _readable(self._address):
            rows = FORMATS[self.form](self._file, self._options)
            for row in check_objects(rows, self._options) if self.form == "jsonl" else rows:
                yield self._record(row)

    @property
    def fraction(self) -> float | None:
        """Share of the input read so far; None where its size is unknown."""
        if not self._size:
            return None
        try:
            return min(1.0, self._raw.tell() / self._size)
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        self._file.close()
        if self._raw is not self._file:
            self._raw.close()

    def _record(self, row: Row) -> Record:
        if row.values is None:
            return _bad(row.line, None, row.problem or "bad record", row.data)
        try:
            name = self._name(row.values)
        except _UnfitError as error:
            return _bad(row.line, None, str(error), repr(row.values).encode("utf-8", "backslashreplace"))
        values = [row.values.get(column) for column in self._options.text_columns]
        try:
            for column, value in zip(self._options.text_columns, values, strict=True):
                _check_text(column, value, row.values)
            text: Any = values[0] if len(values) == 1 else tuple(values)
            return Record(row.line, name, text, content_of(text))
        except _UnfitError as error:
            return _bad(row.line, name, str(error), repr(values).encode("utf-8", "backslashreplace"))
        except UnicodeEncodeError:
            problem = "not text: half of a surrogate pair"
            return _bad(row.line, name, problem, repr(values).encode("utf-8", "backslashreplace"))

    def _name(self, values: Mapping[str, Any]) -> str | None:
        column = self._options.id_name
        value = values.get(column)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise _UnfitError(
                f"the id in column {column!r} is a {type(value).__name__}, not text or a number"
            )
        try:
            str(value).encode()
        except UnicodeEncodeError:
            raise _UnfitError(f"the id in column {column!r} is not text: half of a surrogate pair") from None
        return str(value)


class _UnfitError(Exception):
    """Why a value is of no use."""


def _check_text(column: str, value: Any, values: Mapping[str, Any]) -> None:
    if column not in values:
        raise _UnfitError(f"no column {column!r}")
    if isinstance(value, bytes):
        raise _UnfitError("invalid UTF-8")
    if not isinstance(value, str):
        raise _UnfitError(
            f"not text: {column!r} is {'null' if value is None else f'a {type(value).__name__}'}"
        )
    if not value.strip():
        raise _UnfitError("empty")


def _bad(line: int, name: str | None, problem: str, data: bytes) -> Record:
    return Record(line, name, None, content_of_bytes(data), problem)


@contextmanager
def _readable(address: str) -> Iterator[None]:
    """What libraries raise at a damaged file, as one error that names it."""
    import lzma
    import zipfile
    import zlib

    import pyarrow as pa

    try:
        yield
    except (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise FlowgraphError(
            f"input: {address!r} is damaged, or not what its name says ({reason}); what was read before it is kept, so "
            "mend the file and run the same command again"
        ) from None


def _open(address: str) -> tuple[IO[bytes], IO[bytes], int]:
    """The file as it lies there, the same decompressed, and its size (0 where unknown)."""
    if address == STANDARD_INPUT:
        return sys.stdin.buffer, sys.stdin.buffer, 0
    from fsspec.compression import compr
    from fsspec.utils import infer_compression

    place = find_place(address, "input")
    try:
        if place.fs.isdir(place.path):
            raise FlowgraphError(f"input: {address!r} is a folder; pass a file")
        size = place.fs.size(place.path) or 0
        raw = place.fs.open(place.path, "rb")
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or error
        raise FlowgraphError(f"input: {address!r} cannot be read: {reason}; check the address") from None
    compression = infer_compression(place.path)
    if compression is None and place.path.lower().endswith(".zst"):
        raise FlowgraphError(
            f"input: {address!r} is compressed by Zstandard, which needs a library: pip install zstandard"
        )
    with _readable(address):
        return raw, raw if compression is None else compr[compression](raw, mode="rb"), size
