"""A function over the edge table as a solver: what it gets, what it may return, and that it is not trusted."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

import flowgraph as fg
from flowgraph import CertificateError, FlowgraphError, TimeLimitError
from flowgraph.solvers.function import FunctionSolver
from tests.helpers import all_pairs, close, encoder_decoder, exact_value, random_stack, small_stacks, stack


def by_networkx(edges, source, sink):
    """The flow of networkx on each edge; edges between the same two nodes are one, and shared out again."""
    network, ends = nx.DiGraph(), list(zip(edges["source"], edges["target"], strict=True))
    network.add_nodes_from([source, sink])
    for (tail, head), capacity in zip(ends, edges["capacity"], strict=True):
        had = network.get_edge_data(tail, head, {"capacity": 0.0})["capacity"]
        network.add_edge(tail, head, capacity=had + capacity)
    way = nx.algorithms.flow.shortest_augmenting_path
    _, flow = nx.maximum_flow(network, source, sink, flow_func=way)
    shares = edges["capacity"] / [network[tail][head]["capacity"] for tail, head in ends]
    return [flow[tail][head] * share for (tail, head), share in zip(ends, shares, strict=True)]


@pytest.fixture
def registered():
    names = []

    def register(name, function):
        names.append(name)
        return fg.solvers.register(name, function)

    yield register
    for name in names:
        fg.solvers.unregister(name)


@given(small_stacks())
def test_right_and_certified(graph):
    solver = FunctionSolver("mine", by_networkx)
    for source, sink in all_pairs(graph):
        result = solver.prepare(graph).solve(source, sink)
        fg.check_flow(graph, result)
        assert close(result.value, exact_value(graph, source, sink))


def test_on_a_graph_with_levels_beside_each_other():
    graph = encoder_decoder(0)
    source, sink = (len(graph.levels) - 1, 0), (0, 1)
    result = FunctionSolver("mine", by_networkx).prepare(graph).solve(source, sink)
    fg.check_flow(graph, result)
    assert result.value == pytest.approx(fg.max_flow(graph, source, sink).value, abs=1e-9)


def test_it_answers_everywhere_by_its_name(registered):
    graph = random_stack(0, 3, 4, "even")
    solver = registered("My_Solver", by_networkx)
    assert solver.name == "my-solver"
    assert fg.max_flow(graph, (3, 1), (0, 2), solver="my solver").solver == "my-solver"
    mine = fg.attention_flow(graph, solver="my-solver")
    np.testing.assert_allclose(mine, fg.attention_flow(graph), atol=1e-9)


def test_a_wrong_function_is_refused_and_not_mended(registered):
    graph = random_stack(1, 3, 4, "even")
    registered("half", lambda *args: np.multiply(by_networkx(*args), 0.5))
    with pytest.raises(CertificateError, match="solver: 'half' gave no maximum flow: value: a flow of"):
        fg.max_flow(graph, (3, 1), (0, 2), solver="half")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            [0.1, 0.2],
            r"solver: mine returned float64 values of shape \(2,\); return the flow on each of the 3 edges",
        ),
        (None, "solver: mine returned object values"),
        (0.5, r"of shape \(\)"),
        (["a", "b", "c"], "solver: mine returned <U1 values"),
    ],
)
def test_what_it_returns_is_checked(answer, message):
    graph = stack([[[0.3, 0.2], [0.0, 0.4]]])
    with pytest.raises(FlowgraphError, match=message):
        FunctionSolver("mine", lambda *_: answer).prepare(graph).solve((1, 0), (0, 0))


def test_it_cannot_change_the_table():
    def changes(edges, source, sink):
        edges["capacity"][:] = 1.0

    with pytest.raises(ValueError, match="read-only"):
        FunctionSolver("mine", changes).prepare(stack([[[0.3]]])).solve((1, 0), (0, 0))


def test_a_time_limit_is_looked_at_after_the_call():
    graph = stack([[[0.3]]])
    with pytest.raises(TimeLimitError, match="mine on"):
        FunctionSolver("mine", by_networkx).prepare(graph).solve((1, 0), (0, 0), time_limit=1e-9)


@pytest.mark.parametrize(
    ("solver", "message"),
    [(FunctionSolver, "is a class; pass"), (3, "is no function"), ("igraph", "is no function")],
)
def test_what_is_no_solver_is_refused(solver, message):
    with pytest.raises(FlowgraphError, match=message):
        fg.solvers.register("mine", solver)


def test_by_block_is_the_inverse_of_edges():
    graph = encoder_decoder(3, style="sparse")
    for block, capacity in zip(graph.blocks, graph.by_block(graph.edges()["capacity"]), strict=True):
        np.testing.assert_array_equal(capacity, block.capacity)
