"""``trace`` on encoders: texts, lists, pairs, ready inputs, pads, errors; and the model's real outputs."""

from __future__ import annotations

import copy
import os
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import PreTrainedTokenizerFast

from flowgraph import mixing
from flowgraph.capture.run import trace
from flowgraph.capture.trace import Trace
from flowgraph.errors import FlowgraphError, FlowgraphWarning
from tests import models
from tests.models import model_inputs, tiny, token_ids

TEXT = "the keys to the cabinets are on the table"


@pytest.fixture
def bert():
    return tiny("bert")


def attentions(model, **inputs):
    model = copy.deepcopy(model).eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return torch.cat(model(**inputs, output_attentions=True).attentions).numpy()


# --- what comes back ----------------------------------------------------------------------------------------


def test_embedded_model_rows_are_bitwise_those_of_its_own_eager_attention():
    model, tokenizer = models.embedded()
    result = trace(model, tokenizer, TEXT, heads="each", verify=True)
    reference = attentions(model, **tokenizer(TEXT, return_tensors="pt"))
    assert result["attention"].shape == reference.shape == (6, 12, 11, 11)
    np.testing.assert_array_equal(result["attention"], reference)


def test_every_kind_on_the_embedded_model_verifies():
    model, tokenizer = models.embedded()
    result = trace(model, tokenizer, TEXT, edges=mixing.names(), verify=True)
    assert result.kinds == tuple(mixing.names())
    assert all(result[kind].shape == (6, 11, 11) for kind in result.kinds)


def test_tokens_words_special_and_meta(bert):
    result = trace(*bert, TEXT)
    assert result.tokens[:7] == ("[CLS]", "the", "keys", "to", "the", "cabinet", "s")
    assert result.raw_tokens[5:7] == ("cabinet", "##s")
    assert result.word_ids == (None, 0, 1, 2, 3, 4, 4, 5, 6, 7, 8, None)
    assert result.special == (True, *[False] * 10, True)
    assert result.token_ids == tuple(bert[1](TEXT)["input_ids"])
    meta = result.meta
    assert (meta["model_type"], meta["text"], meta["layers"], meta["num_heads"]) == ("bert", TEXT, 3, 4)
    assert meta["layer_numbers"] == [1, 2, 3]
    assert meta["causal"] is False
    assert meta["kinds"] == {"attention": {"holds_residual": False, "rows_sum_to_one": True}}
    assert set(meta["versions"]) == {"flowgraph", "torch", "transformers"}
    assert "row_mass" not in meta
    assert "truncated" not in meta


def test_unknown_and_mask_tokens_stand_for_words(bert):
    result = trace(*bert, "the zebra [MASK]")
    assert result.raw_tokens == ("[CLS]", "the", "[UNK]", "[MASK]", "[SEP]")
    assert result.special == (True, False, False, False, True)
    assert result.word_ids[1:4] == (0, 1, 2)


@pytest.mark.parametrize("heads", ["mean", "max", "min", 2])
def test_heads(bert, heads):
    each = trace(*bert, TEXT, heads="each")["attention"]
    joined = trace(*bert, TEXT, heads=heads)["attention"]
    expected = each[:, heads] if isinstance(heads, int) else getattr(np, heads)(each, axis=1)
    np.testing.assert_allclose(joined, expected, atol=1e-7)


def test_head_that_does_not_exist_is_refused_before_the_model_runs(bert):
    model, tokenizer = bert
    ran = []
    model.register_forward_pre_hook(lambda *_: ran.append(1))
    with pytest.raises(FlowgraphError, match=r"heads: there is no head 4; .* has 4"):
        trace(model, tokenizer, TEXT, heads=4)
    assert not ran


def test_several_kinds_in_one_pass(bert):
    model, tokenizer = bert
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    result = trace(model, tokenizer, TEXT, edges=["norm", "attention", "norm"])
    assert result.kinds == ("norm", "attention")
    assert len(calls) == 1
    np.testing.assert_array_equal(result["attention"], trace(model, tokenizer, TEXT)["attention"])


# --- texts, lists, pairs, ready inputs ----------------------------------------------------------------------


def test_a_list_equals_its_texts_one_by_one_in_their_order(bert):
    texts = [TEXT, "the cat sat", "a dog runs fast in the park", "a cat sat"]
    together = trace(*bert, texts, heads="each")
    for text, result in zip(texts, together, strict=True):
        alone = trace(*bert, text, heads="each")
        assert result.meta["text"] == text
        assert result.tokens == alone.tokens
        np.testing.assert_allclose(result["attention"], alone["attention"], atol=5e-6)


def test_texts_of_one_length_run_together(bert):
    model, tokenizer = bert
    sizes = []
    model.register_forward_pre_hook(lambda _, args, kw: sizes.append(kw["input_ids"].shape), with_kwargs=True)
    trace(model, tokenizer, ["the cat", TEXT, "a dog", "the mat"])
    assert sorted(sizes) == [(1, 12), (3, 4)]


def test_real_model_batched_equals_single():
    model, tokenizer = models.embedded()
    texts = [
        "Short.",
        "A somewhat longer sentence, with a comma.",
        "The keys to the cabinet are on the table.",
    ]
    for text, result in zip(texts, trace(model, tokenizer, texts), strict=True):
        np.testing.assert_allclose(result["attention"], trace(model, tokenizer, text)["attention"], atol=5e-6)


def test_sentence_pair(bert):
    model, tokenizer = bert
    result = trace(model, tokenizer, ("the cat sat", "a dog runs"), heads="each")
    inputs = tokenizer("the cat sat", "a dog runs", return_tensors="pt")
    assert inputs["token_type_ids"].sum() == 4
    np.testing.assert_array_equal(result["attention"], attentions(model, **inputs))
    assert result.word_ids == (None, 0, 1, 2, None, 3, 4, 5, None)  # the second sentence counts on
    assert result.meta["text"] == ["the cat sat", "a dog runs"]
    assert trace(model, tokenizer, [("the cat sat", "a dog runs")])[0].tokens == result.tokens


def test_a_pair_that_the_tokenizer_would_run_together_is_refused(bert):
    model, words = bert
    backend = copy.deepcopy(words.backend_tokenizer)
    backend.post_processor = TemplateProcessing(single="$A", pair="$A $B")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    with pytest.raises(
        FlowgraphError, match=r"^text: a tuple of two strings is a pair, and .* puts nothing between"
    ):
        trace(model, tokenizer, ("the cat sat", "a dog runs"))
    assert len(trace(model, tokenizer, ["the cat sat", "a dog runs"])) == 2


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "albert", "electra"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_tokenizer_batches_padded_on_either_side_equal_single_texts(family, side):
    model, tokenizer = tiny(family)
    tokenizer.padding_side = side
    texts = ["the cat sat on the mat", "a dog runs"]
    try:
        batch = tokenizer(
            texts, padding=True, return_tensors="pt", return_token_type_ids=family != "distilbert"
        )
    finally:
        tokenizer.padding_side = "right"
    assert (batch["attention_mask"] == 0).any()
    for text, result in zip(texts, trace(model, tokenizer, batch), strict=True):
        alone = trace(model, tokenizer, text)
        assert result.tokens == alone.tokens
        assert result.word_ids == alone.word_ids
        assert "[PAD]" not in result.tokens
        np.testing.assert_allclose(result["attention"], alone["attention"], atol=5e-6)


def test_pads_without_a_mask_are_found_by_their_id(bert):
    model, tokenizer = bert
    ids = torch.tensor([[2, 7, 9, 3, 0, 0], [0, 0, 2, 7, 9, 3]])
    for result in trace(model, tokenizer, {"input_ids": ids}):
        assert result.token_ids == (2, 7, 9, 3)


def test_a_model_with_several_end_tokens():
    model, _ = tiny("llama", eos_token_id=[2, 3], pad_token_id=0)
    ids = torch.tensor([[11, 12, 2, 0, 0]])
    assert trace(model, None, {"input_ids": ids}).token_ids == (11, 12, 2)
    model.config.pad_token_id = 3  # which also ends a text, so that it may be meant
    ids = torch.tensor([[11, 12, 3]])
    assert trace(model, None, {"input_ids": ids}).token_ids == (11, 12, 3)


def test_pad_rows_never_become_nan_nor_nodes():
    """Four tokens behind two pads in a decoder are a graph of four."""
    model, _ = tiny("llama")
    ids = torch.tensor([[0, 0, 11, 12, 13, 14]])
    result = trace(model, None, {"input_ids": ids, "attention_mask": (ids != 0).long()})
    assert result["attention"].shape == (3, 4, 4)
    np.testing.assert_allclose(result["attention"].sum(-1), 1, atol=1e-6)
    assert result.tokens == ("11", "12", "13", "14")


def test_ready_inputs_may_be_lists_or_arrays_and_carry_labels(bert):
    model, tokenizer = bert
    inputs = dict(tokenizer(TEXT)) | {"labels": 1}
    one = trace(model, tokenizer, {k: [v] for k, v in inputs.items() if k != "labels"} | {"labels": [1]})
    two = trace(model, None, {"input_ids": np.array([inputs["input_ids"]])})
    assert isinstance(one, Trace)
    np.testing.assert_array_equal(one["attention"], two["attention"])
    assert two.tokens == tuple(str(i) for i in inputs["input_ids"])
    assert two.special is None


def test_embeddings_as_inputs(bert):
    model, _ = bert
    ids = token_ids(5)
    vectors = model.get_input_embeddings()(ids)
    result = trace(model, None, {"inputs_embeds": vectors})
    np.testing.assert_array_equal(result["attention"], trace(model, None, {"input_ids": ids})["attention"])
    assert result.tokens == ("0", "1", "2", "3", "4")


def test_a_task_head_does_not_matter():
    from transformers import BertConfig, BertForSequenceClassification

    model = models.perturb(BertForSequenceClassification(BertConfig(**models.SMALL))).eval()
    whole = trace(model, models.word_tokenizer(), TEXT)
    np.testing.assert_array_equal(
        whole["attention"], trace(model.bert, models.word_tokenizer(), TEXT)["attention"]
    )


def test_threads_that_share_a_model(bert):
    model, tokenizer = bert
    texts = [TEXT, "the cat", "a dog runs in the park", "a cat sat"] * 3
    expected = {text: trace(model, tokenizer, text)["attention"] for text in texts[:4]}
    with ThreadPoolExecutor(4) as pool:
        for text, result in zip(
            texts, pool.map(lambda text: trace(model, tokenizer, text), texts), strict=True
        ):
            np.testing.assert_array_equal(result["attention"], expected[text])
    assert not any(module._forward_hooks for module in model.modules())


def test_a_long_text_does_not_split_the_batches_of_short_ones(bert):
    model, tokenizer = bert
    sizes = []
    model.register_forward_pre_hook(lambda _, args, kw: sizes.append(kw["input_ids"].shape), with_kwargs=True)
    with pytest.raises(FlowgraphError, match="max_memory") as refusal:
        trace(model, tokenizer, TEXT, max_memory=1)
    (one,) = re.findall(r"about ([0-9.]+) KiB", str(refusal.value))
    trace(model, tokenizer, [TEXT, "the cat", "a dog", "the mat"], max_memory=f"{1.1 * float(one)}KiB")
    assert sizes == [(1, 12), (3, 4)]


# --- refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text: it is empty"),
        ("  \n", "text: it is empty"),
        ([], "text: the list is empty"),
        (["the cat", " "], r"text\[1\]: it is empty"),
        (("the cat", ""), "text: it is empty"),
        (("the cat", "a dog", ""), r"text\[2\]: it is empty"),
        (7, "text: a int is no text"),
        ([7], r"text\[0\]: 7 is a int"),
        ({}, "mapping of ready inputs is empty"),
        ({"input_ids": torch.zeros(1, 0, dtype=torch.long)}, "at least one token"),
        ({"input_ids": [[1, 2], [3]]}, "'input_ids' is not a tensor.*padding=True"),
        (
            {"input_ids": torch.ones(2, 3, dtype=torch.long), "token_type_ids": torch.ones(1, 3)},
            "do not agree",
        ),
        (
            {"input_ids": token_ids(4), "attention_mask": torch.tensor([[1, 0, 1, 1]])},
            "hole between its first and its last",
        ),
        (
            {"input_ids": token_ids(6), "attention_mask": torch.tensor([[0, 1, 1]])},
            r"attention_mask has shape \(1, 3\), but input_ids has shape \(1, 6\)",
        ),
        (
            {"input_ids": token_ids(6), "attention_mask": torch.ones(1, 9)},
            r"attention_mask has shape \(1, 9\), but input_ids has shape \(1, 6\)",
        ),
        (
            {"inputs_embeds": torch.zeros(1, 6, 32), "attention_mask": torch.ones(1, 3)},
            r"attention_mask has shape \(1, 3\), but inputs_embeds has shape \(1, 6, 32\)",
        ),
        (
            {"input_ids": token_ids(6), "token_type_ids": token_ids(3)},
            r"token_type_ids has shape \(1, 3\), but input_ids has shape \(1, 6\)",
        ),
        (
            {"input_ids": token_ids(6), "position_ids": token_ids(9)},
            r"position_ids has shape \(1, 9\), but input_ids has shape \(1, 6\)",
        ),
        ({"input_ids": token_ids(6), "inputs_embeds": torch.zeros(1, 6, 32)}, "pass one of them"),
        ({"inputs_embeds": torch.zeros(1, 6)}, r"inputs_embeds has shape \(1, 6\)"),
        ({"input_ids": torch.tensor([[1, -1]])}, "input_ids holds -1; token ids count from 0"),
        ({"input_ids": torch.ones(1, 3)}, "input_ids has dtype float32; pass whole numbers"),
        ({"input_ids": token_ids(2), "token_type_ids": torch.tensor([[0, 2]])}, "sentence type 2 is outside"),
        (
            {"input_ids": token_ids(2), "token_type_ids": torch.zeros(1, 2)},
            "token_type_ids has dtype float32",
        ),
        (
            {"input_ids": token_ids(2), "position_ids": torch.tensor([[0, 64]])},
            "position 64 is outside.* 64;",
        ),
        ({"input_ids": token_ids(2), "position_ids": torch.tensor([[0, -1]])}, "position_ids holds -1"),
        ("a\udcff b", "^text: holds a lone surrogate at position 1;"),
        (["a", "a\udcff b"], r"^text\[1\]: holds a lone surrogate at position 1;"),
        (("a", "\ud83d"), "^text: holds a lone surrogate at position 0;"),
        ({"input_ids": torch.tensor([[1, 99]])}, "token id 99 is outside the model's vocabulary of 99"),
        ({"input_ids": token_ids(4), "pixels": torch.zeros(1, 4)}, "takes no input called pixels"),
        ({"input_ids": token_ids(4), "attention_mask": torch.zeros(1, 4)}, "masks every token of example 0"),
        ({"input_ids": token_ids(4), "attention_mask": torch.ones(1, 1, 4, 4)}, r"shape \(1, 1, 4, 4\)"),
    ],
)
def test_bad_texts_are_refused_by_name(bert, text, message):
    with pytest.raises(FlowgraphError, match=message):
        trace(*bert, text)


def test_ids_outside_the_vocabulary_are_refused_before_the_model_writes():
    model, _ = tiny("gpt2")
    with pytest.raises(FlowgraphError, match="token id 99 is outside the model's vocabulary of 99"):
        trace(model, None, {"input_ids": torch.tensor([[1, 99]])}, generate=2)


def test_pads_of_a_negative_id_under_the_mask_are_no_fault(bert):
    ids = token_ids(4)
    padded = torch.cat([ids, torch.full((1, 2), -1)], dim=1)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    result = trace(bert[0], bert[1], {"input_ids": padded, "attention_mask": mask})
    np.testing.assert_array_equal(result["attention"], trace(bert[0], None, {"input_ids": ids})["attention"])


def test_token_ids_of_any_whole_type(bert):
    ids = token_ids(4)
    expected = trace(bert[0], None, {"input_ids": ids})["attention"]
    for dtype in (torch.uint8, torch.int16, torch.int32):
        given = trace(bert[0], None, {"input_ids": ids.to(dtype)})["attention"]
        np.testing.assert_array_equal(given, expected)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_a_registered_kind_that_is_not_finite_is_refused_by_name_and_layer(bert, wrong):
    def kind(record):
        matrix = record.weights.clone()
        if record.layer == 2:
            matrix[1, 2, 3] = wrong
        return matrix

    mixing.register("unfinished", kind)
    try:
        for heads in ("all", "each", 0):
            with pytest.raises(
                FlowgraphError, match=r"'unfinished' returned NaN or infinity in layer 2.*query 2 and key 3"
            ):
                trace(*bert, TEXT, edges="unfinished", heads=heads)
    finally:
        mixing.unregister("unfinished")


def test_a_registered_kind_may_be_anything_where_the_key_is_masked():
    model, _ = tiny("gpt2")
    mixing.register("logarithm", lambda record: record.weights.log())
    try:
        result = trace(model, None, {"input_ids": token_ids(5)}, edges="logarithm")
    finally:
        mixing.unregister("logarithm")
    assert (result["logarithm"][:, ~np.tri(5, dtype=bool)] == 0).all()
    assert np.isfinite(result["logarithm"]).all()


def test_text_without_tokenizer(bert):
    with pytest.raises(FlowgraphError, match="tokenizer: a text needs one"):
        trace(bert[0], None, TEXT)


def test_too_long_a_text_is_refused_with_the_numbers_and_cut_when_asked(bert):
    text = "the cat sat " * 30
    with pytest.raises(FlowgraphError, match=r"92 tokens, but the model reads at most 64.*truncate=True"):
        trace(*bert, text)
    with pytest.warns(FlowgraphWarning, match="cut from 92 to 64"):
        result = trace(*bert, text, truncate=True)
    assert len(result.tokens) == 64
    assert result.tokens[-1] == "[SEP]"
    assert result.meta["truncated"] == {"from": 92, "to": 64}
    with pytest.raises(FlowgraphError, match="65 tokens, but the model has 64 positions"):
        trace(bert[0], None, {"input_ids": token_ids(65)})


def test_roberta_loses_the_positions_before_its_first():
    """64 rows of the position table, of which pad id 1 costs two."""
    model, tokenizer = tiny("roberta")
    trace(model, None, {"input_ids": token_ids(62)})
    with pytest.raises(FlowgraphError, match="63 tokens, but the model has 62 positions"):
        trace(model, None, {"input_ids": token_ids(63)})
    with pytest.raises(FlowgraphError, match="reads at most 62"):
        trace(model, tokenizer, "the cat sat " * 30)


def test_max_memory_is_checked_before_the_model_runs(bert):
    model, tokenizer = bert
    ran = []
    model.register_forward_pre_hook(lambda *_: ran.append(1))
    with pytest.raises(
        FlowgraphError, match=r"max_memory: 12 tokens take about .* KiB, more than .* 1.0 KiB"
    ):
        trace(model, tokenizer, TEXT, max_memory=1024)
    assert not ran
    trace(model, tokenizer, TEXT, max_memory="1 GiB")
    with pytest.raises(FlowgraphError, match="max_memory: 'much' is not a size"):
        trace(model, tokenizer, TEXT, max_memory="much")


def test_memory_limit_splits_batches(bert):
    model, tokenizer = bert
    sizes = []
    model.register_forward_pre_hook(lambda _, args, kw: sizes.append(len(kw["input_ids"])), with_kwargs=True)
    with pytest.raises(FlowgraphError, match="max_memory") as refusal:
        trace(model, tokenizer, "the cat", max_memory=1)
    (one,) = re.findall(r"about ([0-9.]+) KiB", str(refusal.value))
    trace(model, tokenizer, ["the cat"] * 5, max_memory=f"{2.5 * float(one)}KiB")
    assert sizes == [2, 2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edges": "nonsense"}, "edges: unknown edge kind 'nonsense'.*attention"),
        ({"edges": []}, "edges: none given"),
        ({"edges": None}, "edges: None is no edge kind.*attention"),
        ({"edges": 5}, "edges: 5 is no edge kind.*attention"),
        ({"edges": [["attention"]]}, r"edges: unknown edge kind \['attention'\]"),
        ({"heads": "middle"}, "heads: 'middle'"),
        ({"edges": ["alti", "attention"], "heads": "mean"}, "heads: alti"),
        ({"hybrid": "maybe"}, "hybrid: 'maybe'"),
        ({"device": "nowhere"}, "device: 'nowhere'"),
        ({"device": "meta"}, "device: 'meta' holds no numbers"),
        ({"generate": "yes"}, "generate: 'yes'"),
        ({"generate": True}, "generate: True is neither"),
        ({"generate": 0}, "generate: max_new_tokens=0 is too small"),
        ({"generate": -1}, "generate: max_new_tokens=-1 is too small"),
        ({"generate": {"max_new_tokens": 0}}, "generate: max_new_tokens=0 is too small"),
        ({"generate": 3}, "generate: BertModel cannot write"),
    ],
)
def test_bad_options_are_refused_by_name(bert, options, message):
    with pytest.raises(FlowgraphError, match=message):
        trace(*bert, TEXT, **options)


def test_a_name_is_no_tokenizer(bert):
    with pytest.raises(FlowgraphError, match="tokenizer: 'bert' is no tokenizer; pass what AutoTokenizer"):
        trace(bert[0], "bert", TEXT)


def test_model_without_attention():
    from transformers import MambaConfig, MambaModel

    model = MambaModel(MambaConfig(vocab_size=99, hidden_size=16, num_hidden_layers=1, state_size=4))
    with pytest.raises(FlowgraphError, match="MambaModel has no attention"):
        trace(model, models.word_tokenizer(), TEXT)


def test_model_outside_the_table_is_refused_with_what_is_known():
    from transformers import CanineConfig, CanineModel

    small = {k: v for k, v in models.SMALL.items() if k != "vocab_size"}
    model = CanineModel(CanineConfig(**small))
    with pytest.raises(
        FlowgraphError,
        match=r"CanineModel is not among the architectures.*no layout for its blocks \(CanineLayer\).*models --list",
    ):
        trace(model, None, model_inputs("bert"))


def test_no_model_at_all():
    with pytest.raises(FlowgraphError, match="model: a Linear is no Hugging Face model"):
        trace(nn.Linear(2, 2), None, TEXT)


def test_model_of_two_towers_asks_which():
    from transformers import CLIPConfig, CLIPModel

    vision = models.VISION
    model = CLIPModel(CLIPConfig(text_config=models.SMALL, vision_config=vision, projection_dim=16))
    with pytest.raises(FlowgraphError, match=r"2 stacks.*model\.text_model or model\.vision_model"):
        trace(model, None, model_inputs("clip-text"))
    trace(model.text_model, None, model_inputs("clip-text"))
    trace(model.vision_model, None, model_inputs("clip-vision"))


def test_windowed_image_attention_is_refused_with_the_reason():
    from transformers import SwinConfig, SwinModel

    model = SwinModel(SwinConfig(image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2]))
    with pytest.raises(FlowgraphError, match="SwinModel cannot be traced: it attends inside windows"):
        trace(model, None, model_inputs("vit"))


def test_deberta_with_a_convolution_is_refused_with_the_reason():
    model, _ = tiny("deberta-v2", conv_kernel_size=3, conv_act="tanh")
    with pytest.raises(FlowgraphError, match="DebertaV2Model cannot be traced: a convolution"):
        trace(model, None, model_inputs("deberta-v2"))


def test_nan_in_the_weights_of_the_model(bert):
    model, tokenizer = bert
    with torch.no_grad():
        model.encoder.layer[1].attention.self.query.weight[0, 0] = torch.nan
    with pytest.raises(FlowgraphError, match="attention of layer 2 holds NaN"):
        trace(model, tokenizer, TEXT)


def test_model_of_language_and_vision_asks_which():
    import transformers

    text = transformers.Gemma3TextConfig(**models.DECODER)
    vision = transformers.SiglipVisionConfig(**models.VISION)
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    model = transformers.Gemma3ForConditionalGeneration(config)
    with pytest.raises(FlowgraphError, match=r"model\.model\.vision_tower or model\.model\.language_model"):
        trace(model, None, model_inputs("gemma3"))
    trace(model.model.language_model, None, model_inputs("gemma3"))


@pytest.mark.parametrize("implementation", ["sdpa", "eager", "flash_attention_2", "flex_attention"])
def test_whatever_attention_the_model_uses_is_given_back(bert, implementation):
    model, tokenizer = bert
    expected = trace(model, tokenizer, TEXT)["attention"]
    model.config._attn_implementation_internal = implementation
    np.testing.assert_array_equal(trace(model, tokenizer, TEXT)["attention"], expected)
    assert model.config._attn_implementation == implementation


def test_a_model_told_to_return_every_layer_is_not_made_to(bert):
    model, tokenizer = bert
    model.config._attn_implementation_internal = "eager"
    model.config.output_attentions = model.config.output_hidden_states = True
    returned = []
    model.register_forward_hook(lambda _, args, output: returned.append(output))
    trace(model, tokenizer, TEXT)
    assert returned[0].attentions is returned[0].hidden_states is None
    assert model.config.output_attentions


# --- names and folders --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, bert):
    model, tokenizer = bert
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_model_by_folder(folder, bert):
    for place in (folder, str(folder)):
        result = trace(place, None, TEXT)
        np.testing.assert_array_equal(result["attention"], trace(*bert, TEXT)["attention"])
        assert result.meta["model"] == "model"


def test_folder_without_a_model(tmp_path, folder):
    with pytest.raises(FlowgraphError, match=r"model: folder .* has no config\.json"):
        trace(tmp_path, None, TEXT)
    with pytest.raises(FlowgraphError, match="is not a folder"):
        trace(str(tmp_path / "absent"), None, TEXT)
    with pytest.raises(FlowgraphError, match="model: the name is empty"):
        trace("", None, TEXT)
    os.remove(folder / "model.safetensors")
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(FlowgraphError, match=r"has no model\.safetensors"):
        trace(folder, None, TEXT)


def test_damaged_weights_give_one_line(folder):
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(FlowgraphError, match=r"model: the weights in .* cannot be loaded") as caught:
        trace(folder, None, TEXT)
    assert "\n" not in str(caught.value)


def test_code_from_the_hub_is_never_run(folder):
    (folder / "config.json").write_text(
        '{"model_type": "made_up", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}'
    )
    (folder / "evil.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(FlowgraphError, match=r"needs code from the hub.*pass the loaded model"):
        trace(folder, None, TEXT)


def test_name_that_cannot_be_fetched_gives_one_line():
    with pytest.raises(FlowgraphError, match="model: nobody/no-such-model cannot be fetched") as caught:
        trace("nobody/no-such-model", None, TEXT)
    assert "\n" not in str(caught.value)


# --- wrapped, compiled, packed ------------------------------------------------------------------------------


def test_compiled_models_run_as_written(bert):
    model, tokenizer = bert
    expected = trace(model, tokenizer, TEXT)["attention"]
    wrapped = torch.compile(model, backend="eager")
    with torch.no_grad():
        wrapped(**model_inputs("bert"))  # compiled once, before there were hooks
    np.testing.assert_array_equal(trace(wrapped, tokenizer, TEXT)["attention"], expected)
    model.encoder.compile(backend="eager")
    with torch.no_grad():
        model(**model_inputs("bert"))
    np.testing.assert_array_equal(trace(model, tokenizer, TEXT)["attention"], expected)


def test_blocks_that_do_not_run_are_an_error(bert):
    model, tokenizer = bert
    model.encoder.layer[1].forward = lambda hidden, *_, **__: hidden
    with pytest.raises(
        FlowgraphError, match=r"1 of 3 blocks gave no attention \(the first is encoder\.layer\.1\)"
    ):
        trace(model, tokenizer, TEXT)


def test_adapters_count_in_the_output_projection():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model, tokenizer = tiny("bert")
    plain = trace(model, tokenizer, TEXT, edges="norm")
    settings = peft.LoraConfig(
        r=2, target_modules=["dense", "value"], init_lora_weights=False, lora_dropout=0.5
    )
    wrapped = peft.get_peft_model(model, settings)
    result = trace(wrapped, tokenizer, TEXT, edges=["norm", "norm-residual-ln", "value-zeroing"], verify=True)
    assert np.abs(result["norm"] - plain["norm"]).max() > 1e-2
    merged = wrapped.merge_and_unload()
    again = trace(merged, tokenizer, TEXT, edges="norm")
    np.testing.assert_allclose(result["norm"], again["norm"], rtol=1e-3, atol=1e-4)


class Packed(nn.Module):
    """A linear map whose weights are eight-bit integers."""

    def __init__(self, linear):
        super().__init__()
        self.in_features = linear.in_features
        self.scale = float(linear.weight.detach().abs().max() / 127)
        self.register_buffer("weight", (linear.weight / self.scale).round().to(torch.int8))
        self.register_buffer("bias", linear.bias.detach().clone())

    def forward(self, hidden):
        return hidden @ (self.weight.to(hidden) * self.scale).T + self.bias


def test_packed_weights_are_read_by_their_activations(bert):
    model, tokenizer = bert
    for layer in model.encoder.layer:
        layer.attention.output.dense = Packed(layer.attention.output.dense)
    trace(model, tokenizer, TEXT, edges=["norm", "value-zeroing"], verify=True)


def test_projection_that_cannot_be_read_is_refused_by_name(bert):
    model, tokenizer = bert
    for layer in model.encoder.layer:
        packed = Packed(layer.attention.output.dense)
        del packed.in_features
        layer.attention.output.dense = packed
    trace(model, tokenizer, TEXT, edges="attention")
    with pytest.raises(FlowgraphError, match=r"'norm' needs the output weight.*a Packed"):
        trace(model, tokenizer, TEXT, edges="norm")


def test_weights_that_are_not_in_memory(bert):
    with pytest.raises(FlowgraphError, match="not in memory"):
        trace(bert[0].to("meta"), bert[1], TEXT)


# --- checks that can fail -----------------------------------------------------------------------------------


def test_verify_objects_to_a_module_that_does_more_than_its_layout_says(bert):
    model, tokenizer = bert
    dense = model.encoder.layer[2].attention.output.dense
    dense.register_forward_hook(lambda _, args, output: output * 1.01)
    trace(model, tokenizer, TEXT)
    with pytest.raises(FlowgraphError, match="verify: layer 3"):
        trace(model, tokenizer, TEXT, verify=True)


@pytest.mark.parametrize(
    ("family", "path"),
    [
        ("gemma2", "model.layers.1.post_attention_layernorm"),
        ("bert", "encoder.layer.1.attention.output.LayerNorm"),
        ("bert", "encoder.layer.1.output.LayerNorm"),
    ],
)
def test_verify_objects_to_a_norm_that_does_more_than_its_weights_say(family, path):
    model, _ = tiny(family)
    norm = model.get_submodule(path)
    own = norm.forward
    norm.forward = lambda hidden: own(hidden) * 1.02  # in the re-run as well, which then agrees
    trace(model, None, model_inputs(family))
    with pytest.raises(FlowgraphError, match="verify: layer 2"):
        trace(model, None, model_inputs(family), verify=True)


def test_verify_objects_to_a_feed_forward_part_with_a_memory(bert):
    model, tokenizer = bert
    calls = []

    def drift(_, args, output):
        calls.append(1)
        return output + 0.01 * len(calls)

    model.encoder.layer[0].intermediate.register_forward_hook(drift)
    with pytest.raises(FlowgraphError, match=r"verify: layer 1.* run again"):
        trace(model, tokenizer, TEXT, verify=True)


def test_a_mask_violated_by_the_weights_names_layer_and_position(monkeypatch):
    from transformers.models.llama import modeling_llama

    own = modeling_llama.eager_attention_forward

    def leaking(module, query, key, value, mask, **options):
        output, weights = own(module, query, key, value, mask, **options)
        if module.layer_idx == 1:
            weights = weights.clone()
            weights[0, 3, 2, 5] = 0.25
        return output, weights

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", leaking)
    model, _ = tiny("llama")
    with pytest.raises(FlowgraphError, match="layer 2, head 3: position 2 attends to position 5"):
        trace(model, None, model_inputs("llama"))
