"""Blank-out and gradients against one forward pass a token, and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flowgraph.errors import FlowgraphError
from flowgraph.evaluation.importance import blank_out, blanked_scores, gradients
from flowgraph.evaluation.items import Item, read_items
from flowgraph.evaluation.questions import class_number, make_question
from flowgraph.evaluation.vocabulary import blank_token
from tests.evaluation.asked import KINDS, TEXTS, asked_models, classifier, masked_model


def question_of(kind, **options):
    model, tokenizer, texts, more = asked_models()[kind]
    item = Item(texts[0], candidates=more.get("candidates"))
    return model, tokenizer, make_question(model, tokenizer, item, **options)


def naive_score(kind, model, tokenizer, ids, whole):
    """The score from the formula; ``ids`` one version of the text, ``whole`` the text itself."""
    with torch.no_grad():
        output = model(input_ids=torch.tensor([ids]))
        if kind == "classifier":
            original = model(input_ids=torch.tensor([whole])).logits[0]
            return float(output.logits[0].softmax(-1)[int(original.argmax())])
        if kind == "embedding":
            first = model(input_ids=torch.tensor([whole])).last_hidden_state[0].mean(0)
            return float(output.last_hidden_state[0].mean(0) @ first / (first @ first))
        place = whole.index(tokenizer.mask_token_id) if kind == "masked" else len(whole) - 1
        logs = output.logits[0, place].log_softmax(-1)
        are, is_ = tokenizer.convert_tokens_to_ids(["are", "is"])
        return float(logs[are] - logs[is_])


@pytest.mark.parametrize("kind", KINDS)
def test_blank_out_equals_one_pass_a_token(kind):
    model, tokenizer, question = question_of(kind)
    blank = blank_token(tokenizer)
    whole = question.ids.tolist()
    before = naive_score(kind, model, tokenizer, whole, whole)
    expected = []
    for j in range(len(whole)):
        version = [blank if k == j else i for k, i in enumerate(whole)]
        expected.append(abs(naive_score(kind, model, tokenizer, version, whole) - before))
    np.testing.assert_allclose(blank_out(model, question, blank), expected, atol=2e-6)
    assert max(expected) > 1e-3  # the check is of something


def test_blank_out_is_one_batch(monkeypatch):
    model, tokenizer, question = question_of("classifier")
    calls = []
    model.register_forward_hook(
        lambda module, args, kwargs, output: calls.append(len(output.logits)), with_kwargs=True
    )
    blank_out(model, question, blank_token(tokenizer))
    assert calls == [len(question.ids) + 1]


def test_rows_beyond_the_batch_size_give_the_same():
    model, _, question = question_of("classifier")
    rows = np.random.default_rng(0).random((9, len(question.ids))) < 0.4
    whole = blanked_scores(model, question, rows, 4)
    np.testing.assert_allclose(blanked_scores(model, question, rows, 4, batch_size=2), whole, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_finite_differences(kind):
    model, tokenizer, texts, more = asked_models()[kind]
    model = model.double()
    question = make_question(model, tokenizer, Item(texts[0], candidates=more.get("candidates")))
    found = gradients(model, question)
    x = model.get_input_embeddings()(question.ids).detach()  # (T, D)
    others = {name: t for name, t in question.inputs.items() if name != "input_ids"}
    slope = torch.zeros_like(x)
    # this family's RMSNorm computes in float32 whatever the model's precision
    size, rtol = (1e-3, 5e-3) if kind == "causal" else (1e-5, 1e-5)
    with torch.no_grad():
        for place in np.ndindex(*x.shape):
            step = torch.zeros_like(x)
            step[place] = size
            up, down = (question.score(model(inputs_embeds=(x + s)[None], **others)) for s in (step, -step))
            slope[place] = (up - down)[0] / (2 * size)
    expected = {
        "gradient": slope.sum(-1).abs(),
        "gradient-input": (slope * x).sum(-1).abs(),
        "gradient-norm": slope.square().sum(-1).sqrt(),
    }
    for name, values in expected.items():
        allowed = rtol * values.max().item() + 1e-8
        np.testing.assert_allclose(found[name], values.numpy(), rtol=rtol, atol=allowed, err_msg=name)


@pytest.mark.parametrize(("kind", "nothing"), [("classifier", True), ("masked", True), ("causal", False)])
def test_a_sum_that_layer_norm_makes_zero_is_no_order(kind, nothing):
    model, _, question = question_of(kind)
    found = gradients(model, question)
    assert (found["gradient"] == 0).all() == nothing
    assert (found["gradient-norm"] > 0).all()


def test_gradients_leave_nothing_behind():
    model, _, question = question_of("classifier")
    gradients(model, question)
    assert all(p.grad is None for p in model.parameters())


def test_a_model_that_reads_embeddings_otherwise_is_refused():
    model, _, question = question_of("classifier")
    own = model.bert.embeddings.word_embeddings
    model.bert.embeddings.word_embeddings = torch.nn.Sequential(own, torch.nn.Tanh())
    model.get_input_embeddings = lambda: own
    with pytest.raises(FlowgraphError, match="from input embeddings"):
        gradients(model, question)


def test_the_true_class_is_another_question():
    model, tokenizer = classifier()
    predicted = make_question(model, tokenizer, Item(TEXTS[0]))
    other = (predicted.facts["class"] + 1) % 3
    true = make_question(model, tokenizer, Item(TEXTS[0], label=other), explain="true")
    assert true.facts["class"] == other
    assert true.facts["correct"] is False
    output = model(**true.inputs)
    assert true.score(output).item() == pytest.approx(output.logits[0].softmax(-1)[other].item())


def test_the_mask_is_no_input_of_its_own():
    model, tokenizer = masked_model()
    question = make_question(model, tokenizer, Item("the keys [MASK] on", candidates=("are", "is")))
    assert question.asked == question.target == 3
    assert question.inputs_asked.tolist() == [True, True, True, False, True, True]
    assert question.content.tolist() == [False, True, True, False, True, False]


def test_rows_that_scores_are_read_from():
    targets = {kind: question_of(kind)[2].target for kind in KINDS}
    assert targets == {"classifier": 0, "masked": 6, "causal": 4, "embedding": "mean"}


@pytest.mark.parametrize(
    ("item", "options", "message"),
    [
        (Item(TEXTS[0]), {"explain": "true"}, "needs the label"),
        (Item(TEXTS[0], label="perhaps"), {}, "no, yes, maybe"),
        (Item(TEXTS[0], label=3), {}, "no class of the model"),
        (Item("  "), {}, "is no text"),
    ],
)
def test_questions_that_cannot_be_asked(item, options, message):
    model, tokenizer = classifier()
    with pytest.raises(FlowgraphError, match=message):
        make_question(model, tokenizer, item, **options)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (Item("the keys [MASK]"), "two words"),
        (Item("the [MASK] keys [MASK]", candidates=("are", "is")), "2 masks"),
        (Item("the keys [MASK]", candidates=("are", "tables")), "'tables' is not one token"),
        (Item("the keys [MASK]", candidates=("are", "zebra")), "'zebra' is not one token"),
    ],
)
def test_words_that_cannot_be_chosen_between(item, message):
    model, tokenizer = masked_model()
    with pytest.raises(FlowgraphError, match=message):
        make_question(model, tokenizer, item)


def test_blank_tokens():
    tokenizer = classifier()[1]
    assert blank_token(tokenizer) == tokenizer.mask_token_id
    assert blank_token(tokenizer, "the") == tokenizer.convert_tokens_to_ids("the")
    assert blank_token(tokenizer, "[UNK]") == tokenizer.unk_token_id
    for missing in ("zebra", 10_000):
        with pytest.raises(FlowgraphError, match="is no token"):
            blank_token(tokenizer, missing)
    tokenizer.mask_token = None
    assert blank_token(tokenizer) == tokenizer.unk_token_id


def test_class_numbers():
    names = {0: "VBZ", 1: "VBP"}
    assert [class_number(label, 2, names) for label in ("VBP", "0", 1)] == [1, 0, 1]


def test_items():
    assert read_items(["a", "b"], labels=[1, 0])[1] == Item("b", 0)
    assert read_items(["a", "b"], candidates=("x", "y"))[0].candidates == ("x", "y")
    assert read_items(["a", "b"], candidates=[("x", "y"), ("u", "v")])[1].candidates == ("u", "v")
    with pytest.raises(FlowgraphError, match="1 given for 2 texts"):
        read_items(["a", "b"], labels=[1])
    with pytest.raises(FlowgraphError, match="texts"):
        read_items("a text")
