"""Models by folder: nothing that is random is passed off as a model's weights."""

from __future__ import annotations

import json

import pytest

import flowgraph as fg
from flowgraph import FlowgraphError
from flowgraph.capture.loading import load
from tests.models import tiny


def saved(family, folder, **config):
    """A tiny model's folder, with entries of its config.json changed afterwards."""
    for part in tiny(family):
        part.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def test_layers_without_weights_are_refused(tmp_path):
    folder = saved("llama", tmp_path, num_hidden_layers=5, layer_types=None)
    with pytest.raises(
        FlowgraphError, match=r"model: the weights of .* lack \d+ of the tensors .*layers\.\d"
    ):
        fg.trace(str(folder), None, "the cat")


def test_a_missing_pooler_is_no_fault(tmp_path):
    from transformers import BertForMaskedLM

    model, tokenizer = tiny("bert")
    BertForMaskedLM(model.config).save_pretrained(tmp_path)  # has no pooler, which BertModel makes up
    tokenizer.save_pretrained(tmp_path)
    assert fg.trace(str(tmp_path), None, "the cat")["attention"].shape == (3, 4, 4)


def test_an_encoder_does_not_write(tmp_path):
    folder = saved("bert", tmp_path)
    with pytest.raises(FlowgraphError, match="generate: a bert model that is no decoder writes nothing"):
        fg.trace(str(folder), None, "the cat", generate={"max_new_tokens": 2})


def test_a_head_without_weights_is_refused(tmp_path):
    folder = saved("bert", tmp_path)
    with pytest.raises(
        FlowgraphError, match=r"lack 2 of the tensors .*\(classifier\.bias, classifier\.weight\)"
    ):
        load(folder, auto=lambda config: "AutoModelForSequenceClassification")


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5"])
def test_a_folder_without_tokenizer_reads_no_text(family, tmp_path):
    model, tokenizer = tiny(family)
    model.save_pretrained(tmp_path)  # transformers makes up a tokenizer that knows special tokens alone
    text = ("the cat", "the cat") if family == "t5" else "the cat"
    with pytest.raises(
        FlowgraphError, match=r"tokenizer: a text needs one, and with this model came none; .*folder"
    ):
        fg.trace(str(tmp_path), None, text)
    assert fg.trace(str(tmp_path), tokenizer, text).tokens == ("[CLS]", "the", "cat", "[SEP]")
    tokenizer.save_pretrained(tmp_path)
    assert fg.trace(str(tmp_path), None, text).tokens == ("[CLS]", "the", "cat", "[SEP]")
