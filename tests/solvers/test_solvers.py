"""What every registered solver must do. Registering a solver enrols it here."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph import solvers
from flowgraph.errors import FlowgraphError, TimeLimitError
from flowgraph.graph import LayeredGraph
from tests.helpers import (
    STYLES,
    all_pairs,
    close,
    encoder_decoder,
    exact_value,
    graph_of,
    instance,
    pairs,
    random_stack,
    small_stacks,
    stack,
    stacks,
    tangle,
)

every_solver = pytest.mark.parametrize("name", solvers.names())


def certified(name, graph, source, sink):
    """The value of a flow that passed the certificate check."""
    result = solvers.get(name).prepare(graph).solve(source, sink)
    solvers.check_flow(graph, result)
    assert (result.source, result.sink, result.solver) == (source, sink, name)
    return result.value


def many(name, graph, sources, sinks, **options):
    """(sources, sinks) values, by the solver's own way to many values where it has one."""
    prepared = solvers.get(name).prepare(graph)
    if hasattr(prepared, "values"):
        return prepared.values(sources, sinks, **options)
    return np.array([[prepared.solve(source, sink).value for sink in sinks] for source in sources])


# --- known answers --------------------------------------------------------------------------------------


@every_solver
def test_one_edge(name):
    # (1,0) --0.3--> (0,0)
    assert certified(name, stack([[[0.3]]]), (1, 0), (0, 0)) == 0.3


@every_solver
def test_the_narrowest_edge_of_a_chain(name):
    # (3,0) --0.9--> (2,0) --0.2--> (1,0) --0.5--> (0,0)
    assert certified(name, stack([[[0.5]], [[0.2]], [[0.9]]]), (3, 0), (0, 0)) == 0.2


@every_solver
def test_two_levels_in_closed_form(name):
    #        (2,0)
    #      .6/   \.4         sum over the middle of the lesser of the two edges:
    #    (1,0)   (1,1)       min(.6, .5) + min(.4, .7) = .9
    #      .5\   /.7
    #        (0,0)
    graph = stack([[[0.5, 0.0], [0.7, 0.0]], [[0.6, 0.4], [0.0, 0.0]]])
    assert certified(name, graph, (2, 0), (0, 0)) == pytest.approx(0.9, abs=1e-15)


@every_solver
def test_flow_that_must_be_taken_back(name):
    #          (3,0)
    #        1 /   \ 1        A first shortest path through (2,0) -> (1,1) blocks the way of
    #      (2,0)   (2,1)      (2,1), which has (1,1) alone; the flow of 2 sends (2,0)
    #      1 | \1    | 1      over (1,0) instead.
    #      (1,0) (1,1)
    #        1 \   / 1
    #          (0,0)
    graph = stack([[[1, 0], [1, 0]], [[1, 1], [0, 1]], [[1, 1], [0, 0]]])
    assert certified(name, graph, (3, 0), (0, 0)) == pytest.approx(2.0, abs=1e-14)


@every_solver
def test_an_edge_that_skips_a_level_and_one_between(name):
    # nodes 0, 2, 1, 3 on levels of their own, from the top; flow from 0 to 3:
    #   0 -> 1 .5, 0 -> 2 .5, 1 -> 3 .2, 2 -> 3 .9, 2 -> 1 .4
    # 1 passes on .2 of what it gets, 2 all of its .5: .7 (as an undirected graph it would be 1.0)
    edges = [(3, 1, 0.5), (3, 2, 0.5), (1, 0, 0.2), (2, 0, 0.9), (2, 1, 0.4)]
    graph = graph_of([1, 1, 1, 1], [(u, v, [[c]]) for u, v, c in edges])
    assert certified(name, graph, (3, 0), (0, 0)) == pytest.approx(0.7, abs=1e-15)


@every_solver
def test_the_order_of_edges_does_not_matter(name):
    # 0 -> 1, 2, 3;  1 -> 4;  2 -> 4, 5;  3 -> 5, 6;  4, 5, 6 -> 7, all of capacity 1: flow 3
    middle = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1]])
    for rows, columns in itertools.product(itertools.permutations(range(3)), repeat=2):
        shuffled = middle[np.ix_(rows, columns)]
        graph = graph_of([1, 3, 3, 1], [(1, 0, np.ones((3, 1))), (2, 1, shuffled), (3, 2, np.ones((1, 3)))])
        assert certified(name, graph, (3, 0), (0, 0)) == pytest.approx(3.0, abs=1e-14)


@every_solver
def test_a_graph_on_which_networkx_dinitz_fails(name):
    graph = stack([[[0.9, 0.2], [0.5, 0.8]], [[0.9, 0.3], [0.7, 0.9]], [[0.3, 0.8], [0.2, 0.2]]])
    assert close(certified(name, graph, (3, 0), (0, 0)), exact_value(graph, (3, 0), (0, 0)))


@every_solver
def test_parallel_blocks_add_up(name):
    graph = graph_of([2, 1], [(1, 0, [[0.2, 0.5]]), (1, 0, [[0.3, 0.0]])])
    assert certified(name, graph, (1, 0), (0, 0)) == pytest.approx(0.5, abs=1e-15)


@every_solver
def test_no_way_from_source_to_sink(name):
    graph = stack([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    assert certified(name, graph, (2, 0), (0, 1)) == 0.0


@every_solver
def test_no_blocks_at_all(name):
    assert certified(name, graph_of([2, 2], []), (1, 0), (0, 1)) == 0.0


@every_solver
def test_a_source_in_the_middle_of_the_graph(name):
    graph = random_stack(3, 5, 4, "even")
    below = stack([block.capacity for block in graph.blocks[:3]])
    assert close(certified(name, graph, (3, 1), (0, 2)), exact_value(below, (3, 1), (0, 2)))


@every_solver
def test_a_sink_above_the_inputs(name):
    graph = random_stack(4, 5, 4, "even")
    above = stack([block.capacity for block in graph.blocks[2:]])
    assert close(certified(name, graph, (5, 1), (2, 2)), exact_value(above, (3, 1), (0, 2)))


# --- against exact arithmetic ---------------------------------------------------------------------------


@every_solver
@settings(max_examples=60)
@given(data=st.data())
def test_small_graphs_of_any_capacities(name, data):
    graph = data.draw(small_stacks())
    source, sink = data.draw(pairs(graph))
    assert close(certified(name, graph, source, sink), exact_value(graph, source, sink))


@every_solver
@pytest.mark.parametrize("style", STYLES)
def test_every_style(name, style):
    graph = random_stack(7, 4, 4, style)
    for i, j in itertools.product(range(4), repeat=2):
        assert close(certified(name, graph, (4, i), (0, j)), exact_value(graph, (4, i), (0, j)))


@every_solver
@pytest.mark.parametrize("style", ["even", "sparse", "wide"])
def test_encoder_decoder_graphs(name, style):
    graph = encoder_decoder(11, style=style)
    # from the decoder, from the encoder, and from decoder level 0, from which no way leads to the encoder
    for source in [(7, 0), (7, 1), (5, 0), (2, 1), (3, 0)]:
        for sink in [(0, 0), (0, 2), (1, 1), (3, 1)]:
            if source[0] > sink[0]:
                assert close(certified(name, graph, source, sink), exact_value(graph, source, sink))


@every_solver
@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), style=st.sampled_from(STYLES), data=st.data())
def test_tangles_of_blocks(name, seed, style, data):
    graph = tangle(seed, style)
    source, sink = data.draw(pairs(graph))
    assert close(certified(name, graph, source, sink), exact_value(graph, source, sink))


# --- against each other ---------------------------------------------------------------------------------


@settings(max_examples=80)
@given(data=st.data())
def test_solvers_agree(data):
    graph = data.draw(stacks())
    source, sink = data.draw(pairs(graph))
    values = {name: certified(name, graph, source, sink) for name in solvers.names()}
    assert close(min(values.values()), max(values.values())), values


@every_solver
@settings(max_examples=25)
@given(data=st.data())
def test_many_values_are_the_single_ones(name, data):
    graph = data.draw(stacks(max_layers=5, max_size=6))
    sources = [source for source, _ in (data.draw(pairs(graph)) for _ in range(3)) if source[0] > 0]
    sinks = [(0, p) for p in range(graph.levels[0].size)]
    values = many(name, graph, sources, sinks)
    for (row, source), (column, sink) in itertools.product(enumerate(sources), enumerate(sinks)):
        assert close(values[row, column], exact_value(graph, source, sink))


@every_solver
def test_many_values_across_levels_and_blocks(name):
    graph = encoder_decoder(5, style="sparse")
    sources, sinks = [(7, 0), (5, 1), (7, 1)], [(0, 0), (3, 1), (2, 2), (0, 1)]
    expected = [[float(exact_value(graph, source, sink)) for sink in sinks] for source in sources]
    np.testing.assert_allclose(many(name, graph, sources, sinks), expected, atol=1e-9)


@every_solver
def test_one_prepared_graph_answers_every_pair_afresh(name):
    graph = random_stack(8, 3, 3, "ties")
    prepared = solvers.get(name).prepare(graph)
    twice = [prepared.solve(source, sink).value for _ in range(2) for source, sink in all_pairs(graph)]
    expected = [exact_value(graph, source, sink) for source, sink in all_pairs(graph)]
    assert all(close(value, exact) for value, exact in zip(twice, expected * 2, strict=True))


# --- real graphs ----------------------------------------------------------------------------------------


@every_solver
def test_real_graph_flows(name):
    graph, targets, flow = instance("minilm_14")
    found = [[certified(name, graph, (6, i), (0, j)) for j in range(0, 14, 5)] for i in targets[::5]]
    np.testing.assert_allclose(found, flow[::5, ::5], rtol=0, atol=1e-9)


@every_solver
def test_real_graph_matrix(name):
    graph, targets, flow = instance("minilm_14")
    found = many(name, graph, [(6, i) for i in targets[::3]], [(0, j) for j in range(14)])
    np.testing.assert_allclose(found, flow[::3], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("real", "step"), [("minilm_67", 23), ("minilm_146", 73), ("smollm2_64", 21), ("dinov2_145", 72)]
)
def test_larger_real_graphs(real, step):
    graph, targets, flow = instance(real)
    top = len(graph.levels) - 1
    columns = list(range(0, graph.levels[0].size, step))
    sources = [(top, i) for i in targets[:3]]
    found = many("push-relabel", graph, sources, [(0, j) for j in columns])
    np.testing.assert_allclose(found, flow[:3, columns], rtol=0, atol=1e-9)


# --- refusals -------------------------------------------------------------------------------------------


@every_solver
@pytest.mark.parametrize(
    ("source", "sink", "message"),
    [
        ((1, 0), (1, 0), "source, sink: both are"),
        ((0, 0), (1, 0), "does not lie above"),
        ((1, 0), (1, 1), "does not lie above"),
        ((4, 0), (0, 0), "source: level 4 is not in the graph"),
        ((1, 2), (0, 0), "source: position 2 is not in level 1"),
        ((1, 0), (0, -1), "sink: position -1 is not in level 0"),
        ("top", (0, 0), "source: 'top' is not a node"),
        ((1, 0), (0, 0.5), "sink: .* is not a node"),
    ],
)
def test_pairs_that_are_none(name, source, sink, message):
    prepared = solvers.get(name).prepare(random_stack(0, 2, 2, "even"))
    with pytest.raises(FlowgraphError, match=message):
        prepared.solve(source, sink)


@pytest.mark.parametrize("name", [n for n in solvers.names() if n != "networkx"])
def test_pairs_that_are_none_among_many(name):
    prepared = solvers.get(name).prepare(random_stack(0, 2, 2, "even"))
    with pytest.raises(FlowgraphError, match="does not lie above"):
        prepared.values([(2, 0), (1, 0)], [(0, 0), (1, 1)])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_capacities_that_are_none_never_reach_a_solver(bad):
    with pytest.raises(FlowgraphError, match="capacit"):
        stack([[[bad]]])


@every_solver
def test_signed_graphs_are_refused(name):
    graph = LayeredGraph.from_matrices(
        np.array([[[0.75, -0.25], [0.0, 1.0]]]), negative="keep", residual=None
    )
    with pytest.raises(FlowgraphError, match="negative"):
        solvers.get(name).prepare(graph)


@every_solver
def test_time_limit(name):
    prepared = solvers.get(name).prepare(random_stack(1, 6, 12, "even"))
    with pytest.raises(TimeLimitError, match="1e-09 s"):
        prepared.solve((6, 0), (0, 0), time_limit=1e-9)


@every_solver
def test_ample_time_limit(name):
    result = solvers.get(name).prepare(random_stack(1, 2, 3, "even")).solve((2, 0), (0, 0), time_limit=60.0)
    assert result.value > 0


@pytest.mark.parametrize("name", [n for n in solvers.names() if n != "networkx"])
def test_time_limit_and_progress_of_many(name):
    graph = random_stack(1, 4, 10, "even")
    prepared = solvers.get(name).prepare(graph)
    nodes = [(4, p) for p in range(10)], [(0, p) for p in range(10)]
    finished = []
    prepared.values(*nodes, progress=finished.append)
    assert sum(finished) == 100
    start = time.monotonic()
    with pytest.raises(TimeLimitError):
        prepared.values(*nodes, time_limit=1e-9)
    assert time.monotonic() - start < 5.0
