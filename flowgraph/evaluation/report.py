"""What an evaluation found: correlations and curves, as rows, JSON, data frame and picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.errors import missing_dependency
from flowgraph.evaluation.correlation import Summary, summarise
from flowgraph.evaluation.erasure import CURVE, FRACTIONS, aopc

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

FORMAT = "flowgraph evaluation 1"


@dataclass(frozen=True)
class TextResult:
    """What one text gave. NaN: a correlation that is not defined."""

    facts: Mapping[str, Any]
    correlations: np.ndarray
    """(edges, methods, L, against, tokens)"""
    random: np.ndarray
    """(against, tokens): of random relevance"""
    drops: np.ndarray
    """(rankings, 2, len(CURVE)): score of the text minus score with the highest blanked, and with the highest kept.
    NaN for a ranking that sets no token above another."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values; None for NaN."""
        arrays = {name: _listed(getattr(self, name)) for name in ("correlations", "random", "drops")}
        return {"facts": dict(self.facts)} | arrays

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TextResult:
        """The inverse of :meth:`to_dict`."""
        arrays = {
            name: np.array(values[name], dtype=np.float64) for name in ("correlations", "random", "drops")
        }
        if arrays["drops"].ndim == 1:  # an empty list has lost its shape
            arrays["drops"] = np.zeros((0, 2, len(CURVE)))
        return cls(facts=values["facts"], **arrays)


@dataclass(frozen=True)
class Failure:
    """A text that gave nothing, and why."""

    id: str
    """Its own, else its line."""
    line: int
    """In its file, or its number among the texts, from 1."""
    reason: str


@dataclass(frozen=True)
class Correlation:
    """Spearman's rho of one relevance with one importance, over texts."""

    edges: str | None
    """None for random relevance."""
    method: str
    level: int | None
    against: str
    tokens: str
    """``all`` inputs, or ``content``: without special tokens."""
    summary: Summary


@dataclass(frozen=True)
class Curve:
    """Erasure by one ranking at the top level, over texts."""

    edges: str | None
    method: str
    """An attribution, ``random``, or the importance that ranks."""
    comprehensiveness: Summary
    """AOPC over the fractions; high: the tokens ranked first matter."""
    sufficiency: Summary
    """AOPC over the fractions; low: the tokens ranked first are enough."""
    deletion: tuple[float, ...]
    """Mean drop of the score with the highest blanked, at the shares in ``meta["curve"]``."""
    insertion: tuple[float, ...]
    """Mean drop of the score with all but the highest blanked."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of :func:`flowgraph.evaluate`; all figures are over texts."""

    results: tuple[TextResult, ...]
    axes: Mapping[str, Sequence[str]]
    """Names along the axes of the arrays of :class:`TextResult`."""
    meta: Mapping[str, Any]
    """The settings and what the model was asked: token that blanks, kind of score, classes, accuracy."""
    failures: tuple[Failure, ...] = ()
    """Texts that are no part of any figure."""
    resamples: int = 1000
    seed: int = 0
    confidence: float = field(default=0.95)

    @property
    def levels(self) -> int:
        return self.results[0].correlations.shape[2]

    @cached_property
    def correlations(self) -> tuple[Correlation, ...]:
        """One entry an edge kind, method, level, importance and rule for tokens; random relevance last."""
        stack = np.stack([result.correlations for result in self.results], axis=-1)
        rows = [
            Correlation(kind, method, level, against, rule, self._summary(stack[e, m, level - 1, a, t]))
            for t, rule in enumerate(self.axes["tokens"])
            for a, against in enumerate(self.axes["against"])
            for e, kind in enumerate(self.axes["edges"])
            for m, method in enumerate(self.axes["methods"])
            for level in range(1, self.levels + 1)
        ]
        random = np.stack([result.random for result in self.results], axis=-1)
        rows += [
            Correlation(None, "random", None, against, rule, self._summary(random[a, t]))
            for t, rule in enumerate(self.axes["tokens"])
            for a, against in enumerate(self.axes["against"])
        ]
        return tuple(rows)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """One entry a ranking; empty without ``erasure``."""
        if not self.axes["rankings"]:
            return ()
        drops = np.stack([result.drops for result in self.results], axis=-1)  # (rankings, 2, curve, texts)
        return tuple(self._curve(name, drops[k]) for k, name in enumerate(self.axes["rankings"]))

    def find(
        self, method: str, *, edges: str | None = None, against: str, tokens: str = "all"
    ) -> list[Summary]:
        """Summaries of one method by level, from 1; of ``random`` a single one. ``edges`` may be left out where there
        is one kind."""
        if edges is None and method != "random" and len(self.axes["edges"]) == 1:
            edges = self.axes["edges"][0]
        wanted = (method, edges, against, tokens)
        return [c.summary for c in self.correlations if (c.method, c.edges, c.against, c.tokens) == wanted]

    def _summary(self, values: np.ndarray) -> Summary:
        return summarise(values, resamples=self.resamples, confidence=self.confidence, seed=self.seed)

    def _curve(self, ranking: str, drops: np.ndarray) -> Curve:
        """``drops`` (2, curve, texts)"""
        method, _, kind = ranking.partition(" ")
        known = drops[..., np.isfinite(drops).all((0, 1))]
        means = known.mean(-1) if known.size else np.full(drops.shape[:2], np.nan)
        areas = aopc(np.moveaxis(drops, 1, -1), CURVE, FRACTIONS)  # (2, texts)
        return Curve(
            edges=kind or None,
            method=method,
            comprehensiveness=self._summary(areas[0]),
            sufficiency=self._summary(areas[1]),
            deletion=tuple(map(float, means[0])),
            insertion=tuple(map(float, means[1])),
        )

    # --- other forms --------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain values: ``format``, ``meta``, flat rows in ``correlations``, ``curves``, ``failures``; None where a
        figure is not defined."""
        return {
            "format": FORMAT,
            "meta": dict(self.meta)
            | {"resamples": self.resamples, "confidence": self.confidence, "levels": self.levels},
            "correlations": [_row(c) for c in self.correlations],
            "curves": [_curve_row(c) for c in self.curves],
            "failures": [asdict(failure) for failure in self.failures],
        }

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """:meth:`to_dict` as JSON; also written to ``path`` where one is given."""
        text = json.dumps(self.to_dict(), allow_nan=False)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text + "\n")
        return text

    def to_pandas(self) -> pandas.DataFrame:
        """Correlations, one row each."""
        try:
            import pandas
        except ImportError:
            raise missing_dependency("pandas", "test", "a data frame") from None
        return pandas.DataFrame([_row(c) for c in self.correlations])

    def plot(self, path: str | PathLike[str] | None = None) -> Figure:
        """Correlations by level, one panel an importance and rule for tokens; see
        :func:`flowgraph.evaluation.picture.levels_picture`."""
        from flowgraph.evaluation.picture import levels_picture

        return levels_picture(self, path)

    def plot_curves(self, path: str | PathLike[str] | None = None) -> Figure:
        """Drop of the score as tokens are erased; see :func:`flowgraph.evaluation.picture.curves_picture`."""
        from flowgraph.evaluation.picture import curves_picture

        return curves_picture(self, path)

    def __repr__(self) -> str:
        asked = ", ".join(self.meta.get("score", ()))
        return (
            f"<Evaluation: {self.meta.get('model')}, {len(self.results)} texts, score: {asked}, "
            f"{', '.join(self.axes['methods'])} over {', '.join(self.axes['edges'])}>"
        )


def _row(c: Correlation) -> dict[str, Any]:
    own = {"edges": c.edges, "method": c.method, "level": c.level, "against": c.against, "tokens": c.tokens}
    return own | _plain(c.summary)


def _curve_row(c: Curve) -> dict[str, Any]:
    return {
        "edges": c.edges,
        "method": c.method,
        "comprehensiveness": _plain(c.comprehensiveness),
        "sufficiency": _plain(c.sufficiency),
        "deletion": _listed(np.array(c.deletion)),
        "insertion": _listed(np.array(c.insertion)),
    }


def _plain(summary: Summary) -> dict[str, Any]:
    return {name: _known(value) for name, value in asdict(summary).items()}


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _listed(array: np.ndarray) -> Any:
    return _map(_known, array.tolist())


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    return [_map(function, item) for item in value] if isinstance(value, list) else function(value)
