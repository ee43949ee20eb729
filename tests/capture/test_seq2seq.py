"""Encoder-decoders, decoders that read an encoder from elsewhere, and what models write themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flowgraph.capture.run import trace
from flowgraph.errors import FlowgraphError
from tests.models import SEQ2SEQS, model_inputs, perturb, tiny, token_ids, word_tokenizer

SOURCE, TARGET = "the keys to the cabinet", "a cat sat"


@pytest.mark.parametrize("family", SEQ2SEQS)
def test_source_and_target(family):
    model, tokenizer = tiny(family)
    result = trace(model, tokenizer, (SOURCE, TARGET), edges=["attention", "norm"], verify=True)
    start = tokenizer.convert_ids_to_tokens(model.config.decoder_start_token_id)
    assert result.tokens == ("[CLS]", "the", "keys", "to", "the", "cabinet", "[SEP]")
    assert result.target_tokens == (start, "[CLS]", "a", "cat", "sat", "[SEP]")
    assert result.target_word_ids == (None, None, 0, 1, 2, None)
    assert result.target_special == (True, True, False, False, False, True)
    for kind in result.kinds:
        shapes = {part: array.shape for part, array in result[kind].items()}
        assert shapes == {"encoder": (2, 7, 7), "decoder": (3, 6, 6), "cross": (3, 6, 7)}
    assert result.meta["text"] == [SOURCE, TARGET]
    assert result.meta["layers"] == {"encoder": 2, "decoder": 3, "cross": 3}
    assert result.meta["causal"] is True
    assert result.meta["num_heads"] == {"encoder": 4, "decoder": 4, "cross": 4}


def test_the_closing_end_token_is_no_input_of_the_decoder():
    model, _ = tiny("bart", eos_token_id=3)
    tokenizer = word_tokenizer_with_end()
    result = trace(model, tokenizer, (SOURCE, TARGET))
    assert result.target_raw_tokens == ("[SEP]", "[CLS]", "a", "cat", "sat")  # start token 3 is [SEP]
    assert result.target_word_ids == (None, None, 0, 1, 2)


def word_tokenizer_with_end():
    import copy

    tokenizer = copy.deepcopy(word_tokenizer())
    tokenizer.eos_token = "[SEP]"
    return tokenizer


def test_a_target_that_begins_with_the_start_token_gets_no_second_one():
    model, tokenizer = tiny("bart", decoder_start_token_id=2)
    result = trace(model, tokenizer, (SOURCE, TARGET))
    assert result.target_raw_tokens == ("[CLS]", "a", "cat", "sat", "[SEP]")
    assert result.target_word_ids == (None, 0, 1, 2, None)


def test_a_list_of_pairs_equals_pairs_one_by_one():
    model, tokenizer = tiny("t5")
    pairs = [(SOURCE, TARGET), ("the mat", "a dog runs fast"), ("a dog is on the mat", TARGET)]
    for pair, result in zip(pairs, trace(model, tokenizer, pairs), strict=True):
        alone = trace(model, tokenizer, pair)
        assert result.target_tokens == alone.target_tokens
        for part, array in alone["attention"].items():
            np.testing.assert_allclose(result["attention"][part], array, atol=5e-6)


@pytest.mark.parametrize(
    ("family", "padded", "text"),
    [
        ("t5", [0, 7, 9, 0, 0], [0, 7, 9]),  # T5 starts with the pad id
        ("t5", [0, 0, 0, 7, 9], [0, 7, 9]),
        ("t5", [0, 0, 0, 0, 0], None),
        ("bart", [3, 7, 9, 0, 0], [3, 7, 9]),
        ("bart", [0, 0, 3, 7, 9], [3, 7, 9]),
    ],
)
def test_pads_of_the_target_without_a_mask(family, padded, text):
    model, _ = tiny(family)
    inputs = {"input_ids": torch.tensor([[7, 8, 9, 0]]), "decoder_input_ids": torch.tensor([padded])}
    if text is None:
        with pytest.raises(FlowgraphError, match="decoder_attention_mask masks every token of example 0"):
            trace(model, None, inputs)
        return
    result = trace(model, None, inputs)
    assert result.token_ids == (7, 8, 9)
    assert result.target_token_ids == tuple(text)


def test_targets_longer_than_the_model_writes():
    model, _ = tiny("whisper")
    inputs = model_inputs("whisper") | {"decoder_input_ids": token_ids(33)}
    with pytest.raises(FlowgraphError, match="33 tokens, but the model has 32 positions"):
        trace(model, None, inputs)


@pytest.mark.parametrize("kind", ["alti", "globenc", "norm-residual", "norm-residual-ln", "value-zeroing"])
def test_kinds_that_hold_the_residual_are_refused_with_the_reason(kind):
    model, tokenizer = tiny("bart")
    with pytest.raises(
        FlowgraphError, match=rf"'{kind}' is not defined for cross-attention.*residual stream"
    ):
        trace(model, tokenizer, (SOURCE, TARGET), edges=kind)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SOURCE, r"BartForConditionalGeneration is an encoder-decoder model; pass a pair.*generate="),
        ((SOURCE, " "), "text: it is empty"),
        ({"input_ids": token_ids(4)}, "ready inputs need decoder_input_ids"),
    ],
)
def test_a_target_is_needed(text, message):
    model, tokenizer = tiny("bart")
    with pytest.raises(FlowgraphError, match=message):
        trace(model, tokenizer, text)


def test_no_start_token():
    model, tokenizer = tiny("bart")
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    with pytest.raises(FlowgraphError, match="no decoder_start_token_id"):
        trace(model, tokenizer, (SOURCE, TARGET))


def test_an_encoder_taken_alone_has_every_kind():
    model, tokenizer = tiny("t5")
    from flowgraph import mixing

    result = trace(model.get_encoder(), tokenizer, SOURCE, edges=mixing.names(), verify=True)
    assert result["alti"].shape == (2, 7, 7)
    assert result.target_tokens is None


def test_two_berts_as_encoder_and_decoder():
    from transformers import BertConfig, BertLMHeadModel, BertModel, EncoderDecoderModel

    from tests.models import SMALL

    decoder = BertLMHeadModel(BertConfig(**SMALL, is_decoder=True, add_cross_attention=True))
    model = perturb(EncoderDecoderModel(encoder=BertModel(BertConfig(**SMALL)), decoder=decoder)).eval()
    model.config.decoder_start_token_id, model.config.pad_token_id = 2, 0
    result = trace(model, word_tokenizer(), (SOURCE, TARGET), edges=["attention", "norm"], verify=True)
    assert {part: array.shape for part, array in result["norm"].items()} == {
        "encoder": (3, 7, 7),
        "decoder": (3, 5, 5),
        "cross": (3, 5, 7),
    }


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_a_decoder_that_reads_states_from_elsewhere(family):
    options = {"bert": {"is_decoder": True}}.get(family, {})
    model, _ = tiny(family, add_cross_attention=True, **options)
    states = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(5))
    inputs = model_inputs(family) | {"encoder_hidden_states": states}
    result = trace(model, None, inputs, edges=["attention", "norm"], verify=True)
    assert {part: array.shape for part, array in result["attention"].items()} == {
        "decoder": (3, 7, 7),
        "cross": (3, 7, 3),
    }
    assert len(result.tokens) == 7
    assert result.target_tokens is None
    with pytest.raises(FlowgraphError, match="'alti' is not defined for cross-attention"):
        trace(model, None, inputs, edges="alti")
    # without those states it is a plain decoder
    assert trace(model, None, model_inputs(family), edges="alti", verify=True)["alti"].shape == (3, 7, 7)


def test_sound():
    model, _ = tiny("whisper")
    result = trace(model, None, model_inputs("whisper"), edges=["attention", "norm"], verify=True)
    assert result.tokens[:2] == ("frame 0", "frame 1")
    assert len(result.tokens) == 10
    assert len(result.target_tokens) == 7
    assert result["attention"]["cross"].shape == (3, 7, 10)


# --- generation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "gemma3", "gpt-oss", "bloom", "falcon"])
def test_prompt_and_continuation_are_one_teacher_forced_pass(family):
    model, tokenizer = tiny(family)
    result = trace(
        model, tokenizer, SOURCE, generate={"max_new_tokens": 4, "min_new_tokens": 4}, heads="each"
    )
    prompt = tokenizer(SOURCE, return_tensors="pt")["input_ids"]
    written = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=4,
        min_new_tokens=4,
        do_sample=False,
        pad_token_id=0,
    )
    assert result.token_ids == tuple(written[0].tolist())
    assert result.meta["generated"] == [7, 11]
    np.testing.assert_array_equal(
        result["attention"], trace(model, None, {"input_ids": written}, heads="each")["attention"]
    )
    # each new token is the one the position before it chose
    with torch.no_grad():
        chosen = model(written).logits[0].argmax(-1)
    ends = {model.generation_config.eos_token_id}
    free = [t for t in range(7, 11) if int(written[0, t]) not in ends and int(chosen[t - 1]) not in ends]
    assert free
    assert all(int(chosen[t - 1]) == int(written[0, t]) for t in free)


def test_words_of_the_continuation_count_on():
    model, tokenizer = tiny("gpt2")
    result = trace(model, tokenizer, SOURCE, generate=3)
    before = [w for w in result.word_ids[:7] if w is not None]
    after = [w for w in result.word_ids[7:] if w is not None]
    assert before == [0, 1, 2, 3, 4]
    assert after == sorted(after)
    assert all(w >= 5 for w in after)


@pytest.mark.parametrize("family", SEQ2SEQS)
def test_an_encoder_decoder_writes_its_target(family):
    layers = {"num_decoder_layers": 2} if family == "t5" else {}
    model, tokenizer = tiny(family, **layers)
    result = trace(model, tokenizer, SOURCE, generate={"max_new_tokens": 4}, edges=["attention", "norm"])
    start, stop = result.meta["generated"]
    assert (start, stop) == (1, len(result.target_tokens))
    assert result.target_token_ids[0] == model.config.decoder_start_token_id
    assert result["attention"]["cross"].shape[1:] == (stop, 7)
    with pytest.raises(FlowgraphError, match="writes the target itself"):
        trace(model, tokenizer, (SOURCE, TARGET), generate=2)


def test_lists_and_ready_inputs_are_continued_one_by_one():
    model, tokenizer = tiny("llama")
    texts = [SOURCE, "a cat"]
    results = trace(model, tokenizer, texts, generate=3)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    again = trace(model, tokenizer, batch, generate=3)
    for text, one, two in zip(texts, results, again, strict=True):
        assert one.token_ids == two.token_ids == trace(model, tokenizer, text, generate=3).token_ids


@pytest.mark.parametrize(
    "options", [{"num_beams": 3}, {"cache_implementation": "static"}, {"do_sample": True}]
)
def test_beams_caches_and_chance_leave_one_sequence(options):
    model, tokenizer = tiny("llama")
    result = trace(model, tokenizer, SOURCE, generate={"max_new_tokens": 4, **options})
    start, stop = result.meta["generated"]
    assert start == 7 < stop <= 11
    assert result["attention"].shape == (3, stop, stop)


def test_generation_that_cannot_be():
    model, tokenizer = tiny("gpt2")
    with pytest.raises(
        FlowgraphError, match="prompt of 7 tokens and 60 new ones are more than the model's 64"
    ):
        trace(model, tokenizer, SOURCE, generate=60)
    with pytest.raises(FlowgraphError, match="num_return_sequences must be 1"):
        trace(model, tokenizer, SOURCE, generate={"num_return_sequences": 2, "do_sample": True})
    with pytest.raises(FlowgraphError, match="GPT2Model cannot write"):
        trace(model.base_model, tokenizer, SOURCE, generate=2)
