"""attention_flow, max_flow, bottleneck, normalisations: options, shapes, errors, known answers."""

import numpy as np
import pytest

import flowgraph as fg
from flowgraph.errors import CertificateError, FlowgraphError, TimeLimitError
from flowgraph.flow import flow_matrix
from flowgraph.receptive_field import even_graph


@pytest.fixture(scope="module")
def graph():
    logits = np.random.default_rng(0).normal(size=(4, 6, 6))
    weights = np.exp(logits)
    return fg.LayeredGraph.from_matrices(weights / weights.sum(-1, keepdims=True), tokens=list("abcdef"))


@pytest.fixture(scope="module")
def causal_graph():
    weights = np.tri(5) * np.random.default_rng(1).random((3, 5, 5))
    return fg.LayeredGraph.from_matrices(weights / weights.sum(-1, keepdims=True))


def test_a_flow_worked_by_hand():
    #  (2,0) -.6-> (1,0) -.5-> (0,0)      to (0,0): .5 over (1,0), .3 over (1,1)
    #        -.4-> (1,1) -.3-> (0,0)      to (0,1): .5 (of .6) over (1,0), .4 (of .7) over (1,1)
    top, bottom = [[0.6, 0.4], [0.5, 0.5]], [[0.5, 0.5], [0.3, 0.7]]
    graph = fg.LayeredGraph.from_matrices([bottom, top], residual=None)
    assert fg.attention_flow(graph) == pytest.approx(np.array([[0.8, 0.9], [0.8, 1.0]]))
    result = fg.max_flow(graph, (2, 0), (0, 0))
    assert result.value == pytest.approx(0.8)
    fg.check_flow(graph, result)


@pytest.mark.parametrize("solver", ["auto", *fg.solvers.names()])
def test_every_solver_gives_the_same_matrix(graph, solver):
    assert fg.attention_flow(graph, solver=solver) == pytest.approx(fg.attention_flow(graph), abs=1e-9)


def test_shapes_follow_the_axes(graph):
    assert fg.attention_flow(graph).shape == (6, 6)
    assert fg.attention_flow(graph, level="all", targets=[0]).shape == (4, 1, 6)
    assert fg.attention_flow(graph, level=2, targets=slice(1, 3), inputs=[5, 0, 1]).shape == (2, 3)


def test_levels_count_from_one_and_from_the_top(graph):
    whole = fg.attention_flow(graph, level="all")
    assert fg.attention_flow(graph, level=1) == pytest.approx(whole[0])
    assert fg.attention_flow(graph, level=-1) == pytest.approx(whole[3])
    assert whole[0] == pytest.approx(graph.blocks[0].capacity)


@pytest.mark.parametrize("level", [0, 5, -5, 1.0, True, "top", None])
def test_a_level_that_is_none_is_refused(graph, level):
    with pytest.raises(FlowgraphError, match="level"):
        fg.attention_flow(graph, level=level)


def test_row_normalisation_divides_by_the_row_over_all_inputs(graph):
    plain = fg.attention_flow(graph)
    rows = fg.attention_flow(graph, normalize="row")
    assert rows == pytest.approx(plain / plain.sum(1, keepdims=True))
    assert fg.attention_flow(graph, normalize="row", inputs=[2, 3]) == pytest.approx(rows[:, 2:4])


def test_receptive_field_divides_by_the_even_graph(causal_graph):
    even = fg.LayeredGraph.from_matrices((np.tri(5) / np.tri(5).sum(1, keepdims=True))[None].repeat(3, 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.nan_to_num(fg.attention_flow(causal_graph) / fg.attention_flow(even))
    expected = ratio / ratio.sum(1, keepdims=True)
    assert fg.attention_flow(causal_graph, normalize="receptive-field") == pytest.approx(expected)


def test_receptive_field_takes_the_pull_of_the_first_token_away():
    uniform = np.tri(3) / np.tri(3).sum(1, keepdims=True)
    graph = fg.LayeredGraph.from_matrices(uniform[None].repeat(12, 0))
    plain = fg.attention_flow(graph, targets=-1)[0]
    assert plain[0] > plain[2]
    assert fg.attention_flow(graph, targets=-1, normalize="receptive-field")[0] == pytest.approx([1 / 3] * 3)


def test_even_graph_keeps_the_mask_and_the_residual(causal_graph):
    even = even_graph(causal_graph)
    assert ((even.blocks[0].capacity > 0) == np.tri(5, dtype=bool)).all()
    assert even.blocks[1].capacity[3] == pytest.approx([0.125, 0.125, 0.125, 0.625, 0])


def test_even_graph_of_a_kind_that_holds_the_residual_takes_a_half():
    level = [fg.Level(str(k), 2, ("a", "b")) for k in range(2)]
    block = fg.Block(1, 0, np.array([[1.0, 0.0], [0.3, 0.7]]))
    graph = fg.LayeredGraph(level, [block], meta={"residual": None, "holds_residual": True})
    assert even_graph(graph).blocks[0].capacity == pytest.approx(np.array([[1, 0], [0.25, 0.75]]))


def test_unknown_options_name_themselves(graph):
    with pytest.raises(FlowgraphError, match="solver: unknown solver 'magic'"):
        fg.attention_flow(graph, solver="magic")
    with pytest.raises(FlowgraphError, match="normalize: unknown rule 'rows'"):
        fg.attention_flow(graph, normalize="rows")
    with pytest.raises(FlowgraphError, match="time_limit: -1 is not"):
        fg.attention_flow(graph, time_limit=-1)
    with pytest.raises(FlowgraphError, match="solver: unknown solver 'magic'"):
        fg.max_flow(graph, (4, 0), (0, 0), solver="magic")


@pytest.mark.parametrize(
    ("source", "sink", "message"),
    [
        ((4, 0), (4, 0), "a flow needs two nodes"),
        ((1, 0), (3, 0), "does not lie above"),
        ((2, 1), (2, 3), "does not lie above"),
        ((9, 0), (0, 0), "source: level 9 is not in the graph"),
        ((4, 0), (0, 6), "sink: position 6 is not in level 0"),
        ("top", (0, 0), "source: 'top' is not a node"),
        ((4, 0.0), (0, 0), "is not a node"),
    ],
)
def test_bad_nodes_are_refused(graph, source, sink, message):
    with pytest.raises(FlowgraphError, match=message):
        fg.max_flow(graph, source, sink)


def test_signed_graphs_are_refused():
    signed = fg.LayeredGraph.from_matrices([[[0.5, -0.5], [1.0, 0.0]]], negative="keep")
    with pytest.raises(FlowgraphError, match="negative='clip'"):
        fg.attention_flow(signed)
    with pytest.raises(FlowgraphError, match="negative='clip'"):
        fg.max_flow(signed, (1, 0), (0, 0))
    with pytest.raises(FlowgraphError, match="negative='clip'"):
        fg.joint_flow(signed, (1, 0))


def test_sums_that_overflow_are_refused():
    block = fg.Block(1, 0, np.full((3, 3), 1e308))
    graph = fg.LayeredGraph([fg.Level("a", 3, tuple("abc")), fg.Level("b", 3, tuple("abc"))], [block])
    with pytest.raises(FlowgraphError, match="sums overflow"):
        fg.attention_flow(graph)


def test_bottleneck_lists_the_cut_with_tokens(graph):
    edges = fg.bottleneck(graph, (4, 2), (0, 5))
    assert sum(edge.capacity for edge in edges) == pytest.approx(fg.max_flow(graph, (4, 2), (0, 5)).value)
    assert [e.capacity for e in edges] == sorted((e.capacity for e in edges), reverse=True)
    for edge in edges:
        block = graph.blocks[edge.target[0]]
        assert edge.capacity == block.capacity[edge.source[1], edge.target[1]]
        assert edge.source_token == "abcdef"[edge.source[1]]
        assert edge.target_token == "abcdef"[edge.target[1]]


def test_max_flow_says_what_auto_chose(graph):
    assert "igraph" in fg.max_flow(graph, (4, 0), (0, 0)).stats["chosen"]


def test_held_by_names_the_side_that_binds():
    graph = fg.LayeredGraph.from_matrices([[[0.2, 0.8], [0.1, 0.9]], [[0.6, 0.4], [0.5, 0.5]]], residual=None)
    found = flow_matrix(graph)
    # all of column 0 is .3 = .2 over (1,0) + .1 over (1,1); 1 = all that leaves either target
    assert found.values == pytest.approx(np.array([[0.3, 1.0], [0.3, 1.0]]))
    assert found.held_by.tolist() == [["input", "target"], ["input", "target"]]


def test_held_by_between():
    graph = fg.LayeredGraph.from_matrices([[[0.2, 0.8], [0.9, 0.1]], [[0.6, 0.4], [0.5, 0.5]]], residual=None)
    assert flow_matrix(graph, targets=0, inputs=1).held_by.tolist() == [["between"]]


def test_progress_counts_every_pair(graph):
    for solver in ("auto", "igraph", "push-relabel"):
        counted = []
        fg.attention_flow(graph, level="all", solver=solver, progress=counted.append)
        assert sum(counted) == 4 * 36, solver


def test_verify_passes_what_is_right_and_objects_to_what_is_not(graph, monkeypatch):
    fg.attention_flow(graph, verify=True)
    from flowgraph.solvers.all_pairs import AllPairs, StackPairs

    right = StackPairs.values
    monkeypatch.setattr(StackPairs, "values", lambda self, *a, **k: right(self, *a, **k) * (1 + 1e-6))
    assert issubclass(StackPairs, AllPairs)
    with pytest.raises(CertificateError, match="verify"):
        fg.attention_flow(graph, verify=True)


def test_a_solver_that_hangs_is_stopped():
    dense = np.random.default_rng(0).random((10, 30, 30))
    graph = fg.LayeredGraph.from_matrices(dense / dense.sum(-1, keepdims=True))
    with pytest.raises(TimeLimitError, match="time"):
        fg.max_flow(graph, (10, 0), (0, 0), solver="networkx", time_limit=1e-3)


class Loop:
    """A solver without a fast way to many values."""

    name = "loop"

    def prepare(self, graph):
        class Prepared:
            def solve(self, source, sink, *, time_limit=None):
                return fg.max_flow(graph, source, sink)

        return Prepared()


def test_a_solver_of_ones_own_is_called_pair_by_pair(graph):
    fg.solvers.register("loop", Loop())
    try:
        assert fg.attention_flow(graph, solver="loop", targets=[1]) == pytest.approx(
            fg.attention_flow(graph, targets=[1])
        )
    finally:
        fg.solvers.unregister("loop")
