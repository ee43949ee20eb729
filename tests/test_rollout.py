"""Raw attention and rollout against sums over all paths, written out."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import flowgraph as fg
from flowgraph import Block, FlowgraphError, LayeredGraph, Level

INSTANCES = os.environ.get("FLOWGRAPH_INSTANCES")


def random_stack(layers: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(size), (layers, size))


def level(name: str, size: int) -> Level:
    return Level(name, size, tuple(f"{name}{p}" for p in range(size)))


def encoder_decoder(seed: int = 0, residual: float = 0.5) -> LayeredGraph:
    """Encoder of 2 layers over 3 tokens, decoder of 2 layers over 2.

    levels: 0 encoder input, 1, 2 encoder; 3 decoder input; 4 self, 5 cross (layer 1); 6 self, 7 cross (2)
    """
    draw = np.random.default_rng(seed)

    def rows(n: int, m: int) -> np.ndarray:
        return draw.dirichlet(np.ones(m), n)

    blocks = [Block(1, 0, rows(3, 3)), Block(2, 1, rows(3, 3))]
    for own in (4, 6):
        blocks += [
            Block(own, own - 1, rows(2, 2)),
            Block(own + 1, 2, (1 - residual) * rows(2, 3), kind="cross"),
            Block(own + 1, own, residual * np.eye(2), kind="residual", residual=residual),
        ]
    sizes = [3, 3, 3, 2, 2, 2, 2, 2]
    levels = [level(f"level {k} ", size) for k, size in enumerate(sizes)]
    return LayeredGraph(levels, blocks, layers=(5, 7), inputs=(0, 3))


def sum_over_paths(graph: LayeredGraph, upper: tuple[int, int], lower: tuple[int, int]) -> float:
    """Products of capacities along every path, summed: the definition of rollout."""
    if upper == lower:
        return 1.0
    return sum(
        block.capacity[upper[1], j] * sum_over_paths(graph, (block.lower, j), lower)
        for block in graph.blocks
        if block.upper == upper[0]
        for j in range(block.capacity.shape[1])
    )


def test_rollout_is_the_sum_over_paths():
    graph = LayeredGraph.from_matrices(random_stack(4, 3))
    expected = [[sum_over_paths(graph, (4, i), (0, j)) for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(fg.rollout(graph), expected, rtol=1e-12)


def test_rollout_of_an_encoder_decoder_is_the_sum_over_paths():
    graph = encoder_decoder()
    inputs = [(0, 0), (0, 1), (0, 2), (3, 0), (3, 1)]
    expected = [
        [[sum_over_paths(graph, (k, i), node) for node in inputs] for i in range(2)] for k in graph.layers
    ]
    np.testing.assert_allclose(fg.rollout(graph, level="all"), expected, rtol=1e-12)
    np.testing.assert_allclose(fg.rollout(graph).sum(1), 1)


def test_known_answer():
    # one layer that swaps two tokens, twice, half of each kept: M = [[.5, .5], [.5, .5]]
    swap = np.array([[[0.0, 1.0], [1.0, 0.0]]] * 2)
    np.testing.assert_array_equal(fg.rollout(LayeredGraph.from_matrices(swap)), [[0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_array_equal(fg.rollout(LayeredGraph.from_matrices(swap, residual=None)), np.eye(2))


def test_three_residual_rules():
    """0.5 A + 0.5 I; A + I divided by row sums (the same, since rows of A sum to 1); A alone."""
    attention = random_stack(3, 4)
    half = (attention + np.eye(4)) / (attention + np.eye(4)).sum(-1, keepdims=True)
    np.testing.assert_allclose(
        fg.rollout(LayeredGraph.from_matrices(attention)), half[2] @ half[1] @ half[0], rtol=1e-12
    )
    np.testing.assert_allclose(
        fg.rollout(LayeredGraph.from_matrices(attention, residual=None)),
        attention[2] @ attention[1] @ attention[0],
        rtol=1e-12,
    )


def test_a_row_of_zeros_stays_zero():
    graph = LayeredGraph.from_matrices(np.array([[[1.0, 0.0], [0.0, 0.0]]]), residual=None)
    np.testing.assert_array_equal(fg.rollout(graph), [[1, 0], [0, 0]])


@pytest.mark.filterwarnings("ignore:rows that do not sum to 1")
def test_signed_mixing_is_taken_as_it_is():
    signed = np.array([[[1.5, -0.5], [0.25, 0.75]]] * 2)
    graph = LayeredGraph.from_matrices(signed, residual=None, negative="keep", normalize=False)
    np.testing.assert_allclose(fg.rollout(graph), signed[1] @ signed[0])
    np.testing.assert_array_equal(fg.raw(graph), signed[1])


@pytest.mark.parametrize("function", [fg.raw, fg.rollout])
def test_shapes_and_selection(function):
    graph = LayeredGraph.from_matrices(random_stack(3, 5))
    full = function(graph, level="all")
    assert full.shape == (3, 5, 5)
    assert full.dtype == np.float64
    np.testing.assert_array_equal(function(graph), full[-1])
    np.testing.assert_array_equal(function(graph, level=-3), full[0])
    np.testing.assert_array_equal(function(graph, level=2, targets=-1, inputs=[0, 3]), full[1, 4:, [0, 3]].T)
    np.testing.assert_array_equal(function(graph, level="all", targets=slice(1, 3)), full[:, 1:3])


@pytest.mark.parametrize("function", [fg.raw, fg.rollout])
def test_results_are_the_users_own(function):
    graph = LayeredGraph.from_matrices(random_stack(1, 3))
    result = function(graph)
    result[:] = 7  # writable, and no window into the graph
    assert graph.blocks[0].capacity.max() <= 1


def test_raw_is_the_level_as_the_graph_holds_it():
    attention = random_stack(3, 4)
    graph = LayeredGraph.from_matrices(attention, residual=0.25)
    np.testing.assert_allclose(fg.raw(graph, level=2), 0.75 * attention[1] + 0.25 * np.eye(4))


def test_raw_of_a_decoder_layer_is_cross_beside_self():
    graph = encoder_decoder()
    for number, (own, cross) in enumerate([(2, 3), (5, 6)], 1):
        expected = np.hstack([graph.blocks[cross].capacity, graph.blocks[own].capacity])
        np.testing.assert_array_equal(fg.raw(graph, level=number), expected)


def test_raw_refuses_a_level_that_reads_several_others():
    blocks = [Block(1, 0, np.eye(2)), Block(2, 1, np.eye(2)), Block(2, 0, np.eye(2))]
    graph = LayeredGraph([level(n, 2) for n in "abc"], blocks)
    with pytest.raises(FlowgraphError, match=r"^graph: level 2 \(c\) reads several levels"):
        fg.raw(graph, level=2)
    np.testing.assert_array_equal(fg.rollout(graph, level=2), 2 * np.eye(2))


def test_levels_of_other_sizes_cannot_be_stacked():
    blocks = [Block(1, 0, np.ones((3, 2))), Block(2, 1, np.ones((1, 3)))]
    graph = LayeredGraph([level("a", 2), level("b", 3), level("c", 1)], blocks)
    assert fg.rollout(graph).tolist() == [[3, 3]]
    with pytest.raises(FlowgraphError, match=r"^level: 'all' needs levels of one size"):
        fg.rollout(graph, level="all")


@pytest.mark.parametrize(("layers", "size"), list(product([1, 12], [1, 20])))
def test_rows_keep_summing_to_one(layers, size):
    graph = LayeredGraph.from_matrices(random_stack(layers, size))
    np.testing.assert_allclose(fg.rollout(graph, level="all").sum(-1), 1, rtol=1e-12)


@pytest.mark.skipif(INSTANCES is None, reason="FLOWGRAPH_INSTANCES names no folder of real graphs")
@pytest.mark.parametrize("name", ["minilm_14", "minilm_67", "minilm_146", "smollm2_64", "dinov2_145"])
def test_real_graphs(name):
    data = np.load(Path(INSTANCES or "") / f"{name}.npz", allow_pickle=False)
    graph = LayeredGraph.from_matrices(data["attention"])
    np.testing.assert_allclose(fg.rollout(graph), data["rollout"], rtol=1e-9, atol=1e-12)
