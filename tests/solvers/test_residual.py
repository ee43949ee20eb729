"""What is made of a flow that a library returned: repaired, augmented, certified, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.errors import TimeLimitError
from flowgraph.solvers.base import check_flow
from flowgraph.solvers.residual import Deadline, certified, repaired
from tests.helpers import close, encoder_decoder, exact_value, pairs, random_stack, stack, stacks, tangle


def nothing(graph):
    return [np.zeros(block.capacity.shape) for block in graph.blocks]


def finished(graph, source, sink, flow):
    result = certified(graph, source, sink, flow, "test", {}, Deadline(None, "test"))
    check_flow(graph, result)
    return result


@settings(max_examples=60)
@given(data=st.data())
def test_repaired_flows_are_flows_whatever_they_were(data):
    graph = data.draw(stacks(max_layers=4, max_size=5))
    source, sink = data.draw(pairs(graph))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    wild = [block.capacity * rng.uniform(-0.5, 1.5, block.capacity.shape) for block in graph.blocks]
    flow = repaired(graph, source, sink, wild)
    net = [np.zeros(level.size) for level in graph.levels]
    for block, f, w in zip(graph.blocks, flow, wild, strict=True):
        assert (f >= 0).all()
        assert (f <= np.clip(w, 0, block.capacity)).all()
        net[block.upper] += f.sum(1)
        net[block.lower] -= f.sum(0)
    value = net[source[0]][source[1]]
    net[source[0]][source[1]] -= value
    net[sink[0]][sink[1]] += value
    assert max(np.abs(n).max() for n in net) <= 1e-12 * max(1.0, max(f.max() for f in flow))


def test_a_good_flow_is_left_as_it_is():
    graph = stack([[[0.5, 0.0], [0.7, 0.0]], [[0.6, 0.4], [0.0, 0.0]]])
    flow = [np.array([[0.5, 0.0], [0.4, 0.0]]), np.array([[0.5, 0.4], [0.0, 0.0]])]
    result = finished(graph, (2, 0), (0, 0), flow)
    assert all(np.array_equal(f, g) for f, g in zip(result.edge_flow, flow, strict=True))
    assert "augmentations" not in result.stats


def test_residues_do_not_reach_the_cut():
    """Edges of 1e-17 left open by rounding, on every path: the cut is still the minimum one."""
    graph = stack([[[0.5, 0.0], [0.7, 0.0]], [[0.6, 0.4], [0.0, 0.0]]])
    residue = [np.array([[0.5 - 1e-16, 0.0], [0.4, 0.0]]), np.array([[0.5, 0.4 - 1e-16], [0.0, 0.0]])]
    result = finished(graph, (2, 0), (0, 0), residue)
    assert result.cut_value == pytest.approx(0.9, abs=1e-15)
    assert result.cut[1].tolist() == [True, False]


@pytest.mark.parametrize("graph", [random_stack(1, 3, 3, "ties"), encoder_decoder(4), tangle(12)])
def test_a_flow_of_nothing_is_augmented_to_the_maximum(graph):
    source, sink = (len(graph.levels) - 1, 0), (0, 0)
    result = finished(graph, source, sink, nothing(graph))
    assert close(result.value, exact_value(graph, source, sink))


@settings(max_examples=40)
@given(data=st.data())
def test_wild_flows_end_at_the_maximum(data):
    graph = data.draw(stacks(max_layers=4, max_size=4))
    source, sink = data.draw(pairs(graph))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    wild = [block.capacity * rng.uniform(-0.5, 1.5, block.capacity.shape) for block in graph.blocks]
    assert close(finished(graph, source, sink, wild).value, exact_value(graph, source, sink))


def test_augmenting_ends_at_the_time_limit():
    graph = random_stack(1, 3, 3, "even")
    with pytest.raises(TimeLimitError, match="time_limit: test used more than the 0 s"):
        certified(graph, (3, 0), (0, 0), nothing(graph), "test", {}, Deadline(0.0, "test"))
