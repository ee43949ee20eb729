"""Texts to evaluate on, read from a file: JSON Lines, CSV, TSV, or one text a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from os import PathLike, fspath
from typing import Any

from flowgraph.errors import FlowgraphError
from flowgraph.evaluation.items import Item


@dataclass(frozen=True)
class Columns:
    """Where texts, labels and candidate words stand."""

    text: str = "text"
    second: str | None = None
    """Second sentence of a pair."""
    label: str | None = None
    """None: ``label`` where there is such a column."""
    candidates: tuple[str, str] | None = None
    """None: ``good`` and ``bad`` where there are such columns."""
    id: str | None = None
    """None: ``id`` where there is such a column."""


def read_data(
    path: str | PathLike[str],
    columns: Columns = Columns(),
    *,
    form: str | None = None,
    header: bool = True,
    template: str = "{text}",
    mask: str | None = None,
    limit: int | None = None,
) -> list[Item]:
    """Items of a file, in its order; a record that cannot be read is one that says why.

    Parameters
    ----------
    path
        A local file.
    columns
        Names of the columns (keys of JSON Lines); with ``header=False`` they are ``1``, ``2``, ... as text.
    form
        ``jsonl``, ``csv``, ``tsv`` or ``text``; None: by the file's name.
    template
        What the model reads: ``{text}`` stands for the text, ``{mask}`` for the model's mask token ``mask``.
    limit
        The first so many texts.

    Raises
    ------
    FlowgraphError
        For a file that cannot be read or holds nothing, and for a table without the columns.
    """
    from flowgraph.corpus.formats import FORMATS, InputOptions, format_of

    name = form or format_of(fspath(path))
    if name not in FORMATS or name == "parquet":
        raise FlowgraphError(f"form: {name!r} cannot be evaluated on; pass jsonl, csv, tsv or text")
    if "{text}" not in template:
        raise FlowgraphError(f"template: {template!r} has no place for the text; put {{text}} there")
    if limit is not None and limit < 1:
        raise FlowgraphError(f"limit: {limit!r} is no number of texts; pass 1 or more")
    if "{mask}" in template and mask is None:
        raise FlowgraphError("template: the model's tokenizer has no mask token; leave {mask} out")
    options = InputOptions(form=name, text_column=columns.text, header=header)
    try:
        with open(path, "rb") as file:
            rows = islice(FORMATS[name](file, options), None if limit is None else min(limit, sys.maxsize))
            items = [_item(row, columns, template, mask) for row in rows]
    except OSError as error:
        raise FlowgraphError(f"data: {fspath(path)!r} cannot be read: {error.strerror or error}") from None
    if not items:
        raise FlowgraphError(f"data: {fspath(path)!r} holds no text")
    return items


def _item(row: Any, columns: Columns, template: str, mask: str | None) -> Item:
    if row.values is None:
        return Item("", line=row.line, problem=row.problem)
    try:
        texts = [
            _filled(_text(_value(row.values, name, argument), name), template, mask)
            for argument, name in _text_columns(columns)
        ]
        return Item(
            text=texts[0] if len(texts) == 1 else (texts[0], texts[1]),
            label=_label(row.values, columns),
            candidates=_candidates(row.values, columns),
            name=_name(row.values, columns),
            line=row.line,
        )
    except _NoTextError as error:
        return Item("", line=row.line, problem=str(error))


class _NoTextError(Exception):
    """Why a value is no text."""


def _value(values: Mapping[str, Any], name: str, argument: str) -> Any:
    if name not in values:
        raise _NoTextError(f"{argument}: there is no column {name!r}, only {', '.join(map(str, values))}")
    return values[name]


def _text(value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise _NoTextError(
            f"not text: {column!r} is {'null' if value is None else f'a {type(value).__name__}'}"
        )
    if not value.strip():
        raise _NoTextError("empty")
    return value


def _name(values: Mapping[str, Any], columns: Columns) -> str | None:
    found = values.get("id") if columns.id is None else _value(values, columns.id, "id_column")
    return None if found is None or found == "" else str(found)


def _text_columns(columns: Columns) -> Iterator[tuple[str, str]]:
    """Argument, and what it names."""
    yield "text_column", columns.text
    if columns.second is not None:
        yield "second_column", columns.second


def _filled(text: str, template: str, mask: str | None) -> str:
    return template.replace("{mask}", mask or "").replace("{text}", text)


def _label(values: Mapping[str, Any], columns: Columns) -> int | str | None:
    if columns.label is None:
        found = values.get("label")
        return found if isinstance(found, (int, str)) and found != "" else None
    value = _value(values, columns.label, "label_column")
    return value if isinstance(value, int) else str(value)


def _candidates(values: Mapping[str, Any], columns: Columns) -> tuple[str, str] | None:
    names = columns.candidates
    if names is None:
        if "good" not in values or "bad" not in values:
            return None
        names = ("good", "bad")
    words = [_value(values, name, "candidate_columns") for name in names]
    for name, word in zip(names, words, strict=True):
        if not isinstance(word, str):
            raise _NoTextError(f"candidate_columns: {name!r} holds {word!r}, which is no word")
    return words[0], words[1]
