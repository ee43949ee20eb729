"""Records of real models: what a trace hands to edge kinds, with the block calls they came from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

import flowgraph as fg
from flowgraph import mixing
from flowgraph.capture.architectures import find_blocks
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
    """The block's output (T, D) by its own code, with the values of position ``zero`` set to 0 in every
    head."""
    attention = resolve(call.module, call.layout.attention)
    adapter = call.layout.adapter
    if hasattr(attention, "_split_heads"):  # Falcon, whose fused values are read through copies
        return _run_split(call, attention, zero)
    if adapter is not None:

        def zeroing(_, args, output):
            output = output.clone()
            if zero is not None:
                adapter.split(attention, output)[:, :, zero] = 0
            return output

        handle = resolve(call.module, adapter.values).register_forward_hook(zeroing)
        try:
            return _first(call.module(*call.args, **call.kwargs))
        finally:
            handle.remove()

    def forward(module, query, key, value, mask, *args, **kwargs):
        value = value.clone()
        if zero is not None:
            value[:, :, zero] = 0
        eager = next(
            sys.modules[c.__module__].eager_attention_forward
            for c in type(module).__mro__
            if hasattr(sys.modules[c.__module__], "eager_attention_forward")
        )
        return eager(module, query, key, value, mask, *args, **kwargs)

    from transformers import AttentionInterface

    AttentionInterface.register("zeroing", forward)
    config = attention.config
    before = config._attn_implementation_internal
    config._attn_implementation_internal = "zeroing"
    try:
        return _first(call.module(*call.args, **call.kwargs))
    finally:
        config._attn_implementation_internal = before


def _run_split(call: BlockCall, attention: Any, zero: int | None) -> Tensor:
    def split(fused):
        query, key, value = type(attention)._split_heads(attention, fused)
        value = value.clone()
        if zero is not None:
            value[:, zero] = 0
        return query, key, value

    attention._split_heads = split
    try:
        return _first(call.module(*call.args, **call.kwargs))
    finally:
        del attention._split_heads


def _first(output: Any) -> Tensor:
    hidden = output[0] if isinstance(output, tuple) else output
    return hidden[0] if hidden.ndim == 3 else hidden
