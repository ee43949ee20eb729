"""What is asked of the model about a text: which score, of which class or words, read at which position.

The score is the number whose change tells how much a token mattered:

- a classifier: the probability of a class, the predicted or the true one; of a model with one output, that output;
- a masked or a causal language model with two candidate words: log p(first) - log p(second) at the mask, or after the
  last token, which is the difference of their logits;
- a model without a head: the text's vector (mean over tokens) along its own direction, 1 for the whole text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowgraph.capture.tokens import special_ids
from flowgraph.errors import FlowgraphError
from flowgraph.evaluation.items import Item, parts_of
from flowgraph.evaluation.vocabulary import one_token

Score = Callable[[Any], Tensor]
"""The model's output for B versions of a text -> (B,) float64, differentiable."""


@dataclass(frozen=True, eq=False)
class Question:
    """One text, ready for the model, and the score to read off it. T tokens, no pads."""

    inputs: Mapping[str, Tensor]
    """Keyword arguments of the model, each (1, T); always ``input_ids``."""
    special: np.ndarray
    """(T,) bool: tokens that frame the text."""
    asked: int | None
    """Position of the mask that is asked about: no input of its own, and never blanked."""
    score: Score
    target: int | str
    """The row of an attribution that belongs to the score: a position, or ``"mean"``."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """``kind`` of the score, and the class or the words; plain values."""

    @property
    def ids(self) -> Tensor:
        """(T,)"""
        return self.inputs["input_ids"][0]

    @property
    def inputs_asked(self) -> np.ndarray:
        """(T,) bool: positions whose importance is a question."""
        kept = np.ones(len(self.special), dtype=bool)
        if self.asked is not None:
            kept[self.asked] = False
        return kept

    @property
    def content(self) -> np.ndarray:
        """(T,) bool: the same without special tokens."""
        return self.inputs_asked & ~self.special

    def at_mask(self, mask: int | None) -> Question:
        """The same question with the row, and the position that is no input, at the text's one mask."""
        found = [] if mask is None else (self.ids == mask).nonzero()[:, 0].tolist()
        if len(found) != 1:
            raise FlowgraphError(f"target: 'mask' needs one mask in every text; one has {len(found)}")
        return replace(self, asked=found[0], target=found[0])


def make_question(model: Any, tokenizer: Any, item: Item, *, explain: str = "predicted") -> Question:
    """The question about one text.

    ``explain``: ``"predicted"`` or ``"true"``, the class whose probability a classifier's score is; the other kinds of
    score do not read it. Raises :class:`FlowgraphError` for a text or a candidate that the model cannot be asked about.
    """
    inputs = _encode(model, tokenizer, item.text)
    ids = inputs["input_ids"][0]
    frame = special_ids(tokenizer)
    special = np.array([int(i) in frame for i in ids])
    with torch.no_grad():
        output = answer(model, inputs)
    logits = getattr(output, "logits", None)
    if logits is not None and logits.ndim == 2:
        made = _classification(model, tokenizer, logits, ids, item, explain)
    elif logits is not None and logits.shape[-1] != getattr(model.config, "num_labels", None):
        made = _two_words(model, tokenizer, logits, ids, item)
    elif logits is None and hasattr(output, "last_hidden_state"):
        made = _embedding(output)
    else:
        raise FlowgraphError(
            f"model: {type(model).__name__} gives neither one answer a text nor words; pass a classifier of texts, a "
            "masked or causal language model, or a model without a head"
        )
    return Question(inputs=inputs, special=special, **made)


def answer(model: Any, inputs: Mapping[str, Tensor]) -> Any:
    """The model's output; no memory kept of what comes after a text."""
    cacheless = "use_cache" in inspect.signature(model.forward).parameters
    return model(**inputs, use_cache=False) if cacheless else model(**inputs)


def _encode(model: Any, tokenizer: Any, text: str | tuple[str, str]) -> dict[str, Tensor]:
    parts = parts_of(text)
    device = next(model.parameters()).device
    encoding = tokenizer(*parts, return_tensors="pt", verbose=False)
    known = inspect.signature(model.forward).parameters
    return {
        name: tensor.to(device)
        for name, tensor in encoding.items()
        if name in known and name != "attention_mask"
    }


# --- the three kinds of score -------------------------------------------------------------------------------


def _classification(
    model: Any, tokenizer: Any, logits: Tensor, ids: Tensor, item: Item, explain: str
) -> dict[str, Any]:
    target = _pooled_position(model, tokenizer, ids)
    if logits.shape[-1] == 1:
        return {"score": _only_output, "asked": None, "target": target, "facts": {"kind": "regression"}}
    names = getattr(model.config, "id2label", None) or {}
    predicted = int(logits[0].argmax())
    true = None if item.label is None else class_number(item.label, logits.shape[-1], names)
    if explain == "true" and true is None:
        raise FlowgraphError(
            f"explain: 'true' needs the label of every text, {item.text!r} has none; pass labels"
        )
    number = predicted if explain == "predicted" or true is None else true
    several = getattr(model.config, "problem_type", None) == "multi_label_classification"
    return {
        "score": class_probability(number, several),
        "asked": None,
        "target": target,
        "facts": {
            "kind": "classifier",
            "class": number,
            "class_name": str(names.get(number, number)),
            "correct": None if true is None else predicted == true,
        },
    }


def class_probability(number: int, several: bool) -> Score:
    """The softmax's entry ``number``; of a model whose texts may have ``several`` classes, that class's sigmoid."""
    if several:
        return lambda output: output.logits[:, number].double().sigmoid()
    return lambda output: output.logits.double().softmax(-1)[:, number]


def _only_output(output: Any) -> Tensor:
    return output.logits[:, 0].double()


def class_number(label: int | str, classes: int, names: Mapping[int, str]) -> int:
    """The number of a class given by number or by name."""
    by_name = {str(name): number for number, name in names.items()}
    if isinstance(label, str) and label in by_name:
        return by_name[label]
    try:
        number = int(label)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number < classes or not (isinstance(label, str) or number == label):
        known = ", ".join(by_name) or f"0 to {classes - 1}"
        raise FlowgraphError(f"labels: {label!r} is no class of the model; pass a number or one of {known}")
    return number


def _pooled_position(model: Any, tokenizer: Any, ids: Tensor) -> int:
    """The classifying token where the tokenizer has one in the text, else the last token."""
    cls = tokenizer.cls_token_id
    found = [] if cls is None else (ids == cls).nonzero()[:, 0].tolist()
    return found[0] if found else len(ids) - 1


def _two_words(model: Any, tokenizer: Any, logits: Tensor, ids: Tensor, item: Item) -> dict[str, Any]:
    if item.candidates is None:
        raise FlowgraphError(
            "candidates: a language model needs two words to choose between; pass candidates=(first, second)"
        )
    mask = tokenizer.mask_token_id
    masks = [] if mask is None else (ids == mask).nonzero()[:, 0].tolist()
    if len(masks) > 1:
        raise FlowgraphError(
            f"texts: {len(masks)} masks in {item.text!r}; one position can be asked about at a time"
        )
    asked = masks[0] if masks else None
    position = len(ids) - 1 if asked is None else asked
    if asked is None and int(ids[-1]) in (tokenizer.sep_token_id, tokenizer.eos_token_id):
        raise FlowgraphError(
            f"texts: {item.text!r} has no mask, and no word follows its end; put {tokenizer.mask_token or 'a mask'} "
            "where the model is to choose the word"
        )
    spaced = asked is None or _behind_a_space(item.text, tokenizer.mask_token)
    first, second = (one_token(tokenizer, word, spaced=spaced) for word in item.candidates)
    if first == second:
        raise FlowgraphError(
            f"candidates: {' and '.join(map(repr, item.candidates))} are one token, so there is nothing to choose; "
            "pass two words that differ"
        )
    right = bool(logits[0, position, first] > logits[0, position, second])

    def score(output: Any) -> Tensor:
        at = output.logits[:, position].double()  # (B, vocabulary)
        return at[:, first] - at[:, second]

    return {
        "score": score,
        "asked": asked,
        "target": position,
        "facts": {
            "kind": "masked" if asked is not None else "causal",
            "candidates": list(item.candidates),
            "correct": right,
        },
    }


def _behind_a_space(text: str | tuple[str, str], mask: str) -> bool:
    """Whether a word in the mask's place has a space before it, which byte-level tokens hold."""
    before = next((part.partition(mask)[0] for part in parts_of(text) if mask in part), " ")
    return before[-1:].isspace()


def _embedding(output: Any) -> dict[str, Any]:
    whole = _mean_vector(output)[0]  # (D,)
    direction = whole / whole.square().sum()

    def score(other: Any) -> Tensor:
        return _mean_vector(other) @ direction

    return {"score": score, "asked": None, "target": "mean", "facts": {"kind": "embedding"}}


def _mean_vector(output: Any) -> Tensor:
    """(B, D) float64"""
    return output.last_hidden_state.double().mean(1)
