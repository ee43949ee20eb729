"""Encoder-decoders, decoders that read an encoder from elsewhere, and what models write themselves."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import flowgraph as fg
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


# --- kinds that hold the residual stream: self-attention has them, cross-attention has not ---------------------

WITH_RESIDUAL = ("alti", "globenc", "norm-residual", "norm-residual-ln", "value-zeroing")
BEHIND = {
    "t5": ("value-zeroing",),
    "bart": ("globenc", "value-zeroing"),
    "marian": ("globenc", "value-zeroing"),
}
"""Kinds that read what a decoder's block computes after cross-attention."""


@pytest.mark.parametrize("family", SEQ2SEQS)
def test_kinds_that_hold_the_residual_are_there_for_self_attention_alone(family):
    model, tokenizer = tiny(family)
    result = trace(model, tokenizer, (SOURCE, TARGET), edges=["attention", *WITH_RESIDUAL], verify=True)
    for kind in WITH_RESIDUAL:
        shapes = {part: array.shape for part, array in result[kind].items()}
        decoder = {} if kind in BEHIND[family] else {"decoder": (3, 6, 6)}
        assert shapes == {"encoder": (2, 7, 7)} | decoder
        with pytest.raises(FlowgraphError, match=f"'{kind}' is not defined for cross-attention.*residual"):
            result[kind]["cross"]
        if not decoder:
            with pytest.raises(
                FlowgraphError, match=f"'{kind}' needs the .*: cross-attention stands between"
            ):
                result[kind]["decoder"]
        assert "cross" in result.meta["kinds"][kind]["absent"]
    assert set(result["attention"]) == {"encoder", "decoder", "cross"}
    with pytest.raises(FlowgraphError, match="no part 'self'"):
        result["attention"]["self"]


@pytest.mark.parametrize("family", SEQ2SEQS)
def test_the_encoders_part_is_what_the_encoder_alone_gives(family):
    model, tokenizer = tiny(family)
    whole = trace(model, tokenizer, (SOURCE, TARGET), edges=WITH_RESIDUAL)
    alone = trace(model.get_encoder(), tokenizer, SOURCE, edges=WITH_RESIDUAL)
    for kind in WITH_RESIDUAL:
        np.testing.assert_array_equal(whole[kind]["encoder"], alone[kind])


def seen_by(modules, call):
    """The first argument of each module, (T, D) float64, in one ``call``."""
    seen = []
    hooks = [
        m.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append((args or [*kwargs.values()])[0]), with_kwargs=True
        )
        for m in modules
    ]
    with torch.no_grad():
        call()
    for hook in hooks:
        hook.remove()
    return [tensor[0].double() for tensor in seen]


def weighted(attention, read, weights, output):
    """(T, T, D): ``sum_h A[h, i, j] (W_V x_j + b_V)_h W_O_h``, a head and a pair of tokens at a time."""
    value = torch.nn.functional.linear(
        read, attention.weight.double(), None if attention.bias is None else attention.bias.double()
    )
    heads, width = len(weights), value.shape[1] // len(weights)
    parts = torch.zeros(len(read), len(read), output.weight.shape[0], dtype=torch.float64)
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        parts += weights[h, :, :, None] * (value[:, part] @ output.weight.double()[:, part].T)
    return parts


def lost(whole, parts):
    return (whole.abs().sum(-1)[:, None] - (whole[:, None] - parts).abs().sum(-1)).clamp(min=0)


@torch.no_grad()
def test_alti_of_t5s_decoder_from_its_weights():
    """Pre-norm: the parts make up the stream that the norm before cross-attention reads."""
    model, tokenizer = tiny("t5")
    result = trace(model, tokenizer, (SOURCE, TARGET), edges=["attention", "alti"], heads="all")
    weights = trace(model, tokenizer, (SOURCE, TARGET), heads="each")["attention"]["decoder"]
    ids = {"input_ids": [result.token_ids], "decoder_input_ids": [result.target_token_ids]}
    inputs = {name: torch.tensor(value) for name, value in ids.items()}
    for number, block in enumerate(model.decoder.block):
        own, cross = block.layer[0], block.layer[1]
        modules = [own, own.SelfAttention.v, cross.layer_norm]
        stream, read, after = seen_by(modules, lambda: model(**inputs))
        parts = weighted(
            own.SelfAttention.v, read, torch.tensor(weights[number]).double(), own.SelfAttention.o
        )
        parts[range(len(stream)), range(len(stream))] += stream
        torch.testing.assert_close(parts.sum(1), after, atol=1e-5, rtol=1e-5)
        found = torch.tensor(result["alti"]["decoder"][number])
        torch.testing.assert_close(found, lost(after, parts), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_alti_of_barts_decoder_from_its_weights():
    """Post-norm: the parts pass the norm after self-attention, whose output cross-attention reads."""
    model, tokenizer = tiny("bart")
    result = trace(model, tokenizer, (SOURCE, TARGET), edges=["attention", "alti", "norm-residual-ln"])
    weights = trace(model, tokenizer, (SOURCE, TARGET), heads="each")["attention"]["decoder"]
    ids = {"input_ids": [result.token_ids], "decoder_input_ids": [result.target_token_ids]}
    inputs = {name: torch.tensor(value) for name, value in ids.items()}
    for number, block in enumerate(model.model.decoder.layers):
        norm = block.self_attn_layer_norm
        modules = [block, norm, block.encoder_attn]
        stream, before, after = seen_by(modules, lambda: model(**inputs))
        heads = torch.tensor(weights[number]).double()
        parts = weighted(block.self_attn.v_proj, stream, heads, block.self_attn.out_proj)
        parts[range(len(stream)), range(len(stream))] += stream
        spread = before.var(-1, unbiased=False).add(norm.eps).sqrt()
        parts = (parts - parts.mean(-1, keepdim=True)) / spread[:, None, None] * norm.weight.double()
        found = {kind: torch.tensor(result[kind]["decoder"][number]) for kind in result.kinds}
        torch.testing.assert_close(found["norm-residual-ln"], parts.norm(dim=-1), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(found["alti"], lost(after, parts), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("edges", ["alti", "value-zeroing"])
def test_a_graph_from_source_to_target_needs_cross_attention(edges):
    model, tokenizer = tiny("bart")
    result = trace(model, tokenizer, (SOURCE, TARGET), edges=edges)
    message = (
        f"'{edges}' is not defined for cross-attention.*use attention, effective or norm; .*part='encoder'"
    )
    with pytest.raises(FlowgraphError, match=message):
        fg.LayeredGraph.from_trace(result)
    with pytest.raises(FlowgraphError, match=message):
        fg.attribute(model, tokenizer, (SOURCE, TARGET), edges=edges)
    with pytest.raises(FlowgraphError, match=f"'{edges}' is not defined for cross-attention"):
        fg.align(result)


@pytest.mark.parametrize("edges", ["alti", "attention"])
def test_one_part_is_a_plain_stack(edges):
    model, tokenizer = tiny("bart")
    result = trace(model, tokenizer, SOURCE, edges=edges, generate=3)
    share = 0.0 if edges == "alti" else 0.5
    for part, tokens in (("encoder", result.tokens), ("decoder", result.target_tokens)):
        graph = fg.LayeredGraph.from_trace(result, part=part)
        assert graph.is_stack
        assert graph.levels[0].tokens == tokens
        matrices = result[edges][part].astype(float)
        rows = matrices / matrices.sum(-1, keepdims=True)
        for block, matrix in zip(graph.blocks, rows, strict=True):
            np.testing.assert_allclose(block.capacity, (1 - share) * matrix + share * np.eye(len(tokens)))
        assert graph.meta["layers"] == len(matrices)
        assert graph.meta["causal"] is (part == "decoder")
        assert ("generated" in graph.meta) is (part == "decoder")
        assert graph.meta["part"] == part


@pytest.mark.parametrize(
    ("part", "edges", "message"),
    [
        ("cross", "alti", "part: 'cross' is no stack of self-attention; pass 'encoder' or 'decoder'"),
        (
            "decoder",
            "value-zeroing",
            "part: the trace has no decoder of this kind: 'value-zeroing' needs the block",
        ),
    ],
)
def test_parts_that_are_no_stack(part, edges, message):
    model, tokenizer = tiny("bart")
    result = trace(model, tokenizer, (SOURCE, TARGET), edges=edges)
    with pytest.raises(FlowgraphError, match=message):
        fg.LayeredGraph.from_trace(result, part=part)


def test_a_plain_stack_has_no_parts():
    model, tokenizer = tiny("bert")
    with pytest.raises(FlowgraphError, match="part: 'encoder' asked for, but the model has one stack"):
        fg.LayeredGraph.from_trace(trace(model, tokenizer, SOURCE), part="encoder")


def test_absent_parts_are_known_of_a_saved_trace(tmp_path):
    model, tokenizer = tiny("bart")
    trace(model, tokenizer, (SOURCE, TARGET), edges="alti").save(tmp_path / "trace")
    again = fg.Trace.load(tmp_path / "trace")
    with pytest.raises(FlowgraphError, match="not defined for cross-attention"):
        again["alti"]["cross"]


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
    alti = trace(model, None, inputs, edges="alti", verify=True)
    assert {part: array.shape for part, array in alti["alti"].items()} == {"decoder": (3, 7, 7)}
    assert fg.LayeredGraph.from_trace(alti).is_stack
    with pytest.raises(FlowgraphError, match=r"'value-zeroing' needs the .*: cross-attention stands between"):
        trace(model, None, inputs, edges="value-zeroing")
    # without those states it is a plain decoder
    assert trace(model, None, model_inputs(family), edges="alti", verify=True)["alti"].shape == (3, 7, 7)


def test_sound():
    model, _ = tiny("whisper")
    result = trace(model, None, model_inputs("whisper"), edges=["attention", "norm"], verify=True)
    assert result.tokens[:2] == ("frame 0", "frame 1")
    assert len(result.tokens) == 10
    assert len(result.target_tokens) == 7
    assert result["attention"]["cross"].shape == (3, 7, 10)


def test_sound_is_written_down():
    model, _ = tiny("whisper")
    sound = {"input_features": model_inputs("whisper")["input_features"]}
    result = trace(
        model, None, sound, generate={"max_new_tokens": 4, "min_new_tokens": 4}, edges=["norm", "alti"]
    )
    assert result.meta["generated"] == [1, 5]
    assert len(result.target_tokens) == 5
    assert result["norm"]["cross"].shape == (3, 5, 10)
    assert set(result["alti"]) == {"encoder", "decoder"}
    again = {"decoder_input_ids": torch.tensor([result.target_token_ids])}
    with torch.no_grad():
        chosen = model(**sound, **again).logits[0].argmax(-1)
    end = model.generation_config.eos_token_id  # held back until enough was written
    assert [int(c) for c in chosen[:-1] if int(c) != end]
    assert all(int(c) in (end, t) for c, t in zip(chosen, result.target_token_ids[1:], strict=False))


def test_what_whisper_was_told_is_not_what_it_wrote():
    """Language and task stand before what it writes, and are no targets."""
    model, _ = tiny("whisper")
    model.generation_config.forced_decoder_ids = [[1, 5], [2, 6]]
    sound = {"input_features": model_inputs("whisper")["input_features"]}
    for beams in (1, 2):
        options = {"max_new_tokens": 4, "min_new_tokens": 4, "num_beams": beams}
        result = trace(model, None, sound, generate=options)
        start = model.config.decoder_start_token_id
        assert result.target_token_ids[:3] == (start, 5, 6)
        assert result.meta["generated"] == [3, 7]
        assert len(result.target_tokens) == 7


def test_a_users_stopping_criterion_still_stops():
    model, _ = tiny("whisper")
    sound = {"input_features": model_inputs("whisper")["input_features"]}

    def stop(ids, scores, **_):
        return torch.full((len(ids),), ids.shape[1] >= 3)

    options = {"max_new_tokens": 6, "min_new_tokens": 6, "stopping_criteria": [stop]}
    assert trace(model, None, sound, generate=options).meta["generated"] == [1, 3]


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("shape", [(1, 8, 18), (1, 8, 22), (1, 9, 20), (1, 20, 8), (1, 20), (1, 8, 20, 1)])
def test_sound_of_another_shape_is_refused(shape, writes):
    model, _ = tiny("whisper")
    inputs = {"input_features": torch.zeros(shape)}
    if not writes:
        inputs["decoder_input_ids"] = token_ids(3)
    message = re.escape(
        f"text: input_features has shape {shape}, but the model reads (batch, 8, 20), mel bins by"
    )
    with pytest.raises(FlowgraphError, match=f"^{message}"):
        trace(model, None, inputs, generate={"max_new_tokens": 4} if writes else None)


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
    model, tokenizer = tiny(family)
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
    with pytest.raises(FlowgraphError, match="GPT2Model cannot write"):
        trace(model.base_model, tokenizer, SOURCE, generate=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": "x"}, "max_new_tokens='x' is no whole number; pass an int, at least 1"),
        ({"max_new_tokens": 2.5}, "max_new_tokens=2.5 is no whole number"),
        ({"max_new_tokens": True}, "max_new_tokens=True is no whole number"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 is too small; it must be at least 1"),
        ({"num_beams": 0}, "num_beams=0 is too small"),
        ({"num_beams": "a"}, "num_beams='a' is no whole number"),
        ({"num_return_sequences": 2}, "num_return_sequences=2 must be 1"),
        (
            {"temperature": -1, "do_sample": True},
            r"with temperature=-1 the model cannot write .*strictly positive",
        ),
        ({"repetition_penalty": -1}, "with repetition_penalty=-1 the model cannot write"),
        ({"no_such_option": 1}, "with no_such_option=1 the model cannot write .*change or leave out"),
        ({"eos_token_id": "x"}, "with eos_token_id='x' the model cannot write"),
        ({"cache_implementation": "none"}, "with cache_implementation='none' the model cannot write"),
        ({"streamer": 1}, "with streamer=1 the model cannot write"),
        ({"max_length": 3}, "with max_length=3 the model cannot write"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "with penalty_alpha=0.6, top_k=4 the model cannot write"),
        ({"trust_remote_code": True}, "'trust_remote_code' runs code from the hub, which flowgraph does not"),
        ({"input_ids": token_ids(3)}, "'input_ids' is an input of the model; pass it as text"),
        ({"attention_mask": token_ids(3)}, "'attention_mask' is an input of the model"),
        ({3: 4}, "the option 3 is no name"),
        ([3], r"\[3\] is neither a number of tokens nor a mapping"),
    ],
)
def test_options_no_model_can_write_by_are_one_error(options, message):
    model, tokenizer = tiny("llama")
    with pytest.raises(FlowgraphError, match=f"^generate: .*{message}") as caught:
        trace(model, tokenizer, SOURCE, generate=options)
    shown = caught.value.__cause__ or (not caught.value.__suppress_context__ and caught.value.__context__)
    assert not shown  # no traceback of transformers before it


def test_texts_to_stop_at_reach_the_model_with_the_tokenizer_that_reads_them(monkeypatch):
    model, tokenizer = tiny("gpt2")
    given = {}
    monkeypatch.setattr(model, "generate", lambda input_ids, **options: given.update(options) or token_ids(9))
    trace(model, tokenizer, SOURCE, generate={"max_new_tokens": 4, "stop_strings": ["mat"]})
    assert given["tokenizer"] is tokenizer
    assert given["stop_strings"] == ["mat"]
