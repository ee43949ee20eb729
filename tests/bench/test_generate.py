"""Generated graphs, and the packaged peers on them."""

from __future__ import annotations

import numpy as np
import pytest

import flowgraph as fg
from flowgraph.bench import KINDS, PEERS, generate
from flowgraph.bench.auto import AutoSolver
from tests.helpers import close, exact_value, random_stack

TOLERANCE = {"scipy": 1e-7}
"""Capacities are rounded to 2^-30 of the largest; the others keep the promise of 1e-9."""


@pytest.mark.parametrize("kind", KINDS)
def test_rows_sum_to_one_and_hold_the_residual(kind):
    graph = generate(3, 16, kind, seed=5)
    assert (graph.num_layers, graph.levels[0].size) == (3, 16)
    for block in graph.blocks:
        np.testing.assert_allclose(block.capacity.sum(1), 1)
        assert (np.diag(block.capacity) >= 0.5).all()


def test_masks():
    behind = np.subtract.outer(np.arange(16), np.arange(16))
    for block in generate(2, 16, "causal").blocks:
        assert ((block.capacity > 0) == (behind >= 0)).all()
    for block in generate(2, 16, "window").blocks:
        assert ((block.capacity > 0) == ((behind >= 0) & (behind < 2))).all()


def test_peaky_graphs_are_peaky():
    # a row holds 0.5 on the diagonal; what else it holds is spread or heaped
    largest = {
        kind: (generate(4, 32, kind).blocks[0].capacity - 0.5 * np.eye(32)).max(1).mean()
        for kind in ("softmax", "peaky")
    }
    assert largest["peaky"] > 2 * largest["softmax"]


def test_the_seed_decides():
    first, same, other = (generate(2, 5, seed=seed).blocks[1].capacity for seed in (1, 1, 2))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0, 4), "0x4 has no edges"), ((2, 0), "2x0 has no edges"), ((2, 4, "flat"), "unknown kind of graph")],
)
def test_what_cannot_be_generated_is_an_error(arguments, message):
    with pytest.raises(fg.FlowgraphError, match=message):
        generate(*arguments)


@pytest.mark.parametrize("style", ["even", "causal", "ties", "unit"])
@pytest.mark.parametrize("name", PEERS)
def test_peers_find_maximum_flows(name, style):
    peer = PEERS[name]
    if not peer.installed:
        pytest.skip(f"{peer.module} is not installed")
    graph = random_stack(7, 3, 4, style)
    sources, sinks = [(3, p) for p in range(4)], [(0, p) for p in range(4)]
    found = peer.prepare(graph).values(sources, sinks)
    exact = np.array([[float(exact_value(graph, s, t)) for t in sinks] for s in sources])
    np.testing.assert_allclose(found, exact, atol=TOLERANCE.get(name, 1e-9))


def test_auto_gives_whole_rows_and_single_pairs():
    graph = generate(4, 6, "peaky")
    prepared = AutoSolver().prepare(graph)
    sources, sinks = [(4, p) for p in range(6)], [(0, 2), (0, 0)]
    np.testing.assert_allclose(
        prepared.values(sources, sinks), fg.attention_flow(graph, inputs=[2, 0]), rtol=1e-9
    )
    result = prepared.solve((4, 1), (0, 2))
    fg.check_flow(graph, result)
    assert close(prepared.values([(4, 1)], [(0, 2)])[0, 0], exact_value(graph, (4, 1), (0, 2)))
    assert close(prepared.values([(4, 1), (3, 1)], [(1, 2)])[1, 0], exact_value(graph, (3, 1), (1, 2)))
