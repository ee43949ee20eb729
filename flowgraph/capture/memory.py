"""How much memory a trace takes, before it takes it."""

from __future__ import annotations

import re
from typing import Any

from flowgraph.errors import FlowgraphError

DEFAULT = 8 * 1024**3
"""Bytes a trace may take above the model unless ``max_memory`` says otherwise."""

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
}

_COPIES = 6
"""Attention matrices of one layer alive at once: scores, masked scores, softmax, its checks, the kind's own."""


def read_max_memory(max_memory: Any) -> int:
    """Bytes from an integer or text such as ``"4GB"``; the default for None."""
    if max_memory is None:
        return DEFAULT
    if isinstance(max_memory, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", max_memory)
        if match and match[2].upper() in _UNITS and match[1].count(".") <= 1 and match[1] != ".":
            max_memory = float(match[1]) * _UNITS[match[2].upper()]
    if isinstance(max_memory, bool) or not isinstance(max_memory, (int, float)) or not max_memory > 0:
        raise FlowgraphError(f"max_memory: {max_memory!r} is not a size; pass bytes, or text such as '4GB'")
    return int(max_memory)


def estimate(
    *,
    tokens: int,
    heads: int,
    layers: int,
    width: int,
    itemsize: int,
    kinds: int,
    each: bool,
    widened: int = 0,
) -> int:
    """Bytes for one text of ``tokens``: one layer's attention and activations, and all the results.

    One layer at a time is alive, since each is reduced as soon as its block is done. ``widened``: bytes of weights
    copied for it.
    """
    matrix = tokens * tokens
    one_layer = _COPIES * heads * matrix * max(itemsize, 4) + 16 * tokens * width * max(itemsize, 4)
    if kinds:
        one_layer += heads * matrix * 8  # a kind accumulates in float64
    results = layers * kinds * matrix * 4 * (heads if each else 1)
    return one_layer + results + widened


def batch_limit(one: int, limit: int, tokens: int, most: int = 32) -> int:
    """How many texts of this length fit at once; an error with the numbers where one does not."""
    if one > limit:
        raise FlowgraphError(
            f"max_memory: {tokens} tokens take about {human(one)}, more than the limit of {human(limit)}; "
            "shorten the text (truncate=True), ask for fewer kinds, or pass a larger max_memory="
        )
    return max(1, min(most, limit // one))


def human(size: float) -> str:
    """``1.5 GiB``."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
