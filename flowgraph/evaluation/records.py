"""Texts to evaluate on as records of a corpus: what each is known by from run to run, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from flowgraph.corpus.records import Record, content_of_bytes, keys_of
from flowgraph.evaluation.answers import Answer, Asked, Asker
from flowgraph.evaluation.items import Item
from flowgraph.evaluation.report import Failure, TextResult

WINDOW = 32
"""Texts that are traced together; the unit of resuming."""


@dataclass(frozen=True)
class ItemRecord(Record):
    """A text with its label and candidates; they make its content."""

    item: Item = field(kw_only=True)


def records_of(items: Sequence[Item]) -> list[ItemRecord]:
    """One a text, in their order; without an id of its own a text goes by its line, or its number from 1."""
    return [
        ItemRecord(
            line=number if item.line is None else item.line,
            name=item.name,
            text=None if item.problem is not None else item.text,
            content=content_of_bytes(_content(item)),
            problem=item.problem,
            item=item,
        )
        for number, item in enumerate(items, start=1)
    ]


def _content(item: Item) -> bytes:
    return json.dumps([item.text, item.label, item.candidates, item.problem], default=str).encode()


@dataclass
class Outcome:
    """Results and failures, each in the order of the texts."""

    results: list[TextResult] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @classmethod
    def of(cls, records: Sequence[Record], answers: dict[str, Answer]) -> Outcome:
        """From answers by key."""
        found = cls()
        for record, key in zip(records, keys_of(records), strict=True):
            answer = answers[key]
            if isinstance(answer, TextResult):
                found.results.append(answer)
            else:
                found.failures.append(Failure(record.id, record.line, answer))
        return found


def evaluate_here(
    asker: Asker, records: Sequence[ItemRecord], advance: Callable[[int], None] | None
) -> Outcome:
    """All of them, kept in memory alone."""
    everything = [Asked(record.item, key) for record, key in zip(records, keys_of(records), strict=True)]
    answers = {}
    for start in range(0, len(everything), WINDOW):
        window = everything[start : start + WINDOW]
        for place, answer in counted(asker.answers(window), advance):
            answers[window[place].key] = answer
    return Outcome.of(records, answers)


def counted(
    answers: Iterator[tuple[int, Answer]], advance: Callable[[int], None] | None
) -> Iterator[tuple[int, Answer]]:
    """The same; ``advance(1)`` after each."""
    for answer in answers:
        yield answer
        if advance is not None:
            advance(1)
