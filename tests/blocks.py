"""Small transformer blocks written out, each with the record it leaves: what edge kinds are tested on without
a model library. Every bias, gain and scale is random, or checks of them could not fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from flowgraph.capture.record import FrozenNorm, LayerRecord


@dataclass(frozen=True)
class Shape:
    """One kind of block; see ``SHAPES``."""

    block: str = "post-norm"
    rms: bool = False
    heads: int = 4
    value_heads: int = 4
    tokens: int = 6
    width: int = 12
    head_width: int = 3
    mask: str = "full"
    branch_norm: bool = False
    branch_scale: bool = False
    output_bias: bool = True


SHAPES = {
    "post-norm": Shape(),
    "post-norm more tokens than head width": Shape(tokens=11),
    "post-norm causal": Shape(mask="causal", tokens=9),
    "pre-norm": Shape("pre-norm"),
    "pre-norm rms grouped causal": Shape("pre-norm", rms=True, value_heads=2, mask="causal", tokens=9),
    "pre-norm rms multi-query window": Shape("pre-norm", rms=True, value_heads=1, mask="window", tokens=9),
    "pre-norm branch norm": Shape("pre-norm", rms=True, branch_norm=True, mask="causal", output_bias=False),
    "pre-norm layer norm on the branch": Shape("pre-norm", branch_norm=True, branch_scale=True),
    "pre-norm layer scale": Shape("pre-norm", branch_scale=True),
    "parallel": Shape("parallel", mask="causal"),
    "parallel scaled": Shape("parallel", branch_scale=True, value_heads=2),
    "parallel branch norm": Shape("parallel", branch_norm=True, rms=True),
    "one token": Shape(tokens=1),
    "wide heads": Shape("pre-norm", heads=2, value_heads=1, head_width=16, tokens=5),
}


@dataclass(frozen=True)
class Norm:
    gain: Tensor
    bias: Tensor | None
    rms: bool

    def frozen(self, seen: Tensor) -> FrozenNorm:
        spread = seen.square().mean(-1) if self.rms else seen.var(-1, unbiased=False)
        return FrozenNorm(self.gain, self.bias, (spread + 1e-5).sqrt(), centred=not self.rms)

    def __call__(self, x: Tensor) -> Tensor:
        centred = x if self.rms else x - x.mean(-1, keepdim=True)
        normed = self.gain * centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return normed if self.bias is None else normed + self.bias


@dataclass(frozen=True)
class Block:
    record: LayerRecord
    run: Callable[[Tensor], Tensor]
    """``run(values (H_kv, T, d)) -> (T, D)``: the whole block again, with these values."""


def make_block(shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float64) -> Block:
    """A block of this shape with random weights and a random input."""
    draw = _Draw(seed, dtype)
    tokens, width = shape.tokens, shape.width
    stream = draw(tokens, width)
    visible = _mask(shape.mask, tokens)
    weights = draw(shape.heads, tokens, tokens).masked_fill(~visible, -torch.inf).softmax(-1)
    values = draw(shape.value_heads, tokens, shape.head_width)
    output_weight = draw(shape.heads, shape.head_width, width)
    output_bias = draw(width) if shape.output_bias else None
    branch_norm = draw.norm(width, shape.rms) if shape.branch_norm else None
    scale = draw(width) if shape.branch_scale else None
    first, second = draw.norm(width, shape.rms), draw.norm(width, shape.rms)
    inner, outer, outer_bias = draw(width, 2 * width), draw(2 * width, width), draw(width)

    def feed_forward(x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x @ inner) @ outer + outer_bias

    def branch(attention_output: Tensor) -> Tensor:
        added = attention_output if branch_norm is None else branch_norm(attention_output)
        return added if scale is None else added * scale

    def finish(x: Tensor, attention_output: Tensor) -> Tensor:
        after = x + branch(attention_output)
        if shape.block == "post-norm":
            normed = first(after)
            return second(normed + feed_forward(normed))
        if shape.block == "parallel":
            return after + feed_forward(second(x))
        return after + feed_forward(second(after))

    def attend(values: Tensor) -> Tensor:
        each = values.repeat_interleave(shape.heads // shape.value_heads, 0)
        attended = torch.einsum("hij,hjd,hdm->im", weights, each, output_weight)
        return attended if output_bias is None else attended + output_bias

    attention_output = attend(values)
    block_output = finish(stream, attention_output)
    fields = {}
    if shape.block == "post-norm":
        seen = stream + branch(attention_output)
        normed = first(seen)
        added = feed_forward(normed)
        fields = {
            "attention_norm": first.frozen(seen),
            "attention_norm_output": normed,
            "output_norm": second.frozen(normed + added),
            "feed_forward_output": added,
        }
    record = LayerRecord(
        layer=1,
        weights=weights,
        visible=visible,
        values=values,
        output_weight=output_weight,
        output_bias=output_bias,
        stream=stream,
        block=shape.block,
        attention_output=attention_output,
        block_output=block_output,
        branch_norm=None if branch_norm is None else branch_norm.frozen(attention_output),
        branch_scale=scale,
        rerun=lambda outputs, positions: finish(stream[positions], outputs.to(dtype)),
        **fields,
    )
    return Block(record, lambda changed: finish(stream, attend(changed)))


class _Draw:
    """Random tensors in a row."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._dtype = dtype

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator, dtype=torch.float64).to(self._dtype)

    def norm(self, width: int, rms: bool) -> Norm:
        return Norm(1 + 0.3 * self(width), None if rms else self(width), rms)


def _mask(name: str, tokens: int) -> Tensor:
    visible = torch.ones(tokens, tokens, dtype=torch.bool)
    if name == "full":
        return visible
    return visible.tril() if name == "causal" else visible.tril() & visible.triu(-4)
