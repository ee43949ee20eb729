"""What a run did, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowgraph.corpus.worker import Report

_BY_FLOW = ("sparse subgraph", "whole graph", "nodes between", "igraph, pair by pair")
"""Steps of the all-pairs solver that compute a flow for the pair; the others are bounds that meet."""


@dataclass
class Summary:
    """Counts of one run, and where the folder stands after it."""

    out: str = ""
    records: int = 0
    """Records read from the input."""
    computed: int = 0
    """Texts attributed by this run."""
    failed: int = 0
    """Records that failed in this run."""
    known: int = 0
    """Records that had their rows before."""
    known_errors: int = 0
    """Records that had failed before and were not tried again."""
    removed: int = 0
    """Records with rows that the input does not hold any more."""
    moved: int = 0
    """Records without an id whose line number changed."""
    returned: int = 0
    retried: int = 0
    rows: int = 0
    tokens: int = 0
    windows: int = 0
    damaged: list[str] = field(default_factory=list)
    """Shards found damaged, and computed again."""
    seconds: float = 0.0
    computing_seconds: float = 0.0
    """From the moment the first worker had its model until the last window was done."""
    peak_bytes: int = 0
    """Most memory that a worker held."""
    complete: bool = False
    """The input was read to its end and everything in it has rows or an error."""
    settled: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    _first: float | None = None
    _last: float = 0.0

    def add(self, report: Report) -> None:
        self.windows += 1
        self.computed += report.texts
        self.failed += report.failed
        self.rows += report.rows
        self.tokens += report.tokens
        self.retried += report.retried
        self.settled += report.settled
        self.reasons += report.reasons
        self.warnings += report.warnings
        self.peak_bytes = max(self.peak_bytes, report.peak_bytes)
        self._first = report.started if self._first is None else min(self._first, report.started)
        self._last = max(self._last, report.ended)
        self.computing_seconds = self._last - self._first

    @property
    def rate(self) -> float:
        """Texts per second, start-up aside."""
        return self.computed / self.computing_seconds if self.computing_seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.computing_seconds if self.computing_seconds else 0.0

    @property
    def settled_by_bounds(self) -> float | None:
        """Share of attention-flow pairs that needed no flow of their own; None where no flow was asked for."""
        pairs = sum(self.settled.values())
        by_flow = sum(self.settled[step] for step in _BY_FLOW)
        return (pairs - by_flow) / pairs if pairs else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = {k: v for k, v in vars(self).items() if not k.startswith("_")}
        return values | {
            "settled": dict(self.settled),
            "reasons": dict(self.reasons.most_common(20)),
            "warnings": dict(self.warnings),
            "texts_per_second": self.rate,
            "tokens_per_second": self.tokens_per_second,
            "settled_by_bounds": self.settled_by_bounds,
        }
