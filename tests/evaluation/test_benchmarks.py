"""The tasks that the benchmarks train on: data, models, known alignments."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import flowgraph as fg
from benchmarks import _reordering, _verb_number, abnar_zuidema, kobayashi, mohebbi, sun_marasovic
from benchmarks._data import numbers
from benchmarks.mohebbi import Pair, train_probe
from tests.evaluation.asked import headless

ITEMS = [
    _verb_number.Item(text, label, None)
    for text, label in [
        ("the key to the cabinets", 0),
        ("the keys to the cabinet", 1),
        ("the cat", 0),
        ("the cat", 0),
    ]
]


@pytest.fixture(scope="module")
def agreement():
    tokenizer = _verb_number.make_tokenizer(ITEMS)
    torch.manual_seed(0)
    model = _verb_number.make_model(len(tokenizer), layers=2, heads=2, width=16).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return model, tokenizer


def test_words_seen_once_are_unknown(agreement):
    tokens = agreement[1].convert_ids_to_tokens(agreement[1]("the key to the cat")["input_ids"])
    assert tokens == ["[CLS]", "the", "[UNK]", "to", "the", "cat"]


def test_every_token_sees_every_other(agreement):
    model, tokenizer = agreement
    trace = fg.trace(model, tokenizer, "the cat to the", edges=("attention", "norm-residual"), verify=True)
    assert trace.meta["causal"] is False
    assert (trace["attention"] > 0).all()
    with torch.no_grad():
        ids = torch.tensor([tokenizer("the cat to")["input_ids"]])
        other = ids.clone()
        other[0, -1] = tokenizer.convert_tokens_to_ids("cat")
        assert (model(ids).logits - model(other).logits).abs().max() > 1e-3


def test_pads_change_nothing(agreement):
    model, tokenizer = agreement
    rows = _verb_number._encode(tokenizer, ITEMS)
    ids, mask, labels = _verb_number._pad(rows)
    assert labels.tolist() == [0, 1, 0, 0]
    with torch.no_grad():
        together = model(ids, mask).logits
        for row, (own, _) in zip(together, rows, strict=True):
            torch.testing.assert_close(row, model(torch.tensor([own])).logits[0], atol=1e-5, rtol=1e-5)


def test_pads_are_no_words_to_guess(agreement):
    model, tokenizer = agreement
    ids, mask, labels = _verb_number._pad(_verb_number._encode(tokenizer, ITEMS))
    recipe = _verb_number.Recipe(unknown=1.0)  # every word is replaced, so nothing is left to chance
    more = torch.zeros(len(ids), 3, dtype=torch.long)
    longer = (torch.cat([ids, more], 1), torch.cat([mask, more], 1))
    with torch.no_grad():
        found = [
            _verb_number._loss(model, *rows, labels, recipe, tokenizer) for rows in ((ids, mask), longer)
        ]
        alone = _verb_number._loss(model, ids, mask, labels, replace(recipe, guess=0.0), tokenizer)
        logits = model(ids.masked_fill((ids > 2) & mask.bool(), tokenizer.unk_token_id), mask).logits
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(alone, torch.nn.functional.cross_entropy(logits, labels))
    assert found[0] > alone + 0.1  # a guess among so many words costs something


def test_it_learns():
    tokenizer = _verb_number.make_tokenizer(ITEMS * 2)
    data = _verb_number.Split(ITEMS * 8, ITEMS[:1], ITEMS, ITEMS, ITEMS)
    torch.manual_seed(0)
    model = _verb_number.make_model(len(tokenizer), 0.0, layers=2, heads=2, width=16)
    recipe = _verb_number.Recipe(epochs=25, attracted=0, batch=16, rate=5e-3, unknown=0.0)
    losses = _verb_number.train(model, tokenizer, data, recipe, seed=0)
    assert losses[-1] < 0.5 * losses[0]
    assert _verb_number.accuracy(model, tokenizer, ITEMS) == 1


def test_nothing_held_out_is_trained_on():
    if "FLOWGRAPH_DATA" not in os.environ:
        pytest.skip("FLOWGRAPH_DATA names no folder with data sets")
    data = _verb_number.split(Path(os.environ["FLOWGRAPH_DATA"]) / "linzen_numpred", 2000, seed=0)
    parts = [
        {item.text for item in part}
        for part in (data.natural + data.attracted, data.development, data.held_out, data.held_out_attracted)
    ]
    assert [len(part) for part in parts[1:]] == [600, 2000, 2000]
    for k, part in enumerate(parts):
        assert all(part.isdisjoint(other) for other in parts[k + 1 :])


def test_order_of_a_target():
    # a n v n a a n -> n a n a n a v: pairs "a n" swapped, the verb last
    assert _reordering.target_order(list("anvnaan")) == [1, 0, 3, 4, 6, 5, 2]


def test_links_are_the_truth():
    for sentence in _reordering.sentences(50, seed=3):
        source, target = sentence.source.split(), sentence.target.split()
        assert len(sentence.links) == len(source) == len(target)
        for s, t in sentence.links:
            assert target[t] == _reordering.translation(source[s][0], int(source[s][1:]))
    assert _reordering.sentences(5, seed=3) == _reordering.sentences(50, seed=3)[:5]
    for kind, count in _reordering.WORDS.items():  # a translation, not a loss
        assert len({_reordering.translation(kind, k) for k in range(count)}) == count


def test_words_without_a_counterpart_have_no_link():
    for sentence in _reordering.sentences(50, seed=3, nulls=True):
        source, target = sentence.source.split(), sentence.target.split()
        assert {word for t, word in enumerate(target) if t not in {t for _, t in sentence.links}} == {"E0"}
        unlinked = [word for s, word in enumerate(source) if s not in {s for s, _ in sentence.links}]
        assert all(word.startswith("f") for word in unlinked)
        assert len(sentence.links) == len(source) - len(unlinked) == len(target) // 2
        for s, t in sentence.links:
            assert target[t] == _reordering.translation(source[s][0], int(source[s][1:]))


def test_a_probe_is_the_same_again():
    encoder, tokenizer = headless()
    pairs = [Pair(f"the {word} on the table", *verbs) for word, *verbs in
             (("cat", "is", "are"), ("cats", "are", "is"), ("key", "is", "are"), ("keys", "are", "is"))]  # fmt: skip
    first, second = (train_probe(encoder, tokenizer, pairs) for _ in range(2))
    assert first.score.weight.abs().max() > 0
    assert torch.equal(first.score.weight, second.score.weight)
    ids = tokenizer("the cats on the table [MASK]", return_tensors="pt")["input_ids"]
    assert first(ids).logits[0].argmax() == 1
    # it is asked where it was trained: at the mask, before [SEP]
    vector = encoder(ids).last_hidden_state[0, ids[0].tolist().index(tokenizer.mask_token_id)]
    torch.testing.assert_close(first(ids).logits[0], first.score(vector))


@pytest.mark.parametrize(
    ("benchmark", "option", "values"),
    [
        (abnar_zuidema, "--seeds", ["x"]),
        (abnar_zuidema, "--items", ["0"]),
        (kobayashi, "--seeds", [""]),
        (kobayashi, "--steps", ["0"]),
        (mohebbi, "--items", ["-3"]),
        (sun_marasovic, "--texts", ["1.5"]),
        (sun_marasovic, "--tokens", ["5", "3"]),
        (mohebbi, "--data", ["nowhere"]),
    ],
)
def test_options_that_cannot_be_used(tmp_path, capsys, monkeypatch, benchmark, option, values):
    monkeypatch.chdir(tmp_path)
    for name in ("linzen_numpred", "sst2"):
        (tmp_path / name).mkdir()
    options = [option, *values] if option == "--data" else ["--data", str(tmp_path), option, *values]
    with pytest.raises(SystemExit) as caught:
        benchmark.main(options)
    assert caught.value.code == 2
    assert option in "".join(capsys.readouterr())


def test_numbers_of_options():
    assert numbers("0, 12,3") == [0, 12, 3]


@pytest.mark.parametrize(
    ("good", "bad", "plural"),
    [
        ("references", "reference", False),
        ("reference", "references", True),
        ("haven't", "hasn't", True),
        ("is", "are", False),
        ("was", "were", False),
        ("do", "does", True),
        ("goes", "go", False),
        ("discuss", "discusses", True),
        ("discusses", "discuss", False),
    ],
)
def test_number_of_a_verb(good, bad, plural):
    assert Pair("", good, bad).plural == plural
