"""Texts to evaluate on, each with its label and candidate words where it has any."""

from __future__ import annotations

from collections.abc import Sequence
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
    if isinstance(texts, str) or not texts:
        raise FlowgraphError(f"texts: {texts!r}; pass a list of at least one text")
    items = [text if isinstance(text, Item) else Item(text) for text in texts]
    if labels is not None:
        _check_count("labels", labels, items)
        items = [replace(item, label=label) for item, label in zip(items, labels, strict=True)]
    if candidates is not None:
        one = len(candidates) == 2 and all(isinstance(word, str) for word in candidates)
        pairs = [candidates] * len(items) if one else list(candidates)
        _check_count("candidates", pairs, items)
        if any(len(pair) != 2 or isinstance(pair, str) for pair in pairs):
            raise FlowgraphError("candidates: pass two words, or one pair of words for each text")
        items = [replace(i, candidates=(str(a), str(b))) for i, (a, b) in zip(items, pairs, strict=True)]
    return items


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
