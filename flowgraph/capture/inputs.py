"""From what the user passes (texts, pairs, ready inputs) to examples without pads, and to batches of equal
shape.

Pads are taken out before the model runs and examples of one length run together. So a pad can be neither
node nor key, no absolute position is shifted, and a batch gives what its texts give one by one, whatever the
model.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from flowgraph.capture.survey import is_seq2seq, text_config
from flowgraph.capture.tokens import Tokens, named_tokens, special_ids, tokens_from_ids
from flowgraph.capture.vision import check_pixels, image_tokens
from flowgraph.errors import FlowgraphError, FlowgraphWarning

_IGNORED = frozenset(
    [
        "labels",
        "offset_mapping",
        "special_tokens_mask",
        "overflow_to_sample_mapping",
        "length",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "use_cache",
    ]
)
"""Entries of ready inputs that say nothing of what the model reads."""

_SIDES = {
    "attention_mask": ("input_ids", "inputs_embeds", "token_type_ids", "position_ids"),
    "decoder_attention_mask": ("decoder_input_ids", "decoder_inputs_embeds", "decoder_position_ids"),
}
"""Mask -> the inputs whose second axis it speaks of."""


@dataclass(frozen=True)
class Example:
    """One text (or image), pads removed."""

    inputs: dict[str, Tensor]
    """Keyword arguments of the model, batch axis of 1 first."""
    tokens: Tokens | None
    """The source's; None where they depend on the model's patches."""
    target: Tokens | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """What goes into ``meta``: ``text``, ``truncated``, ``generated``."""

    @property
    def longest(self) -> int:
        """Tokens of the longer side."""
        sides = [len(side) for side in (self.tokens, self.target) if side is not None]
        return max(sides, default=1)

    @property
    def shape_key(self) -> tuple:
        return tuple(sorted((name, tuple(t.shape[1:])) for name, t in self.inputs.items()))


def batches(examples: Sequence[Example], limits: Sequence[int]) -> Iterator[list[int]]:
    """Indices of examples of one shape, at most as many at a time as their ``limits`` say, in order of first
    appearance."""
    groups: dict[tuple, list[int]] = {}
    for index, example in enumerate(examples):
        groups.setdefault(example.shape_key, []).append(index)
    for group in groups.values():
        size = min(limits[index] for index in group)
        for start in range(0, len(group), size):
            yield group[start : start + size]


def stack(examples: Sequence[Example], device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """One batch; floating-point inputs in the model's precision."""
    names = examples[0].inputs
    joined = {name: torch.cat([e.inputs[name] for e in examples]).to(device) for name in names}
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in joined.items()}


def accepted(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that ``model.forward`` has a parameter for."""
    parameters = inspect.signature(model.forward).parameters
    return {name: value for name, value in inputs.items() if name in parameters}


# --- texts --------------------------------------------------------------------------------------------------


def is_pair(text: Any) -> bool:
    return isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text)


def examples_from_text(model: Any, tokenizer: Any, text: Any, *, truncate: bool) -> Example:
    """One text, or one pair: source and target for an encoder-decoder model, two sentences otherwise."""
    if tokenizer is None:
        raise FlowgraphError(
            "tokenizer: a text needs one; pass the model's tokenizer, or a model's name or folder as model"
        )
    if is_seq2seq(model):
        return _seq2seq_example(model, tokenizer, text, truncate=truncate)
    parts = text if is_pair(text) else (text,)
    for part in parts:
        _check_not_blank(part)
    encoding, truncated = _encode(tokenizer, parts, max_tokens(model, tokenizer), truncate)
    tokens = _encoded_tokens(encoding, tokenizer, text)
    facts: dict[str, Any] = {"text": list(text) if is_pair(text) else text}
    if truncated:
        facts["truncated"] = truncated
    inputs = {
        k: torch.tensor([v]) for k, v in encoding.items() if k != "attention_mask" and k not in _IGNORED
    }
    return Example(accepted(model, inputs), tokens, facts=facts)


def _seq2seq_example(model: Any, tokenizer: Any, text: Any, *, truncate: bool) -> Example:
    if not is_pair(text):
        raise FlowgraphError(
            f"text: {type(model).__name__} is an encoder-decoder model; pass a pair (source, target), or "
            "generate={'max_new_tokens': 20} to let it write the target"
        )
    source, target = text
    example = source_example(model, tokenizer, source, truncate=truncate)
    _check_not_blank(target)
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
    _check_not_blank(source)
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


def _check_not_blank(text: Any) -> None:
    if not isinstance(text, str):
        raise FlowgraphError(
            f"text: {text!r} is a {type(text).__name__}; pass a string, a list of strings, a pair (source, "
            "target), or a mapping of ready inputs"
        )
    if not text.strip():
        raise FlowgraphError("text: it is empty; pass at least one word")


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
    words = _word_ids(encoding, 0) if getattr(encoding, "is_fast", False) else None
    tokens = tokens_from_ids(ids, tokenizer, words)
    if not ids or all(tokens.special or ()):
        raise FlowgraphError(
            f"text: {text!r} gives no tokens besides special ones; pass a text the tokenizer knows"
        )
    return tokens


def _word_ids(encoding: Any, index: int) -> list[int | None]:
    """Word numbers; those of a second sentence count on from the first's."""
    words, sequences = encoding.word_ids(index), encoding.sequence_ids(index)
    first = [w for w, s in zip(words, sequences, strict=True) if s == 0 and w is not None]
    offset = max(first, default=-1) + 1
    return [w + offset if s == 1 and w is not None else w for w, s in zip(words, sequences, strict=True)]


# --- how long a text may be ---------------------------------------------------------------------------------

_NO_LIMIT = 1_000_000
"""Tokenizers without a limit say a huge number."""


def max_tokens(model: Any, tokenizer: Any, *, target: bool = False) -> int | None:
    """The most tokens the model has positions for (and its tokenizer was made for); None without a limit."""
    limits = [position_limit(model, target=target)]
    if not target:
        limits.append(getattr(tokenizer, "model_max_length", None))
    known = [int(limit) for limit in limits if limit is not None and 0 < limit < _NO_LIMIT]
    return min(known, default=None)


def position_limit(model: Any, *, target: bool = False) -> int | None:
    """Positions of the model. RoBERTa's start after the pad id, which costs as many rows of its table."""
    config = text_config(model)
    if target and getattr(config, "max_target_positions", None):
        return config.max_target_positions
    limit = getattr(config, "max_position_embeddings", None)
    if limit is None or limit < 0:
        return None
    return limit - _rows_before_first_position(model)


def _rows_before_first_position(model: Any) -> int:
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, torch.nn.Embedding):
            # offsets past a pad row of its own (RoBERTa and kin) are marked by that padding index
            return 0 if table.padding_idx is None else table.padding_idx + 1
    return 0


# --- ready inputs -------------------------------------------------------------------------------------------


def examples_from_inputs(
    model: Any, tokenizer: Any, inputs: Mapping[str, Any], *, writes: bool = False
) -> list[Example]:
    """One example a row of the batch, pads of either side taken out. ``writes``: the model generates the
    target."""
    tensors = {
        name: _as_tensor(name, value)
        for name, value in inputs.items()
        if name not in _IGNORED and value is not None
    }
    if not tensors:
        raise FlowgraphError("text: the mapping of ready inputs is empty; pass at least input_ids")
    sizes = {name: t.shape[0] for name, t in tensors.items()}
    if len(set(sizes.values())) != 1 or 0 in sizes.values():
        raise FlowgraphError(f"text: the inputs do not agree on the size of the batch: {sizes}")
    _check_names(model, tensors)
    if not writes:
        _check_decoder_inputs(model, tensors)
    if "pixel_values" in tensors:
        check_pixels(tensors["pixel_values"])
    for name in ("input_ids", "decoder_input_ids"):
        if name in tensors and (tensors[name].ndim != 2 or tensors[name].shape[1] == 0):
            raise FlowgraphError(
                f"text: {name} has shape {tuple(tensors[name].shape)}; pass (batch, tokens) with at least "
                "one token"
            )
    keep = _rows_to_keep(model, tokenizer, tensors)
    words = getattr(inputs, "word_ids", None) if getattr(inputs, "is_fast", False) else None
    return [
        _ready_example(model, tokenizer, tensors, keep, index, inputs if words else None)
        for index in range(next(iter(sizes.values())))
    ]


def _as_tensor(name: str, value: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise FlowgraphError(
            f"text: input {name!r} is not a tensor ({error}); texts of unequal length need padding=True in "
            "the tokenizer"
        ) from None
    if tensor.ndim == 0:
        raise FlowgraphError(f"text: input {name!r} has no axes; give it a batch axis first")
    return tensor


def _check_names(model: Any, tensors: dict[str, Tensor]) -> None:
    """Take out the sentence types a tokenizer gives and the model has no use for; refuse other strangers."""
    strangers = tensors.keys() - accepted(model, tensors).keys() - _SIDES.keys()
    if "token_type_ids" in strangers:
        del tensors["token_type_ids"]
        strangers.discard("token_type_ids")
    if strangers:
        raise FlowgraphError(
            f"text: {type(model).__name__} takes no input called {', '.join(sorted(strangers))}; leave it out"
        )


def _check_decoder_inputs(model: Any, tensors: Mapping[str, Tensor]) -> None:
    if is_seq2seq(model) and not {"decoder_input_ids", "decoder_inputs_embeds"} & tensors.keys():
        raise FlowgraphError(
            f"text: {type(model).__name__} is an encoder-decoder model; ready inputs need decoder_input_ids "
            "as well"
        )


def _rows_to_keep(model: Any, tokenizer: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Input name -> (B, T) bool: what is no pad."""
    keep: dict[str, Tensor] = {}
    for mask_name, names in _SIDES.items():
        present = [name for name in names if name in tensors]
        mask = tensors.get(mask_name)
        if not present:
            continue
        if mask is None:
            mask = _mask_from_pads(model, tokenizer, tensors, present[0])
        if mask is None:
            continue
        _check_mask(mask_name, mask)
        for name in present:
            if tensors[name].shape[:2] == mask.shape:
                keep[name] = mask.bool()
    return keep


def _mask_from_pads(model: Any, tokenizer: Any, tensors: Mapping[str, Tensor], name: str) -> Tensor | None:
    """A mask where none was passed: pads at either end, by an id that means nothing else."""
    ids = tensors[name]
    if name != "input_ids":
        return None
    config = text_config(model)
    pad = getattr(config, "pad_token_id", None) if tokenizer is None else tokenizer.pad_token_id
    others = {getattr(config, f"{role}_token_id", None) for role in ("bos", "eos", "sep", "cls")}
    if tokenizer is not None:
        others = {getattr(tokenizer, f"{role}_token_id", None) for role in ("bos", "eos", "sep", "cls")}
    if pad is None or pad in others or ids.is_floating_point():
        return None
    real = ids != pad
    seen_left, seen_right = real.cumsum(1) > 0, real.flip(1).cumsum(1).flip(1) > 0
    return seen_left & seen_right


def _check_mask(name: str, mask: Tensor) -> None:
    if mask.ndim != 2:
        raise FlowgraphError(
            f"text: {name} has shape {tuple(mask.shape)}; pass (batch, tokens) with 1 for tokens, 0 for pads"
        )
    for row, kept in enumerate(mask.bool()):
        where = kept.nonzero()[:, 0]
        if len(where) == 0:
            raise FlowgraphError(
                f"text: {name} masks every token of example {row}; leave it out of the batch"
            )
        if len(where) != int(where[-1]) - int(where[0]) + 1:
            raise FlowgraphError(
                f"text: {name} of example {row} has a hole between its first and its last token; only pads "
                "at either end can be left out"
            )


def _ready_example(
    model: Any,
    tokenizer: Any,
    tensors: Mapping[str, Tensor],
    keep: Mapping[str, Tensor],
    index: int,
    encoding: Any,
) -> Example:
    own = {
        name: t[index : index + 1, keep[name][index]] if name in keep else t[index : index + 1]
        for name, t in tensors.items()
        if name not in _SIDES
    }
    words = None
    if encoding is not None and "input_ids" in own:
        words = _word_ids(encoding, index)
        if "input_ids" in keep:
            words = [w for w, kept in zip(words, keep["input_ids"][index].tolist(), strict=True) if kept]
    source = _ready_tokens(own, "input_ids", "inputs_embeds", tokenizer, words)
    target = _ready_tokens(own, "decoder_input_ids", "decoder_inputs_embeds", tokenizer, None)
    facts: dict[str, Any] = {"text": None}
    if "pixel_values" in own and source is None:
        source, image = image_tokens(model.config, own["pixel_values"])
        facts |= image
    elif source is not None and source.ids is not None:
        _check_length(model, len(source))
        if tokenizer is not None:
            facts["text"] = tokenizer.decode([i for i in source.ids if i not in special_ids(tokenizer)])
    return Example(own, source, target, facts)


def _check_length(model: Any, count: int) -> None:
    limit = position_limit(model)
    if limit is not None and count > limit:
        raise FlowgraphError(f"text: {count} tokens, but the model has {limit} positions; shorten the input")


def _ready_tokens(
    own: Mapping[str, Tensor], ids: str, embeds: str, tokenizer: Any, words: Sequence[int | None] | None
) -> Tokens | None:
    if ids in own:
        return tokens_from_ids(own[ids][0].tolist(), tokenizer, words)
    if embeds in own:
        return named_tokens([str(k) for k in range(own[embeds].shape[1])])
    return None
