"""Small graphs for the tests of export, and what a reader should find in a file of them."""

from __future__ import annotations

import numpy as np

from flowgraph.export.escape import escape
from flowgraph.graph import Block, LayeredGraph, Level
from flowgraph.solvers.base import FlowResult

NASTY = [
    "plain", "<s>", "</s>", "]]>", "<!-- -->", "&amp;", '"\'', "\r", "a\r\nb", "\n", "\t", " lead", "trail ",
    "\x00", "\x1b[0m", "\x7f", "\x85", "\u2028", "\ud83d", "\udca9", "💩", "\ufffe", "\uffff", "\U0001fffe",
    "_x0041_", "_x0041\x00", "_x005F_", "\x00x0041_", "Ã¡", "Seán", "\\", "#", "", "é", "ÿ", "मी",
]  # fmt: skip


def stack(size: int = 6, layers: int = 3, seed: int = 0, **options: object) -> LayeredGraph:
    """Random causal mixing with zeros, so that some edges do not exist."""
    mixing = np.tril(np.random.default_rng(seed).random((layers, size, size)))
    return LayeredGraph.from_matrices(mixing / mixing.sum(-1, keepdims=True), **options)


def encoder_decoder() -> LayeredGraph:
    """Encoder of two levels, decoder with a self- and a cross-attention level, one level without edges."""
    rng = np.random.default_rng(1)
    source = ("Das", "</s>")
    target = ("<s>", "That", "is")
    levels = [
        Level("encoder 0", 2, source, source, (False, True), (0, None)),
        Level("encoder 1", 2, source, source, (False, True), (0, None)),
        Level("decoder 0", 3, target, None, (True, False, False), None),
        Level("decoder 1 self", 3, target),
        Level("decoder 1", 3, target),
    ]
    blocks = [
        Block(1, 0, rng.random((2, 2)), residual=0.25),
        Block(3, 2, np.tril(rng.random((3, 3)))),
        Block(4, 1, rng.random((3, 2)), kind="cross"),
        Block(4, 3, 0.5 * np.eye(3), kind="residual", residual=0.5),
    ]
    return LayeredGraph(
        levels, blocks, layers=[4], inputs=[0, 2], meta={"edges": "attention", "heads": "mean"}
    )


def one_path(graph: LayeredGraph, capacity: float) -> FlowResult:
    """A flow straight down position 0, and the cut that parts the source from everything else."""
    flows = tuple(np.zeros(b.capacity.shape) for b in graph.blocks)
    for flow in flows:
        flow[0, 0] = capacity
    cut = tuple(np.zeros(level.size, bool) for level in graph.levels)
    cut[-1][0] = True
    return FlowResult(capacity, flows, cut, capacity, "hand", (len(graph.levels) - 1, 0), (0, 0))


def assert_same(a: LayeredGraph, b: LayeredGraph) -> None:
    assert a.levels == b.levels
    assert (a.layers, a.inputs) == (b.layers, b.inputs)
    assert [(x.upper, x.lower, x.kind, x.residual) for x in a.blocks] == [
        (x.upper, x.lower, x.kind, x.residual) for x in b.blocks
    ]
    for x, y in zip(a.blocks, b.blocks, strict=True):
        assert x.capacity.tobytes() == y.capacity.tobytes()


def expected_nodes(graph: LayeredGraph) -> dict[str, dict[str, object]]:
    return {
        f"n{k}_{p}": {
            "label": escape(level.tokens[p]),
            "token": escape((level.raw_tokens or level.tokens)[p]),
            "level": k,
            "level_name": level.name,
            "position": p,
            "special": bool(level.special and level.special[p]),
            "word": -1 if not level.words or level.words[p] is None else level.words[p],
        }
        for k, level in enumerate(graph.levels)
        for p in range(level.size)
    }


def expected_edges(graph: LayeredGraph) -> dict[tuple[str, str], dict[str, object]]:
    edges: dict[tuple[str, str], dict[str, object]] = {}
    for block in graph.blocks:
        for i, j in np.argwhere(block.capacity > 0).tolist():
            capacity = float(block.capacity[i, j])
            share = capacity if block.kind == "residual" else (block.residual or 0.0) if i == j else 0.0
            edges[f"n{block.upper}_{i}", f"n{block.lower}_{j}"] = {
                "weight": capacity,
                "capacity": capacity,
                "kind": block.kind,
                "residual": min(share, capacity),
            }
    return edges
