"""Ready model inputs: a mapping of tensors, one example a row, pads of either side taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from flowgraph.capture.inputs import IGNORED, INDICES, Example, accepted, check_indices, position_limit
from flowgraph.capture.sound import check_mels
from flowgraph.capture.survey import is_seq2seq, stack_config
from flowgraph.capture.texts import word_ids
from flowgraph.capture.tokens import Tokens, named_tokens, special_ids, tokens_from_ids
from flowgraph.capture.vision import INTERPOLATE, check_pixels, image_tokens
from flowgraph.errors import FlowgraphError

_MEASURED = ("pixel_values", "input_features", "inputs_embeds", "decoder_inputs_embeds")
"""Inputs that are numbers in themselves, not rows of a table."""

_SIDES = {
    "attention_mask": ("input_ids", "inputs_embeds", "token_type_ids", "position_ids"),
    "decoder_attention_mask": ("decoder_input_ids", "decoder_inputs_embeds", "decoder_position_ids"),
}
"""Mask -> the inputs whose second axis it speaks of."""


def examples_from_inputs(
    model: Any, tokenizer: Any, inputs: Mapping[str, Any], *, writes: bool = False
) -> list[Example]:
    """One example a row of the batch, pads of either side taken out. ``writes``: the model generates the
    target."""
    tensors = {
        name: _as_tensor(name, value)
        for name, value in inputs.items()
        if name not in IGNORED and name != INTERPOLATE and value is not None
    }
    any_size = _read_interpolate(model, inputs.get(INTERPOLATE))
    if not tensors:
        raise FlowgraphError("text: the mapping of ready inputs is empty; pass at least input_ids")
    sizes = {name: t.shape[0] for name, t in tensors.items()}
    if len(set(sizes.values())) != 1 or 0 in sizes.values():
        raise FlowgraphError(f"text: the inputs do not agree on the size of the batch: {sizes}")
    _check_names(model, tensors)
    if not writes:
        _check_decoder_inputs(model, tensors)
    _check_floating(tensors)
    if "pixel_values" in tensors:
        check_pixels(stack_config(model), tensors["pixel_values"], any_size=any_size)
    if "input_features" in tensors:
        check_mels(stack_config(model), tensors["input_features"])
    for name in ("input_ids", "decoder_input_ids"):
        if name in tensors and (tensors[name].ndim != 2 or tensors[name].shape[1] == 0):
            raise FlowgraphError(
                f"text: {name} has shape {tuple(tensors[name].shape)}; pass (batch, tokens) with at least "
                "one token"
            )
    _read_indices(tensors)
    _check_lengths(tensors)
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


def _read_interpolate(model: Any, value: Any) -> bool:
    """Whether an image of another size was asked for, of a model that can stretch its positions."""
    if value is not None and not isinstance(value, bool):
        raise FlowgraphError(f"text: {INTERPOLATE} is {value!r}; pass True or False")
    if value and not accepted(model, {INTERPOLATE: value}):
        raise FlowgraphError(
            f"text: {type(model).__name__} takes no input called {INTERPOLATE}; leave it out"
        )
    return bool(value)


def _check_floating(tensors: Mapping[str, Tensor]) -> None:
    for name in _MEASURED:
        if name in tensors and not tensors[name].is_floating_point():
            raise FlowgraphError(
                f"text: {name} has dtype {str(tensors[name].dtype).removeprefix('torch.')}; pass floating-point "
                "numbers (float32), scaled as the model was trained"
            )


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


def _read_indices(tensors: dict[str, Tensor]) -> None:
    """Make every table index int64; refuse one that is no whole number."""
    for name in INDICES:
        if name not in tensors:
            continue
        dtype = tensors[name].dtype
        if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
            raise FlowgraphError(
                f"text: {name} has dtype {str(dtype).removeprefix('torch.')}; pass whole numbers (int64)"
            )
        tensors[name] = tensors[name].long()


def _check_lengths(tensors: Mapping[str, Tensor]) -> None:
    """Whatever speaks of the tokens one by one has as many entries as there are tokens."""
    for mask_name, names in _SIDES.items():
        ids, embeds, *others = names
        if ids in tensors and embeds in tensors:
            raise FlowgraphError(f"text: both {ids} and {embeds} are given; pass one of them")
        first = ids if ids in tensors else embeds
        if first not in tensors:
            continue
        if tensors[first].ndim != (2 if first == ids else 3):
            raise FlowgraphError(
                f"text: {first} has shape {tuple(tensors[first].shape)}; pass (batch, tokens, width)"
            )
        expected = tuple(tensors[first].shape[:2])
        if mask_name in tensors:
            _check_mask_axes(mask_name, tensors[mask_name])
        for name in (mask_name, *others):
            if name in tensors and tuple(tensors[name].shape) != expected:
                raise FlowgraphError(
                    f"text: {name} has shape {tuple(tensors[name].shape)}, but {first} has shape "
                    f"{tuple(tensors[first].shape)}; pass one entry for each token, {expected}"
                )


def _rows_to_keep(model: Any, tokenizer: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Input name -> (B, T) bool: what is no pad."""
    keep: dict[str, Tensor] = {}
    for mask_name, names in _SIDES.items():
        present = [name for name in names if name in tensors]
        if not present:
            continue
        mask = tensors.get(mask_name)
        if mask is None:
            mask = _mask_from_pads(model, tokenizer, tensors[present[0]], present[0])
        if mask is None:
            continue
        _check_mask(mask_name, mask)
        keep |= {name: mask.bool() for name in present}
    return keep


def _mask_from_pads(model: Any, tokenizer: Any, ids: Tensor, name: str) -> Tensor | None:
    """A mask where none was passed: pads at either end, by an id that means nothing else there.

    A decoder may start with the pad id itself; the last of the pads in front is then its start.
    """
    named = stack_config(model) if tokenizer is None else tokenizer
    pad = getattr(named, "pad_token_id", None)
    if not name.endswith("input_ids") or pad is None or pad in _ids(named, "bos", "eos", "sep", "cls"):
        return None
    real = ids != pad
    if name == "decoder_input_ids" and pad in _ids(model.config, "decoder_start"):
        real[:, :-1] |= real[:, 1:].cumsum(1).eq(1) & real[:, 1:]
    after, before = real.cumsum(1) > 0, real.flip(1).cumsum(1).flip(1) > 0
    return after & before


def _ids(named: Any, *roles: str) -> set[Any]:
    """The ids a tokenizer or configuration gives to these roles; a role may have several."""
    ids: set[Any] = set()
    for role in roles:
        value: Any = getattr(named, f"{role}_token_id", None)
        ids.update(value if isinstance(value, (list, tuple)) else [value])
    return ids


def _check_mask_axes(name: str, mask: Tensor) -> None:
    if mask.ndim != 2:
        raise FlowgraphError(
            f"text: {name} has shape {tuple(mask.shape)}; pass (batch, tokens) with 1 for tokens, 0 for pads"
        )


def _check_mask(name: str, mask: Tensor) -> None:
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
    check_indices(model, own)
    words = None
    if encoding is not None and "input_ids" in own:
        words = word_ids(encoding, index)
        if "input_ids" in keep:
            words = [w for w, kept in zip(words, keep["input_ids"][index].tolist(), strict=True) if kept]
    source = _ready_tokens(own, "input_ids", "inputs_embeds", tokenizer, words)
    target = _ready_tokens(own, "decoder_input_ids", "decoder_inputs_embeds", tokenizer, None)
    facts: dict[str, Any] = {"text": None}
    if "pixel_values" in own and source is None:
        source, image = image_tokens(stack_config(model), own["pixel_values"])
        facts |= image
    elif source is not None and source.ids is not None:
        _check_length(model, len(source))
        if tokenizer is not None:
            facts["text"] = tokenizer.decode([i for i in source.ids if i not in special_ids(tokenizer)])
    if target is not None and target.ids is not None:
        _check_length(model, len(target), target=True)
    return Example(own, source, target, facts)


def _check_length(model: Any, count: int, *, target: bool = False) -> None:
    limit = position_limit(model, target=target)
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
