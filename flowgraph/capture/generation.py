"""Let the model write, and make prompt and continuation one text to trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from flowgraph.capture.inputs import Example, position_limit
from flowgraph.capture.survey import is_seq2seq, text_config
from flowgraph.capture.tokens import tokens_from_ids
from flowgraph.errors import FlowgraphError


def continued(model: Any, tokenizer: Any, example: Example, options: dict[str, Any]) -> Example:
    """``example`` with what the model wrote: behind the prompt of a decoder, as target of an encoder-decoder
    model.

    ``meta["generated"]`` is ``[first, last + 1]`` position of what was written. The forward pass over the
    result is teacher-forced: position t - 1 gives the scores token t was chosen by.
    """
    _check_options(model, options)
    if is_seq2seq(model):
        return _with_target(model, tokenizer, example, options)
    if "input_ids" not in example.inputs:
        raise FlowgraphError("generate: the inputs hold no input_ids to continue")
    prompt = example.inputs["input_ids"]
    _check_room(model, prompt.shape[1], options)
    written = _generate(model, example, options)
    if written.shape[1] <= prompt.shape[1]:
        raise FlowgraphError("generate: the model wrote nothing; raise max_new_tokens")
    words = None if example.tokens is None else example.tokens.word_ids
    return replace(
        example,
        inputs={"input_ids": written.cpu()},
        tokens=_continued_tokens(written[0].tolist(), tokenizer, words),
        facts=example.facts | {"generated": [prompt.shape[1], written.shape[1]]},
    )


def _with_target(model: Any, tokenizer: Any, example: Example, options: dict[str, Any]) -> Example:
    written = _generate(model, example, options).cpu()
    if written.shape[1] < 2:
        raise FlowgraphError("generate: the model wrote nothing; raise max_new_tokens")
    return replace(
        example,
        inputs=example.inputs | {"decoder_input_ids": written},
        target=tokens_from_ids(written[0].tolist(), tokenizer),
        facts=example.facts | {"generated": [1, written.shape[1]]},
    )


def _continued_tokens(ids: list[int], tokenizer: Any, prompt_words: Any) -> Any:
    """Tokens whose words count on from the prompt's; the continuation's own come from the marks in its
    pieces."""
    tokens = tokens_from_ids(ids, tokenizer)
    if prompt_words is None or tokens.word_ids is None:
        return tokens
    start = len(prompt_words)
    offset = max((w for w in prompt_words if w is not None), default=-1) + 1
    first = next((w for w in tokens.word_ids[start:] if w is not None), 0)
    before = next((w for w in reversed(tokens.word_ids[:start]) if w is not None), None)
    joined = 1 if before is not None and first == before else 0  # the continuation begins inside a word
    rest = tuple(None if w is None else w - first + offset - joined for w in tokens.word_ids[start:])
    return replace(tokens, word_ids=(*prompt_words, *rest))


def _check_options(model: Any, options: dict[str, Any]) -> None:
    if not hasattr(model, "generate") or not model.can_generate():
        raise FlowgraphError(
            f"generate: {type(model).__name__} cannot write; load the model with a language head, for "
            "example by AutoModelForCausalLM"
        )
    if options.get("num_return_sequences", 1) != 1:
        raise FlowgraphError("generate: num_return_sequences must be 1; trace each sequence on its own")


def _check_room(model: Any, prompt: int, options: dict[str, Any]) -> None:
    limit, new = position_limit(model), options.get("max_new_tokens")
    if limit is not None and isinstance(new, int) and prompt + new > limit:
        raise FlowgraphError(
            f"generate: a prompt of {prompt} tokens and {new} new ones are more than the model's {limit} "
            "positions; lower max_new_tokens or shorten the prompt"
        )


def _generate(model: Any, example: Example, options: dict[str, Any]) -> Tensor:
    config = text_config(model)
    settings = {"pad_token_id": getattr(config, "pad_token_id", None), **options}
    if settings["pad_token_id"] is None:
        end = getattr(config, "eos_token_id", None)
        settings["pad_token_id"] = end[0] if isinstance(end, list) else end
    inputs = {n: t.to(model.device) for n, t in example.inputs.items() if n != "token_type_ids"}
    if "input_ids" in inputs:  # no pads are left, and generate cannot know
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    settings["return_dict_in_generate"] = False
    return model.generate(**inputs, **settings)
