"""Blank-out and gradients against one forward pass a token, and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flowgraph.errors import FlowgraphError
from flowgraph.evaluation import importance
from flowgraph.evaluation.importance import blank_out, blanked_scores, check_blank, gradients
from flowgraph.evaluation.items import Item, read_items
from flowgraph.evaluation.questions import class_number, make_question
from flowgraph.evaluation.vocabulary import blank_token
from tests.evaluation.asked import KINDS, TEXTS, asked_models, classifier, last_token_classifier, masked_model


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
    np.testing.assert_allclose(blank_out(model, question, blank)[1], expected, atol=2e-6)
    assert max(expected) > 1e-3  # the check is of something


def test_blank_out_is_one_batch(monkeypatch):
    model, tokenizer, question = question_of("classifier")
    calls = []
    model.register_forward_hook(
        lambda module, args, kwargs, output: calls.append(len(output.logits)), with_kwargs=True
    )
    blank_out(model, question, blank_token(tokenizer))
    assert calls == [len(question.ids) + 1]


def test_a_token_that_is_the_blank_changes_nothing(monkeypatch):
    """Its version is the text itself, but rows of a batch may differ in their last digits."""
    model, tokenizer = classifier()
    question = make_question(model, tokenizer, Item("the zebra and the zebra on the mat"))
    unknown = tokenizer.unk_token_id
    at = (question.ids == unknown).numpy()
    assert at.sum() == 2
    real = importance.blanked_scores
    monkeypatch.setattr(
        importance, "blanked_scores", lambda *a: real(*a) + 1e-9 * np.arange(len(question.ids) + 1)
    )
    score, changes = blank_out(model, question, unknown)
    assert (changes == 0).tolist() == at.tolist()
    assert score == pytest.approx(question.score(model(**question.inputs)).item(), abs=1e-6)


def test_a_blank_that_the_model_takes_for_padding_is_refused():
    """GPT-2's classifier would read another token's answer where the last one is its padding token."""
    model, tokenizer = last_token_classifier(pad=1)
    question = make_question(model, tokenizer, Item(TEXTS[0]))
    with pytest.raises(FlowgraphError, match="blank: token 1 is the padding token of GPT2"):
        check_blank(model, question, 1)
    check_blank(model, question, 5)
    other, _ = last_token_classifier(pad=0)
    check_blank(other, make_question(other, tokenizer, Item(TEXTS[0])), 1)
    # to BERT a pad without a mask is a token like any other
    bert, tokenizer = classifier()
    check_blank(bert, make_question(bert, tokenizer, Item(TEXTS[0])), tokenizer.pad_token_id)


def test_a_classifier_of_several_classes_a_text_is_asked_for_one_sigmoid():
    model, tokenizer = classifier()
    model.config.problem_type = "multi_label_classification"
    question = make_question(model, tokenizer, Item(TEXTS[0]))
    output = model(**question.inputs)
    assert question.score(output).item() == pytest.approx(output.logits[0].max().sigmoid().item(), abs=1e-6)


def test_a_word_behind_a_space_is_another_token_of_byte_level_pieces():
    """RoBERTa's mask takes the space before it along, and the word in its place holds that space."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    model, _ = masked_model()
    words = ["<s>", "</s>", "<unk>", "<mask>", "are", "Ġare", "is", "Ġis", "the", "Ġthe", "Ġcats"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="$A", pair="$A </s> $B:1", special_tokens=[("</s>", 1)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", mask_token=AddedToken("<mask>", lstrip=True)
    )
    for text, pieces in (
        ("the cats <mask>", ("Ġare", "Ġis")),
        ("<mask> the cats", ("are", "is")),
        ("the<mask> cats", ("are", "is")),
        (("the cats", "the <mask>"), ("Ġare", "Ġis")),
    ):
        question = make_question(model, tokenizer, Item(text, candidates=("are", "is")))
        logits = model(**question.inputs).logits[0, question.asked]
        first, second = tokenizer.convert_tokens_to_ids(list(pieces))
        expected = (logits[first] - logits[second]).item()
        assert question.score(model(**question.inputs)).item() == pytest.approx(expected, abs=1e-6), text


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
        (Item(TEXTS[0], label=1.5), {}, "1.5 is no class of the model"),
        (Item(TEXTS[0], label=float("inf")), {}, "inf is no class of the model"),
        (Item(TEXTS[0], label=[1]), {}, r"\[1\] is no class of the model"),
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
        (Item("the keys [MASK]", candidates=("is", "is")), "'is' and 'is' are one token"),
        (Item("the keys", candidates=("are", "is")), r"'the keys' has no mask.* put \[MASK\] where"),
    ],
)
def test_words_that_cannot_be_chosen_between(item, message):
    model, tokenizer = masked_model()
    with pytest.raises(FlowgraphError, match=message):
        make_question(model, tokenizer, item)


@pytest.mark.parametrize("words", [("are", "is"), ("is", "are")])
def test_the_first_word_is_the_right_one(words):
    model, tokenizer = masked_model()
    question = make_question(model, tokenizer, Item("the keys [MASK]", candidates=words))
    assert question.facts["correct"] == (question.score(model(**question.inputs)).item() > 0)


def test_no_word_follows_the_end_of_a_text():
    model, tokenizer = masked_model()
    tokenizer.sep_token, tokenizer.eos_token = None, "[SEP]"
    with pytest.raises(FlowgraphError, match="no word follows its end"):
        make_question(model, tokenizer, Item("the keys", candidates=("are", "is")))


def test_blank_tokens():
    tokenizer = classifier()[1]
    assert blank_token(tokenizer) == tokenizer.mask_token_id
    assert blank_token(tokenizer, "the") == tokenizer.convert_tokens_to_ids("the")
    assert blank_token(tokenizer, "[UNK]") == tokenizer.unk_token_id
    assert blank_token(tokenizer, np.int64(5)) == 5
    for missing in ("zebra", 10_000, -1, "", True, 4.0):
        with pytest.raises(FlowgraphError, match="is no token"):
            blank_token(tokenizer, missing)
    tokenizer.mask_token = None
    assert blank_token(tokenizer) == tokenizer.unk_token_id


def test_class_numbers():
    names = {0: "VBZ", 1: "VBP"}
    labels = ("VBP", "0", 1, 1.0, np.int64(0), torch.tensor(1), True)
    assert [class_number(label, 2, names) for label in labels] == [1, 0, 1, 1, 0, 1, 1]


def test_items():
    assert read_items(["a", "b"], labels=[1, 0])[1] == Item("b", 0)
    assert read_items(["a", "b"], candidates=("x", "y"))[0].candidates == ("x", "y")
    assert read_items(["a", "b"], candidates=[("x", "y"), ("u", "v")])[1].candidates == ("u", "v")
    with pytest.raises(FlowgraphError, match="1 given for 2 texts"):
        read_items(["a", "b"], labels=[1])
    with pytest.raises(FlowgraphError, match="texts"):
        read_items("a text")
