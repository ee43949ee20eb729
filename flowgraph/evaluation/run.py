"""``fg.evaluate``: attributions against blank-out and gradients, over many texts."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from os import PathLike
from typing import Any

import numpy as np

from flowgraph.errors import FlowgraphError, FlowgraphWarning
from flowgraph.evaluation.correlation import require_scipy
from flowgraph.evaluation.items import read_items
from flowgraph.evaluation.plan import METHODS, Plan, is_whole, make_plan, name_of
from flowgraph.evaluation.report import Evaluation, Failure, TextResult
from flowgraph.progress import progress_bar

MOST_RESAMPLES = 1_000_000
"""More would take hours and change no digit that is shown."""


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
    out: str | PathLike[str] | None = None,
    retry_errors: bool = False,
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
        Strings, pairs of strings, or :class:`~flowgraph.evaluation.items.Item`. For a masked language model each
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
        classes there), ``"max"`` (the largest entry over all rows), ``"mean"``, ``"cls"``, ``"last"``, or a position.
    blank
        Token that replaces a blanked one; default: the mask, else the unknown, else the padding token.
    residual, negative
        As for :meth:`flowgraph.LayeredGraph.from_trace`; ``raw`` takes no residual unless a share is given.
    erasure
        Also blank the tokens ranked highest at the top level: comprehensiveness, sufficiency, deletion curves.
    resamples, seed
        Bootstrap samples for the intervals (0: none); the seed of bootstrap and random relevance.
    out
        A folder, at any address, that keeps what is found as it is found: the same call goes on where it was killed,
        with the same result. A folder begun with another model or other settings is refused, with what differs.
    retry_errors
        Ask texts again that failed in an earlier run on ``out``.
    progress
        A bar on standard error, or a function called with the number of texts just finished.

    Returns
    -------
    :class:`~flowgraph.evaluation.report.Evaluation`. A text that cannot be evaluated (too long, empty) is no part of
    its figures, stands in ``failures`` with the reason, and is warned of.

    Raises
    ------
    FlowgraphError
        For arguments that do not fit the model, with what to pass, and where every text fails.
    """
    require_scipy()
    _check_run(resamples, out, retry_errors)
    from flowgraph.capture.interface import evaluation_mode
    from flowgraph.evaluation.answers import Asker
    from flowgraph.evaluation.records import evaluate_here, records_of

    model, tokenizer = _loaded(model, tokenizer)
    records = records_of(read_items(texts, labels, candidates))
    plan = make_plan(
        tokenizer,
        methods=methods,
        edges=edges,
        against=against,
        explain=explain,
        target=target,
        blank=blank,
        residual=residual,
        negative=negative,
        erasure=erasure,
        seed=seed,
    )
    asker = Asker(model, tokenizer, plan)
    with ExitStack() as stack:
        stack.enter_context(evaluation_mode(model))
        advance = stack.enter_context(progress_bar(progress, "evaluation", len(records)))
        if out is None:
            found = evaluate_here(asker, records, advance)
        else:
            from flowgraph.evaluation.folder import evaluate_into

            found = evaluate_into(out, asker, records, advance, retry_errors)
    _check_failures(found.failures, len(records))
    return Evaluation(
        results=tuple(found.results),
        axes=plan.axes(),
        meta=_meta(asker.model, tokenizer, plan, found.results),
        failures=tuple(found.failures),
        resamples=int(resamples),
        seed=plan.seed,
    )


def _loaded(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    if isinstance(model, (str, os.PathLike)):
        from flowgraph.evaluation.loading import load_with_head

        model, loaded = load_with_head(model)
        tokenizer = loaded if tokenizer is None else tokenizer
    if not hasattr(model, "config"):
        raise FlowgraphError(f"model: {model!r} is no Hugging Face model; pass one, or its name or folder")
    if tokenizer is None:
        raise FlowgraphError("tokenizer: evaluation reads texts; pass the model's tokenizer")
    if getattr(model.config, "is_encoder_decoder", False):
        raise FlowgraphError(
            "model: evaluation asks encoders and decoders; for an encoder-decoder model score its cross-attention with "
            "flowgraph.evaluation.alignment"
        )
    return model, tokenizer


def _check_run(resamples: Any, out: Any, retry_errors: Any) -> None:
    if not is_whole(resamples) or not 0 <= resamples <= MOST_RESAMPLES:
        raise FlowgraphError(
            f"resamples: {resamples!r} is no number of samples; pass one from 0 to {MOST_RESAMPLES:,}"
        )
    if out is not None and (not isinstance(out, (str, os.PathLike)) or not os.fspath(out)):
        raise FlowgraphError(f"out: {out!r} is no folder; pass the path or address of one")
    if retry_errors and out is None:
        raise FlowgraphError("retry_errors: True is for a run that is kept; pass its folder as out")


def _check_failures(failures: Sequence[Failure], texts: int) -> None:
    """An error where nothing is left, a warning where something is missing."""
    if not failures:
        return
    ((reason, _),) = Counter(failure.reason for failure in failures).most_common(1)
    if len(failures) == texts:
        raise FlowgraphError(reason if texts == 1 else f"texts: all {texts} failed, most often: {reason}")
    warnings.warn(
        f"texts: {len(failures)} of {texts} left out, most often: {reason}", FlowgraphWarning, stacklevel=3
    )


def _meta(model: Any, tokenizer: Any, plan: Plan, results: Sequence[TextResult]) -> dict[str, Any]:
    """Model, settings, and what the texts were asked."""
    named = {"model": name_of(model), "model_type": model.config.model_type}
    return named | plan.describe(tokenizer) | _asked(results)


def _asked(results: Sequence[TextResult]) -> dict[str, Any]:
    """What the texts were asked, gathered: kind of score, row, classes, accuracy."""
    kinds = sorted({result.facts["kind"] for result in results})
    rows = sorted({result.facts["row"] for result in results})
    classes = sorted({result.facts["class_name"] for result in results if "class_name" in result.facts})
    judged = [result.facts["correct"] for result in results if result.facts.get("correct") is not None]
    return {
        "score": kinds,
        "rows": rows,
        "classes": classes,
        "accuracy": float(np.mean(judged)) if judged else None,
        "texts": len(results),
    }
