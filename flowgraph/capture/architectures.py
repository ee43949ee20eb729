"""What differs between model families, as a table keyed by block class; all else is common code.

A *block* is the module around one attention: its residual stream goes in, its output comes out. A
:class:`Layout` says where inside a block things are, as attribute paths, and in which order the block adds and
normalises. From it follow the whole :class:`~flowgraph.capture.record.LayerRecord` and the re-run of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flowgraph.capture.record import BlockKind

if TYPE_CHECKING:
    from torch import Tensor, nn


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

    @property
    def watched(self) -> dict[str, str]:
        """Role -> path of the modules whose inputs or outputs go into the record."""
        roles = {
            "projection": self.projection,
            "attention_norm": self.attention_norm,
            "output_norm": self.output_norm,
            "branch_norm": self.branch_norm,
            "cross_projection": self.cross_projection,
        }
        if self.kind == "post-norm":
            roles["feed_forward"] = self.feed_forward[-1]
        return {role: path for role, path in roles.items() if path is not None}


def resolve(block: Any, path: str | None) -> Any:
    """The attribute at ``path`` under ``block``; None where a step is absent."""
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


# --- the table ------------------------------------------------------------------------------------------

_BERT = Layout(
    kind="post-norm",
    attention="attention.self",
    projection="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    feed_forward=("intermediate", "output.dense"),
    output_norm="output.LayerNorm",
    cross_attention="crossattention.self",
    cross_projection="crossattention.output.dense",
)
_DISTILBERT = Layout(
    kind="post-norm",
    attention="attention",
    projection="attention.out_lin",
    attention_norm="sa_layer_norm",
    feed_forward=("ffn",),
    output_norm="output_layer_norm",
)
_ALBERT = Layout(
    kind="post-norm",
    attention="attention",
    projection="attention.dense",
    attention_norm="attention.LayerNorm",
    feed_forward=("ffn", "activation", "ffn_output"),
    output_norm="full_layer_layer_norm",
)

LayoutEntry = Layout | Callable[[Any], Layout]

BLOCKS: dict[str, LayoutEntry] = {
    "albert.AlbertLayer": _ALBERT,
    "bert.BertLayer": _BERT,
    "distilbert.TransformerBlock": _DISTILBERT,
    "electra.ElectraLayer": _BERT,
    "roberta.RobertaLayer": _BERT,
}
"""``family.Class`` of a block -> its layout, or a function of the block where its configuration decides."""


def block_key(cls: type) -> str | None:
    """``bert.BertLayer`` for a class of ``transformers.models.bert``; None for a class from elsewhere."""
    parts = cls.__module__.split(".")
    return (
        f"{parts[2]}.{cls.__name__}" if parts[:2] == ["transformers", "models"] and len(parts) > 2 else None
    )


def layout_of(module: nn.Module) -> Layout | None:
    """The layout of ``module`` if it, or a class it derives from, is a block of the table."""
    for cls in type(module).__mro__:
        entry = BLOCKS.get(block_key(cls) or "")
        if entry is not None:
            layout = entry if isinstance(entry, Layout) else entry(module)
            return _without_absent_cross(module, layout)
    return None


def _without_absent_cross(block: nn.Module, layout: Layout) -> Layout:
    if resolve(block, layout.cross_attention) is None:
        return replace(layout, cross_attention=None, cross_projection=None)
    return layout


def find_blocks(model: nn.Module) -> Iterator[tuple[str, nn.Module, Layout]]:
    """Path, module and layout of every block of ``model``, in order."""
    for name, module in model.named_modules():
        layout = layout_of(module)
        if layout is not None:
            yield name, module, layout
