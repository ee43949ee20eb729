"""Texts and pairs of texts, tokenised without pads."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from flowgraph.capture.inputs import IGNORED, Example, accepted, max_tokens
from flowgraph.capture.survey import is_seq2seq
from flowgraph.capture.tokens import Tokens, tokens_from_ids
from flowgraph.errors import FlowgraphError, FlowgraphWarning

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_pair(text: Any) -> bool:
    return isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text)


def example_from_text(model: Any, tokenizer: Any, text: Any, *, truncate: bool) -> Example:
    """One text, or one pair: source and target for an encoder-decoder model, two sentences otherwise."""
    if tokenizer is None:
        if getattr(model, "main_input_name", None) == "pixel_values":
            raise FlowgraphError(
                f"text: {type(model).__name__} reads images, not text; in Python pass its image processor's "
                "inputs, {'pixel_values': ...}, in place of a text"
            )
        raise FlowgraphError(
            "tokenizer: a text needs one, and with this model came none; pass tokenizer= in Python, or as model a "
            "folder that holds the tokenizer too (tokenizer.save_pretrained(folder) writes it there)"
        )
    if is_seq2seq(model):
        return _seq2seq_example(model, tokenizer, text, truncate=truncate)
    parts = text if is_pair(text) else (text,)
    for part in parts:
        _check_string(part)
    if is_pair(text):
        _check_separator(model, tokenizer)
    encoding, truncated = _encode(tokenizer, parts, max_tokens(model, tokenizer), truncate)
    tokens = _encoded_tokens(encoding, tokenizer, text)
    facts: dict[str, Any] = {"text": list(text) if is_pair(text) else text}
    if truncated:
        facts["truncated"] = truncated
    inputs = {k: torch.tensor([v]) for k, v in encoding.items() if k != "attention_mask" and k not in IGNORED}
    return Example(accepted(model, inputs), tokens, facts=facts)


def _check_separator(model: Any, tokenizer: Any) -> None:
    """A pair that nothing parts would be read as one text."""
    if tokenizer.num_special_tokens_to_add(pair=True) == tokenizer.num_special_tokens_to_add(pair=False):
        raise FlowgraphError(
            f"text: a tuple of two strings is a pair, and {type(tokenizer).__name__} puts nothing between its texts; "
            f"pass {type(model).__name__} one string, or a list for several texts"
        )


def _seq2seq_example(model: Any, tokenizer: Any, text: Any, *, truncate: bool) -> Example:
    if not is_pair(text):
        raise FlowgraphError(
            f"text: {type(model).__name__} is an encoder-decoder model; pass a pair (source, target), or "
            "generate={'max_new_tokens': 20} to let it write the target"
        )
    source, target = text
    example = source_example(model, tokenizer, source, truncate=truncate)
    _check_string(target)
    encoding, truncated = _encode(
        tokenizer, (target,), max_tokens(model, tokenizer, target=True), truncate, target=True
    )
    ids, prefixed = shifted_right(encoding["input_ids"], model, tokenizer)
    facts = example.facts | {"text": [source, target]}
    if truncated:
        facts["truncated"] = {"target": truncated} | facts.get("truncated", {})
    words = None
    if getattr(encoding, "is_fast", False):
        words = ([None] if prefixed else []) + encoding.word_ids(0)
        words = words[: len(ids)]
    return Example(
        example.inputs | {"decoder_input_ids": torch.tensor([ids])},
        example.tokens,
        tokens_from_ids(ids, tokenizer, words),
        facts,
    )


def source_example(model: Any, tokenizer: Any, source: str, *, truncate: bool) -> Example:
    """The encoder's side alone."""
    _check_string(source)
    encoding, truncated = _encode(tokenizer, (source,), max_tokens(model, tokenizer), truncate)
    facts: dict[str, Any] = {"text": source} | ({"truncated": truncated} if truncated else {})
    inputs = {"input_ids": torch.tensor([encoding["input_ids"]])}
    return Example(inputs, _encoded_tokens(encoding, tokenizer, source), facts=facts)


def shifted_right(labels: Sequence[int], model: Any, tokenizer: Any) -> tuple[list[int], bool]:
    """The decoder's inputs for a target, the start token first and the closing end token left out; and
    whether the start token had to be put there."""
    start = model.config.decoder_start_token_id
    if start is None:
        start = getattr(getattr(model, "generation_config", None), "decoder_start_token_id", None)
    if start is None:
        raise FlowgraphError(
            "model: its configuration has no decoder_start_token_id; pass ready inputs with decoder_input_ids"
        )
    ids = list(labels)
    if ids and ids[-1] == tokenizer.eos_token_id:
        ids.pop()
    starts = ids[:1] == [start]
    return (ids, False) if starts else ([start, *ids], True)


def _check_string(text: Any) -> None:
    if not isinstance(text, str):
        raise FlowgraphError(
            f"text: {text!r} is a {type(text).__name__}; pass a string, a list of strings, a pair (source, "
            "target), or a mapping of ready inputs"
        )
    if not text.strip():
        raise FlowgraphError("text: it is empty; pass at least one word")
    # Python strings can hold halves of a surrogate pair, which are no characters and have no UTF-8
    if (half := _SURROGATE.search(text)) is not None:
        raise FlowgraphError(
            f"text: holds a lone surrogate at position {half.start()}; it is no character, so replace it, for "
            "example by text.encode('utf-8', 'replace').decode()"
        )


def _encode(
    tokenizer: Any, parts: Sequence[str], limit: int | None, truncate: bool, *, target: bool = False
) -> tuple[Any, dict[str, int] | None]:
    """The encoding without pads, and what was cut: ``{"from": tokens, "to": tokens}``."""

    def call(**options: Any) -> Any:
        if target:
            return tokenizer(text_target=parts[0], verbose=False, **options)
        return tokenizer(*parts, verbose=False, **options)

    encoding = call()
    count = len(encoding["input_ids"])
    if limit is None or count <= limit:
        return encoding, None
    if not truncate:
        raise FlowgraphError(
            f"text: {count} tokens, but the model reads at most {limit}; shorten the text or pass "
            "truncate=True"
        )
    warnings.warn(f"text: cut from {count} to {limit} tokens", FlowgraphWarning, stacklevel=2)
    return call(truncation=True, max_length=limit), {"from": count, "to": limit}


def _encoded_tokens(encoding: Any, tokenizer: Any, text: Any) -> Tokens:
    ids = encoding["input_ids"]
    words = word_ids(encoding, 0) if getattr(encoding, "is_fast", False) else None
    tokens = tokens_from_ids(ids, tokenizer, words)
    if not ids or all(tokens.special or ()):
        raise FlowgraphError(
            f"text: {text!r} gives no tokens besides special ones; pass a text the tokenizer knows"
        )
    return tokens


def word_ids(encoding: Any, index: int) -> list[int | None]:
    """Word numbers; those of a second sentence count on from the first's."""
    words, sequences = encoding.word_ids(index), encoding.sequence_ids(index)
    first = [w for w, s in zip(words, sequences, strict=True) if s == 0 and w is not None]
    offset = max(first, default=-1) + 1
    return [w + offset if s == 1 and w is not None else w for w, s in zip(words, sequences, strict=True)]
