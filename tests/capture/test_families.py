"""What must hold for every family of models that flowgraph traces."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch

from flowgraph import mixing
from flowgraph.capture.architectures import BLOCKS, block_key, find_blocks
from flowgraph.capture.interface import _configs
from flowgraph.capture.run import trace
from flowgraph.capture.support import supported_kinds, supported_parts
from flowgraph.errors import FlowgraphError, FlowgraphWarning
from tests import models
from tests.models import (
    FAMILIES,
    HYBRIDS,
    MORE,
    SEQ2SEQS,
    SPEECH,
    VISIONS,
    inputs_for,
    model_inputs,
    tiny,
    token_ids,
)

TEXTS = [family for family in FAMILIES if family not in VISIONS and family not in SPEECH]
GATED = ("qwen3-next",)
SHARED = ("albert", "albert-groups")


def traced(family, model, inputs, **options):
    with warnings.catch_warnings():
        if family in HYBRIDS:
            warnings.simplefilter("ignore", FlowgraphWarning)
            options["hybrid"] = "skip"
        return trace(model, None, inputs, **options)


def parts_of(arrays):
    """Name -> array of a plain trace, or of each part of an encoder-decoder's."""
    return dict(arrays) if not isinstance(arrays, np.ndarray) else {"self": arrays}


def eager(model):
    """A copy with transformers' own eager attention, the reference."""
    model = copy.deepcopy(model)
    for config in _configs(model):
        config._attn_implementation_internal = "eager"
    return model


class Records:
    """An edge kind that keeps the records it is given."""

    def __init__(self):
        self.records = []

    def __call__(self, record):
        self.records.append(record)
        return record.weights


@pytest.fixture
def records():
    kept = Records()
    mixing.register("kept", kept, cross=True, needs=())
    yield kept.records
    mixing.unregister("kept")


# falcon-rw: transformers' eager code adds ALiBi to the scores and, with the mask, once more; see the test
# below
@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "falcon-rw"])
def test_rows_are_those_of_the_models_own_eager_attention_bit_for_bit(family):
    model, _ = tiny(family)
    arrays = parts_of(traced(family, model, model_inputs(family), heads="each")["attention"])
    with torch.no_grad():
        outputs = eager(model)(**model_inputs(family), output_attentions=True)
    for part, array in arrays.items():
        layers = outputs["attentions" if part == "self" else f"{part}_attentions"]
        reference = [layer for layer in layers if layer is not None]
        np.testing.assert_array_equal(array, torch.cat(reference).numpy())


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_falcons_bias_counts_as_often_as_it_does_when_the_model_runs_itself(implementation, records):
    model, _ = tiny("falcon-rw")
    for config in _configs(model):
        config._attn_implementation_internal = implementation
    with torch.no_grad():
        states = model(**model_inputs("falcon-rw"), output_hidden_states=True).hidden_states
    traced("falcon-rw", model, model_inputs("falcon-rw"), edges="kept", heads="each")
    torch.testing.assert_close(records[0].block_output, states[1][0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in GATED])
def test_attention_times_values_through_the_projection_is_the_modules_output(family, records):
    model, _ = tiny(family)
    traced(family, model, model_inputs(family), edges="kept", heads="each")
    for record in records:
        group = record.num_heads // record.values.shape[0]
        output = record.output_bias.double().clone() if record.output_bias is not None else 0.0
        for head in range(record.num_heads):  # written out, so that heads cannot be read interleaved
            value = record.values[head // group].double()
            output = output + record.weights[head].double() @ value @ record.output_weight[head].double()
        scale = record.attention_output.abs().max()
        assert (output - record.attention_output).abs().max() <= 1e-5 * max(1.0, scale)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in SEQ2SEQS and f not in SPEECH])
def test_records_chain_to_the_models_own_hidden_states(family, records):
    """Streams are the hidden states, and the rest of a block run on ``A V W_O`` gives the next one."""
    model, _ = tiny(family)
    with torch.no_grad():
        states = model(**model_inputs(family), output_hidden_states=True).hidden_states
    result = traced(family, model, model_inputs(family), edges="kept", heads="each")
    numbers = result.meta["layer_numbers"]
    for record, number in zip(records, numbers, strict=True):
        if numbers.count(number) == 1:
            torch.testing.assert_close(record.stream, states[number - 1][0], atol=1e-5, rtol=1e-5)
        if numbers.count(number) == 1 and number < len(states) - 1:  # a final norm may follow the last
            torch.testing.assert_close(record.block_output, states[number][0], atol=1e-5, rtol=1e-5)
        positions = torch.arange(len(record.stream)).flip(0)
        again = record.rerun(record.attention_output[positions], positions)
        torch.testing.assert_close(again, record.block_output[positions], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_supported_kind_works_and_verifies(family):
    model, _ = tiny(family)
    rule = {"hybrid": "skip"} if family in HYBRIDS else {}
    parts = supported_parts(model, **rule)
    kinds = [kind for kind, reasons in parts.items() if None in reasons.values()]
    assert set(kinds) == {"attention", "effective"} if family in GATED else set(mixing.names())
    result = traced(family, model, model_inputs(family), edges=kinds, verify=True)
    for kind in kinds:
        arrays = parts_of(result[kind])
        assert set(arrays) == {part for part, reason in parts[kind].items() if reason is None}
        for array in arrays.values():
            assert np.isfinite(array).all()
            assert np.abs(array).sum() > 0


@pytest.mark.parametrize("family", GATED)
def test_kinds_that_are_not_supported_are_refused_before_the_model_runs(family):
    model, _ = tiny(family)
    refused = [kind for kind, reason in supported_kinds(model, hybrid="skip").items() if reason is not None]
    assert refused
    ran = []
    model.register_forward_pre_hook(lambda *_: ran.append(True))
    for kind in refused:
        with pytest.raises(FlowgraphError, match=kind):
            traced(family, model, model_inputs(family), edges=kind)
    assert not ran


@pytest.mark.parametrize("family", MORE)
def test_families_laid_out_like_another_one(family):
    model, _ = tiny(family)
    inputs = inputs_for(model)
    whole = [kind for kind, reason in supported_kinds(model).items() if reason is None]
    assert len(whole) == (3 if model.config.is_encoder_decoder else len(mixing.names()))
    trace(model, None, inputs, edges=mixing.names(), verify=True)
    arrays = parts_of(trace(model, None, inputs, heads="each")["attention"])
    with torch.no_grad():
        outputs = eager(model)(**inputs, output_attentions=True)
    for part, array in arrays.items():
        reference = outputs["attentions" if part == "self" else f"{part}_attentions"]
        np.testing.assert_array_equal(array, torch.cat(list(reference)).numpy())


def test_every_class_of_the_table_is_tested():
    tested = set()
    for family in [*FAMILIES, *MORE]:
        model, _ = tiny(family)
        for _, module, _ in find_blocks(model):
            tested.add(next(key for key in map(block_key, type(module).__mro__) if key in BLOCKS))
    assert tested == set(BLOCKS)


def padded(lengths, side, *, seed=0, name=""):
    """Ids padded with 0 to the longest, their mask, and the texts one by one."""
    texts = [token_ids(length, seed=seed + k) for k, length in enumerate(lengths)]
    longest = max(lengths)
    ids = torch.zeros(len(lengths), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        where = slice(longest - text.shape[1], None) if side == "left" else slice(None, text.shape[1])
        ids[row, where], mask[row, where] = text[0], 1
    return {f"{name}input_ids": ids, f"{name}attention_mask": mask}, [
        {f"{name}input_ids": text} for text in texts
    ]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", TEXTS)
def test_a_padded_batch_equals_its_texts_one_by_one(family, side):
    model, _ = tiny(family)
    batch, texts = padded([6, 4, 6], side)
    if family in SEQ2SEQS:
        more, targets = padded([3, 5, 4], side, seed=9, name="decoder_")
        batch, texts = batch | more, [a | b for a, b in zip(texts, targets, strict=True)]
    together = traced(family, model, batch, heads="each")
    for result, text in zip(together, texts, strict=True):
        alone = traced(family, model, text, heads="each")
        assert result.token_ids == alone.token_ids == tuple(text["input_ids"][0].tolist())
        for part, array in parts_of(result["attention"]).items():
            # which texts share a batch moves the last bits
            np.testing.assert_allclose(array, parts_of(alone["attention"])[part], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_agrees_to_its_own_rounding(family, dtype):
    model, _ = tiny(family)
    half = copy.deepcopy(model).to(dtype)
    # the reference computes in float32 with the weights that half precision can hold
    exact = parts_of(traced(family, copy.deepcopy(half).float(), model_inputs(family))["attention"])
    result = traced(family, half, model_inputs(family))
    assert result.meta["dtype"] == str(dtype).removeprefix("torch.")
    bound = {torch.float16: 1e-2, torch.bfloat16: 8e-2}[dtype]
    for part, array in parts_of(result["attention"]).items():
        assert array.dtype == np.float32
        # later layers read rounded streams, and a mixture may choose another expert for a token
        assert np.abs(array - exact[part]).mean() < bound / 5
        if part in ("self", "encoder"):
            assert np.abs(array[0] - exact[part][0]).max() < bound


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in GATED])
def test_kinds_of_half_precision_agree_to_its_rounding(family, dtype):
    """In the first layer, which reads what float32 reads; value zeroing compares outputs that are nearly equal."""
    model, _ = tiny(family)
    half = copy.deepcopy(model).to(dtype)
    kinds = ["alti", "norm", "value-zeroing"]
    exact = traced(family, copy.deepcopy(half).float(), model_inputs(family), edges=kinds)
    result = traced(family, half, model_inputs(family), edges=kinds)
    bound = {torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    for kind in kinds:
        part = "self" if isinstance(exact[kind], np.ndarray) else "encoder"
        if part == "encoder" and part not in exact[kind]:
            continue
        first, reference = parts_of(result[kind])[part][0], parts_of(exact[kind])[part][0]
        assert np.abs(first - reference).max() <= bound * reference.max()


def test_memory_of_widened_weights_is_counted():
    model, _ = tiny("llama")
    inputs = model_inputs("llama")

    def needed(model, kind):
        with pytest.raises(FlowgraphError, match="take about") as refusal:
            trace(model, None, inputs, edges=kind, max_memory=1)
        return float(str(refusal.value).split("about ")[1].split(" KiB")[0])

    half = copy.deepcopy(model).bfloat16()
    block = half.model.layers[0]
    rest = [*block.mlp.parameters(), *block.post_attention_layernorm.parameters()]
    widened = 4 * sum(p.numel() for p in rest) / 1024
    assert needed(half, "value-zeroing") - needed(half, "alti") == pytest.approx(widened, abs=0.2)
    assert needed(model, "value-zeroing") == needed(model, "alti")


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_in_half_precision_is_handed_back_after_its_blocks_ran_again(fails):
    model, _ = tiny("gpt2")
    model = model.bfloat16().train()
    before = state_of(model)
    ran = []

    def failing(module, args):
        ran.append(args[0].dtype)
        if fails and args[0].dtype == torch.float32:
            raise RuntimeError("in the middle")

    hook = model.transformer.h[1].mlp.register_forward_pre_hook(failing)
    try:
        if fails:
            with pytest.raises(RuntimeError, match="in the middle"):
                trace(model, None, model_inputs("gpt2"), edges="value-zeroing")
        else:
            trace(model, None, model_inputs("gpt2"), edges="value-zeroing")
    finally:
        hook.remove()
    assert {torch.float32, torch.bfloat16} == set(ran)
    assert state_of(model) == before


def state_of(model):
    """All that a trace must give back."""
    modules = {
        name: (
            module.training,
            list(module._forward_hooks),
            list(module._forward_pre_hooks),
            list(module._backward_hooks),
            module.__dict__.get("forward"),
        )
        for name, module in model.named_modules()
    }
    implementations = [config._attn_implementation for config in _configs(model)]
    tensors = {n: (p.device, p.dtype, p.requires_grad, p.data_ptr()) for n, p in model.named_parameters()}
    return modules, implementations, tensors, torch.is_grad_enabled()


def explode(record):
    if record.layer == 2:
        raise RuntimeError("in the middle")
    return record.weights


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_is_handed_back_as_it_was(family):
    model, _ = tiny(family)
    model.train()
    list(model.modules())[-1].eval()  # a mixed state, which train() alone could not give back
    model.register_forward_hook(lambda *_: None)
    before = state_of(model)
    first = traced(family, model, model_inputs(family))
    assert state_of(model) == before
    second = traced(family, model.eval(), model_inputs(family))
    for part, array in parts_of(first["attention"]).items():  # dropout was off
        np.testing.assert_array_equal(array, parts_of(second["attention"])[part])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_is_handed_back_after_an_exception_in_the_middle(family):
    model, _ = tiny(family)
    model.train()
    before = state_of(model)
    mixing.register("explode", explode, cross=True, needs=())
    try:
        with pytest.raises(RuntimeError, match="in the middle"):
            traced(family, model, model_inputs(family), edges="explode")
    finally:
        mixing.unregister("explode")
    assert state_of(model) == before
    traced(family, model, model_inputs(family))  # and it can be traced again


@pytest.mark.parametrize("family", FAMILIES)
def test_traces_say_what_they_hold(family, tmp_path):
    model, _ = tiny(family)
    result = traced(family, model, model_inputs(family))
    arrays = parts_of(result["attention"])
    main = arrays.get("encoder", arrays.get("self"))
    assert len(result.tokens) == len(result.raw_tokens) == main.shape[-1]
    assert result.meta["causal"] == (
        family in models.DECODERS or not {"self"} >= set(arrays) or family in HYBRIDS
    )
    layers = result.meta["layers"]
    assert (layers if isinstance(layers, dict) else {"self": layers}) == {
        p: len(a) for p, a in arrays.items()
    }
    result.save(tmp_path / "trace.safetensors")
    again = type(result).load(tmp_path / "trace.safetensors")
    assert again.meta == result.meta
    assert again.tokens == result.tokens
    assert again.target_tokens == result.target_tokens
    for part, array in parts_of(again["attention"]).items():
        np.testing.assert_array_equal(array, arrays[part])
