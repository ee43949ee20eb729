"""What a model is made of, before it runs: its blocks, which stack each is in, what cannot be traced and
why."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from torch import nn

from flowgraph.capture.architectures import BLOCKS, REFUSED, find_blocks
from flowgraph.capture.layout import Layout, NoAttention, resolve
from flowgraph.errors import FlowgraphError

Stack = Literal["self", "encoder", "decoder"]


class HybridModelError(FlowgraphError):
    """The model has layers without attention; ``hybrid="skip"`` passes over them."""


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
    calls_per_layer: int | None = None
    """Where layers share their weights (ALBERT): attention calls in one layer of the model's own counting."""
    calls: int = 0
    """Attention calls in one forward pass; 0 where it is one a block."""

    def number(self, block: Block, call: int) -> int:
        """The model's own number of the layer in which attention call ``call`` (from 1) happens."""
        return block.number if self.calls_per_layer is None else (call - 1) // self.calls_per_layer + 1

    @property
    def num_calls(self) -> int:
        """Self-attention calls in one forward pass."""
        return self.calls or len(self.blocks)


def stack_config(model: Any) -> Any:
    """The part of the configuration that speaks of what the model reads, pictures or text; all of it where there
    is one part."""
    if getattr(model, "main_input_name", None) == "pixel_values":
        return getattr(model.config, "vision_config", model.config)
    try:
        return model.config.get_text_config()
    except ValueError:  # encoder and decoder with a configuration each
        return model.config


def is_seq2seq(model: Any) -> bool:
    """True where encoder and decoder are both in ``model`` (an encoder taken out of one keeps its config)."""
    takes_both = "decoder_input_ids" in inspect.signature(model.forward).parameters
    return bool(model.config.is_encoder_decoder) and takes_both


def survey(model: Any, hybrid: str = "error") -> Survey:
    """Raises ``FlowgraphError`` for a model no graph of ours shows, with the reason."""
    if hybrid not in ("error", "skip"):
        raise FlowgraphError(f"hybrid: {hybrid!r} is no rule; pass 'error' or 'skip'")
    reason = REFUSED.get(model.config.model_type) or _why_not_this_one(model.config)
    if reason is not None:
        raise FlowgraphError(f"model: {type(model).__name__} cannot be traced: {reason}")
    found = list(find_blocks(model))
    if not any(isinstance(entry, Layout) for _, _, entry in found):
        raise FlowgraphError(_why_no_blocks(model))
    seq2seq = is_seq2seq(model)
    _check_stacks(model, [path for path, _, _ in found], seq2seq)
    blocks, mixers = _numbered(model, found, seq2seq)
    if mixers and hybrid == "error":
        _refuse_hybrid(model, mixers)
    calls_per_layer = getattr(model.config, "inner_group_num", None)
    return Survey(
        blocks=tuple(blocks),
        skipped=tuple(number for number, _ in mixers),
        crossed=any(block.layout.cross_projection for block in blocks),
        seq2seq=seq2seq,
        calls_per_layer=calls_per_layer,
        calls=0 if calls_per_layer is None else calls_per_layer * model.config.num_hidden_layers,
    )


def _why_not_this_one(config: Any) -> str | None:
    """A reason that holds for some models of a family only."""
    if config.model_type == "deberta-v2" and getattr(config, "conv_kernel_size", 0) > 0:
        return "a convolution after its first layer mixes tokens in a way no attention graph shows"
    return None


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
    """One stack of layers, or an encoder's and a decoder's; a model of several towers leaves the choice
    open."""
    stacks = list(dict.fromkeys(re.sub(r"\.\d+(?=\.|$)", "", path) for path in paths))
    if len(stacks) > (2 if seq2seq else 1):
        towers = " or ".join(dict.fromkeys(f"model.{_tower(model, stack)}" for stack in stacks))
        raise FlowgraphError(
            f"model: {type(model).__name__} has {len(stacks)} stacks of layers ({', '.join(stacks)}); pass "
            f"the one to trace, {towers}"
        )


def _tower(model: Any, stack: str) -> str:
    """The innermost model that holds the whole stack, or the stack itself where none does."""
    from transformers import PreTrainedModel

    steps = stack.split(".")
    for length in range(len(steps) - 1, 0, -1):
        path = ".".join(steps[:length])
        if isinstance(resolve(model, path), PreTrainedModel):
            return path
    return stack


def _refuse_hybrid(model: Any, mixers: list[tuple[int, str]]) -> NoReturn:
    kinds = " and ".join(dict.fromkeys(mixer for _, mixer in mixers))
    layers = ", ".join(str(number) for number, _ in mixers)
    raise HybridModelError(
        f"model: {type(model).__name__} has layers without attention ({kinds}: layer {layers}), which mix "
        "tokens in a way no attention graph shows; pass hybrid='skip' to pass over them"
    )


def _why_no_blocks(model: nn.Module) -> str:
    name = type(model).__name__
    if not any("attention" in type(m).__name__.lower() for m in model.modules()):
        return f"model: {name} has no attention, so there is nothing to trace"
    block = _likely_block(model)
    return (
        f"model: {name} is not among the architectures flowgraph knows: there is no layout for its blocks"
        f"{f' ({block})' if block else ''}, which says where they keep their values, projections and norms; "
        f"'flowgraph models --list' shows the {len(known_families())} families that have one"
    )


def _likely_block(model: nn.Module) -> str | None:
    """The class of the outermost repeated modules that hold attention."""
    for layers in model.modules():
        if isinstance(layers, nn.ModuleList):
            for block in layers:
                if any("attention" in type(m).__name__.lower() for m in block.modules()):
                    return type(block).__name__
    return None


def known_families() -> list[str]:
    """Model families in the table, as transformers names their folders."""
    return sorted({key.split(".")[0] for key in BLOCKS})
