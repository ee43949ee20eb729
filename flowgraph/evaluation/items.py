"""Texts to evaluate on, each with its label and candidate words where it has any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from flowgraph.errors import FlowgraphError
from flowgraph.evaluation.vocabulary import one_token


@dataclass(frozen=True)
class Item:
    """One text to evaluate on."""

    text: str | tuple[str, str]
    label: int | str | None = None
    """The true class, by number or by the name in the model's configuration."""
    candidates: tuple[str, str] | None = None
    """Two words between which a language model chooses; the first is the right one, where there is one."""
    name: str | None = None
    """What its file calls it."""
    line: int | None = field(default=None, compare=False)
    """Where it stands in its file, from 1."""
    problem: str | None = None
    """Why it cannot be used."""


def read_items(
    texts: Sequence[Any],
    labels: Sequence[int | str] | None = None,
    candidates: Sequence[Any] | None = None,
) -> list[Item]:
    """Items from texts (strings, pairs or items), labels one a text, and candidates: one pair, or one a text."""
    items = [_item(text) for text in _list("texts", texts)]
    if not items:
        raise FlowgraphError("texts: none given; pass a list of at least one text")
    if labels is not None:
        labels = _list("labels", labels)
        _check_count("labels", labels, items)
        items = [replace(item, label=_plain(label)) for item, label in zip(items, labels, strict=True)]
    if candidates is not None:
        pairs = _list("candidates", candidates)
        if _two_words(pairs):
            pairs = [pairs] * len(items)
        _check_count("candidates", pairs, items)
        if not all(map(_two_words, pairs)):
            raise FlowgraphError("candidates: pass two words, or one pair of words for each text")
        items = [replace(item, candidates=(a, b)) for item, (a, b) in zip(items, pairs, strict=True)]
    return items


def _plain(label: Any) -> Any:
    """NumPy's and torch's numbers as Python's, so that a label is known again whatever it came in."""
    return label.item() if hasattr(label, "item") else label


def _item(text: Any) -> Item:
    return text if isinstance(text, Item) else Item(tuple(text) if isinstance(text, list) else text)


def _list(argument: str, values: Any) -> list[Any]:
    """The values of any ordered collection (a list, an array, a column of a data frame)."""
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
        raise FlowgraphError(f"{argument}: {values!r} is no list; pass one")
    return list(values)


def _two_words(pair: Any) -> bool:
    return (
        isinstance(pair, Sequence)
        and len(pair) == 2
        and all(isinstance(word, str) for word in pair)
        and not isinstance(pair, str)
    )


def _check_count(argument: str, values: Sequence[Any], items: Sequence[Item]) -> None:
    if len(values) != len(items):
        raise FlowgraphError(f"{argument}: {len(values)} given for {len(items)} texts; pass one a text")


def check_item(model: Any, tokenizer: Any, item: Item) -> None:
    """FlowgraphError for a text that is none or too long, and for a candidate that is no token."""
    from flowgraph.capture.inputs import max_tokens

    if item.problem is not None:
        raise FlowgraphError(item.problem)
    limit = max_tokens(model, tokenizer)
    count = len(tokenizer(*parts_of(item.text), verbose=False)["input_ids"])
    if limit is not None and count > limit:
        raise FlowgraphError(
            f"text has {count} tokens, but the model reads at most {limit}; shorten it or leave it out"
        )
    for word in item.candidates or ():
        one_token(tokenizer, word, spaced=True)


def parts_of(text: Any) -> tuple[str, ...]:
    """The text, or the two of a pair."""
    parts = (text,) if isinstance(text, str) else tuple(text) if isinstance(text, (tuple, list)) else ()
    if len(parts) not in (1, 2) or not all(isinstance(part, str) and part.strip() for part in parts):
        raise FlowgraphError(f"texts: {text!r} is no text; pass a string, or a pair of strings")
    return parts
