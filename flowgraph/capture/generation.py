"""Let the model write, and make prompt and continuation one text to trace."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from flowgraph.capture.inputs import Example, position_limit
from flowgraph.capture.survey import is_seq2seq, stack_config
from flowgraph.capture.tokens import tokens_from_ids
from flowgraph.errors import FlowgraphError

_COUNTS = ("max_new_tokens", "max_length", "min_new_tokens", "min_length", "num_beams")
"""Options that are whole numbers."""

_INPUTS = (
    "inputs",
    "input_ids",
    "inputs_embeds",
    "input_features",
    "pixel_values",
    "attention_mask",
    "position_ids",
    "decoder_input_ids",
    "decoder_inputs_embeds",
    "decoder_attention_mask",
    "encoder_outputs",
    "past_key_values",
)
"""Arguments of ``model.generate`` that are what it reads, not how it writes."""


def read_options(generate: Mapping[str, Any] | int | None) -> dict[str, Any] | None:
    """Options of ``model.generate`` from a mapping or a number of new tokens; None for None.

    Raises ``FlowgraphError`` for what no model takes; what one model refuses is known when it writes.
    """
    if generate is None:
        return None
    if isinstance(generate, int) and not isinstance(generate, bool):
        generate = {"max_new_tokens": generate}
    if not isinstance(generate, Mapping):
        raise FlowgraphError(
            f"generate: {generate!r} is neither a number of tokens nor a mapping of options; pass for example "
            "{'max_new_tokens': 20}"
        )
    for name, value in generate.items():
        if not isinstance(name, str):
            raise FlowgraphError(
                f"generate: the option {name!r} is no name; pass names such as 'max_new_tokens'"
            )
        if name in _INPUTS:
            raise FlowgraphError(
                f"generate: {name!r} is an input of the model; pass it as text, among ready inputs"
            )
        if name in ("trust_remote_code", "custom_generate"):
            raise FlowgraphError(
                f"generate: {name!r} runs code from the hub, which flowgraph does not; leave it out"
            )
        if name in _COUNTS and value is not None:
            _check_count(name, value)
    if generate.get("num_return_sequences") not in (None, 1):
        raise FlowgraphError(
            f"generate: num_return_sequences={generate['num_return_sequences']!r} must be 1; trace each sequence on "
            "its own"
        )
    return dict(generate)


def _check_count(name: str, value: Any) -> None:
    least = 0 if name.startswith("min") else 1
    if isinstance(value, bool) or not isinstance(value, int):
        raise FlowgraphError(f"generate: {name}={value!r} is no whole number; pass an int, at least {least}")
    if value < least:
        raise FlowgraphError(f"generate: {name}={value} is too small; it must be at least {least}")


def continued(model: Any, tokenizer: Any, example: Example, options: dict[str, Any]) -> Example:
    """``example`` with what the model wrote: behind the prompt of a decoder, as target of an encoder-decoder
    model.

    ``meta["generated"]`` is ``[first, last + 1]`` position of what was written. The forward pass over the
    result is teacher-forced: position t - 1 gives the scores token t was chosen by.
    """
    _check_can_write(model)
    if is_seq2seq(model):
        return _with_target(model, tokenizer, example, options)
    if "input_ids" not in example.inputs:
        raise FlowgraphError("generate: the inputs hold no input_ids to continue")
    prompt = example.inputs["input_ids"]
    _check_room(model, prompt.shape[1], options)
    written = _generate(model, tokenizer, example, options)
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
    start = _Start()
    criteria = [*(options.get("stopping_criteria") or ()), start]
    written = _generate(model, tokenizer, example, options, stopping_criteria=criteria).cpu()
    if written.shape[1] <= start.length:
        raise FlowgraphError("generate: the model wrote nothing; raise max_new_tokens")
    return replace(
        example,
        inputs=example.inputs | {"decoder_input_ids": written},
        target=tokens_from_ids(written[0].tolist(), tokenizer),
        facts=example.facts | {"generated": [start.length, written.shape[1]]},
    )


class _Start:
    """A stopping criterion that never stops; notes how many tokens the decoder began with.

    One, or with Whisper also those of the language and the task.
    """

    length = 0

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        self.length = self.length or input_ids.shape[1] - 1
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


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


def _check_can_write(model: Any) -> None:
    if not hasattr(model, "generate") or not model.can_generate():
        raise FlowgraphError(
            f"generate: {type(model).__name__} cannot write; load the model with a language head, for "
            "example by AutoModelForCausalLM"
        )


def _check_room(model: Any, prompt: int, options: dict[str, Any]) -> None:
    limit, new = position_limit(model), options.get("max_new_tokens")
    if limit is not None and isinstance(new, int) and prompt + new > limit:
        raise FlowgraphError(
            f"generate: a prompt of {prompt} tokens and {new} new ones are more than the model's {limit} "
            "positions; lower max_new_tokens or shorten the prompt"
        )


def _generate(model: Any, tokenizer: Any, example: Example, options: dict[str, Any], **more: Any) -> Tensor:
    config = stack_config(model)
    settings = {"pad_token_id": getattr(config, "pad_token_id", None), **options}
    if settings["pad_token_id"] is None:
        end = getattr(config, "eos_token_id", None)
        settings["pad_token_id"] = end[0] if isinstance(end, list) else end
    inputs = {n: t.to(model.device) for n, t in example.inputs.items() if n != "token_type_ids"}
    if "input_ids" in inputs:  # no pads are left, and generate cannot know
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    settings["return_dict_in_generate"] = False
    if "stop_strings" in options:
        settings.setdefault("tokenizer", tokenizer)
    if "force_unique_generate_call" in inspect.signature(model.generate).parameters:
        settings["force_unique_generate_call"] = True  # or Whisper keeps the start of what it wrote to itself
    if getattr(config, "num_decoder_layers", None) not in (None, getattr(config, "num_layers", None)):
        settings.setdefault("use_cache", False)  # T5's cache has as many layers as its encoder
    try:
        return model.generate(**inputs, **(settings | more))
    except Exception as error:  # of many sorts, raised wherever an option is first looked at
        raise FlowgraphError(_explain(error, options)) from None


def _explain(error: Exception, options: Mapping[str, Any]) -> str:
    """What the model objects to, after the options it names; after all that were not checked where it names
    none."""
    text = " ".join(str(error).split())
    named = [n for n in options if n in text] or [n for n in options if n not in _COUNTS] or options
    what = ", ".join(f"{name}={options[name]!r}" for name in named) or "the model's own options"
    return (
        f"generate: with {what} the model cannot write ({type(error).__name__}: {text[:300]}); change or leave out "
        "what it names (transformers.GenerationConfig says what each option takes)"
    )
