"""LayeredGraph: making it, its invariants, bad input, conversions."""

import re

import numpy as np
import pytest
import torch

import flowgraph as fg
from flowgraph.errors import FlowgraphError, FlowgraphWarning


def stochastic(*shape, seed=0):
    weights = np.random.default_rng(seed).random(shape)
    return weights / weights.sum(-1, keepdims=True)


@pytest.fixture
def graph():
    return fg.LayeredGraph.from_matrices(stochastic(3, 4, 4), tokens=["the", "cat", "sat", "."])


def test_levels_blocks_and_meta(graph):
    assert [(level.name, level.size) for level in graph.levels] == [
        ("input", 4),
        ("layer 1", 4),
        ("layer 2", 4),
        ("layer 3", 4),
    ]
    assert [(b.upper, b.lower) for b in graph.blocks] == [(1, 0), (2, 1), (3, 2)]
    assert graph.levels[2].tokens == ("the", "cat", "sat", ".")
    assert graph.blocks[1].capacity == pytest.approx(0.5 * stochastic(3, 4, 4)[1] + 0.5 * np.eye(4))
    assert (graph.meta["residual"], graph.meta["normalize"], graph.meta["negative"]) == (0.5, True, "error")
    assert (graph.num_nodes, graph.num_edges, graph.num_layers) == (16, 48, 3)
    assert "4 levels" in repr(graph)


def test_arrays_and_meta_cannot_be_changed(graph):
    with pytest.raises(ValueError, match="read-only"):
        graph.blocks[0].capacity[0, 0] = 1
    with pytest.raises(TypeError):
        graph.meta["residual"] = 1


def test_the_callers_array_is_copied():
    mixing = stochastic(2, 3, 3)
    graph = fg.LayeredGraph.from_matrices(mixing, residual=None)
    before = graph.blocks[0].capacity.copy()
    mixing[:] = 0
    assert (graph.blocks[0].capacity == before).all()


def test_read_only_arrays_give_the_same_graph():
    mixing = stochastic(2, 3, 3)
    mixing.setflags(write=False)
    assert fg.LayeredGraph.from_matrices(mixing).num_edges == 18


def test_zero_capacities_are_no_edges():
    window = np.triu(np.tri(6), -2)
    graph = fg.LayeredGraph.from_matrices((window / window.sum(1, keepdims=True))[None])
    assert graph.num_edges == 1 + 2 + 3 + 3 + 3 + 3
    assert (graph.edges()["capacity"] > 0).all()
    assert graph.to_igraph().ecount() == graph.to_networkx().number_of_edges() == graph.num_edges


def test_rows_that_do_not_sum_to_one_are_rescaled_with_a_warning():
    mixing = np.array([[[0.2, 0.2], [0.5, 0.5]]])
    with pytest.warns(FlowgraphWarning, match="row sums run from 0.4 to 1"):
        graph = fg.LayeredGraph.from_matrices(mixing, residual=None)
    assert graph.blocks[0].capacity.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert graph.meta["row_mass"] == pytest.approx(np.array([[0.4, 1.0]]))


def test_rows_can_be_kept():
    with pytest.warns(FlowgraphWarning, match="kept as they are"):
        graph = fg.LayeredGraph.from_matrices([[[0.2, 0.2], [0.5, 0.5]]], residual=None, normalize=False)
    assert graph.blocks[0].capacity[0].tolist() == [0.2, 0.2]


def test_a_row_of_zeros_holds_the_residual_alone():
    graph = fg.LayeredGraph.from_matrices([[[1.0, 0.0], [0.0, 0.0]]])
    assert graph.blocks[0].capacity.tolist() == [[1.0, 0.0], [0.0, 0.5]]
    assert "row_mass" not in graph.meta


@pytest.mark.parametrize(
    ("mixing", "message"),
    [
        ([], "no layers"),
        (np.zeros((0, 3, 3)), "no layers"),
        (np.zeros((2, 0, 0)), "no tokens"),
        (np.zeros((3, 3)), "is one matrix"),
        (np.zeros((1, 2, 3)), "not square"),
        (np.zeros((2, 4, 3, 3)), "heads kept"),
        ([np.eye(3), np.eye(4)], "layer 2 has shape (4, 4), layer 1 (3, 3)"),
        ([[[0.5, np.nan], [0.0, 1.0]]], "1 entries are not finite, the first nan at (0, 0, 1)"),
        ([[[0.5, np.inf], [0.0, 1.0]]], "not finite"),
        ([[[1.5, -0.5], [0.0, 1.0]]], "1 negative entries, the first -0.5 at (0, 0, 1)"),
        ([[["a", "b"], ["c", "d"]]], "not a matrix of real numbers"),
        ([[[1j, 0], [0, 1]]], "not a matrix of real numbers"),
        (None, "NoneType is not a stack"),
        (7, "int is not a stack"),
    ],
)
def test_bad_matrices_are_refused(mixing, message):
    with pytest.raises(FlowgraphError, match=re.escape(message)):
        fg.LayeredGraph.from_matrices(mixing)


@pytest.mark.parametrize(
    ("tokens", "message"), [(["a"], "1 given for matrices of 2"), ("ab", "is one string")]
)
def test_bad_tokens_are_refused(tokens, message):
    with pytest.raises(FlowgraphError, match=f"tokens: .*{message}"):
        fg.LayeredGraph.from_matrices(np.eye(2)[None], tokens=tokens)


@pytest.mark.filterwarnings("ignore::flowgraph.errors.FlowgraphWarning")
def test_signed_matrices_can_be_kept_for_raw_and_rollout():
    graph = fg.LayeredGraph.from_matrices([[[1.5, -0.5], [0.0, 1.0]]], negative="keep", residual=None)
    assert graph.signed
    assert fg.rollout(graph).tolist() == [[0.75, -0.25], [0.0, 1.0]]
    with pytest.raises(FlowgraphError, match="negative"):
        fg.solvers.get("igraph").prepare(graph)


# --- from what a model returned --------------------------------------------------------------------------


def test_from_attentions_joins_heads():
    attentions = tuple(torch.tensor(stochastic(1, 2, 5, 5, seed=k)) for k in range(3))
    mean = fg.LayeredGraph.from_attentions(attentions)
    assert mean.blocks[2].capacity == pytest.approx(0.5 * attentions[2][0].numpy().mean(0) + 0.5 * np.eye(5))
    one = fg.LayeredGraph.from_attentions(attentions, heads=1, residual=None)
    assert one.blocks[0].capacity == pytest.approx(attentions[0][0, 1].numpy())
    assert mean.meta["heads"] == "mean"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_from_attentions_takes_any_precision_without_a_false_warning(dtype):
    attentions = [
        torch.softmax(torch.randn(1, 2, 40, 40, generator=torch.Generator().manual_seed(0)), -1).to(dtype)
    ]
    assert fg.LayeredGraph.from_attentions(attentions).blocks[0].capacity.dtype == np.float64


@pytest.mark.parametrize(
    ("attentions", "heads", "message"),
    [
        ((), "mean", "attn_implementation='eager'"),
        (None, "mean", "attn_implementation='eager'"),
        ((None,), "mean", "layer 1 is None"),
        (((torch.ones(1, 4, 6, 6),), (torch.ones(1, 4, 1, 7),)), "mean", "generate()"),
        ((torch.ones(2, 4, 6, 6) / 6,), "mean", "a batch of 2"),
        ((torch.ones(1, 4, 1, 7) / 7,), "mean", "expected (1, heads, T, T)"),
        ((torch.ones(6, 6) / 6,), "mean", "expected (1, heads, T, T)"),
        ((torch.ones(1, 4, 6, 6) / 6, torch.ones(1, 4, 5, 5) / 5), "mean", "layer 2 has 5 tokens, layer 1 6"),
        ((torch.full((1, 2, 3, 3), torch.nan),), "mean", "not finite"),
        ((torch.ones(1, 4, 6, 6) / 6,), 4, "4 is not a head"),
        ((torch.ones(1, 4, 6, 6) / 6,), "median", "unknown rule 'median'"),
    ],
)
def test_bad_attentions_are_refused(attentions, heads, message):
    with pytest.raises(FlowgraphError, match=re.escape(message)):
        fg.LayeredGraph.from_attentions(attentions, heads)


# --- made by hand ----------------------------------------------------------------------------------------


def level(name, size):
    return fg.Level(name, size, tuple("abcdefgh"[:size]))


@pytest.mark.parametrize(
    ("levels", "blocks", "message"),
    [
        ([level("one", 2)], [], "1 given"),
        ([level("a", 2), level("b", 2)], [fg.Block(0, 1, np.eye(2))], "edges run down"),
        ([level("a", 2), level("b", 3)], [fg.Block(1, 0, np.eye(2))], "its levels need (3, 2)"),
        ([level("a", 2), level("b", 2)], [fg.Block(1, 0, -np.eye(2))], "cannot be negative"),
        ([level("a", 2), level("b", 2)], [fg.Block(1, 0, np.full((2, 2), np.inf))], "not finite"),
    ],
)
def test_bad_graphs_are_refused(levels, blocks, message):
    with pytest.raises(FlowgraphError, match=re.escape(message)):
        fg.LayeredGraph(levels, blocks)


# --- conversions -----------------------------------------------------------------------------------------


def test_conversions_hold_every_edge(graph):
    table = graph.edges()
    networkx, igraph = graph.to_networkx(), graph.to_igraph()
    for number, (s, t, c) in enumerate(zip(table["source"], table["target"], table["capacity"], strict=True)):
        upper, lower = divmod(int(s), 4), divmod(int(t), 4)
        block = graph.blocks[lower[0]]
        assert c == block.capacity[upper[1], lower[1]]
        assert networkx.edges[upper, lower]["capacity"] == c
        assert igraph.es[number]["capacity"] == c
        assert igraph.es[number].tuple == (s, t)
    assert networkx.is_directed()
    assert igraph.is_directed()
    assert networkx.nodes[(2, 1)] == {"token": "cat", "level": 2, "position": 1}
    assert igraph.vs[9]["token"] == "cat"
    assert type(networkx.edges[(1, 0), (0, 0)]["capacity"]) is float


def test_blocks_between_the_same_levels_are_summed_where_edges_are_single():
    blocks = [fg.Block(1, 0, np.full((2, 2), 0.25)), fg.Block(1, 0, np.eye(2))]
    graph = fg.LayeredGraph([level("a", 2), level("b", 2)], blocks)
    assert graph.to_networkx().edges[(1, 0), (0, 0)]["capacity"] == 1.25
    assert graph.to_igraph().ecount() == graph.num_edges == 6
    assert fg.attention_flow(graph).tolist() == [[1.25, 0.25], [0.25, 1.25]]


def test_edge_columns_make_tables(graph):
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    assert len(pandas.DataFrame(graph.edges())) == 48
    assert arrow.table(graph.edges()).num_rows == 48


# --- from traces -----------------------------------------------------------------------------------------


class FakeTrace:
    """A trace of plain arrays."""

    def __init__(self, arrays, tokens=("a", "b", "c"), target_tokens=None, **meta):
        self._arrays = arrays
        self.kinds = tuple(arrays)
        self.tokens, self.target_tokens = tokens, target_tokens
        self.raw_tokens = self.special = self.word_ids = None
        self.target_raw_tokens = self.target_special = self.target_word_ids = None
        self.meta = {"dtype": "float64", "kinds": {}} | meta

    def __getitem__(self, kind):
        return self._arrays[kind]


def test_auto_residual_follows_the_kind():
    facts = {"alti": {"holds_residual": True, "rows_sum_to_one": False}}
    trace = FakeTrace({"attention": stochastic(2, 3, 3), "alti": 3 * stochastic(2, 3, 3)}, kinds=facts)
    assert fg.LayeredGraph.from_trace(trace, edges="attention").meta["residual"] == 0.5
    held = fg.LayeredGraph.from_trace(trace, edges="alti")
    assert held.meta["residual"] is None
    assert held.blocks[0].capacity == pytest.approx(stochastic(2, 3, 3)[0])
    assert held.meta["row_mass"] == pytest.approx(np.full((2, 3), 3.0))


def test_kind_and_head_must_be_told_apart():
    kept = FakeTrace({"attention": stochastic(2, 4, 3, 3)})
    with pytest.raises(FlowgraphError, match="head: the trace of 'attention' keeps its 4 heads"):
        fg.LayeredGraph.from_trace(kept)
    assert fg.LayeredGraph.from_trace(kept, head=3).blocks[0].capacity == pytest.approx(
        0.5 * stochastic(2, 4, 3, 3)[0, 3] + 0.5 * np.eye(3)
    )
    with pytest.raises(FlowgraphError, match="head: 4 is not a head"):
        fg.LayeredGraph.from_trace(kept, head=4)
    two = FakeTrace({"attention": stochastic(2, 3, 3), "norm": stochastic(2, 3, 3)})
    with pytest.raises(FlowgraphError, match="edges: the trace holds attention, norm"):
        fg.LayeredGraph.from_trace(two)
    with pytest.raises(FlowgraphError, match="edges: 'alti' was not traced"):
        fg.LayeredGraph.from_trace(two, edges="alti")
    with pytest.raises(FlowgraphError, match="head: 0 asked for"):
        fg.LayeredGraph.from_trace(two, edges="norm", head=0)
    with pytest.raises(FlowgraphError, match="residual: 'half'"):
        fg.LayeredGraph.from_trace(two, edges="norm", residual="half")


def seq2seq_trace(decoder_layers=2):
    source, target = 4, 3
    arrays = {
        "encoder": stochastic(2, source, source, seed=1),
        "decoder": stochastic(decoder_layers, target, target, seed=2),
        "cross": stochastic(decoder_layers, target, source, seed=3),
    }
    return FakeTrace(
        {"attention": arrays}, tokens=tuple("wxyz"), target_tokens=tuple("ABC"), causal=True
    ), arrays


def test_encoder_decoder_levels_in_order_of_computation():
    trace, arrays = seq2seq_trace()
    graph = fg.LayeredGraph.from_trace(trace)
    assert [level.size for level in graph.levels] == [4, 4, 4, 3, 3, 3, 3, 3]
    assert graph.inputs == (0, 3)
    assert graph.layers == (5, 7)
    assert not graph.is_stack
    joined = {(b.upper, b.lower): b for b in graph.blocks}
    assert set(joined) == {(1, 0), (2, 1), (4, 3), (5, 2), (5, 4), (6, 5), (7, 2), (7, 6)}
    assert joined[5, 2].capacity == pytest.approx(0.5 * arrays["cross"][0])
    assert joined[5, 4].capacity == pytest.approx(0.5 * np.eye(3))
    assert joined[6, 5].capacity == pytest.approx(0.5 * arrays["decoder"][1] + 0.5 * np.eye(3))
    assert (joined[5, 2].kind, joined[5, 4].kind) == ("cross", "residual")


def test_encoder_decoder_rollout_is_the_product_written_out():
    trace, arrays = seq2seq_trace()
    mix = {k: 0.5 * a + 0.5 * np.eye(a.shape[-1]) for k, a in arrays.items() if k != "cross"}
    encoder = mix["encoder"][1] @ mix["encoder"][0]
    state = np.hstack([np.zeros((3, 4)), np.eye(3)])
    for own, cross in zip(mix["decoder"], arrays["cross"], strict=True):
        state = 0.5 * (own @ state) + 0.5 * np.hstack([cross @ encoder, np.zeros((3, 3))])
    graph = fg.LayeredGraph.from_trace(trace)
    assert fg.rollout(graph) == pytest.approx(state)
    assert fg.rollout(graph).sum(1) == pytest.approx(np.ones(3))


@pytest.mark.parametrize("solver", fg.solvers.names())
def test_encoder_decoder_flow_by_every_solver(solver):
    trace, _ = seq2seq_trace()
    graph = fg.LayeredGraph.from_trace(trace)
    expected = fg.attention_flow(graph, level="all")
    assert expected.shape == (2, 3, 7)
    assert fg.attention_flow(graph, level="all", solver=solver) == pytest.approx(expected, abs=1e-9)
    result = fg.max_flow(graph, (7, 1), (0, 2), solver=solver)
    fg.check_flow(graph, result)
    assert result.value == pytest.approx(expected[1, 1, 2], abs=1e-9)


def test_a_decoder_without_its_encoder_is_a_stack():
    _, arrays = seq2seq_trace()
    alone = FakeTrace(
        {"attention": {"decoder": arrays["decoder"], "cross": arrays["cross"]}}, tokens=tuple("ABC")
    )
    graph = fg.LayeredGraph.from_trace(alone)
    assert graph.is_stack
    assert "no encoder" in graph.meta["cross"]
