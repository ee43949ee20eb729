"""Objects that users hold: copied, pickled, compared, and passed where another kind is meant."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flowgraph as fg
from flowgraph.errors import FlowgraphError

MIXING = np.random.default_rng(0).dirichlet(np.ones(4), (3, 4))
GRAPH = fg.LayeredGraph.from_matrices(MIXING, tokens=["a", "b", "c", "d"])


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy, copy.copy])
def test_a_graph_survives_copying(copied: Callable[[Any], Any]) -> None:
    found = copied(GRAPH)
    assert found.levels == GRAPH.levels
    assert (found.layers, found.inputs, found.signed) == (GRAPH.layers, GRAPH.inputs, GRAPH.signed)
    assert dict(found.meta) == dict(GRAPH.meta)
    for mine, theirs in zip(found.blocks, GRAPH.blocks, strict=True):
        assert (mine.capacity == theirs.capacity).all()
        assert not mine.capacity.flags.writeable
    with pytest.raises(TypeError):
        found.meta["text"] = "other"


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy, copy.copy])
def test_an_attribution_survives_copying(copied: Callable[[Any], Any]) -> None:
    attribution = fg.attribute_graph(GRAPH, targets=[1, 3])
    found = copied(attribution)
    assert found.to_json() == attribution.to_json()
    assert (found.held_by == attribution.held_by).all()
    assert not found.scores.flags.writeable
    assert found.graph.num_edges == GRAPH.num_edges


@pytest.mark.parametrize(
    "result", [fg.max_flow(GRAPH, (3, 0), (0, 1)), fg.joint_flow(GRAPH, (3, 0))], ids=["flow", "joint flow"]
)
def test_results_are_compared_by_identity_and_shown_in_a_line(result: Any) -> None:
    other = copy.deepcopy(result)
    assert result == result
    assert (result == other) is False  # arrays of one pair and another are compared by numpy, not by ==
    assert len(repr(result)) < 300
    assert other.value == result.value


WRONG = {
    "raw": lambda wrong: fg.raw(wrong),
    "rollout": lambda wrong: fg.rollout(wrong),
    "attention_flow": lambda wrong: fg.attention_flow(wrong),
    "max_flow": lambda wrong: fg.max_flow(wrong, (1, 0), (0, 0)),
    "joint_flow": lambda wrong: fg.joint_flow(wrong, (1, 0)),
    "bottleneck": lambda wrong: fg.bottleneck(wrong, (1, 0), (0, 0)),
    "attribute_graph": lambda wrong: fg.attribute_graph(wrong),
    "check_flow": lambda wrong: fg.check_flow(wrong, fg.max_flow(GRAPH, (3, 0), (0, 1))),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("wrong", [None, np.eye(3), 3], ids=str)
def test_what_is_no_graph_is_one_error(call: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises(FlowgraphError, match=rf"^graph: {type(wrong).__name__} is not a LayeredGraph; "):
        call(wrong)


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_a_list_of_graphs_is_one_error(call: Callable[[Any], Any]) -> None:
    with pytest.raises(FlowgraphError, match=r"^graph: a list of 2; pass one of them"):
        call([GRAPH, GRAPH])


@pytest.mark.parametrize("call", [fg.LayeredGraph.from_trace, fg.norms, fg.mixing_ratio])
def test_what_is_no_trace_is_one_error(call: Callable[[Any], Any]) -> None:
    with pytest.raises(
        FlowgraphError, match=r"^trace: LayeredGraph is not a Trace; pass what fg.trace returned"
    ):
        call(GRAPH)


@pytest.mark.parametrize(
    "call", [lambda g: g.to_networkx(), lambda g: g.to_igraph()], ids=["networkx", "igraph"]
)
def test_a_signed_graph_is_not_exported(call: Callable[[Any], Any]) -> None:
    with pytest.warns(fg.FlowgraphWarning):
        signed = fg.LayeredGraph.from_matrices(MIXING - 0.2, negative="keep")
    with pytest.raises(FlowgraphError, match=r"^negative: an? (networkx|igraph) graph needs capacities"):
        call(signed)


@pytest.mark.parametrize("residual", [True, np.True_])
def test_a_residual_is_no_truth_value(residual: Any) -> None:
    with pytest.raises(FlowgraphError, match=r"^residual: True is not a share; pass 0.5"):
        fg.LayeredGraph.from_matrices(np.eye(2)[None], residual=residual)
