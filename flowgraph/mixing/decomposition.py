"""Do the parts make up what the model really computed? The check behind ``verify=True``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flowgraph.errors import FlowgraphError
from flowgraph.mixing.parts import Parts, branch_route, double, parts_of, stream_route

if TYPE_CHECKING:
    from flowgraph.capture.record import LayerRecord

ROUNDINGS = 64
"""Differences allowed, in units of the model's rounding times the largest term that was added up."""


def check_decomposition(record: LayerRecord, *, roundings: float = ROUNDINGS) -> dict[str, float]:
    """Compare every vector the record can rebuild from parts and biases with what the module gave.

    ``attention output``: ``sum_j sum_h A f + b_O``. ``stream``: stream and parts, biases in, run through the
    rest of the block, against the block's output (pre-norm, parallel). ``attention norm``, ``output norm``:
    the parts of ``norm-residual-ln`` and ``globenc`` with the biases, and for the second the feed-forward
    output, through their norms (post-norm). Fields that are None are passed over.

    Returns the largest difference of each, relative to the largest term added up. Raises
    :class:`~flowgraph.errors.FlowgraphError` where one exceeds ``roundings`` times the rounding of the
    model's dtype: the model does something between values and output that flowgraph does not know of.
    """
    eps = max(torch.finfo(t.dtype).eps for t in (record.weights, record.values) if t is not None)
    found: dict[str, float] = {}
    for name, rebuilt, actual, scale in _pairs(record):
        worst = ((rebuilt - double(actual)).abs().amax(-1) / scale).cpu()
        found[name] = float(worst.max())
        if not found[name] <= roundings * eps:
            position = int(worst.argmax())
            raise FlowgraphError(
                f"verify: layer {record.layer}, position {position}: the {name} rebuilt from its parts is "
                f"off by {found[name]:.3g} of its largest term, where rounding gives {roundings * eps:.3g}: "
                "edge kinds made of values would be wrong for this model: use edges='attention'"
            )
    return found


def _pairs(record: LayerRecord) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Name, rebuilt (T, D), actual (T, D), and (T,) the size of the terms added up."""
    if record.values is None or record.output_weight is None:
        return
    attended = parts_of(record, "projection").total()
    if record.output_bias is not None:
        attended = attended + double(record.output_bias)
    if record.attention_output is not None:
        yield "attention output", attended, record.attention_output, _largest(attended, *_terms(record))
    if record.stream is None or record.block == "cross":
        return
    if record.block == "post-norm":
        yield from _post_norm_pairs(record)
    elif record.rerun is not None and record.block_output is not None:
        positions = torch.arange(len(record.stream), device=record.stream.device)
        output = double(record.rerun(attended.to(record.weights), positions))
        yield "block output", output, record.block_output, _largest(output, double(record.stream))


def _post_norm_pairs(record: LayerRecord) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    if record.attention_norm is None or record.attention_norm_output is None:
        return
    first = stream_route(record, "attention-norm")
    biases = first.whole(_added_biases(record))
    parts = parts_of(record, "attention-norm")
    rebuilt = parts.total() + biases
    scale = _largest(rebuilt, _own(parts), parts.total() - _own(parts))
    yield "attention norm's output", rebuilt, record.attention_norm_output, scale
    if record.output_norm is None or record.feed_forward_output is None or record.block_output is None:
        return
    second = stream_route(replace(record, attention_norm=None), "output-norm")
    parts = parts_of(record, "output-norm")
    feed_forward = double(record.feed_forward_output)
    rebuilt = parts.total() + second.whole(biases + feed_forward)
    scale = _largest(rebuilt, parts.total(), second.parts(feed_forward))
    yield "block's output", rebuilt, record.block_output, scale


def _added_biases(record: LayerRecord) -> Tensor:
    """(T, D): what the branch adds to the stream beside the parts."""
    assert record.stream is not None
    nothing = torch.zeros_like(double(record.stream))
    bias = nothing if record.output_bias is None else nothing + double(record.output_bias)
    return branch_route(record).whole(bias)


def _own(parts: Parts) -> Tensor:
    assert parts.own is not None
    return parts.own


def _terms(record: LayerRecord) -> list[Tensor]:
    """The heads' vectors summed over keys, one (T, D) a head: what is added up in the output projection."""
    parts = parts_of(record, "projection")
    values = double(record.values if record.values is not None else record.weights)
    group = record.num_heads // values.shape[0]
    return [double(record.weights[h]) @ values[h // group] @ parts.output[h] for h in range(record.num_heads)]


def _largest(*terms: Tensor) -> Tensor:
    """(T,): the largest entry of each row in any of the terms."""
    stacked = torch.stack([term.abs().amax(-1) for term in terms]).amax(0)
    return stacked.clamp(min=torch.finfo(stacked.dtype).tiny)
