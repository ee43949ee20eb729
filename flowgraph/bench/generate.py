"""Generated attention graphs: seeded softmax weights of a given shape."""

from __future__ import annotations

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.graph import LayeredGraph

KINDS = ("softmax", "causal", "window", "peaky")


def generate(
    layers: int, tokens: int, kind: str = "softmax", *, seed: int = 0, residual: float = 0.5
) -> LayeredGraph:
    """A stack of ``layers`` blocks of softmax of normal logits over ``tokens`` positions.

    ``kind``: ``softmax`` (every key visible), ``causal``, ``window`` (causal, the last eighth of the tokens, at least
    two), ``peaky`` (logits three times as large).
    """
    if kind not in KINDS:
        raise FlowgraphError(f"kind: unknown kind of graph {kind!r}; choose one of {', '.join(KINDS)}")
    if layers < 1 or tokens < 1:
        raise FlowgraphError(f"sizes: {layers}x{tokens} has no edges; pass at least 1x1 (layers x tokens)")
    logits = np.random.default_rng(seed).normal(size=(layers, tokens, tokens)) * (
        3.0 if kind == "peaky" else 1.0
    )
    behind = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    if kind in ("causal", "window"):
        logits[:, behind < 0] = -np.inf
    if kind == "window":
        logits[:, behind >= max(2, tokens // 8)] = -np.inf
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return LayeredGraph.from_matrices(weights / weights.sum(-1, keepdims=True), residual=residual)
