"""Raw attention and attention rollout: the two attributions that are plain matrix algebra.

Rollout multiplies the layers' matrices, ``R^1 = M^1``, ``R^l = M^l R^(l-1)``: the share of input ``j`` in
node ``(l, i)``, summed over all paths between them (Abnar & Zuidema 2020, section 3;
10.18653/v1/2020.acl-main.385). On an encoder-decoder graph the same sum over paths runs block by block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.graph import Block, LayeredGraph, check_graph
from flowgraph.selection import resolve_levels, resolve_positions


def raw(graph: LayeredGraph, *, level: Any = -1, targets: Any = None, inputs: Any = None) -> np.ndarray:
    """Each level's own matrix as the graph holds it: from level ``l`` to level ``l - 1``, residual included.

    Parameters
    ----------
    graph
        Any layered graph, signed ones too.
    level
        Layer number from 1, negative from the top, or ``"all"``.
    targets, inputs
        Positions to keep: an int, a slice, a list, a mask; ``None`` keeps all.

    Returns
    -------
    ``(targets, inputs)`` float64, or ``(L, targets, inputs)`` for ``level="all"``. For a decoder layer that
    reads an encoder the columns are ``[cross | self]``: the encoder's tokens, then the decoder's.
    """
    check_graph(graph)
    levels, single = resolve_levels(graph, level)
    return select([_own_matrix(graph, k) for k in levels], single, targets, inputs)


def rollout(graph: LayeredGraph, *, level: Any = -1, targets: Any = None, inputs: Any = None) -> np.ndarray:
    """Attention rollout: products of the matrices from ``level`` down to the inputs.

    Parameters and shapes as for :func:`raw`; columns are always the model's input tokens (for an
    encoder-decoder graph the encoder's, then the decoder's). Rows sum to 1 where the graph's rows do.
    """
    check_graph(graph)
    levels, single = resolve_levels(graph, level)
    shares = shares_of_inputs(graph, max(levels))
    return select([shares[k] for k in levels], single, targets, inputs)


def input_columns(graph: LayeredGraph) -> dict[int, slice]:
    """Which columns of an attribution belong to each input level: level index -> slice."""
    columns, start = {}, 0
    for k in graph.inputs:
        columns[k] = slice(start, start + graph.levels[k].size)
        start += graph.levels[k].size
    return columns


def num_inputs(graph: LayeredGraph) -> int:
    """Number of columns of an attribution: all positions of all input levels."""
    return sum(graph.levels[k].size for k in graph.inputs)


def select(matrices: list[np.ndarray], single: bool, targets: Any, inputs: Any) -> np.ndarray:
    """Rows and columns of one matrix (``single``), or of a stack of matrices of one shape."""
    shapes = {m.shape for m in matrices}
    if len(shapes) > 1:
        raise FlowgraphError(
            f"level: 'all' needs levels of one size, these give {sorted(shapes)}; pass one level at a time"
        )
    size, width = matrices[0].shape
    rows = resolve_positions(targets, size, "targets")
    columns = resolve_positions(inputs, width, "inputs")
    stack = np.stack([m[np.ix_(rows, columns)] for m in matrices])
    return stack[0] if single else stack


def shares_of_inputs(graph: LayeredGraph, top: int) -> dict[int, np.ndarray]:
    """Level index -> ``(size, all inputs)``: sums over paths, by dynamic programming from the inputs up.

    A level's matrix is complete before a higher level reads it, since blocks run from higher to lower levels.
    """
    width, columns = num_inputs(graph), input_columns(graph)
    shares = {k: np.zeros((graph.levels[k].size, width)) for k in range(top + 1)}
    for k, own in columns.items():
        if k <= top:
            shares[k][:, own] = np.eye(graph.levels[k].size)
    for block in sorted(graph.blocks, key=lambda b: b.upper):
        if block.upper <= top:
            shares[block.upper] += block.capacity @ shares[block.lower]
    return shares


def _own_matrix(graph: LayeredGraph, k: int) -> np.ndarray:
    """``(size, size below)``, or ``[cross | self]`` for a decoder layer's output level ``k``."""
    blocks = _blocks_of_layer(graph, k)
    if len(blocks) == 1:
        return blocks[0].capacity
    columns = input_columns(graph)
    matrix = np.zeros((graph.levels[k].size, num_inputs(graph)))
    for block in blocks:
        # positions are kept from level to level, so a level's positions are those of the inputs it stands on
        home = graph.inputs[0] if block.kind == "cross" else graph.inputs[-1]
        if block.capacity.shape != matrix[:, columns[home]].shape or len(graph.inputs) < 2:
            raise FlowgraphError(
                f"graph: level {k} ({graph.levels[k].name}) reads several levels, which raw attention "
                "can show for encoder-decoder graphs only; use rollout or flow"
            )
        matrix[:, columns[home]] += block.capacity
    return matrix


def _blocks_of_layer(graph: LayeredGraph, k: int) -> list[Block]:
    """The attention inside the layer whose outputs are level ``k``, paths straight down left out."""
    number = graph.layers.index(k)
    below = graph.layers[number - 1] if number else max((i for i in graph.inputs if i < k), default=-1)
    blocks = [b for b in graph.blocks if below < b.upper <= k and b.kind != "residual"]
    if not blocks:
        raise FlowgraphError(f"graph: level {k} ({graph.levels[k].name}) has no attention of its own to show")
    return blocks
