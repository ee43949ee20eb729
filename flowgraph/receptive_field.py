"""The even graph: what flow would be if every query spread its attention evenly over the keys it sees.

Early tokens of a causal model can be reached from more positions, whatever the weights. Dividing a flow by the
even graph's flow takes that advantage away (``normalize="receptive-field"``).
"""

from __future__ import annotations

import numpy as np

from flowgraph.graph import Block, LayeredGraph


def even_graph(graph: LayeredGraph) -> LayeredGraph:
    """The graph of the same shape and residual, each query even over its keys of non-zero capacity and itself."""
    return LayeredGraph(
        graph.levels,
        [_even_block(graph, b) for b in graph.blocks],
        layers=graph.layers,
        inputs=graph.inputs,
        meta={"edges": "even", "residual": graph.meta.get("residual")},
    )


def _even_block(graph: LayeredGraph, block: Block) -> Block:
    if block.kind == "residual":
        return block
    share = _residual_share(graph, block)
    seen = block.capacity > 0
    if block.kind == "self":
        # the residual alone makes the diagonal non-zero; a query always counts as seeing itself
        seen = seen | np.eye(*block.capacity.shape, dtype=np.bool_)
    even = seen / np.maximum(seen.sum(1, keepdims=True), 1)
    if block.kind == "cross":
        return Block(block.upper, block.lower, (1 - share) * even, block.kind)
    return Block(block.upper, block.lower, (1 - share) * even + share * np.eye(len(even)), block.kind, share)


def _residual_share(graph: LayeredGraph, block: Block) -> float:
    """The block's own residual; 0.5 for edge kinds that hold the residual stream in their weights."""
    share = block.residual if block.kind == "self" else graph.meta.get("residual")
    if share is not None:
        return share
    return 0.5 if graph.meta.get("holds_residual") else 0.0
