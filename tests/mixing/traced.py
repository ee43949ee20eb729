"""Records of real models: what a trace hands to edge kinds, with the block calls they came from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

import flowgraph as fg
from flowgraph import mixing
from flowgraph.capture.architectures import find_blocks
from flowgraph.capture.interface import eager_forward_of
from flowgraph.capture.layout import Layout, resolve
from flowgraph.capture.record import LayerRecord
from tests import models

FAMILIES = [f for f in models.FAMILIES if f not in models.HYBRIDS]


@dataclass
class BlockCall:
    """One call of a block: its module, what it was called with, and what its feed-forward part saw and
    gave."""

    module: Any
    layout: Layout
    args: tuple
    kwargs: dict[str, Any]
    seen: list[Tensor] = field(default_factory=list)
    given: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Traced:
    model: Any
    records: list[LayerRecord]
    blocks: list[BlockCall]
    """One a record of self-attention, in the same order."""

    @property
    def own(self) -> list[tuple[LayerRecord, BlockCall]]:
        """Records of self-attention with their block calls."""
        return list(zip([r for r in self.records if r.block != "cross"], self.blocks, strict=True))


def collect(model: Any, tokenizer: Any, text: Any) -> Traced:
    """Trace with a kind that keeps its records."""
    records: list[LayerRecord] = []

    def keep(record: LayerRecord) -> Tensor:
        records.append(record)
        return record.weights

    mixing.register("keep", keep, cross=True)
    try:
        with _noting_blocks(model) as blocks:
            trace = fg.trace(model, tokenizer, text, edges="keep")
    finally:
        mixing.unregister("keep")
    arrays = trace["keep"]
    stacks = arrays if hasattr(arrays, "values") else {"self": arrays}
    total = sum(len(a) for a in stacks.values())
    own = sum(len(a) for name, a in stacks.items() if name != "cross")
    # a trace may run the model more than once; the last pass counts
    return Traced(model, records[-total:], blocks[-own:])


@contextmanager
def _noting_blocks(model: Any) -> Iterator[list[BlockCall]]:
    calls: list[BlockCall] = []
    handles = []
    for _, module, layout in find_blocks(model):
        if not isinstance(layout, Layout):
            continue

        def before(module, args, kwargs, layout=layout):
            calls.append(BlockCall(module, layout, args, dict(kwargs)))

        def saw(_, args):
            calls[-1].seen.append(args[0])

        def gave(_, args, output):
            # a copy, as some blocks add to it in place
            calls[-1].given.append((output[0] if isinstance(output, tuple) else output).clone())

        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(resolve(module, layout.feed_forward[0]).register_forward_pre_hook(saw))
        handles.append(resolve(module, layout.feed_forward[-1]).register_forward_hook(gave))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


@lru_cache(maxsize=4)
def traced(family: str, dtype: torch.dtype = torch.float32, length: int = 9) -> Traced:
    """A tiny perturbed model of ``family`` on random inputs."""
    model, tokenizer = models.tiny(family)
    inputs = models.model_inputs(family, length=length)
    inputs = {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}
    return collect(model.to(dtype), tokenizer, inputs)


@lru_cache(maxsize=1)
def embedded() -> Traced:
    """The embedded model on a sentence of more tokens than a head is wide."""
    model, tokenizer = models.embedded()
    text = (
        "The keys that the old man left on the kitchen table are still missing, so nobody who lives there "
        "could lock the door behind them when they went out to look for him in the town."
    )
    return collect(model, tokenizer, text)


# --- a block run again ----------------------------------------------------------------------------------


def run_block(call: BlockCall, zero: int | None) -> Tensor:
    """The block's output (T, D) by its own code, with the values of position ``zero`` set to 0 in every head."""
    attention = resolve(call.module, call.layout.attention)
    with _zeroing(call, attention, zero):
        return _first(call.module(*call.args, **call.kwargs))


def _zeroing(call: BlockCall, attention: Any, zero: int | None) -> AbstractContextManager[None]:
    if hasattr(attention, "_split_heads"):
        return _zeroing_split(attention, zero)
    if call.layout.adapter is not None:
        return _zeroing_output(call, attention, zero)
    return _zeroing_argument(attention, zero)


@contextmanager
def _zeroing_split(attention: Any, zero: int | None) -> Iterator[None]:
    """Falcon, whose fused values are read through copies."""

    def split(fused):
        query, key, value = type(attention)._split_heads(attention, fused)
        return query, key, _without(value, zero, axis=1)

    attention._split_heads = split
    try:
        yield
    finally:
        del attention._split_heads


@contextmanager
def _zeroing_output(call: BlockCall, attention: Any, zero: int | None) -> Iterator[None]:
    """Attention outside transformers' table: its values are the output of a module."""

    def hook(_, args, output):
        output = output.clone()
        if zero is not None:
            call.layout.adapter.split(attention, output)[:, :, zero] = 0  # a view of it
        return output

    handle = resolve(call.module, call.layout.adapter.values).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _zeroing_argument(attention: Any, zero: int | None) -> Iterator[None]:
    """Attention of transformers' table: its values are an argument of the attention function."""
    from transformers import AttentionInterface

    def forward(module, query, key, value, *args, **kwargs):
        return eager_forward_of(module)(module, query, key, _without(value, zero, axis=2), *args, **kwargs)

    AttentionInterface.register("zeroing", forward)
    config, before = attention.config, attention.config._attn_implementation_internal
    config._attn_implementation_internal = "zeroing"
    try:
        yield
    finally:
        config._attn_implementation_internal = before


def _without(values: Tensor, zero: int | None, axis: int) -> Tensor:
    return values if zero is None else values.index_fill(axis, torch.tensor(zero), 0)


def _first(output: Any) -> Tensor:
    hidden = output[0] if isinstance(output, tuple) else output
    return hidden[0] if hidden.ndim == 3 else hidden
