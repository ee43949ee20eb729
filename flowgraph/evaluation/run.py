"""``fg.evaluate``: attributions against blank-out and gradients, over many texts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.evaluation.correlation import require_scipy, spearman
from flowgraph.evaluation.erasure import CURVE, FRACTIONS, erased
from flowgraph.evaluation.report import Evaluation, TextResult
from flowgraph.progress import progress_bar

METHODS = ("raw", "rollout", "flow")
TOKENS = ("all", "content")
"""Which tokens a correlation is over: all inputs, or those that are not special tokens."""
EXPLAIN = ("predicted", "true")
_TRACED_TOGETHER = 32


def evaluate(
    model: Any,
    tokenizer: Any,
    texts: Sequence[Any],
    *,
    labels: Sequence[int | str] | None = None,
    candidates: Sequence[Any] | None = None,
    methods: Sequence[str] = METHODS,
    edges: str | Sequence[str] = "attention",
    against: Sequence[str] | None = None,
    explain: str = "predicted",
    target: str | int = "auto",
    blank: str | int | None = None,
    residual: float | str | None = "auto",
    negative: str = "error",
    erasure: bool = True,
    resamples: int = 1000,
    seed: int = 0,
    resume: str | PathLike[str] | None = None,
    progress: bool | Callable[[int], None] = False,
) -> Evaluation:
    """Faithfulness of attributions: do they rank the tokens as the model's own score does?

    For each text the score is what the model says of it: the probability of a class, for a language model the log-odds
    of two candidate words, for a model without a head the text's vector along its own direction. The importance of a
    token is the change of the score when it is blanked out, or the score's gradient; an attribution's relevance of a
    token is its entry in the row of the classifying token (the mask, the last token). Spearman's rank correlation of
    relevance and importance, level by level, is averaged over texts (Abnar & Zuidema 2020, sections 4 and 5;
    10.18653/v1/2020.acl-main.385), beside that of random relevance.

    Parameters
    ----------
    model, tokenizer
        A loaded Hugging Face model with its head, and its tokenizer; or a name or folder, and None.
    texts
        Strings, pairs of strings, or :class:`~flowgraph.evaluation.questions.Item`. For a masked language model each
        holds one mask token; a causal one is asked for the word after the text.
    labels
        True classes, one a text, by number or name. Only ``explain="true"`` needs them; with them accuracy is reported.
    candidates
        Two words for all texts, or a pair for each; the right word first, where one is right.
    methods, edges
        Any of ``raw``, ``rollout``, ``flow``; edge kinds, traced in one pass.
    against
        Any of ``blank-out``, ``gradient`` (``|Σ g|``), ``gradient-input`` (``|Σ g x|``), ``gradient-norm``
        (``‖g‖₂``); default: all.
    explain
        Which class's probability is the score: ``predicted`` or ``true``.
    target
        Row of the attribution: ``"auto"`` (the classifying token, the mask, or the last token; of a model without head
        the mean row), ``"mask"`` (the one mask of the text, which is then no input; for a classifier that reads its
        classes there), ``"max"`` (the largest entry over all rows), ``"mean"``, or a position.
    blank
        Token that replaces a blanked one; default: the mask, else the unknown, else the padding token.
    residual, negative
        As for :meth:`flowgraph.LayeredGraph.from_trace`; ``raw`` takes no residual unless a share is given.
    erasure
        Also blank the tokens ranked highest at the top level: comprehensiveness, sufficiency, deletion curves.
    resamples, seed
        Bootstrap samples for the intervals (0: none); the seed of bootstrap and random relevance.
    resume
        A file that keeps the result of each finished text, one line each; a run that finds it goes on where it stopped.
    progress
        A bar on standard error, or a function called with the number of texts just finished.

    Returns
    -------
    :class:`~flowgraph.evaluation.report.Evaluation`

    Raises
    ------
    FlowgraphError
        For arguments that do not fit the model, with what to pass.
    """
    require_scipy()
    from flowgraph.capture.interface import evaluation_mode
    from flowgraph.evaluation.questions import blank_token, check_items, read_items

    model, tokenizer = _loaded(model, tokenizer)
    items = read_items(texts, labels, candidates)
    check_items(model, tokenizer, items)
    plan = _Plan(
        methods=_chosen("methods", methods, METHODS),
        edges=_kinds(edges),
        against=_against(against),
        explain=_chosen("explain", [explain], EXPLAIN)[0],
        target=target,
        blank=blank_token(tokenizer, blank),
        residual=residual,
        negative=negative,
        erasure=erasure,
        seed=seed,
    )
    meta = plan.describe(model, tokenizer)
    with ExitStack() as stack:
        stack.enter_context(evaluation_mode(model))
        advance = stack.enter_context(progress_bar(progress, "evaluation", len(items)))
        results = _Runner(model, tokenizer, plan).run(items, _Log.open(resume, meta, items), advance)
    return Evaluation(
        results=tuple(results), axes=plan.axes(), meta=meta | _asked(results), resamples=resamples, seed=seed
    )


# --- arguments --------------------------------------------------------------------------------------------


def _loaded(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    if isinstance(model, (str, os.PathLike)):
        from flowgraph.evaluation.loading import load_with_head

        model, loaded = load_with_head(model)
        tokenizer = loaded if tokenizer is None else tokenizer
    if tokenizer is None:
        raise FlowgraphError("tokenizer: evaluation reads texts; pass the model's tokenizer")
    if getattr(model.config, "is_encoder_decoder", False):
        raise FlowgraphError(
            "model: evaluation asks encoders and decoders; for an encoder-decoder model score its cross-attention with "
            "flowgraph.evaluation.alignment"
        )
    return model, tokenizer


def _chosen(argument: str, values: Sequence[str] | str, known: Sequence[str]) -> tuple[str, ...]:
    values = (values,) if isinstance(values, str) else tuple(values)
    for value in values:
        if value not in known:
            raise FlowgraphError(f"{argument}: unknown {value!r}; choose from {', '.join(known)}")
    if not values:
        raise FlowgraphError(f"{argument}: none given; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(values))


def _kinds(edges: str | Sequence[str]) -> tuple[str, ...]:
    from flowgraph import mixing

    names = (edges,) if isinstance(edges, str) else tuple(edges)
    if not names:
        raise FlowgraphError(f"edges: none given; choose from {', '.join(mixing.names())}")
    return tuple(dict.fromkeys(mixing.get(name).name for name in names))


def _against(against: Sequence[str] | None) -> tuple[str, ...]:
    from flowgraph.evaluation.importance import AGAINST

    return _chosen("against", AGAINST if against is None else against, AGAINST)


def _name(model: Any) -> str:
    """What the model calls itself; of a folder its last part, of a model made in memory its class."""
    name = str(getattr(model, "name_or_path", "") or "").rstrip("/")
    return os.path.basename(name) or type(model).__name__


def _asked(results: Sequence[TextResult]) -> dict[str, Any]:
    """What the texts were asked, gathered: kind of score, classes, accuracy."""
    kinds = sorted({result.facts["kind"] for result in results})
    classes = sorted({result.facts["class_name"] for result in results if "class_name" in result.facts})
    judged = [result.facts["correct"] for result in results if result.facts.get("correct") is not None]
    return {
        "score": kinds,
        "classes": classes,
        "accuracy": float(np.mean(judged)) if judged else None,
        "texts": len(results),
    }


# --- the work ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """What to compute for every text."""

    methods: tuple[str, ...]
    edges: tuple[str, ...]
    against: tuple[str, ...]
    explain: str
    target: str | int
    blank: int
    residual: float | str | None
    negative: str
    erasure: bool
    seed: int

    def axes(self) -> dict[str, tuple[str, ...]]:
        """Names along the axes of a text's arrays; see :class:`TextResult`."""
        rankings = [f"{method} {kind}" for kind in self.edges for method in self.methods]
        return {
            "edges": self.edges,
            "methods": self.methods,
            "against": self.against,
            "tokens": TOKENS,
            "rankings": (*rankings, "random", *self.against) if self.erasure else (),
        }

    def describe(self, model: Any, tokenizer: Any) -> dict[str, Any]:
        """The settings, in words and plain values, for the report."""
        return {
            "model": _name(model),
            "model_type": model.config.model_type,
            "methods": list(self.methods),
            "edges": list(self.edges),
            "against": list(self.against),
            "explain": self.explain,
            "target": self.target,
            "blank_token": str(tokenizer.convert_ids_to_tokens(self.blank)),
            "residual": self.residual,
            "negative": self.negative,
            "erasure": self.erasure,
            "fractions": list(FRACTIONS),
            "curve": list(CURVE),
            "seed": self.seed,
        }


@dataclass
class _Runner:
    """One model asked about many texts."""

    model: Any
    tokenizer: Any
    plan: _Plan

    def run(self, items: Sequence[Any], log: _Log, advance: Callable[[int], None] | None) -> list[TextResult]:
        if advance is not None and log.done:
            advance(len(log.done))
        missing = [number for number in range(len(items)) if number not in log.done]
        for start in range(0, len(missing), _TRACED_TOGETHER):
            numbers = missing[start : start + _TRACED_TOGETHER]
            for number, result in self._together(numbers, items):
                log.add(number, result)
                if advance is not None:
                    advance(1)
        return [log.done[number] for number in range(len(items))]

    def _together(self, numbers: Sequence[int], items: Sequence[Any]) -> Iterator[tuple[int, TextResult]]:
        from flowgraph.capture.run import trace

        traces = trace(
            self.model, self.tokenizer, [items[number].text for number in numbers], edges=self.plan.edges
        )
        for number, traced in zip(numbers, traces, strict=True):
            yield number, self._one(number, items[number], traced)

    def _one(self, number: int, item: Any, traced: Any) -> TextResult:
        from flowgraph.evaluation.questions import make_question

        question = make_question(self.model, self.tokenizer, item, explain=self.plan.explain)
        if self.plan.target == "mask":
            question = question.at_mask(self.tokenizer.mask_token_id)
        tokens = len(question.ids)
        if tuple(question.ids.tolist()) != tuple(traced.token_ids):
            raise FlowgraphError(
                f"texts: {item.text!r} is read as other tokens when traced; pass it as a string"
            )
        relevance = self._relevance(question, traced)  # (edges, methods, L, T)
        random = np.random.default_rng([self.plan.seed, number]).random(tokens)
        score, importance = self._importance(question)
        rankings = [
            *relevance[:, :, -1].reshape(-1, tokens),
            random,
            *importance,
        ]  # as in the axis "rankings"
        return TextResult(
            facts=dict(question.facts)
            | {"score": score, "size": tokens, "content": int(question.content.sum())},
            correlations=_correlations(relevance, importance, question),
            random=_correlations(random, importance, question),
            drops=score - self._erased_scores(question, rankings if self.plan.erasure else []),
        )

    def _importance(self, question: Any) -> tuple[float, np.ndarray]:
        """The text's score, and the (against, T) importance of its tokens."""
        from flowgraph.evaluation.importance import blanked_scores, gradients, single_blanks

        scores = blanked_scores(self.model, question, single_blanks(len(question.ids)), self.plan.blank)
        found = {"blank-out": np.abs(scores[1:] - scores[0])}
        if set(self.plan.against) - set(found):
            found |= gradients(self.model, question, expected=float(scores[0]))
        return float(scores[0]), np.stack([found[name] for name in self.plan.against])

    def _erased_scores(self, question: Any, rankings: Sequence[np.ndarray]) -> np.ndarray:
        """``(rankings, 2, curve)``: scores with the highest blanked, and with the highest kept; one batch."""
        from flowgraph.evaluation.importance import blanked_scores

        if not rankings:
            return np.zeros((0, 2, len(CURVE)))
        blanks = np.concatenate([erased(ranking, question.content, CURVE) for ranking in rankings])
        rows = blanks.reshape(-1, len(question.ids))  # (rankings * 2 * curve, T)
        versions, where = np.unique(rows, axis=0, return_inverse=True)  # rankings agree on many of them
        scores = blanked_scores(self.model, question, versions, self.plan.blank)
        return scores[where.reshape(-1)].reshape(len(rankings), 2, len(CURVE))

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

    def _row(self, question: Any, graph: Any, method: str) -> np.ndarray:
        """(L, T)"""
        from flowgraph.attribution import attribute_graph

        target = question.target if self.plan.target in ("auto", "mask") else self.plan.target
        rows = None if target == "max" else target
        scores = attribute_graph(graph, method=method, level="all", targets=rows).scores
        return scores.max(1)


def _correlations(relevance: np.ndarray, importance: np.ndarray, question: Any) -> np.ndarray:
    """``relevance`` (..., T) and ``importance`` (against, T) -> (..., against, rule), rules as in ``TOKENS``."""
    rules = (question.inputs_asked, question.content)
    return np.stack([spearman(relevance[..., None, kept], importance[:, kept]) for kept in rules], axis=-1)


# --- what is done -----------------------------------------------------------------------------------------


@dataclass
class _Log:
    """Results of finished texts, in memory and, where a file was named, one JSON line each."""

    done: dict[int, TextResult] = field(default_factory=dict)
    path: Path | None = None

    @classmethod
    def open(cls, path: str | PathLike[str] | None, meta: Mapping[str, Any], items: Sequence[Any]) -> _Log:
        """Results kept in ``path``; a file of other settings or texts is refused."""
        if path is None:
            return cls()
        file = Path(path)
        log = cls(path=file)
        head = json.dumps({"flowgraph": "evaluation log 1", "key": _key(meta, items)})
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(head + "\n", encoding="utf-8")
            return log
        first, *lines = file.read_text(encoding="utf-8").splitlines() or [""]
        if first != head:
            raise FlowgraphError(
                f"resume: {str(path)!r} is no log of this model, these texts and settings; name another file"
            )
        log._read(lines)
        return log

    def _read(self, lines: Sequence[str]) -> None:
        good = []
        for line in lines:
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                break  # the last line of a run that was killed while it wrote
            good.append(line)
            self.done[entry["number"]] = TextResult.from_dict(entry)
        if self.path is not None and len(good) < len(lines):
            head = self.path.read_text(encoding="utf-8").splitlines()[0]
            self.path.write_text("\n".join([head, *good]) + "\n", encoding="utf-8")

    def add(self, number: int, result: TextResult) -> None:
        self.done[number] = result
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"number": number} | result.to_dict()) + "\n")


def _key(meta: Mapping[str, Any], items: Sequence[Any]) -> str:
    """A digest of the settings and of every text with its label and candidates."""
    parts = [[item.text, item.label, item.candidates] for item in items]
    text = json.dumps([dict(meta), parts], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
