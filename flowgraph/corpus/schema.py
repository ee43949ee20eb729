"""The columns of what a run writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow


class Column(NamedTuple):
    """A column of a shard, with what it means."""

    name: str
    type: str
    meaning: str


DATA = (
    Column("id", "string", "the input's id, else the line number"),
    Column("content_hash", "string", "SHA-256 of the text in UTF-8, of a pair as a JSON list"),
    Column("occurrence", "int32", "0, or how many records of the same id and text stood before it"),
    Column(
        "record", "string", "key of the record: a hash of id (where the input has one), text and occurrence"
    ),
    Column("tokens", "list<string>", "input tokens, one a score"),
    Column("method", "string", "raw, rollout or flow"),
    Column("edges", "string", "edge kind"),
    Column("level", "int32", "layer number, from 1"),
    Column("target", "int32", "position of the explained token, from 0; null for the mean of all"),
    Column("target_token", "string", "the explained token"),
    Column("scores", "list<double>", "how much of each input token the target holds"),
    Column("seconds", "double", "this text's share of the forward pass, and the method's own time"),
)
"""``data/``: one row a text, method, edge kind, level and target."""

ERRORS = (
    Column("id", "string", "the input's id, else the line number"),
    Column("line", "int64", "line (or row) of the input, from 1"),
    Column("content_hash", "string", "SHA-256 of the text, or of the bytes of what is no text"),
    Column("occurrence", "int32", "0, or how many records of the same id and content stood before it"),
    Column("record", "string", "key of the record"),
    Column("reason", "string", "why it has no rows"),
    Column("attempt", "int32", "how often it was tried"),
)
"""``errors/``: one row a record that could not be attributed."""

_DICTIONARIES = ("method", "edges", "target_token", "tokens.list.element", "id", "content_hash", "record")


def arrow_schema(columns: tuple[Column, ...]) -> pyarrow.Schema:
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "list<string>": pa.list_(pa.string()),
        "list<double>": pa.list_(pa.float64()),
    }
    return pa.schema([pa.field(c.name, types[c.type]) for c in columns])


def dictionary_columns(names: Iterable[str]) -> list[str]:
    """Columns among ``names`` whose values repeat within a shard, for Parquet's dictionaries."""
    names = set(names)
    return [name for name in _DICTIONARIES if name.split(".")[0] in names]
