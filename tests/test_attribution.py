"""Attributions: made from a model or a graph, read, merged, written and read back."""

from __future__ import annotations

import json

import lxml.html
import numpy as np
import pytest

import flowgraph as fg
from flowgraph import Attribution, FlowgraphError, FlowgraphWarning, LayeredGraph
from flowgraph.attribution import METHODS
from flowgraph.axes import pair_of_nodes
from flowgraph.graph import Block, Level
from tests.models import HYBRIDS, model_inputs, tiny

TEXT = "The unhappiest cat sat on the mat."

TOKENS = ("[CLS]", "un", "##happy", "cat", "[SEP]")
SPECIAL = (True, False, False, False, True)
WORDS = (None, 0, 0, 1, None)
SCORES = np.array(
    [
        [0.4, 0.1, 0.2, 0.2, 0.1],
        [0.2, 0.3, 0.1, 0.2, 0.2],
        [0.0, 0.5, 0.3, 0.2, 0.0],
        [0.1, 0.2, 0.2, 0.4, 0.1],
        [0.6, 0.0, 0.0, 0.0, 0.4],
    ]
)


def example(**changes) -> Attribution:
    values = {
        "scores": SCORES,
        "tokens": TOKENS,
        "target_tokens": TOKENS,
        "level": 2,
        "method": "rollout",
        "edges": "attention",
        "special": SPECIAL,
        "word_ids": WORDS,
        "target_special": SPECIAL,
        "target_word_ids": WORDS,
        "meta": {"model": "toy"},
    }
    return Attribution(**values | changes)


def random_graph(layers: int = 3, size: int = 5, seed: int = 0, **meta) -> LayeredGraph:
    mixing = np.random.default_rng(seed).dirichlet(np.ones(size), (layers, size))
    return LayeredGraph(
        [
            Level(f"level {k}", size, TOKENS[:size], TOKENS[:size], SPECIAL[:size], WORDS[:size])
            for k in range(layers + 1)
        ],
        [Block(k + 1, k, m) for k, m in enumerate(0.5 * mixing + 0.5 * np.eye(size))],
        meta=meta,
    )


# --- reading one ------------------------------------------------------------------------------------------


def test_arrays_and_meta_cannot_be_changed():
    source = SCORES.copy()
    attribution = example(scores=source)
    source[:] = 0
    np.testing.assert_array_equal(attribution.scores, SCORES)
    with pytest.raises(ValueError, match="read-only"):
        attribution.scores[0, 0] = 1
    with pytest.raises(TypeError):
        attribution.meta["model"] = "other"
    with pytest.raises(AttributeError):
        attribution.level = 1


def test_top_of_one_target():
    best = example().top(2, target="un")
    assert [(s.token, s.position) for s in best] == [("un", 1), ("[CLS]", 0)]
    assert best[0].score == 0.3


def test_top_is_of_the_average_row_and_of_the_top_level():
    stack = np.stack([np.zeros((5, 5)), SCORES])
    best = example(scores=stack, level="all").top(1)
    assert best == [("[CLS]", 0, pytest.approx(SCORES[:, 0].mean()))]


def test_top_keeps_the_order_of_the_text_in_ties():
    assert [s.position for s in example(scores=np.ones((5, 5))).top(3)] == [0, 1, 2]


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "5"])
def test_top_needs_a_count(n):
    with pytest.raises(FlowgraphError, match=r"^n: "):
        example().top(n)


def test_words_sum_inputs_and_average_targets():
    words = example().words()
    assert words.tokens == words.target_tokens == ("[CLS]", "unhappy", "cat", "[SEP]")
    assert words.special == (True, False, False, True)
    assert words.word_ids == (None, 0, 1, None)
    # row of "unhappy": mean of the rows of its pieces; column of "unhappy": sum of its pieces' columns
    np.testing.assert_allclose(words.scores[1], [0.1, 0.6, 0.2, 0.1])
    np.testing.assert_allclose(words.scores[0], [0.4, 0.3, 0.2, 0.1])


def test_words_conserve_mass_at_every_level():
    stack = np.stack([SCORES, SCORES**2])
    words = example(scores=stack, level="all").words()
    np.testing.assert_allclose(words.scores.sum(-1)[:, [0, 2, 3]], stack.sum(-1)[:, [0, 3, 4]])
    np.testing.assert_allclose(words.scores.sum(-1)[:, 1], stack[:, 1:3].sum(-1).mean(-1))


def test_words_of_words_change_nothing():
    once = example().words()
    np.testing.assert_array_equal(once.words().scores, once.scores)


def test_words_need_word_ids():
    with pytest.raises(FlowgraphError, match=r"^word_ids: not known"):
        example(word_ids=None).words()


def test_without_special_keeps_the_sums_of_rows():
    rest = example().without_special()
    assert rest.tokens == ("un", "##happy", "cat")
    assert rest.target_tokens == TOKENS
    np.testing.assert_allclose(rest.scores[:4].sum(-1), SCORES[:4].sum(-1))
    np.testing.assert_allclose(rest.scores[0], np.array([0.1, 0.2, 0.2]) / 0.5)
    # nothing but special tokens: zero, not NaN
    np.testing.assert_array_equal(rest.scores[4], 0)


def test_without_special_can_leave_out_targets():
    rest = example().without_special(targets=True)
    assert rest.target_tokens == ("un", "##happy", "cat")
    assert rest.scores.shape == (3, 3)


def test_without_special_needs_to_know_and_to_leave_something():
    with pytest.raises(FlowgraphError, match=r"^special: it is not known"):
        example(special=None).without_special()
    with pytest.raises(FlowgraphError, match=r"^special: every token is special"):
        example(special=(True,) * 5).without_special()


def test_repr_names_what_it_is_and_the_largest_inputs():
    text = repr(example())
    assert text.startswith("<Attribution: rollout over attention, level 2, 5 × 5 tokens>")
    assert "  un: un 0.3, [CLS] 0.2" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"scores": SCORES[0]},
        {"scores": SCORES[:, :4]},
        {"level": "all"},
        {"special": (True,)},
        {"target_word_ids": (0,)},
        {"positions": (0,)},
        {"target_positions": (0,)},
    ],
)
def test_parts_that_do_not_fit_are_refused(changes):
    with pytest.raises(FlowgraphError, match=r"^(scores|special|target_word_ids|(target_)?positions): "):
        example(**changes)


# --- out and back in --------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [2, "all"])
def test_json_round_trip_is_exact(tmp_path, level):
    scores = np.random.default_rng(0).random((3, 5, 5) if level == "all" else (5, 5)) / 3
    attribution = example(scores=scores, level=level, tokens=("<s>", "\ud83d", "\x00", '"', "💩"))
    path = tmp_path / "attribution.json"
    text = attribution.to_json(path)
    for source in (text, path, str(path)):
        back = Attribution.from_json(source)
        np.testing.assert_array_equal(back.scores, attribution.scores)
        for name in ("tokens", "target_tokens", "level", "method", "edges", "special", "word_ids", "meta"):
            assert getattr(back, name) == getattr(attribution, name)
    assert list(json.loads(text)) == [
        "format",
        "method",
        "edges",
        "level",
        "tokens",
        "target_tokens",
        "positions",
        "target_positions",
        "scores",
        "special",
        "word_ids",
        "target_special",
        "target_word_ids",
        "held_by",
        "meta",
    ]


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"format": "something else"}', '{"format": "flowgraph attribution 1"}']
)
def test_other_json_is_refused(text):
    with pytest.raises(FlowgraphError, match=r"^source: "):
        Attribution.from_json(text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FlowgraphError, match=r"^source: .*none\.json.* cannot be read"):
        Attribution.from_json(tmp_path / "none.json")


def test_an_old_file_survives_a_failed_write(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FlowgraphError, match=r"is a folder"):
        example().to_json(tmp_path / "folder")


def test_to_pandas():
    pytest.importorskip("pandas")
    frame = example(tokens=("a", "b", "a", "b", "a")).to_pandas()
    assert frame.loc[(3, "cat"), (4, "a")] == SCORES[3, 4]
    frame = example(scores=np.stack([SCORES, 2 * SCORES]), level="all").to_pandas()
    assert frame.loc[(2, 3, "cat"), (1, "un")] == 2 * SCORES[3, 1]


def test_positions_are_those_of_the_text_whatever_was_chosen():
    chosen = fg.attribute_graph(random_graph(), method="rollout", targets=[4, -2], inputs=[4, 1])
    assert (chosen.positions, chosen.target_positions) == ((4, 1), (4, 3))
    assert {(s.token, s.position) for s in chosen.top(2)} == {("[SEP]", 4), ("un", 1)}
    back = Attribution.from_json(chosen.to_json())
    assert (back.positions, back.target_positions) == ((4, 1), (4, 3))
    pytest.importorskip("pandas")
    frame = chosen.to_pandas()
    assert frame.loc[(3, "cat"), (4, "[SEP]")] == fg.rollout(random_graph())[3, 4]


def test_positions_of_words_and_of_what_is_left():
    words = example().words()
    assert words.positions == words.target_positions == (0, 1, 3, 4)
    rest = example().without_special()
    assert (rest.positions, rest.target_positions) == ((1, 2, 3), (0, 1, 2, 3, 4))
    assert example().words().without_special(targets=True).target_positions == (1, 3)
    assert [s.position for s in rest.words().top(2)] == [1, 3]


def test_the_mean_has_no_position():
    mean = fg.attribute_graph(random_graph(), method="rollout", targets="mean")
    assert mean.target_positions == (None,)
    assert mean.words().target_positions == (None,)
    assert Attribution.from_json(mean.to_json()).target_positions == (None,)
    pytest.importorskip("pandas")
    assert mean.to_pandas().index.get_level_values("target").isna().all()


def test_a_written_token_has_its_own_position():
    graph = random_graph(causal=True, generated=[3, 5])
    assert fg.attribute_graph(graph, method="rollout", targets="auto").target_positions == (3, 4)


def test_json_without_positions_counts_from_0():
    values = example().to_dict()
    del values["positions"], values["target_positions"]
    back = Attribution.from_json(json.dumps(values))
    assert back.positions == back.target_positions == (0, 1, 2, 3, 4)


def test_a_notebook_shows_a_picture_and_a_table_without_scripts():
    pytest.importorskip("matplotlib")
    nasty = ("<script>alert(1)</script>", "<!--", "&amp;", '"', "\x00")
    html = example(tokens=nasty, target_tokens=nasty)._repr_html_()
    tree = lxml.html.fromstring(html)
    assert tree.tag == "div"
    assert not tree.xpath("//script | //style | //*[@onerror or @onclick]")
    assert tree.xpath("//img/@src")[0].startswith("data:image/png;base64,")
    rows = tree.xpath("//tr")[1:]
    assert [row.xpath("string(th)") for row in rows[:4]] == ["<script>alert(1)<…", "<!--", "&amp;", '"']
    assert rows[0].xpath("string(td[1])") == "<script>alert(1)<… 0.400"
    assert len(html) < 100_000


def test_a_large_attribution_stays_small_in_a_notebook():
    tokens = [str(k) for k in range(300)]
    large = Attribution(np.eye(300), tokens, tokens, 1, "flow", "attention")
    html = large._repr_html_()
    assert len(html) < 20_000
    assert "288 more targets are left out here." in html


# --- from a graph -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("level", [-1, 2, "all"])
def test_a_graphs_attribution_is_the_methods_matrix(method, level):
    graph = random_graph(edges="attention")
    function = {"raw": fg.raw, "rollout": fg.rollout, "flow": fg.attention_flow}[method]
    attribution = fg.attribute_graph(graph, method=method, level=level, targets=[3, "un"], inputs=slice(1, 4))
    np.testing.assert_allclose(
        attribution.scores, function(graph, level=level, targets=[3, 1], inputs=[1, 2, 3]), rtol=1e-12
    )
    assert attribution.tokens == TOKENS[1:4]
    assert attribution.target_tokens == ("cat", "un")
    assert attribution.special == SPECIAL[1:4]
    assert attribution.target_word_ids == (1, 0)
    assert attribution.level == {-1: 3, 2: 2, "all": "all"}[level]
    assert (attribution.method, attribution.edges) == (method, "attention")
    assert attribution.graph is graph


def test_flow_says_how_it_was_found():
    attribution = fg.attribute_graph(random_graph(), solver="push-relabel", normalize="row")
    assert attribution.meta["flow"]["solver"] == "push-relabel"
    assert attribution.meta["flow"]["normalize"] == "row"
    np.testing.assert_allclose(attribution.scores.sum(-1), 1)
    json.loads(attribution.to_json())


def test_flow_says_what_holds_each_value():
    # all of input 0 enters through node 1 alone; node 0 of the top level can pass on 0.25 in all
    graph = LayeredGraph(
        [Level(name, 2, ("a", "b")) for name in ("input", "layer 1", "layer 2")],
        [Block(1, 0, np.array([[0.0, 0.5], [0.5, 0.5]])), Block(2, 1, np.array([[0.0, 0.25], [0.6, 0.6]]))],
    )
    attribution = fg.attribute_graph(graph)
    np.testing.assert_allclose(attribution.scores, [[0.25, 0.25], [0.5, 1.0]])
    assert attribution.held_by.tolist() == [["target", "target"], ["input", "input"]]
    back = Attribution.from_json(attribution.to_json())
    np.testing.assert_array_equal(back.held_by, attribution.held_by)
    with pytest.raises(ValueError, match="read-only"):
        attribution.held_by[0, 0] = "input"
    assert fg.attribute_graph(graph, normalize="row").held_by is None
    assert fg.attribute_graph(graph, targets="mean").held_by is None
    assert fg.attribute_graph(graph, method="rollout").held_by is None


def test_what_holds_a_value_stays_with_it():
    held = np.array([["input"] * 4 + ["target"]] * 5)
    rest = example(held_by=held).without_special(targets=True)
    assert rest.held_by.tolist() == [["input"] * 3] * 3
    assert example(held_by=held).words().held_by is None
    with pytest.raises(FlowgraphError, match=r"^held_by: shape \(1, 5\)"):
        example(held_by=held[:1])


@pytest.mark.parametrize(
    ("targets", "rows"),
    [("cls", [0]), ("CLS", [0]), ("last", [4]), ("auto", [0]), ("cat", [3]), (None, range(5))],
)
def test_targets_by_name(targets, rows):
    attribution = fg.attribute_graph(random_graph(), method="rollout", targets=targets)
    np.testing.assert_array_equal(attribution.scores, fg.rollout(random_graph())[list(rows)])


@pytest.mark.parametrize(
    ("inputs", "columns"), [("cls", [0]), (" CLS", [0]), ("last", [4]), ("cat", [3]), (["cat", 0], [3, 0])]
)
def test_inputs_by_name(inputs, columns):
    attribution = fg.attribute_graph(random_graph(), method="rollout", inputs=inputs)
    np.testing.assert_array_equal(attribution.scores, fg.rollout(random_graph())[:, columns])
    assert attribution.positions == tuple(columns)


def test_the_average_row():
    attribution = fg.attribute_graph(random_graph(), method="rollout", targets="mean", level="all")
    np.testing.assert_allclose(
        attribution.scores, fg.rollout(random_graph(), level="all").mean(1, keepdims=True)
    )
    assert attribution.target_tokens == ("mean",)
    assert attribution.words().target_tokens == ("mean",)


def test_a_causal_model_has_no_classifying_token():
    graph = random_graph(causal=True)
    with pytest.raises(FlowgraphError, match=r"^targets: 'cls': a decoder has no classifying token; pass"):
        fg.attribute_graph(graph, targets="cls")
    assert fg.attribute_graph(graph, method="rollout", targets="auto").target_tokens == ("[SEP]",)


def test_a_written_token_is_explained_by_the_position_that_chose_it():
    graph = random_graph(causal=True, generated=[3, 5])
    attribution = fg.attribute_graph(graph, method="rollout", targets="auto")
    assert attribution.target_tokens == ("cat", "[SEP]")
    np.testing.assert_array_equal(attribution.scores, fg.rollout(graph)[[2, 3]])


def test_a_text_without_classifying_token_says_so():
    graph = LayeredGraph.from_matrices(np.eye(2)[None], tokens=["a", "b"])
    with pytest.raises(FlowgraphError, match=r"^targets: 'cls': this text has no classifying token"):
        fg.attribute_graph(graph, targets="cls")
    with pytest.raises(
        FlowgraphError, match=r"^inputs: 'cls': this text has no classifying token; pass one of 0 a"
    ):
        fg.attribute_graph(graph, inputs="cls")


def test_options_of_another_method_are_refused():
    with pytest.raises(FlowgraphError, match=r"^normalize: 'row' is for method='flow' alone"):
        fg.attribute_graph(random_graph(), method="rollout", normalize="row")
    with pytest.raises(FlowgraphError, match=r"^solver: 'igraph' is for method='flow' alone"):
        fg.attribute_graph(random_graph(), method="raw", solver="igraph")


@pytest.mark.parametrize("method", ["flows", None, 3])
def test_an_unknown_method_lists_the_known(method):
    with pytest.raises(FlowgraphError, match=r"^method: unknown method .* choose one of raw, rollout, flow"):
        fg.attribute_graph(random_graph(), method=method)


def test_an_encoder_decoders_inputs_are_both_texts():
    source, target = ("x", "y"), ("a", "b")
    levels = [
        Level("encoder input", 2, source, words=(0, 1)),
        Level("encoder layer 1", 2, source),
        Level("decoder input", 2, target, words=(0, 1)),
        Level("decoder layer 1 self", 2, target),
        Level("decoder layer 1", 2, target),
    ]
    half = np.full((2, 2), 0.5)
    blocks = [
        Block(1, 0, half),
        Block(3, 2, half),
        Block(4, 1, half / 2, kind="cross"),
        Block(4, 3, np.eye(2) / 2, kind="residual"),
    ]
    graph = LayeredGraph(levels, blocks, layers=(4,), inputs=(0, 2))
    attribution = fg.attribute_graph(graph, method="rollout", inputs=["y", "a"])
    assert attribution.tokens == ("y", "a")
    assert attribution.target_tokens == target
    assert attribution.word_ids == (1, 2)  # the target's words are words of their own
    np.testing.assert_allclose(attribution.scores, [[0.25, 0.25]] * 2)
    assert pair_of_nodes(graph, "b", "a") == ((4, 1), (2, 0))
    with pytest.raises(FlowgraphError, match="a decoder has no classifying token"):
        fg.attribute_graph(graph, targets="cls")


def test_a_pair_of_nodes_is_one_target_and_one_input():
    graph = random_graph()
    assert pair_of_nodes(graph, "cat", -1, level=2) == ((2, 3), (0, 4))
    assert pair_of_nodes(graph, "cls", "un") == ((3, 0), (0, 1))
    with pytest.raises(FlowgraphError, match=r"^targets: 'unhappy' is 2 tokens, at positions 1, 2"):
        pair_of_nodes(graph, "unhappy", "cat")
    with pytest.raises(FlowgraphError, match=r"^level: one pair's flow starts at one level"):
        pair_of_nodes(graph, "cat", "cat", level="all")


# --- from a model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_embedded_model(embedded, method):
    attribution = fg.attribute(*embedded, TEXT, method=method)
    graph = LayeredGraph.from_trace(fg.trace(*embedded, TEXT), residual=None if method == "raw" else "auto")
    function = {"raw": fg.raw, "rollout": fg.rollout, "flow": fg.attention_flow}[method]
    np.testing.assert_allclose(attribution.scores, function(graph), rtol=1e-9, atol=1e-12)
    assert attribution.tokens[0] == "[CLS]"
    assert attribution.level == 6
    assert attribution.meta["text"] == TEXT


def test_each_head_is_refused_with_a_remedy_that_works(embedded):
    with pytest.raises(FlowgraphError, match=r"^heads: .*pass one head, such as heads=3"):
        fg.attribute(*embedded, TEXT, heads="each")
    assert fg.attribute(*embedded, TEXT, method="rollout", heads=3).meta["heads"] == 3


def test_layers_without_attention_can_be_passed_over():
    model, _ = tiny(sorted(HYBRIDS)[0])
    inputs = model_inputs(sorted(HYBRIDS)[0])
    with pytest.raises(FlowgraphError, match="hybrid='skip'"):
        fg.attribute(model, None, inputs, method="rollout")
    with pytest.warns(FlowgraphWarning, match="layers 1, 3 have no attention"):
        found = fg.attribute(model, None, inputs, method="rollout", hybrid="skip")
    assert found.level == 2


def test_raw_has_a_residual_where_it_is_asked_for(embedded):
    with_half = fg.attribute(*embedded, TEXT, method="raw", residual=0.5)
    without = fg.attribute(*embedded, TEXT, method="raw")
    np.testing.assert_allclose(
        with_half.scores, 0.5 * without.scores + 0.5 * np.eye(len(without.tokens)), atol=1e-12
    )


def test_several_texts_give_several_attributions(embedded):
    texts = ["One cat.", "Two more cats sat."]
    several = fg.attribute(*embedded, texts, method="rollout", targets="cls")
    assert isinstance(several, list)
    for text, attribution in zip(texts, several, strict=True):
        alone = fg.attribute(*embedded, text, method="rollout", targets="cls")
        np.testing.assert_allclose(attribution.scores, alone.scores, atol=1e-5)


def test_words_of_a_real_text(embedded):
    attribution = fg.attribute(*embedded, TEXT, method="rollout", targets="cls")
    words = attribution.words()
    assert "unhappiest" in words.tokens
    assert len(words.tokens) < len(attribution.tokens)
    np.testing.assert_allclose(words.scores.sum(), 1)
    np.testing.assert_allclose(words.without_special().scores.sum(), 1)
    assert "[CLS]" not in words.without_special().tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "flux"}, r"^method: unknown method 'flux'"),
        ({"edges": "weights"}, r"^edges: unknown edge kind 'weights'; choose one of "),
        ({"edges": ("attention", "norm")}, r"^edges: an attribution has one edge kind"),
        ({"level": 7}, r"^level: 7 is not a layer of this graph, which has 6"),
        ({"targets": "dog"}, r"^targets: 'dog' is not a token of this text"),
        ({"targets": "the"}, r"^targets: 'the' stands 2 times, at positions 1, \d"),
        ({"inputs": 99}, r"^inputs: position 99"),
        ({"solver": "magic"}, r"^solver: unknown solver 'magic'; choose one of "),
        ({"residual": 2}, r"^residual: 2\.0 is not a share"),
        ({"normalize": "column"}, r"^normalize: unknown rule 'column'"),
    ],
)
def test_bad_arguments_are_named(embedded, options, message):
    with pytest.raises(FlowgraphError, match=message):
        fg.attribute(*embedded, TEXT, **options)


def test_an_empty_text_is_refused(embedded):
    with pytest.raises(FlowgraphError, match=r"^text: "):
        fg.attribute(*embedded, "")
