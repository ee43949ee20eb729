"""Blocks of a model and where things are in them.

A *block* is the module around one attention: its residual stream goes in, its output comes out. A
:class:`Layout` says where inside a block things are, as attribute paths, and in which order the block adds
and normalises. From it follow the whole :class:`~flowgraph.capture.record.LayerRecord` and the re-run of a
block. Which layout belongs to which class is the table in :mod:`flowgraph.capture.architectures`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flowgraph.capture.record import BlockKind

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Adapter:
    """For attention that does not go through transformers' table of attention functions.

    The block is called with ``output_attentions=True``, and the weights are the second thing its attention
    module returns.
    """

    values: str
    """Path from the block to the module whose output holds the values."""
    split: Callable[[Any, Tensor], Tensor]
    """``split(attention module, that output (B, T, ...)) -> (B, H_kv, T, d)``."""
    in_mask: str | None = None
    """A bias the model has put into the mask already, by the keyword it comes in again. Fused attention
    reads the mask alone, while the module's eager code adds the bias once more: set to zero unless the model
    itself runs eager."""


@dataclass(frozen=True)
class Layout:
    """Where things are in a block. Paths are attributes from the block down, joined by dots.

    With ``x`` the stream, ``o`` what the projection gave, ``F`` the feed-forward steps in turn:

    - post-norm: ``h = attention_norm(x + o)``, output ``output_norm(h + F(h))``
    - pre-norm: ``h = x + branch_scale * branch_norm(o)``, output ``h + output_scale * F(h)``
    - parallel: output ``x + o + F(x)``
    """

    kind: BlockKind
    attention: str
    """The module that calls the attention function."""
    projection: str
    """W_O."""
    feed_forward: tuple[str, ...]
    """Steps applied one after the other; a pre-norm block's own norm is the first."""
    attention_norm: str | None = None
    output_norm: str | None = None
    branch_norm: str | None = None
    branch_scale: str | None = None
    output_scale: str | None = None
    cross_attention: str | None = None
    """In a decoder: the module that calls the attention function on the encoder's states."""
    cross_projection: str | None = None
    adapter: Adapter | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    """Field of the record -> why such a block cannot give it."""

    @property
    def watched(self) -> dict[str, str]:
        """Role -> path of the modules whose inputs or outputs go into the record."""
        roles = {
            "projection": self.projection,
            "attention_norm": self.attention_norm,
            "output_norm": self.output_norm,
            "branch_norm": self.branch_norm,
            "cross_projection": self.cross_projection,
            "values": self.adapter.values if self.adapter else None,
        }
        if self.kind == "post-norm":
            roles["feed_forward"] = self.feed_forward[-1]
        return {role: path for role, path in roles.items() if path is not None}


@dataclass(frozen=True)
class NoAttention:
    """A block that mixes tokens without attention; no graph of ours shows how."""

    mixer: str
    """What it mixes with, in words: ``a state-space layer``."""


def resolve(block: Any, path: str | None) -> Any:
    """The attribute at ``path`` under ``block`` (a number is an index); None where a step is absent."""
    if path is None:
        return None
    for step in path.split("."):
        block = block[int(step)] if step.lstrip("-").isdigit() else getattr(block, step, None)
        if block is None:
            return None
    return block


def first(output: Any) -> Tensor:
    """The hidden states in what a module returned: itself, or the first of a tuple."""
    return output[0] if isinstance(output, tuple) else output


def run_feed_forward(block: nn.Module, layout: Layout, hidden: Tensor) -> Tensor:
    """``F(hidden)``, shapes (B, N, D)."""
    for path in layout.feed_forward:
        hidden = first(resolve(block, path)(hidden))
    return hidden


def finish_block(block: nn.Module, layout: Layout, stream: Tensor, attention_output: Tensor) -> Tensor:
    """The block's output for these streams and attention outputs, all (B, N, D)."""
    if layout.kind == "parallel":
        return stream + attention_output + run_feed_forward(block, layout, stream)
    if layout.kind == "post-norm":
        hidden = resolve(block, layout.attention_norm)(stream + attention_output)
        return resolve(block, layout.output_norm)(hidden + run_feed_forward(block, layout, hidden))
    branch = attention_output
    if (norm := resolve(block, layout.branch_norm)) is not None:
        branch = norm(branch)
    if (scale := resolve(block, layout.branch_scale)) is not None:
        branch = branch * scale
    hidden = stream + branch
    added = run_feed_forward(block, layout, hidden)
    if (scale := resolve(block, layout.output_scale)) is not None:
        added = added * scale
    return hidden + added
