"""From what happened in one block to the layer records of its examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from flowgraph.capture.interface import AttentionCall, Frame
from flowgraph.capture.layout import Layout, finish_block, resolve
from flowgraph.capture.record import BEHIND_CROSS, FrozenNorm, LayerRecord
from flowgraph.capture.verify import check_norm, check_record
from flowgraph.errors import FlowgraphError

Part = Literal["self", "cross"]
NormRole = Literal["branch_norm", "attention_norm", "output_norm"]


@dataclass(frozen=True)
class Projection:
    """W_O, a slice a head: ``weight`` (H, d, D), ``bias`` (D,) or None."""

    weight: Tensor
    bias: Tensor | None


def read_linear(module: nn.Module, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """``(in, out)`` weight and bias of a linear map, however the module stores it.

    ``Linear`` holds (out, in) and GPT-2's ``Conv1D`` (in, out). Anything else (adapters, packed low-bit
    weights) is asked by its activations: unit vectors in, rows of the weight out.
    """
    weight: Any = getattr(module, "weight", None)
    bias: Any = getattr(module, "bias", None)
    plain = isinstance(weight, Tensor) and weight.is_floating_point()
    if isinstance(module, nn.Linear) and plain and weight.shape == (module.out_features, module.in_features):
        return weight.T, bias
    if type(module).__name__ == "Conv1D" and plain:
        return weight, bias
    return _probe_linear(module, like)


def _probe_linear(module: nn.Module, like: Tensor) -> tuple[Tensor, Tensor | None]:
    width = getattr(module, "in_features", None)
    if width is None:
        raise FlowgraphError(
            f"model: the output projection is a {type(module).__name__}, whose weights flowgraph cannot read"
        )
    zero = torch.zeros(1, 1, width, dtype=like.dtype, device=like.device)
    bias = module(zero)[0, 0]
    weight = module(torch.eye(width, dtype=like.dtype, device=like.device)[None])[0] - bias
    return weight, bias if bool(bias.any()) else None


def read_projection(module: nn.Module, heads: int, head_width: int, like: Tensor) -> Projection:
    """W_O of ``module`` split by head; heads lie one after the other in its input."""
    weight, bias = read_linear(module, like)
    if weight.shape[0] != heads * head_width:
        raise FlowgraphError(
            f"model: the output projection reads {weight.shape[0]} numbers, but {heads} heads of width "
            f"{head_width} give {heads * head_width}"
        )
    return Projection(weight.reshape(heads, head_width, -1), bias)  # (H, d, D)


def freeze_norm(norm: Any, seen: Tensor) -> FrozenNorm:
    """``norm`` linear in its input, its statistics those of the vectors it read, ``seen`` (T, D).

    LayerNorm takes the mean away and divides by the standard deviation, RMSNorm divides by the root mean
    square; Gemma stores the gain less 1. Statistics in float64.
    """
    centred = "RMSNorm" not in type(norm).__name__
    eps = next(getattr(norm, n) for n in ("eps", "variance_epsilon", "epsilon") if hasattr(norm, n))
    exact = seen.double()
    mean_square = exact.var(-1, unbiased=False) if centred else exact.square().mean(-1)
    weight = norm.weight if norm.weight is not None else torch.ones(seen.shape[-1], device=seen.device)
    gain = 1.0 + weight.float() if _stores_gain_less_one(norm) else weight
    return FrozenNorm(
        gain=gain.detach(),
        bias=_detached(getattr(norm, "bias", None)),
        sigma=torch.sqrt(mean_square + float(eps)),
        centred=centred,
    )


def _stores_gain_less_one(norm: Any) -> bool:
    return type(norm).__name__.startswith("Gemma")


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


def visible_keys(mask: Tensor | None, example: int, queries: int, keys: int, device: torch.device) -> Tensor:
    """(Tq, Tk) bool from an additive (or bool) mask: True where any head may look."""
    if mask is None:
        return torch.ones(queries, keys, dtype=torch.bool, device=device)
    own = mask[example if mask.shape[0] > 1 else 0, :, -queries:, :keys]  # (H or 1, Tq or 1, Tk)
    allowed = own if own.dtype == torch.bool else own > torch.finfo(own.dtype).min / 2
    return allowed.any(0).expand(queries, keys)


class FrameReader:
    """The layer records of one frame: what the examples share is read once."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._crossed = any(self.part(call) == "cross" for call in frame.calls)
        self._finish = _Finish(frame.block, frame.layout, frame.stream.dtype)

    def part(self, call: AttentionCall) -> Part:
        frame = self._frame
        if call.module is resolve(frame.block, frame.layout.attention):
            return "self"
        if call.module is resolve(frame.block, frame.layout.cross_attention):
            return "cross"
        raise FlowgraphError(
            f"model: {type(call.module).__name__} in {frame.at.path} ({type(frame.block).__name__}) is not "
            "an attention that flowgraph knows in this block"
        )

    def record(self, call: AttentionCall, number: int, example: int) -> LayerRecord:
        """The record of one example; ``number`` is the attention call's own, from 1."""
        part = self.part(call)
        _, heads, queries, keys = call.weights.shape
        projection, reason = self._projection(call, part, heads)
        fields = self._cross_fields() if part == "cross" else self._self_fields(example)
        fields["missing"] |= {} if projection else {"output_weight": reason}
        return LayerRecord(
            layer=number,
            weights=call.weights[example],
            visible=visible_keys(call.mask, example, queries, keys, call.weights.device),
            values=call.values[example],
            output_weight=projection.weight if projection else None,
            output_bias=projection.bias if projection else None,
            attention_output=self._pick(
                "outputs", "cross_projection" if part == "cross" else "projection", example
            ),
            module=call.module,
            **fields,
        )

    def verify(self, record: LayerRecord, example: int) -> None:
        """Raise ``FlowgraphError`` where the record does not explain what the model computed."""
        check_record(record)
        roles: tuple[NormRole, ...] = ("branch_norm", "attention_norm", "output_norm")
        for role in roles:
            norm: FrozenNorm | None = getattr(record, role)
            seen, given = self._pick("inputs", role, example), self._pick("outputs", role, example)
            if norm is not None and seen is not None and given is not None:
                check_norm(record.layer, role, norm, seen, given)

    # --- parts of a record ---

    def _pick(self, side: Literal["inputs", "outputs"], role: str, example: int) -> Tensor | None:
        taken = self._frame.taken(getattr(self._frame, side), role)
        return None if taken is None else taken[example]

    def _projection(self, call: AttentionCall, part: Part, heads: int) -> tuple[Projection | None, str]:
        """W_O, or the reason why it cannot be had."""
        layout = self._frame.layout
        if "output_weight" in layout.missing:
            return None, layout.missing["output_weight"]
        module = resolve(self._frame.block, layout.projection if part == "self" else layout.cross_projection)
        try:
            return read_projection(module, heads, call.values.shape[-1], self._frame.stream), ""
        except FlowgraphError as error:
            return None, str(error).removeprefix("model: ")

    def _cross_fields(self) -> dict[str, Any]:
        why = "the residual stream belongs to the decoder's own tokens, not to those cross-attention reads"
        names = ("stream", "block_output", "rerun", "attention_norm", "output_norm")
        return {"block": "cross", "stream": None, "block_output": None, "missing": dict.fromkeys(names, why)}

    def _self_fields(self, example: int) -> dict[str, Any]:
        frame, layout = self._frame, self._frame.layout
        stream = frame.stream[example]
        fields: dict[str, Any] = {
            "block": layout.kind,
            "stream": stream,
            "block_output": None,
            "branch_norm": self._frozen("branch_norm", example),
            "branch_scale": _as_tensor(resolve(frame.block, layout.branch_scale), stream),
            "attention_norm": self._frozen("attention_norm", example),
            "attention_norm_output": self._pick("outputs", "attention_norm", example),
        }
        missing = dict(layout.missing)
        if self._crossed:
            missing |= BEHIND_CROSS
        else:
            assert frame.output is not None
            fields |= {
                "block_output": frame.output[example],
                "output_norm": self._frozen("output_norm", example),
                "feed_forward_output": self._pick("outputs", "feed_forward", example),
                "rerun": self._finish.rerun(stream),
            }
        return fields | {name: None for name in missing if name in fields} | {"missing": missing}

    def _frozen(self, role: NormRole, example: int) -> FrozenNorm | None:
        seen = self._pick("inputs", role, example)
        if seen is None:
            return None
        return freeze_norm(resolve(self._frame.block, getattr(self._frame.layout, role)), seen)


def _as_tensor(scale: Any, like: Tensor) -> Tensor | None:
    if scale is None:
        return None
    return torch.as_tensor(scale, dtype=like.dtype, device=like.device).detach()


class _Finish(nn.Module):
    """What follows attention in a block, in half precision or widened to float32.

    Outputs that differ by one token's values can be so near that half precision tells them apart by its rounding
    alone. Weights are widened in copies, which live as long as this does; the block keeps its own.
    """

    def __init__(self, block: nn.Module, layout: Layout, dtype: torch.dtype) -> None:
        super().__init__()
        self.block = block
        self._layout = layout
        self._half = dtype.itemsize < 4
        self._widened: dict[str, Tensor] | None = None

    def forward(self, stream: Tensor, attention_output: Tensor) -> Tensor:
        return finish_block(self.block, self._layout, stream, attention_output)

    def rerun(self, stream: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """See :attr:`LayerRecord.rerun`."""

        @torch.no_grad()
        def rerun(attention_output: Tensor, positions: Tensor) -> Tensor:
            # a batch of one text with N tokens: what follows attention works on each token alone
            widen = self._half and attention_output.dtype.itemsize >= 4
            dtype = torch.float32 if widen else stream.dtype
            read = (stream[positions][None].to(dtype), attention_output[None].to(dtype))
            return (functional_call(self, self._wide(), read) if widen else self(*read))[0]

        return rerun

    def _wide(self) -> dict[str, Tensor]:
        if self._widened is None:
            self._widened = {f"block.{name}": t.float() for name, t in rest_weights(self.block, self._layout)}
        return self._widened


def rest_weights(block: nn.Module, layout: Layout) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of every weight in half precision that follows attention in ``block``."""
    norms = (layout.branch_norm, layout.attention_norm, layout.output_norm)
    scales = (layout.branch_scale, layout.output_scale)
    found = [resolve(block, path) for path in (*layout.feed_forward, *norms, *scales)]
    rest = {
        id(tensor) for part in found for tensor in (_weights(part) if isinstance(part, nn.Module) else [part])
    }
    for name, tensor in chain(
        block.named_parameters(remove_duplicate=False), block.named_buffers(remove_duplicate=False)
    ):
        if id(tensor) in rest and tensor.is_floating_point() and tensor.dtype.itemsize < 4:
            yield name, tensor


def _weights(module: nn.Module) -> Iterator[Tensor]:
    return chain(module.parameters(), module.buffers())
