"""From a trace of a forward pass to a layered graph.

A trace is read by its mapping of arrays and its tokens alone; nothing here knows of models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flowgraph.arrays import check_finite
from flowgraph.capacity import apply_sign_rule, capacities, check_residual, row_mass
from flowgraph.errors import FlowgraphError, check_trace
from flowgraph.graph import Block, LayeredGraph, Level
from flowgraph.stack_graph import levels_like, rows_off, stack_graph, warn_rows

_TOKEN_FACTS = ("tokens", "raw_tokens", "special", "word_ids")
_COPIED = (
    "model",
    "model_type",
    "text",
    "dtype",
    "heads",
    "layers",
    "causal",
    "versions",
    "tokenizer",
    "image",
    "generated",
    "truncated",
    "layer_numbers",
    "skipped_layers",
)


def graph_from_trace(
    trace: Any,
    *,
    edges: str | None = None,
    head: int | None = None,
    part: str | None = None,
    residual: Any = "auto",
    normalize: bool = True,
    negative: str = "error",
) -> LayeredGraph:
    """The graph of one edge kind; see :meth:`flowgraph.graph.LayeredGraph.from_trace`."""
    check_trace(trace)
    kind = _choose_kind(trace, edges)
    facts = trace.meta.get("kinds", {}).get(kind, {})
    if isinstance(residual, str):
        if residual != "auto":
            raise FlowgraphError(
                f"residual: {residual!r} is not a rule; pass 'auto', a share between 0 and 1, or None"
            )
        residual = None if facts.get("holds_residual", False) else 0.5
    rules: dict[str, Any] = {
        "residual": check_residual(residual),
        "normalize": normalize,
        "negative": negative,
    }
    meta = {key: trace.meta[key] for key in _COPIED if key in trace.meta} | {"edges": kind, "head": head}
    meta["holds_residual"] = bool(facts.get("holds_residual", False))
    arrays = trace[kind]
    if not isinstance(arrays, Mapping):
        if part is not None:
            raise FlowgraphError(
                f"part: {part!r} asked for, but the model has one stack of layers; leave it out"
            )
        return _stack_of(trace, arrays, _TOKEN_FACTS, facts, rules, meta)
    if part is None and "encoder" not in {*arrays, *facts.get("absent", {})}:
        part = "decoder"
        meta["cross"] = "left out: the model has no encoder whose tokens could be inputs"
    if part is not None:
        return _part_graph(trace, arrays, part, facts, rules, meta)
    _check_whole(kind, arrays, facts)
    mixing = {name: _one_matrix(array, head, kind) for name, array in arrays.items()}
    return _encoder_decoder_graph(trace, mixing, meta, facts, rules)


def _stack_of(
    trace: Any,
    array: Any,
    names: Sequence[str],
    facts: Mapping[str, Any],
    rules: dict[str, Any],
    meta: dict[str, Any],
) -> LayeredGraph:
    """A plain stack; ``names`` are those of the trace's fields that tell its tokens."""
    return stack_graph(
        _one_matrix(array, meta["head"], meta["edges"]),
        levels_like(*(getattr(trace, name, None) for name in names)),
        **rules,
        warn=bool(facts.get("rows_sum_to_one", meta["edges"] == "attention")),
        dtype=str(trace.meta.get("dtype", "float32")),
        meta=meta,
    )


def _part_graph(
    trace: Any,
    arrays: Mapping[str, Any],
    part: str,
    facts: Mapping[str, Any],
    rules: dict[str, Any],
    meta: dict[str, Any],
) -> LayeredGraph:
    """The self-attention of an encoder or a decoder alone, as a plain stack."""
    if part not in ("encoder", "decoder"):
        raise FlowgraphError(f"part: {part!r} is no stack of self-attention; pass 'encoder' or 'decoder'")
    if part not in arrays:
        why = facts.get("absent", {}).get(part, f"its parts are {', '.join(arrays)}")
        raise FlowgraphError(f"part: the trace has no {part} of this kind: {why}")
    meta = {
        key: value[part] if isinstance(value, Mapping) and part in value else value
        for key, value in meta.items()
    }
    meta["part"] = part
    if part == "encoder":  # what the trace says of the decoder
        meta |= {"causal": False}
        meta.pop("generated", None)
    target = part == "decoder" and getattr(trace, "target_tokens", None) is not None
    names = [f"target_{name}" if target else name for name in _TOKEN_FACTS]
    return _stack_of(trace, arrays[part], names, facts, rules, meta)


def _check_whole(kind: str, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """One error for a kind that cross-attention cannot have: a graph from source to target needs all parts."""
    if "cross" in arrays:
        return
    why = facts.get("absent", {}).get("cross", f"the trace of {kind!r} has no cross-attention")
    alone = " or ".join(f"part={part!r}" for part in arrays)
    raise FlowgraphError(
        f"edges: {why}; a graph of the self-attention alone is LayeredGraph.from_trace(trace, edges={kind!r}, ...) "
        f"with {alone}"
    )


def _choose_kind(trace: Any, edges: str | None) -> str:
    kinds = list(trace.kinds)
    if edges is None:
        if len(kinds) == 1:
            return kinds[0]
        raise FlowgraphError(
            f"edges: the trace holds {', '.join(kinds)}; say which one the graph is to be made of"
        )
    if not isinstance(edges, str) or edges not in kinds:
        raise FlowgraphError(
            f"edges: {edges!r} was not traced; the trace holds {', '.join(kinds)}; "
            f"pass edges={edges!r} to fg.trace as well"
        )
    return edges


def _one_matrix(array: Any, head: int | None, kind: str) -> np.ndarray:
    """``(L, T, T)`` float64 from a traced array, with or without heads."""
    array = np.asarray(array, dtype=np.float64)
    if array.ndim == 3:
        if head is not None:
            raise FlowgraphError(
                f"head: {head!r} asked for, but the trace of {kind!r} has its heads joined; trace with heads='each'"
            )
        return array
    if head is None:
        raise FlowgraphError(
            f"head: the trace of {kind!r} keeps its {array.shape[1]} heads; pass head=, one from 0 to "
            f"{array.shape[1] - 1}, or trace with heads='all' to join them"
        )
    if isinstance(head, bool) or not isinstance(head, (int, np.integer)) or not 0 <= head < array.shape[1]:
        raise FlowgraphError(
            f"head: {head!r} is not a head of this trace, which has 0 to {array.shape[1] - 1}"
        )
    return array[:, int(head)]


def _encoder_decoder_graph(
    trace: Any,
    mixing: dict[str, np.ndarray],
    meta: dict[str, Any],
    facts: Mapping[str, Any],
    rules: dict[str, Any],
) -> LayeredGraph:
    """Encoder levels 0..Le, decoder level 0, then a self- and a cross-attention level for each decoder layer.

    The cross level reads the encoder's last level with share 1 - r and, straight down, the decoder's own
    self-attention level with share r: the residual connection around cross-attention.
    """
    share = rules["residual"]
    capacity = _capacities(mixing, meta, facts, rules)
    source = levels_like(trace.tokens, trace.raw_tokens, trace.special, trace.word_ids)
    target = levels_like(*(getattr(trace, f"target_{name}", None) for name in _TOKEN_FACTS))
    ts, tt = mixing["encoder"].shape[-1], mixing["decoder"].shape[-1]
    levels: list[Level] = [
        source("encoder input" if k == 0 else f"encoder layer {k}", ts)
        for k in range(len(capacity["encoder"]) + 1)
    ]
    blocks = [Block(k + 1, k, c, residual=share) for k, c in enumerate(capacity["encoder"])]
    top_of_encoder = len(levels) - 1
    levels.append(target("decoder input", tt))
    layers = []
    kept = share or 0.0
    for number, (own, read) in enumerate(zip(capacity["decoder"], capacity["cross"], strict=True), 1):
        below = len(levels) - 1
        levels.append(target(f"decoder layer {number} self", tt))
        blocks.append(Block(below + 1, below, own, residual=share))
        levels.append(target(f"decoder layer {number}", tt))
        blocks.append(Block(below + 2, top_of_encoder, (1 - kept) * read, kind="cross"))
        if kept:
            blocks.append(Block(below + 2, below + 1, kept * np.eye(tt), kind="residual", residual=share))
        layers.append(below + 2)
    signed = any((b.capacity < 0).any() for b in blocks)
    return LayeredGraph(
        levels, blocks, layers=layers, inputs=(0, top_of_encoder + 1), meta=meta | rules, signed=signed
    )


def _capacities(
    mixing: dict[str, np.ndarray], meta: dict[str, Any], facts: Mapping[str, Any], rules: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Capacities of ``encoder`` and ``decoder``, and of ``cross``, whose residual is a block of its own.

    Masses of rows that do not sum to 1 go into ``meta``.
    """
    masses, result = {}, {}
    for part, array in mixing.items():
        check_finite(array, part)
        ruled = apply_sign_rule(array, rules["negative"], part)
        result[part] = capacities(ruled, None if part == "cross" else rules["residual"], rules["normalize"])
        if rows_off(ruled, str(meta.get("dtype", "float32"))):
            masses[part] = row_mass(ruled)
    if masses:
        meta["row_mass"] = masses
        if facts.get("rows_sum_to_one", False):
            warn_rows(np.concatenate([m.ravel() for m in masses.values()]), rules["normalize"])
    return result
