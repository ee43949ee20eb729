"""What one layer of a forward pass leaves behind: the input of every edge kind.

Axes: ``H`` query heads, ``Tq`` queries, ``Tk`` keys (``Tq = Tk = T`` in self-attention), ``D`` model width,
``d`` head width. A record holds one example with its pads removed, as torch tensors in the model's dtype and
on its device, and lives only until the edge kinds have reduced it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

BlockKind = Literal["post-norm", "pre-norm", "parallel", "cross"]

BEHIND_CROSS = dict.fromkeys(
    ("block_output", "output_norm", "feed_forward_output", "rerun"),
    "cross-attention stands between self-attention and the rest of the block",
)
"""Fields that the self-attention of a block with cross-attention lacks, and why: what comes after both."""


@dataclass(frozen=True)
class FrozenNorm:
    """A LayerNorm or RMSNorm whose statistics are frozen at the vectors it really saw: linear in its input.

    ``apply(v)_i = gain * (v_i - mean(v_i) if centred else v_i) / sigma_i (+ bias)``.
    """

    gain: Tensor
    """(D,), as it multiplies (``1 + weight`` where the model computes that)."""
    bias: Tensor | None
    """(D,) or None."""
    sigma: Tensor
    """(T,): sqrt(variance + eps) (LayerNorm) or sqrt(mean square + eps) (RMSNorm) of the actual input."""
    centred: bool
    """True for LayerNorm, which takes the mean away."""


@dataclass(frozen=True)
class LayerRecord:
    """One attention call and the block around it."""

    layer: int
    """Number of the attention call, from 1."""
    weights: Tensor
    """(H, Tq, Tk) attention after softmax, no dropout; exactly 0 where the key is masked."""
    visible: Tensor
    """(Tq, Tk) bool: keys that a query may see."""
    values: Tensor | None
    """(H_kv, Tk, d) value vectors, bias in; query head ``h`` reads value head ``h // (H / H_kv)``."""
    output_weight: Tensor | None
    """(H, d, D) output projection, a slice a head: ``f[h, j] = v[h, j] @ output_weight[h]``."""
    output_bias: Tensor | None
    """(D,) bias of the output projection, or None."""
    stream: Tensor | None
    """(Tq, D) the residual stream that the block reads, before any norm."""
    block: BlockKind
    attention_output: Tensor | None
    """(Tq, D) what the output projection really gave, bias in, before anything that follows."""
    block_output: Tensor | None
    """(Tq, D) what the block really returned (before the model's final norm)."""
    branch_norm: FrozenNorm | None = None
    """A norm on the attention output before it is added to the stream (Gemma 2 and 3, OLMo 2)."""
    branch_scale: Tensor | None = None
    """(D,) or scalar: a layer scale or residual multiplier on what is added, after ``branch_norm``."""
    attention_norm: FrozenNorm | None = None
    """Post-norm blocks: the norm on ``stream + attention output``."""
    attention_norm_output: Tensor | None = None
    """(Tq, D): what ``attention_norm`` really gave."""
    output_norm: FrozenNorm | None = None
    """Post-norm blocks: the norm on ``attention_norm_output + feed-forward output``."""
    feed_forward_output: Tensor | None = None
    """Post-norm blocks: (Tq, D) what the feed-forward part adds before ``output_norm``, bias in."""
    rerun: Callable[[Tensor, Tensor], Tensor] | None = None
    """``rerun(attention_output (N, D), positions (N,)) -> (N, D)``: the block's output at these positions had
    the output projection given these vectors instead, the block's input kept; a block in half precision runs in
    float32 where the vectors are. None where it cannot be had."""
    missing: dict[str, str] = field(default_factory=dict)
    """Field name -> why it is None, in words fit for a user."""
    module: Any = None
    """The attention module, for user-defined kinds; never stored."""

    @property
    def num_heads(self) -> int:
        return self.weights.shape[0]
