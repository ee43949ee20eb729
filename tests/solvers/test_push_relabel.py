"""What the batched push-relabel does inside: heights, waves, certificates, and what it does when one fails."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph import solvers
from flowgraph.errors import CertificateError
from flowgraph.solvers import push_relabel
from flowgraph.solvers.base import check_flow
from flowgraph.solvers.network import Arcs, Network
from flowgraph.solvers.preflow import FAR, Preflow
from tests.helpers import STYLES, close, encoder_decoder, exact_value, random_stack, stack


def network_of(graph):
    """The whole of a stack, numbered from the top."""
    sizes = [level.size for level in graph.levels][::-1]
    capacities = [block.capacity for block in graph.blocks][::-1]
    return Network(sizes, [Arcs(k, k + 1, c) for k, c in enumerate(capacities)])


def every_pair(network):
    """A preflow of all pairs of start and end."""
    starts, ends = np.divmod(np.arange(network.sizes[0] * network.sizes[-1]), network.sizes[-1])
    return Preflow(network, starts, ends)


def naive_heights(state, pair):
    """Breadth-first search over one pair's residual arcs, one at a time."""
    arcs_into = {}
    for a, arc in enumerate(state.network.arcs):
        room = np.broadcast_to(state.room[a], (state.count, *state.room[a].shape[1:]))[pair]
        flow = np.zeros(room.shape) if state.flow[a] is None else state.flow[a][pair]
        for i, j in np.ndindex(room.shape):
            if room[i, j] > 0:
                arcs_into.setdefault((arc.head, j), []).append((arc.tail, i))
            if flow[i, j] > 0 and arc.tail != 0:
                arcs_into.setdefault((arc.tail, i), []).append((arc.head, j))
    heights, queue = {(state.network.end, 0): 0}, deque([(state.network.end, 0)])
    while queue:
        node = queue.popleft()
        for other in arcs_into.get(node, []):
            if other not in heights:
                heights[other] = heights[node] + 1
                queue.append(other)
    return heights


def check_heights(state):
    for pair in range(state.count):
        expected = naive_heights(state, pair)
        for k in range(1, state.network.end):
            for p, height in enumerate(state.height[k][pair]):
                assert height == expected.get((k, p), FAR)


def check_preflow(state):
    """Within capacity, nothing sent that did not arrive, excess as stated; room and flow make the capacity."""
    net = [np.zeros_like(e) for e in state.excess]
    for a, arc in enumerate(state.network.arcs):
        flow = np.zeros(1) if state.flow[a] is None else state.flow[a]
        assert (flow >= 0).all()
        assert (state.room[a] >= 0).all()
        np.testing.assert_allclose(
            flow + state.room[a], np.broadcast_to(state.capacity[a], (flow + state.room[a]).shape), rtol=1e-14
        )
        if state.flow[a] is not None:
            net[arc.tail] -= flow.sum(2)
            net[arc.head] += flow.sum(1)
    for k in range(1, state.network.end + 1):
        np.testing.assert_allclose(net[k], state.excess[k], atol=1e-13 * max(1.0, state.excess[k].max()))


@pytest.mark.parametrize("rounds", [0, 1, 4])
@pytest.mark.parametrize("style", ["even", "sparse", "ties", "causal", "window", "unit"])
def test_heights_and_preflow_after_every_wave(style, rounds):
    state = every_pair(network_of(random_stack(5, 4, 5, style)))
    for _ in range(6):
        state.relabel()
        check_heights(state)
        state.wave(rounds)
        check_preflow(state)


@pytest.mark.parametrize("rows", [1, 10**9])
def test_row_by_row_and_by_whole_levels_alike(monkeypatch, rows):
    """Rows of few nodes (ROWS = 1: always) and whole levels (never by rows) are the same waves."""
    monkeypatch.setattr("flowgraph.solvers.preflow.ROWS", rows)
    state = every_pair(network_of(random_stack(6, 4, 5, "sparse")))
    for wave in range(5):
        state.relabel()
        check_heights(state)
        state.wave(wave % 3)
        check_preflow(state)


def test_a_plain_wave_raises_the_height_of_what_it_leaves():
    """After a plain wave a node with excess has no admissible arc: its height grows, or it is cut off."""
    state = every_pair(network_of(random_stack(2, 5, 5, "even")))
    for _ in range(8):
        state.relabel()
        before = [h.copy() for h in state.height]
        state.wave(0)
        excess = [e > 0 for e in state.excess]
        state.relabel()
        for k in range(1, state.network.end):
            held = excess[k] & (before[k] < FAR)
            assert (state.height[k][held] > before[k][held]).all()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), style=st.sampled_from(STYLES), layers=st.integers(1, 4))
def test_plain_waves_alone_find_the_maximum(seed, style, layers):
    """Push-relabel without looking ahead ends by itself: nothing rests on the rounds."""
    graph = random_stack(seed, layers, 3, style)
    state = every_pair(network_of(graph))
    for _ in range(200):
        state.relabel()
        if not state.left().any():
            break
        state.wave(0)
    value, cut, fault = state.certificate(np.arange(state.count))
    for pair, (i, j) in enumerate(np.ndindex(3, 3)):
        exact = float(exact_value(graph, (layers, i), (0, j)))
        assert close(value[pair], exact)
        assert close(cut[pair], exact)
        assert fault[pair] <= 1e-9 * max(1.0, exact)


def finished(graph):
    state = every_pair(network_of(graph))
    while True:
        state.relabel()
        if not state.left().any():
            return state
        state.wave(0)


def test_certificate_of_a_finished_batch():
    state = finished(random_stack(3, 3, 4, "ties"))
    value, cut, fault = state.certificate(np.arange(state.count))
    np.testing.assert_allclose(value, cut, atol=1e-14)
    assert fault.max() < 1e-14


@pytest.mark.parametrize("change", [10.0, -10.0])
def test_certificate_finds_a_flow_out_of_bounds(change):
    """Along a whole path, so that nothing but the bounds is broken."""
    state = finished(random_stack(3, 3, 4, "even"))
    state.flow[0] = state.flow[0].copy()
    for a, arc in enumerate([(0, 2), (2, 2), (2, 0)]):
        state.flow[a][5][arc] += change
    _, _, fault = state.certificate(np.arange(state.count))
    assert fault[5] > 20.0
    assert np.delete(fault, 5).max() < 1e-14


def test_certificate_finds_what_was_sent_without_having_arrived():
    state = finished(random_stack(3, 3, 4, "even"))
    state.flow[0] = state.flow[0].copy()
    state.flow[0][5] = 0.0
    _, _, fault = state.certificate(np.arange(state.count))
    assert fault[5] > 0.1
    assert np.delete(fault, 5).max() < 1e-14


def test_certificate_finds_a_cut_that_is_not_minimum():
    state = finished(random_stack(3, 3, 4, "even"))
    for k in range(1, state.network.end):
        state.height[k][5] = 1
    value, cut, _ = state.certificate(np.arange(state.count))
    assert cut[5] - value[5] > 0.1 or close(state.capacity[0][5].sum(), value[5])


@pytest.mark.parametrize("style", STYLES)
def test_pairs_not_done_in_time_are_finished_by_augmenting(monkeypatch, style):
    monkeypatch.setattr(push_relabel, "MAX_WAVES", 1)
    graph = random_stack(4, 3, 3, style)
    prepared = solvers.get("push-relabel").prepare(graph)
    found = prepared.values([(3, i) for i in range(3)], [(0, j) for j in range(3)])
    for i, j in np.ndindex(3, 3):
        assert close(found[i, j], exact_value(graph, (3, i), (0, j)))
        check_flow(graph, prepared.solve((3, i), (0, j)))


def test_values_no_certificate_is_had_for_are_not_returned(monkeypatch):
    """Pairs that are not done are handed on to be finished one by one, and an error there is the caller's."""
    handed_on = []

    def unfinished(self, source, sink, deadline):
        handed_on.append((source, sink))
        raise CertificateError("not to be had")

    monkeypatch.setattr(push_relabel, "MAX_WAVES", 1)
    monkeypatch.setattr(push_relabel.PreparedPushRelabel, "_finish", unfinished)
    graph = random_stack(4, 4, 4, "even")
    with pytest.raises(CertificateError, match="not to be had"):
        solvers.get("push-relabel").prepare(graph).values([(4, 0)], [(0, 0)])
    assert handed_on == [((4, 0), (0, 0))]


@pytest.mark.parametrize("limit", [1, 3000, 10**8])
def test_batches_of_any_size_give_the_same_values(monkeypatch, limit):
    monkeypatch.setattr(push_relabel, "BATCH_BYTES", limit)
    monkeypatch.setattr(push_relabel, "PLAN_BYTES", 2 * limit)
    graph = encoder_decoder(9, 2, 2, 4, 3, "even")
    nodes = [(7, 0), (5, 1), (7, 2), (2, 3)], [(0, 0), (0, 3), (1, 2)]
    found = solvers.get("push-relabel").prepare(graph).values(*nodes)
    expected = [[float(exact_value(graph, source, sink)) for sink in nodes[1]] for source in nodes[0]]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_capacities_of_1e6_beside_1e_minus_12():
    graph = stack([[[1e-12, 1e6], [1e6, 1e-12]], [[1e6, 1e-12], [1.0, 1e6]], [[1e6, 1e6], [1e-12, 1e-12]]])
    prepared = solvers.get("push-relabel").prepare(graph)
    found = prepared.values([(3, 0), (3, 1)], [(0, 0), (0, 1)])
    for i, j in np.ndindex(2, 2):
        assert close(found[i, j], exact_value(graph, (3, i), (0, j)))
