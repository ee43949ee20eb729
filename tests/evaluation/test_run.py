"""``fg.evaluate`` as a whole, against relevance and importance put together by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

import flowgraph as fg
from flowgraph.errors import FlowgraphError, FlowgraphWarning
from flowgraph.evaluation.erasure import CURVE
from flowgraph.evaluation.importance import AGAINST
from flowgraph.evaluation.items import Item
from tests.evaluation.asked import (
    KINDS,
    MASKED,
    PREFIXES,
    TEXTS,
    asked_models,
    causal_model,
    classifier,
    masked_model,
    one_output,
)

QUICK = {"resamples": 50}


@pytest.fixture(scope="module")
def evaluated():
    """An evaluation of each kind of score over two edge kinds."""
    found = {}
    for kind, (model, tokenizer, texts, more) in asked_models().items():
        found[kind] = fg.evaluate(
            model, tokenizer, texts, edges=["attention", "norm-residual"], **QUICK, **more
        )
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_correlations_equal_those_put_together_by_hand(evaluated, kind):
    """Rows of ``fg.attribute`` at every level against blank-outs one by one, by SciPy's ``spearmanr``."""
    import torch

    model, tokenizer, texts, _ = asked_models()[kind]
    text = texts[0]
    ids = tokenizer(text)["input_ids"]
    row = {"classifier": 0, "masked": ids.index(4) if 4 in ids else 0, "causal": -1, "embedding": "mean"}[
        kind
    ]

    def score(version):
        with torch.no_grad():
            output = model(input_ids=torch.tensor([version]))
            if kind == "classifier":
                return output.logits.softmax(-1)[0, int(model(input_ids=torch.tensor([ids])).logits.argmax())]
            if kind == "embedding":
                whole = model(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0)
                return output.last_hidden_state[0].mean(0) @ whole / (whole @ whole)
            are, is_ = tokenizer.convert_tokens_to_ids(["are", "is"])
            return output.logits[0, row, are] - output.logits[0, row, is_]

    blanks = [[4 if k == j else i for k, i in enumerate(ids)] for j in range(len(ids))]
    importance = np.array([abs(float(score(version) - score(ids))) for version in blanks])
    kept = {"all": np.arange(len(ids))}
    if kind == "masked":
        kept["all"] = np.delete(kept["all"], row)
    kept["content"] = np.array([j for j in kept["all"] if ids[j] not in (2, 3)])
    result = evaluated[kind].results[0]
    for e, edges in enumerate(("attention", "norm-residual")):
        for m, method in enumerate(("raw", "rollout", "flow")):
            for level in (1, 2, 3):
                att = fg.attribute(
                    model,
                    tokenizer,
                    text,
                    method=method,
                    edges=edges,
                    level=level,
                    targets=row if row != -1 else "last",
                )
                for t, rule in enumerate(("all", "content")):
                    expected = spearmanr(att.scores[0][kept[rule]], importance[kept[rule]]).statistic
                    found = result.correlations[e, m, level - 1, AGAINST.index("blank-out"), t]
                    assert found == pytest.approx(expected, abs=1e-9), (edges, method, level, rule)


@pytest.mark.parametrize("kind", KINDS)
def test_the_report_says_what_was_asked(evaluated, kind):
    meta = evaluated[kind].meta
    assert meta["score"] == [kind]
    assert meta["blank_token"] == "[MASK]"
    assert (meta["explain"], meta["target"], meta["edges"]) == (
        "predicted",
        "auto",
        ["attention", "norm-residual"],
    )
    rows = {
        "classifier": "[CLS]",
        "masked": "[MASK]",
        "causal": "last token",
        "embedding": "mean of all rows",
    }
    assert meta["rows"] == [rows[kind]]
    assert bool(meta["classes"]) == (kind == "classifier")
    assert (meta["accuracy"] is None) == (kind in ("classifier", "embedding"))


def test_erasure_by_hand(evaluated):
    """Comprehensiveness and sufficiency of one text's flow, the versions written out."""
    import torch

    model, tokenizer = classifier()
    ids = tokenizer(TEXTS[1])["input_ids"]
    att = fg.attribute(model, tokenizer, TEXTS[1], targets="cls")
    words = [j for j, i in enumerate(ids) if i not in (2, 3)]
    order = sorted(words, key=lambda j: (-att.scores[0, j], j))
    with torch.no_grad():
        number = int(model(input_ids=torch.tensor([ids])).logits.argmax())
        for k, share in enumerate(CURVE):
            top = order[: int(np.ceil(round(share * len(words), 9)))]
            for side, blanked in enumerate((top, [j for j in words if j not in top])):
                version = [4 if j in blanked else i for j, i in enumerate(ids)]
                both = model(input_ids=torch.tensor([ids, version])).logits.softmax(-1)[:, number]
                place = evaluated["classifier"].axes["rankings"].index("flow attention")
                found = evaluated["classifier"].results[1].drops[place, side, k]
                assert found == pytest.approx(float(both[0] - both[1]), abs=1e-6)


def test_erasure_in_figures(evaluated):
    curves = {(c.method, c.edges): c for c in evaluated["classifier"].curves}
    assert set(curves) >= {
        ("flow", "attention"),
        ("raw", "norm-residual"),
        ("random", None),
        ("blank-out", None),
    }
    place = evaluated["classifier"].axes["rankings"].index("rollout attention")
    drops = np.stack([r.drops[place] for r in evaluated["classifier"].results[:3]])  # (texts, 2, curve)
    assert curves["rollout", "attention"].comprehensiveness.mean == pytest.approx(drops[:, 0, 1:6].mean())
    assert curves["rollout", "attention"].sufficiency.mean == pytest.approx(drops[:, 1, 1:6].mean())
    del curves["gradient", None]  # of BERT it is 0
    for curve in curves.values():  # nothing blanked, all blanked: the same whoever ranks
        assert curve.deletion[0] == curve.insertion[-1] == pytest.approx(0, abs=1e-6)
        assert curve.deletion[-1] == pytest.approx(curves["random", None].deletion[-1], abs=1e-6)
        assert curve.insertion[0] == pytest.approx(curve.deletion[-1], abs=1e-6)


def test_a_ranking_that_ranks_nothing_has_no_curve(evaluated):
    """The sum of a gradient behind LayerNorms is 0 for every token; it must not pass for the order of the text."""
    curves = {c.method: c for c in evaluated["classifier"].curves if c.edges is None}
    assert np.isnan(curves["gradient"].deletion).all()
    # a text of one word has no order either, whoever ranks
    counts = [curves[name].comprehensiveness.count for name in ("gradient", "gradient-norm", "random")]
    assert counts == [0, 3, 3]
    row = next(r for r in evaluated["classifier"].to_dict()["curves"] if r["method"] == "gradient")
    assert row["deletion"] == [None] * len(CURVE)


def test_summaries_are_over_texts(evaluated):
    evaluation = evaluated["classifier"]
    values = [r.correlations[0, 2, 2, 0, 0] for r in evaluation.results]
    (found,) = [evaluation.find("flow", edges="attention", against="blank-out")[2]]
    assert found.mean == pytest.approx(np.mean(values))
    assert found.sd == pytest.approx(np.std(values, ddof=1))
    assert found.low <= found.mean <= found.high
    # of one word there is no order without special tokens
    content = evaluation.find("flow", edges="attention", against="blank-out", tokens="content")[2]
    assert (content.count, content.undefined) == (3, 1)


def test_random_relevance_knows_nothing():
    model, tokenizer = classifier()
    texts = [f"{a} {b} {c} on the {d}" for a in ("the", "a") for b in ("cat", "dog", "key") for c in ("sat", "runs")
             for d in ("mat", "table", "park")]  # fmt: skip
    evaluation = fg.evaluate(model, tokenizer, texts, methods=["raw"], erasure=False, **QUICK)
    (random,) = evaluation.find("random", against="blank-out")
    assert abs(random.mean) < 4 * random.sd / np.sqrt(len(texts))
    assert 0.2 < random.sd < 0.6  # 1 / sqrt(T - 1) for T = 8 is 0.38


def test_the_same_again_and_another_seed():
    model, tokenizer = classifier()
    runs = [
        fg.evaluate(model, tokenizer, TEXTS, methods=["raw"], seed=seed, **QUICK).to_dict()
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1]
    assert runs[0]["correlations"][-1]["mean"] != runs[2]["correlations"][-1]["mean"]


def test_the_model_comes_back_as_it_was():
    model, tokenizer = classifier()
    model.train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    fg.evaluate(model, tokenizer, TEXTS[:2], **QUICK)
    assert model.training
    assert model.bert.training
    assert all(p.grad is None for p in model.parameters())
    assert all(bool((p == before[name]).all()) for name, p in model.named_parameters())


def test_dropout_is_off():
    model, tokenizer = classifier()
    quiet = fg.evaluate(model, tokenizer, TEXTS[:2], **QUICK).to_dict()
    model.train()
    assert fg.evaluate(model, tokenizer, TEXTS[:2], **QUICK).to_dict() == quiet


def test_targets():
    model, tokenizer = classifier()
    options = {"methods": ["rollout"], "against": ["blank-out"], "erasure": False}
    graph = fg.LayeredGraph.from_trace(fg.trace(model, tokenizer, TEXTS[0]))
    matrix = fg.rollout(graph)
    importance = None
    for target, row in (("max", matrix.max(0)), ("mean", matrix.mean(0)), (4, matrix[4])):
        result = fg.evaluate(model, tokenizer, TEXTS[:1], target=target, **options, **QUICK).results[0]
        if importance is None:
            from flowgraph.evaluation.importance import blank_out
            from flowgraph.evaluation.questions import make_question

            importance = blank_out(model, make_question(model, tokenizer, Item(TEXTS[0])), 4)[1]
        assert result.correlations[0, 0, 2, 0, 0] == pytest.approx(spearmanr(row, importance).statistic)


def test_a_classifier_that_reads_a_mask():
    model, tokenizer = classifier()
    options = {"methods": ["rollout"], "against": ["blank-out"], "erasure": False, "target": "mask"}
    result = fg.evaluate(model, tokenizer, MASKED[:1], **options, **QUICK).results[0]
    from flowgraph.evaluation.importance import blank_out
    from flowgraph.evaluation.questions import make_question

    importance = blank_out(model, make_question(model, tokenizer, Item(MASKED[0])), 4)[1]
    row = fg.rollout(fg.LayeredGraph.from_trace(fg.trace(model, tokenizer, MASKED[0])))[6]
    kept = [j for j in range(len(row)) if j != 6]
    assert result.correlations[0, 0, 2, 0, 0] == pytest.approx(
        spearmanr(row[kept], importance[kept]).statistic
    )
    with pytest.raises(FlowgraphError, match="needs one mask"):
        fg.evaluate(model, tokenizer, TEXTS[:1], **options, **QUICK)


def test_labels_give_accuracy_and_the_true_class():
    model, tokenizer = classifier()
    labels = ["yes", 0, "maybe", "no"]
    predicted = fg.evaluate(model, tokenizer, TEXTS, labels=labels, methods=["raw"], **QUICK)
    true = fg.evaluate(model, tokenizer, TEXTS, labels=labels, methods=["raw"], explain="true", **QUICK)
    classes = [r.facts["class"] for r in predicted.results]
    assert predicted.meta["accuracy"] == np.mean([c == t for c, t in zip(classes, [1, 0, 2, 0], strict=True)])
    assert [r.facts["class"] for r in true.results] == [1, 0, 2, 0]


def test_json_and_data_frame(evaluated, tmp_path):
    evaluation = evaluated["masked"]
    text = evaluation.to_json(tmp_path / "e.json")
    assert json.loads((tmp_path / "e.json").read_text()) == json.loads(text) == evaluation.to_dict()
    values = json.loads(text)
    assert values["format"] == "flowgraph evaluation 1"
    # 2 edge kinds, 3 methods, 3 levels, 4 importances, 2 rules; random: 4 importances, 2 rules
    assert len(values["correlations"]) == 2 * 3 * 3 * 4 * 2 + 4 * 2
    assert len(values["curves"]) == 2 * 3 + 1 + 4
    frame = evaluation.to_pandas()
    picked = frame[
        (frame.method == "flow") & (frame.edges == "attention") & (frame.against == "gradient-input")
    ]
    assert picked[picked.tokens == "all"]["mean"].tolist() == [
        s.mean for s in evaluation.find("flow", edges="attention", against="gradient-input")
    ]


def test_picture(evaluated, tmp_path):
    figure = evaluated["classifier"].plot(tmp_path / "levels.png")
    assert (tmp_path / "levels.png").read_bytes()[:4] == b"\x89PNG"
    panel = figure.axes[0]
    lines = {line.get_label(): line.get_ydata() for line in panel.get_lines()}
    found = evaluated["classifier"].find("flow", edges="norm-residual", against="blank-out")
    np.testing.assert_array_equal(lines["flow norm-residual"], [s.mean for s in found])
    assert len(figure.axes) == 8


def test_picture_of_curves(evaluated, tmp_path):
    evaluation = evaluated["classifier"]
    figure = evaluation.plot_curves(tmp_path / "curves.pdf")
    assert (tmp_path / "curves.pdf").read_bytes()[:4] == b"%PDF"
    for panel, side in zip(figure.axes, ("deletion", "insertion"), strict=True):
        lines = {line.get_label(): list(line.get_ydata()) for line in panel.get_lines()}
        assert lines["flow attention"] == list(
            next(getattr(c, side) for c in evaluation.curves if (c.method, c.edges) == ("flow", "attention"))
        )
        assert len(lines) == len(evaluation.curves)
    model, tokenizer = classifier()
    with pytest.raises(FlowgraphError, match="erasure"):
        fg.evaluate(model, tokenizer, TEXTS[:2], erasure=False, **QUICK).plot_curves()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["raws"]}, "methods: unknown 'raws'; choose from raw, rollout, flow"),
        ({"against": "blank"}, "against: unknown"),
        ({"against": []}, "against: none given"),
        ({"edges": "attentions"}, "edges"),
        ({"edges": []}, "edges: none given"),
        ({"explain": "false"}, "explain: unknown"),
        ({"labels": [1]}, "labels: 1 given for 4 texts"),
        ({"target": "nothing"}, "target: unknown 'nothing'; pass a position or one of auto, mask, max, mean"),
        ({"target": "AUTO"}, "target: unknown 'AUTO'"),
        ({"target": None}, "target: unknown None"),
        ({"target": True}, "target: unknown True"),
        ({"target": 99}, "position 99 is not among"),
        ({"methods": None}, "methods: None is no name"),
        ({"edges": 5}, "edges: 5 is no name"),
        ({"against": 5}, "against: 5 is no name"),
        ({"labels": 5}, "labels: 5 is no list"),
        ({"labels": "abcd"}, "labels: 'abcd' is no list"),
        ({"candidates": 5}, "candidates: 5 is no list"),
        ({"candidates": {"are", "is"}}, "candidates: .* is no list"),
        ({"candidates": [1, 2, 3, 4]}, "candidates: pass two words"),
        ({"candidates": [("are", None)] * 4}, "candidates: pass two words"),
        ({"blank": True}, "blank: True is no token"),
        ({"blank": 1.5}, "blank: 1.5 is no token"),
        ({"blank": [4]}, "blank: .* is no token"),
        ({"erasure": "no"}, "erasure: 'no'"),
        ({"resamples": 10**9}, "resamples: 1000000000"),
        ({"resamples": 1.5}, "resamples: 1.5"),
        ({"out": ""}, "out: '' is no folder"),
        ({"out": 5}, "out: 5 is no folder"),
        ({"blank": "zebra"}, "blank"),
        ({"seed": -1}, "seed: -1"),
        ({"negative": "keep all"}, "negative: unknown"),
        ({"residual": 2.0}, "residual"),
        ({"resamples": -1}, "resamples: -1"),
        ({"retry_errors": True}, "retry_errors: True is for a run that is kept"),
    ],
)
def test_arguments_that_do_not_fit(options, message):
    model, tokenizer = classifier()
    with pytest.raises(FlowgraphError, match=message):
        fg.evaluate(model, tokenizer, TEXTS, **options)


@pytest.mark.parametrize("texts", ["a cat", None, 5, [], {"a": 1}, {"a cat"}, b"a cat"])
def test_texts_that_are_no_list(texts):
    with pytest.raises(FlowgraphError, match="texts: "):
        fg.evaluate(*classifier(), texts)


def test_numbers_and_columns_of_numpy_and_pandas():
    import pandas

    model, tokenizer = classifier()
    frame = pandas.DataFrame({"text": TEXTS, "label": [0, 1, 2, 0]})
    options = {"methods": ["raw"], "against": ["blank-out"]}
    plain = fg.evaluate(
        model, tokenizer, TEXTS, labels=[0, 1, 2, 0], target=1, blank=4, resamples=5, seed=3, **options
    )
    for texts, labels in ((frame.text, frame.label), (frame.text.to_numpy(), frame.label.to_numpy())):
        other = fg.evaluate(model, tokenizer, texts, labels=labels, target=np.int64(1), blank=np.int64(4),
                            resamples=np.int64(5), seed=np.int64(3), **options)  # fmt: skip
        assert other.to_dict() == plain.to_dict()


def test_a_pair_may_be_a_list():
    model, tokenizer = classifier()
    found = [fg.evaluate(model, tokenizer, [kind(("a cat", "the dog"))], **QUICK) for kind in (list, tuple)]
    assert found[0].to_dict() == found[1].to_dict()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the cat " * 40, "text has 82 tokens, but the model reads at most 64"),
        (" ", "is no text"),
        (3, "is no text"),
        (("a", "b", "c"), "is no text"),
        (Item("a cat", candidates=("are", "cat ##s")), "not one token"),
        (Item("", problem="broken JSON"), "broken JSON"),
    ],
)
def test_a_text_that_fails_stops_no_other(text, message):
    counted = []
    model, tokenizer = classifier()
    with pytest.warns(FlowgraphWarning, match="texts: 1 of 3 left out, most often: .*" + message):
        evaluation = fg.evaluate(
            model, tokenizer, ["the dog", text, "a cat"], progress=counted.append, **QUICK
        )
    assert sum(counted) == 3
    (failure,) = evaluation.failures
    assert (failure.id, failure.line) == ("2", 2)
    assert message in failure.reason
    assert evaluation.to_dict()["failures"] == [{"id": "2", "line": 2, "reason": failure.reason}]
    alone = fg.evaluate(model, tokenizer, ["the dog", "a cat"], **QUICK)
    assert evaluation.to_dict()["correlations"] == alone.to_dict()["correlations"]
    assert evaluation.meta["texts"] == 2


def test_one_text_that_spoils_the_forward_pass_costs_itself_alone(monkeypatch):
    """The traces of a window come from one pass; where that fails they are made one by one."""
    from flowgraph.capture import run

    model, tokenizer = classifier()
    whole = fg.evaluate(model, tokenizer, [TEXTS[0], TEXTS[2]], **QUICK).to_dict()
    real = run.trace

    def failing(model, tokenizer, texts, **options):
        if TEXTS[1] in texts:
            raise RuntimeError("out of memory")
        return real(model, tokenizer, texts, **options)

    monkeypatch.setattr(run, "trace", failing)
    with pytest.warns(FlowgraphWarning, match="1 of 3"):
        evaluation = fg.evaluate(model, tokenizer, TEXTS[:3], **QUICK)
    assert [failure.reason for failure in evaluation.failures] == ["RuntimeError: out of memory"]
    for found, expected in zip(evaluation.to_dict()["correlations"], whole["correlations"], strict=True):
        assert found["mean"] == pytest.approx(expected["mean"], abs=1e-6)


def test_where_all_fail_the_reason_is_the_error():
    model, tokenizer = classifier()
    with pytest.raises(FlowgraphError, match=r"texts: all 2 failed, most often: .* is no text"):
        fg.evaluate(model, tokenizer, [" ", " "])
    with pytest.raises(FlowgraphError, match=r"^texts: ' ' is no text"):
        fg.evaluate(model, tokenizer, [" "])


def test_models_that_do_not_fit():
    with pytest.raises(FlowgraphError, match="tokenizer"):
        fg.evaluate(classifier()[0], None, TEXTS)
    with pytest.raises(FlowgraphError, match="candidates"):
        fg.evaluate(*masked_model(), MASKED)
    with pytest.raises(FlowgraphError, match="candidates"):
        fg.evaluate(*causal_model(), ["the dog"])
    with pytest.raises(FlowgraphError, match="model: 5 is no Hugging Face model"):
        fg.evaluate(5, classifier()[1], TEXTS)
    from tests.models import tiny

    with pytest.raises(FlowgraphError, match="cross-attention"):
        fg.evaluate(*tiny("t5"), [("a", "b")])


@pytest.mark.parametrize("name", ["BertForTokenClassification", "BertForQuestionAnswering"])
def test_heads_that_answer_otherwise_are_refused(name):
    import transformers

    from tests.models import SMALL

    model = getattr(transformers, name)(transformers.BertConfig(**SMALL)).eval()
    with pytest.raises(FlowgraphError, match=f"^model: {name} gives neither"):
        fg.evaluate(model, classifier()[1], TEXTS, candidates=("are", "is"))


def test_a_model_with_one_output_is_asked_for_it():
    """No class, so no accuracy; labels of any kind stop nothing."""
    model, tokenizer = one_output()
    evaluation = fg.evaluate(model, tokenizer, TEXTS[:2], labels=[0.5, -3.0], methods=["raw"], **QUICK)
    assert (evaluation.meta["score"], evaluation.meta["classes"]) == (["regression"], [])
    assert evaluation.meta["accuracy"] is None
    ids = tokenizer(TEXTS[1], return_tensors="pt")["input_ids"]
    assert evaluation.results[1].facts["score"] == pytest.approx(model(input_ids=ids).logits.item(), abs=1e-6)


def test_a_model_whose_cache_cannot_hold_its_layers():
    """BART's decoder alone makes a cache for its encoder; nothing here comes after a text, so there is no cache."""
    from transformers import BartConfig, BartForCausalLM

    from tests.models import SEQ2SEQ

    model = BartForCausalLM(BartConfig(**SEQ2SEQ)).eval()
    tokenizer = causal_model()[1]
    assert fg.evaluate(model, tokenizer, PREFIXES, candidates=("are", "is"), **QUICK).meta["texts"] == 3


def test_flows_of_equal_cuts_are_ties(monkeypatch):
    """A solver's last digits rank nothing."""
    from dataclasses import replace

    from flowgraph import attribution

    model, tokenizer = classifier()
    options = {"methods": ["flow"], "against": ["blank-out"], "edges": ["value-zeroing"], **QUICK}
    plain = fg.evaluate(model, tokenizer, TEXTS, **options)
    make = attribution.attribute_graph

    def shaken(*arguments, **more):
        found = make(*arguments, **more)
        noise = np.random.default_rng(0).uniform(0, 1e-12, found.scores.shape)
        return replace(found, scores=found.scores + noise)

    monkeypatch.setattr(attribution, "attribute_graph", shaken)
    again = fg.evaluate(model, tokenizer, TEXTS, **options)
    for one, other in zip(plain.results, again.results, strict=True):
        np.testing.assert_array_equal(one.correlations, other.correlations)


def test_a_saved_model_is_loaded_with_its_head(tmp_path):
    model, tokenizer = classifier()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = fg.evaluate(str(tmp_path), None, TEXTS[:2], methods=["raw"], **QUICK)
    own = fg.evaluate(model, tokenizer, TEXTS[:2], methods=["raw"], **QUICK)
    assert loaded.to_dict()["correlations"] == own.to_dict()["correlations"]
    assert loaded.meta["score"] == ["classifier"]


@pytest.mark.parametrize(
    ("architectures", "expected"),
    [
        (["BertForMaskedLM"], "AutoModelForMaskedLM"),
        (["GPT2LMHeadModel"], "AutoModelForCausalLM"),
        (["LlamaForCausalLM"], "AutoModelForCausalLM"),
        (["RobertaForSequenceClassification"], "AutoModelForSequenceClassification"),
        (["BertModel"], "AutoModel"),
        (None, "AutoModel"),
    ],
)
def test_heads(architectures, expected):
    from types import SimpleNamespace

    from flowgraph.evaluation.loading import auto_class

    assert auto_class(SimpleNamespace(architectures=architectures)) == expected
