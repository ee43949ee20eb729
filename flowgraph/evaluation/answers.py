"""One model asked about many texts: for each its correlations and curves, or why it has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowgraph.corpus.worker import EVERY_TEXT, raise_if_everyones, reason_of
from flowgraph.errors import FlowgraphError
from flowgraph.evaluation.correlation import spearman, tied
from flowgraph.evaluation.erasure import CURVE, erased, ranks
from flowgraph.evaluation.items import Item, check_item
from flowgraph.evaluation.plan import Plan
from flowgraph.evaluation.report import TextResult

_EVERY_TEXT = (*EVERY_TEXT, "against", "blank")
"""Arguments whose errors are no single text's."""


@dataclass(frozen=True)
class Asked:
    """A text in its window."""

    item: Item
    key: str
    """Hexadecimal digits that tell it from all others, and seed its random relevance."""
    wanted: bool = True
    """False: it only takes part in the forward pass, so that the others come out the same to the last bit."""


Answer = TextResult | str
"""What was found, or the reason why nothing was."""


@dataclass(frozen=True)
class Asker:
    """A model, its tokenizer, and what to compute."""

    model: Any
    tokenizer: Any
    plan: Plan

    def answers(self, window: Sequence[Asked]) -> Iterator[tuple[int, Answer]]:
        """The answers to the wanted texts of a window, each with its place there; a text that fails stops no other.

        FlowgraphError for what would fail every text.
        """
        readable = []
        for place, asked in enumerate(window):
            try:
                check_item(self.model, self.tokenizer, asked.item)
                readable.append(place)
            except Exception as error:  # a tokenizer's own complaint is the text's error
                if asked.wanted:
                    yield place, reason_of(error)
        for place, traced in self._traced(readable, window):
            if window[place].wanted:
                yield place, traced if isinstance(traced, str) else self._answer(window[place], traced)

    def _traced(self, places: Sequence[int], window: Sequence[Asked]) -> Iterator[tuple[int, Any]]:
        """Traces, of all texts together; or one by one, where one of them spoils it: then of that the reason."""
        try:
            yield from zip(places, self._trace([window[place].item for place in places]), strict=True)
        except Exception as error:
            raise_if_everyones(error, _EVERY_TEXT)
            if len(places) == 1:
                yield places[0], reason_of(error)
                return
            for place in places:
                yield from self._traced([place], window)

    def _trace(self, items: Sequence[Item]) -> list[Any]:
        from flowgraph.capture.run import trace

        texts = [item.text for item in items]
        return list(trace(self.model, self.tokenizer, texts, edges=self.plan.edges)) if texts else []

    def _answer(self, asked: Asked, traced: Any) -> Answer:
        try:
            return self._result(asked, traced)
        except Exception as error:
            raise_if_everyones(error, _EVERY_TEXT)
            return reason_of(error)

    # --- one text -----------------------------------------------------------------------------------------

    def _result(self, asked: Asked, traced: Any) -> TextResult:
        question = self._question(asked.item, traced)
        tokens = len(question.ids)
        relevance = self._relevance(question, traced)  # (edges, methods, L, T)
        random = np.random.default_rng([self.plan.seed, int(asked.key, 16)]).random(tokens)
        score, importance = self._importance(question)
        # as in the axis "rankings"
        rankings = [*relevance[:, :, -1].reshape(-1, tokens), random, *importance]
        return TextResult(
            facts=dict(question.facts)
            | {
                "row": self._row_name(question, traced.tokens),
                "score": score,
                "size": tokens,
                "content": int(question.content.sum()),
            },
            correlations=_correlations(relevance, importance, question),
            random=_correlations(random, importance, question),
            drops=score - self._erased_scores(question, rankings if self.plan.erasure else []),
        )

    def _question(self, item: Item, traced: Any) -> Any:
        from flowgraph.evaluation.questions import make_question

        question = make_question(self.model, self.tokenizer, item, explain=self.plan.explain)
        if self.plan.target == "mask":
            question = question.at_mask(self.tokenizer.mask_token_id)
        if tuple(question.ids.tolist()) != tuple(traced.token_ids):
            raise FlowgraphError(
                f"texts: {item.text!r} is read as other tokens when traced; pass it as a string"
            )
        return question

    def _importance(self, question: Any) -> tuple[float, np.ndarray]:
        """The text's score, and the (against, T) importance of its tokens."""
        from flowgraph.evaluation.importance import blank_out, check_blank, gradients

        check_blank(self.model, question, self.plan.blank)
        score, changes = blank_out(self.model, question, self.plan.blank)
        found = {"blank-out": changes}
        if set(self.plan.against) - set(found):
            found |= gradients(self.model, question, expected=score)
        return score, np.stack([found[name] for name in self.plan.against])

    def _erased_scores(self, question: Any, rankings: Sequence[np.ndarray]) -> np.ndarray:
        """``(rankings, 2, curve)``: scores with the highest blanked, and with the highest kept; one batch. NaN for a
        ranking that sets no token above another."""
        from flowgraph.evaluation.importance import blanked_scores

        if not rankings:
            return np.zeros((0, 2, len(CURVE)))
        blanks = np.concatenate([erased(ranking, question.content, CURVE) for ranking in rankings])
        rows = blanks.reshape(-1, len(question.ids))  # (rankings * 2 * curve, T)
        versions, where = np.unique(rows, axis=0, return_inverse=True)  # rankings agree on many of them
        scores = blanked_scores(self.model, question, versions, self.plan.blank)
        found = scores[where.reshape(-1)].reshape(len(rankings), 2, len(CURVE))
        found[[not ranks(ranking[question.content]) for ranking in rankings]] = np.nan
        return found

    def _relevance(self, question: Any, traced: Any) -> np.ndarray:
        """(edges, methods, L, T): each token's relevance at each level, in the row that the score is read from."""
        return np.array(
            [
                [
                    self._row(question, self._graph(traced, kind, method), method)
                    for method in self.plan.methods
                ]
                for kind in self.plan.edges
            ]
        )

    def _graph(self, traced: Any, kind: str, method: str) -> Any:
        from flowgraph.graph import LayeredGraph

        residual = self.plan.residual
        if method == "raw" and residual == "auto":
            residual = None
        return LayeredGraph.from_trace(traced, edges=kind, residual=residual, negative=self.plan.negative)

    def _target(self, question: Any) -> Any:
        return question.target if self.plan.target in ("auto", "mask") else self.plan.target

    def _row_name(self, question: Any, tokens: Sequence[str]) -> str:
        """Which row was read, in words that are the same for most texts."""
        target = self._target(question)
        if not isinstance(target, int):
            return {"max": "the largest over all rows", "mean": "mean of all rows"}.get(target, target)
        if target == question.asked or question.special[target]:
            return tokens[target]
        return "last token" if target in (-1, len(tokens) - 1) else f"position {target}"

    def _row(self, question: Any, graph: Any, method: str) -> np.ndarray:
        """(L, T)"""
        from flowgraph.attribution import attribute_graph

        target = self._target(question)
        rows = None if target == "max" else target
        scores = attribute_graph(graph, method=method, level="all", targets=rows).scores
        # flows of equal cuts differ in their last digits
        return (tied(scores, 1e-9) if method == "flow" else scores).max(1)


def _correlations(relevance: np.ndarray, importance: np.ndarray, question: Any) -> np.ndarray:
    """``relevance`` (..., T) and ``importance`` (against, T) -> (..., against, rule), rules as in ``TOKENS``."""
    rules = (question.inputs_asked, question.content)
    return np.stack([spearman(relevance[..., None, kept], importance[:, kept]) for kept in rules], axis=-1)
