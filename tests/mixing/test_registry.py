"""Names of edge kinds, kinds of one's own, and what they may return."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

import flowgraph as fg
from flowgraph import mixing
from flowgraph.errors import FlowgraphError
from tests import models
from tests.blocks import SHAPES, make_block

BUILT_IN = [
    "alti",
    "attention",
    "effective",
    "globenc",
    "norm",
    "norm-residual",
    "norm-residual-ln",
    "value-zeroing",
]


@pytest.fixture
def record():
    return make_block(SHAPES["post-norm causal"]).record


@pytest.fixture
def own():
    """Registers kinds and takes them away again."""
    added = []

    def register(name, function, **options):
        added.append(name)
        return mixing.register(name, function, **options)

    yield register
    for name in added:
        mixing.unregister(name)


def test_names_are_listed_without_torch():
    code = "import sys, flowgraph.mixing as m; print(*m.names()); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == BUILT_IN


def test_every_built_in_kind_is_called_as_it_is_registered():
    assert [mixing.get(name).name for name in BUILT_IN] == BUILT_IN


def test_names_are_normalised():
    assert mixing.get("Value_Zeroing ") is mixing.get("value-zeroing")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        FlowgraphError, match=r"edges: unknown edge kind 'atention'; choose one of alti, attention, "
    ):
        mixing.get("atention")


@pytest.mark.parametrize("name", ["attention", "Norm_Residual"])
def test_a_built_in_name_is_taken(name):
    with pytest.raises(
        FlowgraphError, match="registered already; choose another name or pass overwrite=True"
    ):
        mixing.register(name, lambda record: record.weights)


def test_a_built_in_kind_can_be_replaced_and_comes_back(own, record):
    mixing.register("alti", lambda record: record.weights[0], overwrite=True)
    try:
        assert torch.equal(mixing.get("alti").compute(record), record.weights[0])
    finally:
        mixing.unregister("alti")
    assert mixing.get("alti").holds_residual


def test_the_example_of_the_documentation_runs():
    text = mixing.__doc__.split("::\n", 1)[1]
    code = textwrap.dedent(text)
    assert len([line for line in code.splitlines() if line.strip()]) == 8
    model, tokenizer = models.tiny("llama")
    names = {"model": model, "tokenizer": tokenizer}
    try:
        exec(code, names)
        trace = names["trace"]
        graph = fg.LayeredGraph.from_trace(trace)
        flow = fg.attention_flow(graph)
    finally:
        mixing.unregister("received-norm")
    expected = mixing.get("attention")
    assert trace["received-norm"].shape == (3, len(trace.tokens), len(trace.tokens))
    assert not np.allclose(trace["received-norm"], fg.trace(model, tokenizer, "a text")[expected.name])
    assert flow.shape == trace["received-norm"].shape[1:]


def test_a_kind_of_ones_own_joins_heads(own, record):
    kind = own("doubled", lambda record: 2 * record.weights)
    assert torch.equal(kind.compute(record), 2 * record.weights.mean(0))
    assert torch.equal(kind.compute(record, "each"), 2 * record.weights)
    assert torch.equal(kind.compute(record, "max"), 2 * record.weights.amax(0))
    assert torch.equal(kind.compute(record, 2), 2 * record.weights[2])


def test_a_kind_of_ones_own_may_have_one_matrix_and_give_numpy(own, record):
    kind = own("flat", lambda record: record.visible.double().numpy() / 3)
    assert torch.equal(kind.compute(record), record.visible.double() / 3)
    with pytest.raises(FlowgraphError, match="heads: flat has one matrix for all heads"):
        kind.compute(record, "each")


def test_masked_keys_are_set_to_zero_for_it(own, record):
    kind = own("ones", lambda record: torch.ones_like(record.weights))
    assert torch.equal(kind.compute(record), record.visible.double())


@pytest.mark.parametrize("result", [torch.zeros(3), torch.zeros(4, 9, 8), [[1.0]], None])
def test_what_has_another_shape_is_refused(own, record, result):
    kind = own("odd", lambda record: result)
    with pytest.raises(
        FlowgraphError, match=r"edges: 'odd' returned .*must return .*\(4, 9, 9\) .* or \(9, 9\)"
    ):
        kind.compute(record)


def test_what_cannot_be_registered():
    with pytest.raises(FlowgraphError, match="function: 3 cannot be called"):
        mixing.register("three", 3)
    with pytest.raises(
        FlowgraphError, match="needs: 'value' is no field of a layer record; choose from layer, weights"
    ):
        mixing.register("wrong", lambda record: record.weights, needs=("value",))


def test_a_kind_of_ones_own_is_refused_for_cross_attention_unless_it_says_otherwise(own):
    model, _ = models.tiny("bart")
    inputs = models.model_inputs("bart")
    own("self-only", lambda record: record.weights)
    own("both", lambda record: record.weights, cross=True)
    trace = fg.trace(model, None, inputs, edges="self-only")
    assert set(trace["self-only"]) == {"encoder", "decoder"}
    with pytest.raises(
        FlowgraphError, match="'self-only' is not defined for cross-attention: it was registered"
    ):
        trace["self-only"]["cross"]
    assert set(fg.trace(model, None, inputs, edges="both")["both"]) == {"encoder", "decoder", "cross"}


def test_holding_the_residual_reaches_the_graph(own):
    model, tokenizer = models.tiny("bert")
    own("kept", lambda record: record.weights.mean(0), holds_residual=True)
    trace = fg.trace(model, tokenizer, "the key", edges=("kept", "attention"))
    kept = fg.LayeredGraph.from_trace(trace, edges="kept").blocks[0]
    plain = fg.LayeredGraph.from_trace(trace, edges="attention").blocks[0]
    assert kept.residual is None
    assert plain.residual == 0.5


def test_effective_attention_is_refused_by_the_graph_with_the_remedy():
    model, tokenizer = models.tiny("bert")
    text = "the keys to the cabinet is on the table . the cat sat on the mat , dog runs fast in the park"
    trace = fg.trace(model, tokenizer, text, edges="effective")
    with pytest.raises(FlowgraphError, match=r"negative entries.*negative='clip'.*negative='abs'"):
        fg.LayeredGraph.from_trace(trace)
    graph = fg.LayeredGraph.from_trace(trace, negative="clip")
    assert all((block.capacity >= 0).all() for block in graph.blocks)
    assert fg.rollout(fg.LayeredGraph.from_trace(trace, negative="keep")).min() < 1


@pytest.mark.parametrize("kind", BUILT_IN)
def test_every_kind_runs_to_the_end(kind):
    """Raw, rollout and flow on the same graph, whatever its edges are."""
    model, tokenizer = models.tiny("bert")
    trace = fg.trace(model, tokenizer, "the keys are on the table", edges=kind)
    graph = fg.LayeredGraph.from_trace(trace, negative="clip")
    size = len(trace.tokens)
    for scores in (fg.raw(graph), fg.rollout(graph), fg.attention_flow(graph)):
        assert scores.shape == (size, size)
        assert (scores >= 0).all()
    assert np.allclose(fg.rollout(graph).sum(1), 1)
