"""The libraries' known faults, and how the adapters get round them."""

from __future__ import annotations

import threading
import time

import networkx as nx
import numpy as np
import pytest

from flowgraph import solvers
from flowgraph.errors import FlowgraphError, TimeLimitError
from flowgraph.solvers.base import check_flow
from tests.helpers import close, exact_value, graph_of, random_stack, stack

ALGORITHM = "networkx.algorithms.flow.shortest_augmenting_path"


def solve(graph, source, sink):
    result = solvers.get("networkx").prepare(graph).solve(source, sink)
    check_flow(graph, result)
    return result


def test_networkx_dinitz_still_fails():
    """The reason why it is not used. When this fails, networkx has mended it."""
    graph = stack([[[0.9, 0.2], [0.5, 0.8]], [[0.9, 0.3], [0.7, 0.9]], [[0.3, 0.8], [0.2, 0.2]]])
    with pytest.raises((IndexError, KeyError)):
        nx.maximum_flow_value(graph.to_networkx(), (3, 0), (0, 0), flow_func=nx.algorithms.flow.dinitz)


def test_networkx_algorithm_that_raises(monkeypatch):
    def raising(*arguments, **options):
        raise IndexError("pop from empty list")

    monkeypatch.setattr(ALGORITHM, raising)
    graph = random_stack(2, 3, 3, "even")
    result = solve(graph, (3, 0), (0, 1))
    assert close(result.value, exact_value(graph, (3, 0), (0, 1)))
    assert result.stats["algorithm"] == "edmonds_karp"
    assert result.stats["failed"] == {"shortest_augmenting_path": "IndexError: pop from empty list"}


def test_networkx_algorithm_that_leaves_residues_and_falls_short(monkeypatch):
    """What preflow_push does: leaks of 2e-16; here also a flow that is only half of what it should be."""

    def leaky(graph, source, sink, *, residual):
        nx.algorithms.flow.edmonds_karp(graph, source, sink, residual=residual)
        for u, v, edge in residual.edges(data=True):
            edge["flow"] = 0.5 * edge["flow"] + 2e-16 * (1 + (u + v) % 3)

    monkeypatch.setattr(ALGORITHM, leaky)
    graph = random_stack(2, 3, 3, "even")
    result = solve(graph, (3, 0), (0, 1))
    assert close(result.value, exact_value(graph, (3, 0), (0, 1)))
    assert result.stats["augmentations"] > 0


def test_all_networkx_algorithms_fail(monkeypatch):
    def raising(*arguments, **options):
        raise KeyError("curr_edge")

    monkeypatch.setattr(ALGORITHM, raising)
    monkeypatch.setattr("networkx.algorithms.flow.edmonds_karp", raising)
    prepared = solvers.get("networkx").prepare(random_stack(2, 2, 2, "even"))
    with pytest.raises(FlowgraphError, match=r"networkx found no flow.*KeyError.*use another solver"):
        prepared.solve((2, 0), (0, 0))


def test_networkx_is_interrupted_inside_a_pair():
    """Nothing but the clock in the residual network can end this within its one call."""
    prepared = solvers.get("networkx").prepare(random_stack(1, 8, 40, "even"))
    start = time.monotonic()
    with pytest.raises(TimeLimitError, match=r"networkx on \(8, 0\) to \(0, 0\)"):
        prepared.solve((8, 0), (0, 0), time_limit=0.002)
    assert time.monotonic() - start < 1.0


def test_networkx_is_interrupted_outside_the_main_thread():
    prepared = solvers.get("networkx").prepare(random_stack(1, 8, 40, "even"))
    caught = []

    def work():
        try:
            prepared.solve((8, 0), (0, 0), time_limit=0.002)
        except TimeLimitError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_networkx_works_on_after_an_interruption():
    graph = random_stack(1, 5, 12, "even")
    prepared = solvers.get("networkx").prepare(graph)
    expected = prepared.solve((5, 0), (0, 0)).value
    with pytest.raises(TimeLimitError):
        prepared.solve((5, 0), (0, 0), time_limit=1e-4)
    again = prepared.solve((5, 0), (0, 0))
    check_flow(graph, again)
    assert again.value == expected


@pytest.mark.parametrize("name", solvers.names())
def test_parallel_edges(name):
    """networkx overwrites them, igraph adds them up; here they add up, and each block gets its flow."""
    graph = graph_of([1, 1, 1], [(1, 0, [[0.5]]), (1, 0, [[0.25]]), (2, 1, [[0.6]])])
    result = solvers.get(name).prepare(graph).solve((2, 0), (0, 0))
    check_flow(graph, result)
    assert result.value == pytest.approx(0.6, abs=1e-15)
    assert sum(f[0, 0] for f in result.edge_flow[:2]) == pytest.approx(0.6, abs=1e-15)
    assert "augmentations" not in result.stats


def test_igraph_values_are_those_of_its_flows():
    graph = random_stack(9, 4, 6, "peaky")
    prepared = solvers.get("igraph").prepare(graph)
    nodes = [(4, p) for p in range(6)], [(0, p) for p in range(6)]
    flows = [[prepared.solve(source, sink).value for sink in nodes[1]] for source in nodes[0]]
    np.testing.assert_allclose(prepared.values(*nodes), flows, rtol=1e-12)
