"""What a model is made of, before it runs: its blocks, which stack each is in, what cannot be traced and why."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from flowgraph.capture.architectures import BLOCKS, REFUSED, find_blocks
from flowgraph.capture.layout import Layout, NoAttention
from flowgraph.errors import FlowgraphError, FlowgraphWarning

Stack = Literal["self", "encoder", "decoder"]


@dataclass(frozen=True)
class Block:
    """One block that attends."""

    path: str
    module: nn.Module
    layout: Layout
    stack: Stack
    """``self`` in a plain stack of layers."""
    number: int
    """The model's own number of this layer, from 1 in its stack."""


@dataclass(frozen=True)
class Survey:
    """The blocks of a model, in order."""

    blocks: tuple[Block, ...]
    skipped: tuple[int, ...] = ()
    """Numbers of the layers without attention that are passed over."""
    crossed: bool = False
    """True where some block has cross-attention."""
    seq2seq: bool = False
    """True where encoder and decoder are both in the model."""
    shared: int = field(default=1)
    """Attention calls in one layer of the model's own counting (ALBERT's inner groups)."""


def text_config(model: Any) -> Any:
    """The part of the configuration that speaks of text; all of it where there is one part."""
    try:
        return model.config.get_text_config()
    except ValueError:  # encoder and decoder with a configuration each
        return model.config


def survey(model: Any, hybrid: str = "error") -> Survey:
    """Raises ``FlowgraphError`` for a model no graph of ours shows, with the reason."""
    if hybrid not in ("error", "skip"):
        raise FlowgraphError(f"hybrid: {hybrid!r} is no rule; pass 'error' or 'skip'")
    reason = REFUSED.get(model.config.model_type)
    if reason is not None:
        raise FlowgraphError(f"model: {type(model).__name__} cannot be traced: {reason}")
    found = list(find_blocks(model))
    if not any(isinstance(entry, Layout) for _, _, entry in found):
        raise FlowgraphError(_why_no_blocks(model))
    seq2seq = bool(model.config.is_encoder_decoder)
    _check_stacks(model, [path for path, _, _ in found], seq2seq)
    blocks, mixers = _numbered(model, found, seq2seq)
    if mixers:
        _check_hybrid(model, mixers, hybrid)
    return Survey(
        blocks=tuple(blocks),
        skipped=tuple(number for number, _ in mixers),
        crossed=any(block.layout.cross_projection for block in blocks),
        seq2seq=seq2seq,
        shared=getattr(model.config, "inner_group_num", 1),
    )


def _numbered(
    model: Any, found: list[tuple[str, nn.Module, Layout | NoAttention]], seq2seq: bool
) -> tuple[list[Block], list[tuple[int, str]]]:
    crossed = any(isinstance(entry, Layout) and entry.cross_projection for _, _, entry in found)
    inside_encoder = {id(m) for m in model.get_encoder().modules()} if seq2seq else set()
    blocks, mixers = [], []
    count: dict[Stack, int] = {}
    for path, module, entry in found:
        stack: Stack = "decoder" if seq2seq or crossed else "self"
        if id(module) in inside_encoder:
            stack = "encoder"
        count[stack] = count.get(stack, 0) + 1
        if isinstance(entry, Layout):
            blocks.append(Block(path, module, entry, stack, count[stack]))
        else:
            mixers.append((count[stack], entry.mixer))
    return blocks, mixers


def _check_stacks(model: Any, paths: list[str], seq2seq: bool) -> None:
    """One stack of layers, or an encoder's and a decoder's; a model of several towers leaves the choice open."""
    stacks = list(dict.fromkeys(re.sub(r"\.\d+(?=\.|$)", "", path) for path in paths))
    if len(stacks) > (2 if seq2seq else 1):
        towers = " or ".join(f"model.{stack.rsplit('.', 2)[0]}" for stack in stacks)
        raise FlowgraphError(
            f"model: {type(model).__name__} has {len(stacks)} stacks of layers ({', '.join(stacks)}); pass the one "
            f"to trace, {towers}"
        )


def _check_hybrid(model: Any, mixers: list[tuple[int, str]], hybrid: str) -> None:
    kinds = " and ".join(dict.fromkeys(mixer for _, mixer in mixers))
    layers = ", ".join(str(number) for number, _ in mixers)
    if hybrid == "error":
        raise FlowgraphError(
            f"model: {type(model).__name__} has layers without attention ({kinds}: layer {layers}), which mix tokens in a "
            "way no attention graph shows; pass hybrid='skip' to pass over them"
        )
    warnings.warn(
        f"layers {layers} mix tokens by {kinds} and are passed over: the graph does not show what they do",
        FlowgraphWarning,
        stacklevel=4,
    )


def _why_no_blocks(model: nn.Module) -> str:
    name = type(model).__name__
    if not any("attention" in type(m).__name__.lower() for m in model.modules()):
        return f"model: {name} has no attention, so there is nothing to trace"
    return (
        f"model: {name} is not among the architectures flowgraph knows, so it could misread where its blocks keep "
        f"their values, projections and norms; known are {', '.join(known_families())}"
    )


def known_families() -> list[str]:
    """Model families in the table, as transformers names their folders."""
    return sorted({key.split(".")[0] for key in BLOCKS})


def hooked(survey: Survey) -> Iterator[tuple[str, nn.Module, Layout]]:
    for block in survey.blocks:
        yield block.path, block.module, block.layout
