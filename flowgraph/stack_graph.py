"""A plain stack of levels from mixing matrices, or from what a model returned as its attentions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flowgraph.arrays import join_heads, read_attentions, read_stack
from flowgraph.capacity import apply_sign_rule, capacities, check_residual, row_mass
from flowgraph.errors import FlowgraphError, FlowgraphWarning
from flowgraph.graph import Block, LayeredGraph, Level

# how far a row of attention may be from 1 by rounding alone, by the precision it was computed in
_ROW_TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 5e-3, "bfloat16": 2e-2}


def graph_from_matrices(
    mixing: Any, *, tokens: Sequence[str] | None, residual: Any, normalize: bool, negative: str
) -> LayeredGraph:
    """See :meth:`flowgraph.graph.LayeredGraph.from_matrices`."""
    return stack_graph(
        read_stack(mixing, "mixing"),
        levels_like(tokens),
        residual=_half_if_auto(residual),
        normalize=normalize,
        negative=negative,
        warn=True,
        meta={"edges": "custom"},
    )


def graph_from_attentions(
    attentions: Any,
    heads: str | int,
    *,
    tokens: Sequence[str] | None,
    residual: Any,
    normalize: bool,
    negative: str,
) -> LayeredGraph:
    """See :meth:`flowgraph.graph.LayeredGraph.from_attentions`."""
    layers, dtype = read_attentions(attentions)
    return stack_graph(
        np.stack([join_heads(layer, heads) for layer in layers]),
        levels_like(tokens),
        residual=_half_if_auto(residual),
        normalize=normalize,
        negative=negative,
        warn=True,
        dtype=dtype,
        meta={"edges": "attention", "heads": heads},
    )


def _half_if_auto(residual: Any) -> Any:
    """``"auto"`` is 0.5 for weights that hold no residual stream."""
    return 0.5 if isinstance(residual, str) and residual == "auto" else residual


def stack_graph(
    mixing: np.ndarray,
    make_level: Any,
    *,
    residual: Any,
    normalize: bool,
    negative: str,
    warn: bool,
    meta: Mapping[str, Any],
    dtype: str | None = None,
) -> LayeredGraph:
    """A plain stack of levels from ``(L, T, T)`` mixing."""
    share = check_residual(residual)
    ruled = apply_sign_rule(mixing, negative, "mixing")
    capacity = capacities(ruled, share, normalize)
    meta = dict(meta) | {"residual": share, "normalize": bool(normalize), "negative": negative}
    if rows_off(ruled, dtype or str(mixing.dtype)):
        mass = row_mass(ruled)
        mass.setflags(write=False)
        meta["row_mass"] = mass
        if warn:
            warn_rows(mass, normalize)
    count, size = mixing.shape[:2]
    levels = [make_level(name, size) for name in ("input", *_layer_names(count, meta.get("layer_numbers")))]
    blocks = [Block(k + 1, k, capacity[k], residual=share) for k in range(count)]
    return LayeredGraph(levels, blocks, meta=meta, signed=bool((capacity < 0).any()))


def _layer_names(count: int, numbers: Any) -> list[str]:
    """``layer 1`` and so on; the model's own ``numbers`` where it has layers without attention in between."""
    own = isinstance(numbers, list) and len(set(numbers)) == count
    return [f"layer {number}" for number in (numbers if own else range(1, count + 1))]


def levels_like(
    tokens: Sequence[str] | None,
    raw_tokens: Sequence[str] | None = None,
    special: Sequence[bool] | None = None,
    words: Sequence[int | None] | None = None,
) -> Any:
    """A function ``(name, size) -> Level`` that puts these tokens on every level of a stack."""

    def make(name: str, size: int) -> Level:
        for argument, given in (
            ("tokens", tokens),
            ("raw_tokens", raw_tokens),
            ("special", special),
            ("words", words),
        ):
            if isinstance(given, str):
                raise FlowgraphError(
                    f"{argument}: {given!r} is one string; pass a list with one token a position"
                )
            if given is not None and len(given) != size:
                raise FlowgraphError(
                    f"{argument}: {len(given)} given for matrices of {size} positions; pass one a position"
                )
        return Level(
            name,
            size,
            tuple(str(t) for t in tokens) if tokens is not None else tuple(str(p) for p in range(size)),
            tuple(str(t) for t in raw_tokens) if raw_tokens is not None else None,
            tuple(bool(s) for s in special) if special is not None else None,
            tuple(None if w is None else int(w) for w in words) if words is not None else None,
        )

    return make


def rows_off(mixing: np.ndarray, dtype: str) -> bool:
    """True where some row's mass is neither 0 nor 1 within the rounding of ``dtype``."""
    mass = row_mass(mixing)
    return bool(((mass > 0) & (np.abs(mass - 1) > _ROW_TOLERANCE.get(dtype, 1e-4))).any())


def warn_rows(mass: np.ndarray, normalize: bool) -> None:
    """Say that rows did not sum to 1, and what was done."""
    nonzero = mass[mass > 0]
    done = "were rescaled" if normalize else "were kept as they are (normalize=False)"
    warnings.warn(
        f"rows that do not sum to 1 {done}: row sums run from {nonzero.min():.6g} to {nonzero.max():.6g}; "
        "they stand in graph.meta['row_mass']",
        FlowgraphWarning,
        stacklevel=4,
    )
