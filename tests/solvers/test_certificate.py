"""The certificate check must object to every way a solver can be wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph import solvers
from flowgraph.errors import CertificateError, FlowgraphError
from flowgraph.solvers.base import FlowResult, check_flow, cut_value
from tests.helpers import encoder_decoder, pairs, stack, stacks, tangle

SOURCE, SINK = (2, 0), (0, 0)


def diamond():
    #        (2,0)
    #      .6/   \.4
    #    (1,0)   (1,1)    maximum .5 + .4 = .9; cut: (1,0)'s edge below, (1,1)'s edge above
    #      .5\   /.7
    #        (0,0)
    return stack([[[0.5, 0.0], [0.7, 0.0]], [[0.6, 0.4], [0.0, 0.0]]])


def maximum():
    """A correct answer for ``diamond``, written down by hand."""
    return FlowResult(
        value=0.9,
        edge_flow=(np.array([[0.5, 0.0], [0.4, 0.0]]), np.array([[0.5, 0.4], [0.0, 0.0]])),
        cut=(np.array([False, False]), np.array([True, False]), np.array([True, False])),
        cut_value=0.9,
        solver="by hand",
        source=SOURCE,
        sink=SINK,
    )


def with_flow(block, position, flow):
    result = maximum()
    result.edge_flow[block][position] = flow
    return result


def without_first_path():
    """A flow of .4 along the right side alone, claimed to be maximum with the true cut."""
    result = with_flow(0, (0, 0), 0.0)
    result.edge_flow[1][0, 0] = 0.0
    return replace(result, value=0.4)


BROKEN = {
    "leaky: a node sends on less than it gets": (with_flow(0, (0, 0), 0.4), "not conserved at node"),
    "a node sends what it never got": (with_flow(0, (1, 0), 0.6), "not conserved at node"),
    "over capacity": (with_flow(0, (0, 0), 0.6), "whose capacity is 0.5"),
    "a flow on an edge that is none": (with_flow(0, (0, 1), 0.1), "whose capacity is 0"),
    "negative flow": (with_flow(0, (0, 0), -0.1), "-0.1 on the edge"),
    "a flow that is not a number": (with_flow(0, (0, 0), np.nan), "not finite"),
    "not maximal": (without_first_path(), "one is not optimal"),
    "another value than its flow": (replace(maximum(), value=0.8), "not conserved at node"),
    "a value that is not a number": (replace(maximum(), value=np.nan), "not a flow value"),
    "a negative value": (replace(maximum(), value=-0.9), "not a flow value"),
    "another cut value than its cut": (replace(maximum(), cut_value=1.0), "1 claimed"),
    "a cut that is not minimum": (
        replace(
            maximum(), cut=(np.zeros(2, bool), np.zeros(2, bool), np.array([True, False])), cut_value=1.0
        ),
        "one is not optimal",
    ),
    "a cut with the source on the wrong side": (
        replace(maximum(), cut=(np.zeros(2, bool), np.array([True, False]), np.zeros(2, bool))),
        "does not part",
    ),
    "a cut with the sink on the wrong side": (
        replace(maximum(), cut=(np.ones(2, bool), np.array([True, False]), np.array([True, False]))),
        "does not part",
    ),
    "the flow of another pair": (replace(maximum(), sink=(0, 1)), "not conserved at node"),
    "a block missing": (replace(maximum(), edge_flow=maximum().edge_flow[:1]), "edge_flow: shapes"),
    "a cut of the wrong shape": (
        replace(maximum(), cut=(np.zeros(3, bool), *maximum().cut[1:])),
        "cut: shapes",
    ),
}


def test_the_correct_answer_passes():
    check_flow(diamond(), maximum())


@pytest.mark.parametrize("how", BROKEN)
def test_broken_answers_are_rejected(how):
    result, message = BROKEN[how]
    with pytest.raises(CertificateError, match=message):
        check_flow(diamond(), result)


def test_errors_at_the_tolerance():
    check_flow(diamond(), with_flow(0, (0, 0), 0.5 + 5e-10))
    with pytest.raises(CertificateError):
        check_flow(diamond(), with_flow(0, (0, 0), 0.5 + 2e-9))
    with pytest.raises(CertificateError):
        check_flow(diamond(), with_flow(0, (0, 0), 0.5 + 5e-10), tolerance=1e-10)


def test_a_pair_that_is_none_is_refused():
    with pytest.raises(FlowgraphError, match="does not lie above"):
        check_flow(diamond(), replace(maximum(), source=(0, 0), sink=(2, 0)))


def test_cut_value_counts_downward_edges_alone():
    # source side holds (2,0) and (0,1): the edge (1,0) -> (0,1) leads into it and does not count
    graph = stack([[[0.5, 0.3], [0.7, 0.0]], [[0.6, 0.4], [0.0, 0.0]]])
    cut = (np.array([False, True]), np.zeros(2, bool), np.array([True, False]))
    assert cut_value(graph, cut) == pytest.approx(1.0)


class Halved:
    """A solver that sends half of what it could."""

    name = "halved"

    def prepare(self, graph):
        prepared = solvers.get("igraph").prepare(graph)

        class Prepared:
            def solve(self, source, sink, *, time_limit=None):
                result = prepared.solve(source, sink)
                half = tuple(f / 2 for f in result.edge_flow)
                return replace(result, value=result.value / 2, edge_flow=half, solver="halved")

        return Prepared()


def test_a_broken_solver_is_found_out_through_the_registry():
    solvers.register("halved", Halved())
    try:
        result = solvers.get("halved").prepare(diamond()).solve(SOURCE, SINK)
        with pytest.raises(CertificateError, match="not optimal"):
            check_flow(diamond(), result)
    finally:
        solvers.unregister("halved")


@settings(max_examples=60)
@given(data=st.data())
def test_any_change_of_a_flow_is_rejected(data):
    """A change of one used or usable edge breaks conservation or capacity, whatever the graph."""
    graph = data.draw(stacks(max_layers=4, max_size=5))
    source, sink = data.draw(pairs(graph))
    result = solvers.get("igraph").prepare(graph).solve(source, sink)
    block = data.draw(st.integers(0, len(graph.blocks) - 1))
    shape = graph.blocks[block].capacity.shape
    where = data.draw(st.integers(0, shape[0] - 1)), data.draw(st.integers(0, shape[1] - 1))
    change = data.draw(st.sampled_from([-1.0, 1.0])) * 1e-6 * max(1.0, result.value)
    flow = [f.copy() for f in result.edge_flow]
    flow[block][where] += change
    with pytest.raises(CertificateError, match="edge_flow"):
        check_flow(graph, replace(result, edge_flow=tuple(flow)))


@pytest.mark.parametrize("graph", [encoder_decoder(2), tangle(12), tangle(4)])
def test_flow_outside_the_pair_is_rejected(graph):
    """A flow of value 0 may not circulate anywhere: graphs with several blocks into one level."""
    top = len(graph.levels) - 1
    result = solvers.get("igraph").prepare(graph).solve((top, 0), (0, 0))
    for k, block in enumerate(graph.blocks):
        free = np.argwhere(block.capacity - result.edge_flow[k] > 1e-3)
        for i, j in free[:2]:
            flow = [f.copy() for f in result.edge_flow]
            flow[k][i, j] += 1e-4
            with pytest.raises(CertificateError, match="not conserved"):
                check_flow(graph, replace(result, edge_flow=tuple(flow)))


def test_what_is_no_graph_and_what_is_no_result_is_refused_by_name():
    with pytest.raises(FlowgraphError, match=r"^result: NoneType is not a FlowResult; pass what fg.max_flow"):
        check_flow(diamond(), None)
    with pytest.raises(FlowgraphError, match=r"^graph: NoneType is not a LayeredGraph"):
        check_flow(None, maximum())
