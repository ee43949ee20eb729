"""How much each token matters to the model's own score: by blanking it out, and by gradients.

Blank-out: ``|score(text) - score(text with token j replaced)|``. Gradients ``g`` (T, D) of the score with respect to
the input embeddings ``x`` (T, D): ``|Σ_d g|``, ``|Σ_d g x|`` and ``‖g‖₂`` (Abnar & Zuidema 2020, sections 4 and 5;
10.18653/v1/2020.acl-main.385).

``Σ_d g`` is exactly 0 where every reader of the embeddings takes their mean off first: adding a constant to all entries
of ``x_j`` changes nothing behind a LayerNorm. So it is in BERT, and in GPT-2, whose stream is read through LayerNorms
alone; not behind RMSNorm. What floating point leaves of it there is rounding, and is set to 0, which has no order.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowgraph.errors import FlowgraphError
from flowgraph.evaluation.questions import Question, answer

_ROUNDING = 1e-4
"""A sum of float32 gradients through a few dozen layers is off by less than this share of its terms' sizes."""

AGAINST = ("blank-out", "gradient", "gradient-input", "gradient-norm")
"""What relevance is compared with, by name."""


def blanked_scores(
    model: Any, question: Question, blanked: np.ndarray, blank: int, batch_size: int = 512
) -> np.ndarray:
    """Scores of versions of one text: ``blanked`` (R, T) bool, True where a token is replaced by ``blank`` -> (R,).

    Versions have one length, so they run as one batch, of ``batch_size`` rows at most.
    """
    which = torch.as_tensor(blanked, device=question.ids.device)
    scores = []
    with torch.no_grad():
        for rows in which.split(batch_size):
            inputs = {name: t.expand(len(rows), *t.shape[1:]) for name, t in question.inputs.items()}
            inputs["input_ids"] = inputs["input_ids"].masked_fill(rows, blank)
            scores.append(question.score(answer(model, inputs)))
    return torch.cat(scores).cpu().numpy()


def single_blanks(tokens: int) -> np.ndarray:
    """(T + 1, T) bool: nothing blanked, then each token alone."""
    return np.concatenate([np.zeros((1, tokens), dtype=bool), np.eye(tokens, dtype=bool)])


def blank_out(model: Any, question: Question, blank: int) -> tuple[float, np.ndarray]:
    """The text's score, and (T,) its change, in absolute value, when each token alone is blanked; one batch.

    A token that is the blank itself changes nothing: exactly 0, whatever the rounding of a batch.
    """
    scores = blanked_scores(model, question, single_blanks(len(question.ids)), blank)
    changed = (question.ids != blank).cpu().numpy()
    return float(scores[0]), np.abs(scores[1:] - scores[0]) * changed


def check_blank(model: Any, question: Question, blank: int) -> None:
    """FlowgraphError where the model takes the blank for padding, so that it reads other positions than before.

    GPT-2's classifier, whose padding token is often its unknown token too, looks for the last token that is no pad;
    RoBERTa gives pads no position of their own. From embeddings both read the text as it stands.
    """
    padding = getattr(model.config, "pad_token_id", None)
    if blank != padding or "inputs_embeds" not in inspect.signature(model.forward).parameters:
        return
    last = np.arange(len(question.ids)) == len(question.ids) - 1
    inputs = dict(question.inputs)
    ids = inputs.pop("input_ids").masked_fill(torch.as_tensor(last, device=question.ids.device), blank)
    with torch.no_grad():
        read = question.score(
            answer(model, inputs | {"inputs_embeds": model.get_input_embeddings()(ids)})
        ).item()
    if not _same(blanked_scores(model, question, last[None], blank)[0], read):
        raise FlowgraphError(
            f"blank: token {blank} is the padding token of {type(model).__name__}, which passes over it, so that "
            "blanking out would move other tokens; pass another token"
        )


def _same(score: float, expected: float) -> bool:
    return abs(score - expected) <= 1e-4 + 1e-3 * abs(expected)


def gradients(model: Any, question: Question, expected: float | None = None) -> dict[str, np.ndarray]:
    """The three reductions of the score's gradient to the input embeddings, each (T,).

    ``expected``: the score of the text, where it is known already. No gradient is left on the model's parameters.
    Raises :class:`FlowgraphError` for a model that does not take embeddings, or gives another score from them.
    """
    if "inputs_embeds" not in inspect.signature(model.forward).parameters:
        raise FlowgraphError(
            f"against: {type(model).__name__} takes no inputs_embeds, so gradients to its inputs cannot be had; "
            "pass against=('blank-out',)"
        )
    inputs = dict(question.inputs)
    ids = inputs.pop("input_ids")
    with torch.no_grad():
        vectors = model.get_input_embeddings()(ids)  # (1, T, D)
        if expected is None:
            expected = question.score(answer(model, question.inputs)).item()
    vectors = vectors.detach().requires_grad_(True)
    with torch.enable_grad():
        score = question.score(answer(model, inputs | {"inputs_embeds": vectors}))
        (slope,) = torch.autograd.grad(score.sum(), vectors)
    if not _same(score.item(), expected):
        raise FlowgraphError(
            f"model: {type(model).__name__} gives {score.item():.6g} from input embeddings and {expected:.6g} "
            "from tokens, so gradients would explain another score; pass against=('blank-out',)"
        )
    g, x = slope[0].double(), vectors.detach()[0].double()
    reduced = {
        "gradient": _above_rounding(g.sum(-1).abs(), g.abs().sum(-1)),
        "gradient-input": (g * x).sum(-1).abs(),
        "gradient-norm": g.norm(dim=-1),
    }
    return {name: values.cpu().numpy() for name, values in reduced.items()}


def _above_rounding(sums: Tensor, sizes: Tensor) -> Tensor:
    """``sums`` (T,), 0 where they are rounding beside the ``sizes`` (T,) of what was added up."""
    return sums.masked_fill(sums <= _ROUNDING * sizes, 0.0)
