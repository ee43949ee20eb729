"""The automatic choice against igraph pair by pair, on random, real and adversarial graphs."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowgraph as fg
from flowgraph.flow import flow_matrix
from flowgraph.solvers import all_pairs, bounds, exact, hub, sparse
from flowgraph.solvers.many import pair_values
from tests.helpers import stack

INSTANCES = os.environ.get("FLOWGRAPH_INSTANCES")
needs_instances = pytest.mark.skipif(INSTANCES is None, reason="FLOWGRAPH_INSTANCES is not set")


def softmax(layers, size, *, seed=0, scale=1.0, mask=None):
    logits = np.random.default_rng(seed).normal(size=(layers, size, size)) * scale
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def causal(size):
    return np.tri(size, dtype=bool)


def window(size, width):
    far = np.subtract.outer(np.arange(size), np.arange(size))
    return (far >= 0) & (far < width)


def by_igraph(graph, level, rows=None, columns=None):
    rows = range(graph.levels[level].size) if rows is None else rows
    columns = range(graph.levels[0].size) if columns is None else columns
    prepared = fg.solvers.get("igraph").prepare(graph)
    return pair_values(prepared, [(level, i) for i in rows], [(0, j) for j in columns])


def assert_exact(found, expected):
    assert (np.abs(found - expected) <= 1e-9 * np.maximum(1.0, expected)).all()


def quiet(mixing, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fg.LayeredGraph.from_matrices(mixing, **options)


SIZED = {
    "full": softmax(8, 28),
    "peaky": softmax(7, 28, scale=3.0),
    "causal": softmax(8, 36, mask=causal(36)),
    "window": softmax(8, 40, mask=window(40, 5)),
    "shallow": softmax(3, 56, scale=2.0),
    "one layer": softmax(1, 30),
    "two layers": softmax(2, 30),
    "one token": np.ones((4, 1, 1)),
    "all residual": np.eye(30)[None].repeat(7, 0),
    "attention sink": 0.05 * softmax(7, 28) + 0.95 * np.eye(28)[0],
}


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("residual", [0.5, None])
def test_whole_matrix_equals_igraph_pair_by_pair(name, residual):
    graph = quiet(SIZED[name], residual=residual)
    top = len(graph.levels) - 1
    found = flow_matrix(graph)
    assert_exact(found.values, by_igraph(graph, top))
    assert sum(found.stats["settled"].values()) == found.values.size


@pytest.mark.parametrize("name", ["full", "peaky", "causal", "shallow", "window"])
def test_all_levels_equal_igraph_level_by_level(name):
    graph = quiet(SIZED[name])
    found = fg.attention_flow(graph, level="all")
    draw = np.random.default_rng(0)
    columns = draw.integers(graph.levels[0].size, size=4)
    for level in range(1, len(graph.levels)):
        assert_exact(found[level - 1][:, columns], by_igraph(graph, level, columns=columns))


def test_disconnected_zero_and_uneven_rows():
    draw = np.random.default_rng(5)
    mixing = (
        draw.random((6, 50, 50)) ** 8
        * (draw.random((6, 50, 50)) < 0.3)
        * 10.0 ** draw.integers(-6, 4, (6, 50, 1))
    )
    mixing[2, 10:20] = 0
    mixing[4, :, :7] = 0
    graph = quiet(mixing, residual=None, normalize=False)
    assert_exact(fg.attention_flow(graph), by_igraph(graph, 6))


@pytest.mark.parametrize("size", [12, 34, 70])
def test_some_targets_and_inputs_are_cells_of_the_whole(size):
    graph = quiet(softmax(6, size, scale=2.0))
    whole = fg.attention_flow(graph)
    assert_exact(
        fg.attention_flow(graph, targets=[3, -1], inputs=slice(2, 9, 3)), whole[np.ix_([3, -1], [2, 5, 8])]
    )
    assert_exact(fg.attention_flow(graph, targets=0)[0], whole[0])


def test_the_same_graph_gives_the_same_bits():
    graph = quiet(softmax(6, 60, scale=2.0))
    assert fg.attention_flow(graph).tobytes() == fg.attention_flow(graph).tobytes()


@settings(max_examples=60, deadline=None)
@given(
    layers=st.integers(1, 7),
    size=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    kept=st.sampled_from([0.2, 0.6, 1.0]),
    power=st.sampled_from([1, 6, 20]),
    residual=st.sampled_from([None, 0.5]),
    normalize=st.booleans(),
)
def test_random_graphs_with_certificates_forced(layers, size, seed, kept, power, residual, normalize):
    """Small graphs would all take the short way: here every certificate is tried on them as well."""
    draw = np.random.default_rng(seed)
    mixing = draw.random((layers, size, size)) ** power * (draw.random((layers, size, size)) < kept)
    graph = quiet(mixing, residual=residual, normalize=normalize)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(all_pairs, "_SMALL_STACK", 0)
        patch.setattr(exact, "_SMALL_WHOLE", 0)
        patch.setattr(exact, "_SMALL_PAIR", draw.integers(0, 200))
        patch.setattr(all_pairs, "_LEAST_HUB_LEVEL", 2)
        patch.setattr(exact, "RUNGS", (sparse.Rung(1, 0, 0, 1), sparse.Rung(2, 1, 1, 2)))
        patch.setattr(hub, "HUB_RUNGS", (sparse.Rung(1, 1, 1), None))
        patch.setattr(hub, "_OPEN", 0)
        patch.setattr(hub, "_WORTH", -1)
        found = fg.attention_flow(graph, level="all")
    for level in range(1, layers + 1):
        assert_exact(found[level - 1], by_igraph(graph, level))


@pytest.mark.parametrize("seed", range(8))
def test_bounds_are_bounds(seed):
    draw = np.random.default_rng(seed)
    mixing = draw.random((5, 7, 7)) ** 4 * (draw.random((5, 7, 7)) < 0.8)
    graph = quiet(mixing, normalize=bool(seed % 2))
    matrices = [b.capacity for b in graph.blocks]
    everything = np.arange(7)
    flows = [by_igraph(graph, level) for level in range(1, 6)]
    below = bounds.to_inputs(matrices, everything)
    above = bounds.from_targets(matrices, everything)
    for level in range(5):
        assert (below[level] >= flows[level] - 1e-12).all()
    assert (above[0] >= flows[-1] - 1e-12).all()
    assert (bounds.meet(above, below) >= flows[-1] - 1e-12).all()
    assert (bounds.climb(matrices[-1], flows[-2]) <= flows[-1] + 1e-12).all()
    chosen = draw.random((7, 7)) < 0.7
    two = bounds.climb_two(matrices, everything, flows[-3], chosen)
    assert (two <= flows[-1] + 1e-12).all()
    assert (two[~chosen] == 0).all()
    # the terms of its minimum are cuts by thresholds of the flows below, so a naive minimum over them is it
    assert two[chosen] == pytest.approx(naive_climb_two(matrices, flows[-3])[chosen], abs=1e-12)


def naive_climb_two(matrices, below):
    """The formula of ``climb_two``, one pair and one threshold at a time."""
    result = np.empty(below.shape)
    for i, j in np.ndindex(below.shape):
        terms = []
        for held in [-1.0, *below[:, j]]:  # nodes with a flow of at most this lie on the source side
            free = below[:, j] > held
            onward = [min(a, row[free].sum()) for a, row in zip(matrices[-1][i], matrices[-2], strict=True)]
            terms.append(max(held, 0.0) + sum(onward))
        result[i, j] = min(terms)
    return result


def test_two_levels_down_see_what_one_does_not():
    """Two nodes held by their own rows pass on together what neither does alone."""
    matrices = [np.array([[1.0, 0.0], [1.0, 0.0]]), np.diag([0.5, 0.5]), np.full((2, 2), 0.5)]
    rows, flows = np.arange(2), [by_igraph(stack(matrices), level)[:, :1] for level in (1, 2, 3)]
    assert flows[2].tolist() == [[1.0], [1.0]]
    assert bounds.climb(matrices[2], flows[1]).tolist() == [[0.5], [0.5]]
    assert bounds.climb_two(matrices, rows, flows[0], np.ones((2, 1), bool)).tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("rung", hub.HUB_RUNGS)
@pytest.mark.parametrize("middle_scale", [1.0, 0.3])
def test_hub_is_a_lower_bound_even_where_it_settles_nothing(middle_scale, rung):
    graph = quiet(softmax(6, 12, scale=2.0) * middle_scale, residual=0.5)
    flows = by_igraph(graph, 6)
    even = hub.EvenHub([b.capacity for b in graph.blocks], float(flows.max()), rung)
    lower = even.lower_bounds(np.arange(12), np.arange(12))
    assert (lower <= flows + 1e-9).all()
    assert lower.max() > 0  # says something


def test_deep_random_graphs_are_settled_by_the_hub():
    stats = flow_matrix(quiet(softmax(12, 48))).stats["settled"]
    assert stats == {"hub": 48 * 48}


def test_a_hub_that_thin_subgraphs_cannot_reach_takes_denser_ones():
    graph = quiet(softmax(12, 48), residual=0.75)
    matrices, everything = [b.capacity for b in graph.blocks], np.arange(48)
    thin = hub.EvenHub(matrices, 1.0, hub.HUB_RUNGS[0]).lower_bounds(everything, everything)
    found = flow_matrix(graph)
    assert (thin < found.values - 1e-9).mean() > 0.1
    assert found.stats["settled"] == {"hub": 48 * 48}


def test_levels_above_a_saturated_one_are_settled_from_below():
    stats = flow_matrix(quiet(softmax(12, 48)), level="all").stats["settled"]
    assert stats["levels below"] >= 6 * 48 * 48


def test_a_solver_that_exceeds_a_proven_bound_is_caught(monkeypatch):
    from flowgraph.errors import CertificateError

    monkeypatch.setattr(sparse.WholeGraph, "value", lambda self, row, column: 7.0)
    with pytest.raises(CertificateError, match="no flow can exceed"):
        fg.attention_flow(quiet(softmax(4, 10)))


@needs_instances
@pytest.mark.parametrize("name", ["minilm_14", "minilm_67", "smollm2_64", "dinov2_145"])
def test_real_graphs(name):
    with np.load(Path(INSTANCES) / f"{name}.npz", allow_pickle=False) as file:
        graph = quiet(file["attention"].astype(np.float64))
        targets = file["targets"][:12]
        assert_exact(fg.attention_flow(graph, targets=targets), file["flow"][:12])
        assert fg.rollout(graph) == pytest.approx(file["rollout"], abs=1e-6)


@needs_instances
def test_the_whole_of_a_deep_real_graph():
    with np.load(Path(INSTANCES) / "dinov2_145.npz", allow_pickle=False) as file:
        graph = quiet(file["attention"].astype(np.float64))
        found = flow_matrix(graph)
        assert_exact(found.values[file["targets"]], file["flow"])
    assert found.stats["settled"] == {"hub": 145 * 145}
    # nothing of the target is left in these values: all that can leave it, or all that can enter the input
    assert (found.held_by != "between").all()
    assert (np.ptp(found.values, axis=0) < 1e-9).all()
