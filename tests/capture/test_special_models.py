"""Windows, sinks, shared layers, hybrids, grouped heads, pictures: what is peculiar to some families."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from flowgraph.capture.run import trace
from flowgraph.capture.support import support, supported_kinds
from flowgraph.errors import FlowgraphError, FlowgraphWarning
from flowgraph.graph import LayeredGraph
from tests import models
from tests.models import HYBRIDS, VISIONS, model_inputs, picture, tiny, token_ids

# --- windows and masks ------------------------------------------------------------------------------------------


def seen(result, layer):
    return (result["attention"][layer] > 0).sum(-1).max(0).tolist()


def test_sliding_window_of_three():
    model, _ = tiny("mistral", sliding_window=3)
    result = trace(model, None, {"input_ids": token_ids(5)}, heads="each")
    for layer in range(3):
        assert seen(result, layer) == [1, 2, 3, 3, 3]


def test_local_attention_of_four_sees_two_on_either_side():
    model, _ = tiny("modernbert", local_attention=4, global_attn_every_n_layers=3)
    result = trace(model, None, {"input_ids": token_ids(9)}, heads="each")
    assert seen(result, 0) == [9] * 9
    assert seen(result, 1) == [3, 4, 5, 5, 5, 5, 5, 4, 3]


@pytest.mark.parametrize("kind", ["norm", "effective", "alti", "value-zeroing", "norm-residual"])
def test_masked_keys_are_zero_in_every_kind(kind):
    model, _ = tiny("gemma2", sliding_window=3)
    attention, other = (
        trace(model, None, {"input_ids": token_ids(8)}, edges=name)[name] for name in ("attention", kind)
    )
    assert (other[attention == 0] == 0).all()
    assert (attention == 0).any()


# --- sinks ------------------------------------------------------------------------------------------------------


def test_rows_that_lose_mass_to_a_sink_say_how_much():
    model, _ = tiny("gpt-oss")
    result = trace(model, None, model_inputs("gpt-oss"))
    mass = np.array(result.meta["row_mass"])
    assert mass.shape == (3, 7)
    assert ((mass > 0) & (mass < 1)).all()
    np.testing.assert_allclose(mass, result["attention"].sum(-1), rtol=1e-5)
    # the sink of a head takes its share of the softmax
    layer = model.model.layers[0].self_attn
    first = trace(model, None, model_inputs("gpt-oss"), heads="each")["attention"][0, :, 0, 0]
    sink = layer.sinks.detach().double().numpy()
    score = np.log(first / (1 - first)) + sink
    assert np.isfinite(score).all()
    with torch.no_grad():
        layer.sinks.add_(5)
    more = trace(model, None, model_inputs("gpt-oss"), heads="each")["attention"][0, :, 0, 0]
    np.testing.assert_allclose(more, 1 / (1 + np.exp(sink + 5 - score)), rtol=1e-4)


# --- layers that share weights, experts, heads -------------------------------------------------------------------


def test_shared_layers_are_told_apart_by_their_calls():
    model, _ = tiny("albert")
    result = trace(model, None, model_inputs("albert"))
    assert result.meta["layer_numbers"] == [1, 2, 3, 4]
    assert all(np.abs(result["attention"][k] - result["attention"][k + 1]).max() > 1e-4 for k in range(3))


def test_inner_groups_attend_several_times_a_layer():
    model, _ = tiny("albert", inner_group_num=2)
    result = trace(model, None, model_inputs("albert"))
    assert result["attention"].shape[0] == 8
    assert result.meta["layer_numbers"] == [1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_hidden_groups(groups):
    model, _ = tiny("albert", num_hidden_groups=groups)
    assert trace(model, None, model_inputs("albert"), verify=True)["attention"].shape[0] == 4


def test_router_logits_are_not_taken_for_attention():
    model, _ = tiny("mixtral", output_router_logits=True)
    result = trace(model, None, model_inputs("mixtral"), verify=True)
    assert result["attention"].shape == (3, 7, 7)


def test_heads_wider_than_the_model():
    model, _ = tiny("qwen3", head_dim=16)  # 4 heads of 16 in a model of 32, on 2 key heads
    trace(model, None, model_inputs("qwen3"), edges=["norm", "alti", "effective"], verify=True)


def test_chunked_feed_forward():
    plain, _ = tiny("bert")
    chunked, _ = tiny("bert", chunk_size_feed_forward=1)
    kinds = ["globenc", "value-zeroing"]
    one = trace(plain, None, model_inputs("bert"), edges=kinds, verify=True)
    two = trace(chunked, None, model_inputs("bert"), edges=kinds, verify=True)
    for kind in kinds:
        np.testing.assert_allclose(one[kind], two[kind], rtol=1e-3, atol=1e-5)


def test_bloom_that_adds_to_the_normalised_stream():
    model, _ = tiny("bloom", apply_residual_connection_post_layernorm=True)
    kinds = supported_kinds(model)
    assert kinds["norm"] is None
    assert "normalised stream" in kinds["alti"]
    trace(model, None, model_inputs("bloom"), edges=["attention", "norm", "effective"], verify=True)
    with pytest.raises(FlowgraphError, match="'alti' needs the stream of layer 1: this BLOOM adds"):
        trace(model, None, model_inputs("bloom"), edges="alti")


@pytest.mark.parametrize("multiplier", [0.5, 1.0])
def test_residual_multipliers(multiplier):
    model, _ = tiny("granite", residual_multiplier=multiplier)
    trace(model, None, model_inputs("granite"), edges=["alti", "norm-residual", "value-zeroing"], verify=True)


@pytest.mark.parametrize("family", ["bert", "gemma3", "olmo2", "llama", "t5", "dinov2"])
def test_double_precision_verifies(family):
    """RMSNorm of transformers computes in float32 there too."""
    model, _ = tiny(family)
    inputs = {k: v.double() if v.is_floating_point() else v for k, v in model_inputs(family).items()}
    trace(model.double(), None, inputs, edges=["alti", "value-zeroing"], verify=True)


@pytest.mark.parametrize("family", ["jamba", "mixtral", "gpt-oss"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixtures_of_experts_in_half_precision_verify(family, dtype):
    """In float32 a router may choose another expert, so the check runs in the model's own precision."""
    model, _ = tiny(family)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlowgraphWarning)
        trace(model.to(dtype), None, model_inputs(family), edges="value-zeroing", verify=True, hybrid="skip")


# --- hybrids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", HYBRIDS)
def test_layers_without_attention_are_refused_unless_passed_over(family):
    model, _ = tiny(family)
    with pytest.raises(FlowgraphError, match=r"layers without attention .*layer 1, 3.*hybrid='skip'"):
        trace(model, None, model_inputs(family))
    assert all("hybrid='skip'" in reason for reason in supported_kinds(model).values())
    found = support(model)
    assert "layers without attention" in found.hybrid
    assert found.kinds == supported_kinds(model, hybrid="skip")
    assert found.kinds["attention"] is None
    with pytest.warns(FlowgraphWarning, match="layers 1, 3 have no attention"):
        result = trace(model, None, model_inputs(family), hybrid="skip")
    assert result.meta["layer_numbers"] == [2, 4]
    assert result.meta["skipped_layers"] == [1, 3]
    assert result["attention"].shape == (2, 7, 7)
    graph = LayeredGraph.from_trace(result)
    assert [level.name for level in graph.levels] == ["input", "layer 2", "layer 4"]


def test_gated_attention_says_why_norms_cannot_be_had():
    model, _ = tiny("qwen3-next")
    kinds = supported_kinds(model, hybrid="skip")
    assert kinds["attention"] is kinds["effective"] is None
    assert "a gate stands between" in kinds["norm"]


# --- pictures ---------------------------------------------------------------------------------------------------

PREFIX = {
    "vit": ("[CLS]",),
    "deit": ("[CLS]", "[DIST]"),
    "dinov2": ("[CLS]",),
    "dinov2-registers": ("[CLS]", "[REG 0]", "[REG 1]", "[REG 2]", "[REG 3]"),
    "clip-vision": ("[CLS]",),
    "siglip-vision": (),
}


@pytest.mark.parametrize("family", VISIONS)
def test_patches_have_row_and_column_and_prefix_tokens_names(family):
    """One 32 x 32 picture of 8 x 8 patches: 17 tokens in ViT, 18 in DeiT, 21 with registers, 16 in SigLIP."""
    model, _ = tiny(family)
    result = trace(model, None, model_inputs(family))
    prefix = PREFIX[family]
    assert result.tokens[: len(prefix)] == prefix
    assert result.tokens[len(prefix) :] == tuple(f"patch {r},{c}" for r in range(4) for c in range(4))
    assert result.special == (*[True] * len(prefix), *[False] * 16)
    assert result.meta["image"] == {"rows": 4, "columns": 4, "prefix": len(prefix), "patch": [8, 8]}
    assert result.word_ids is result.token_ids is None


def test_a_batch_of_pictures_equals_them_one_by_one():
    model, _ = tiny("dinov2")
    both = picture(batch=2)
    for index, result in enumerate(trace(model, None, {"pixel_values": both})):
        alone = trace(model, None, {"pixel_values": both[index : index + 1]})
        np.testing.assert_allclose(result["attention"], alone["attention"], atol=5e-6)


def test_a_picture_that_is_no_square():
    model, _ = tiny("dinov2")
    wide = torch.randn(1, 3, 16, 40, generator=torch.Generator().manual_seed(0))
    result = trace(model, None, {"pixel_values": wide})
    assert (result.meta["image"]["rows"], result.meta["image"]["columns"]) == (2, 5)
    assert result.tokens[-1] == "patch 1,4"


@pytest.mark.parametrize(
    "family", ["vit", "deit", "vit-msn", "ijepa", "clip-vision", "siglip-vision", "altclip-vision"]
)
def test_positions_stretched_to_a_picture_of_another_size(family):
    model, _ = tiny(family)
    wide = torch.randn(2, 3, 48, 64, generator=torch.Generator().manual_seed(0))
    inputs = {"pixel_values": wide, "interpolate_pos_encoding": True}
    results = trace(model, None, inputs, heads="each", verify=True)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions
    for index, result in enumerate(results):
        assert (result.meta["image"]["rows"], result.meta["image"]["columns"]) == (6, 8)
        assert result.tokens[-1] == "patch 5,7"
        for layer, weights in enumerate(attentions):
            np.testing.assert_allclose(result["attention"][layer], weights[index], atol=1e-5)


def test_positions_stretched_to_a_picture_of_the_same_size_stay_as_they_are():
    model, _ = tiny("vit")
    same = trace(model, None, {"pixel_values": picture(), "interpolate_pos_encoding": True})
    np.testing.assert_array_equal(
        same["attention"], trace(model, None, {"pixel_values": picture()})["attention"]
    )


@pytest.mark.parametrize(
    ("family", "value", "pixels", "message"),
    [
        ("dinov2", True, picture(64), "takes no input called interpolate_pos_encoding; leave it out"),
        ("vit", "yes", picture(64), "interpolate_pos_encoding is 'yes'; pass True or False"),
        (
            "vit",
            False,
            picture(64),
            "pixel_values of 64x64, but the model reads 32x32; .*interpolate_pos_encoding=True",
        ),
        ("vit", True, picture(4), "4x4 are smaller than a patch of 8x8"),
    ],
)
def test_positions_that_cannot_be_stretched(family, value, pixels, message):
    model, _ = tiny(family)
    with pytest.raises(FlowgraphError, match=message):
        trace(model, None, {"pixel_values": pixels, "interpolate_pos_encoding": value})


def test_pixels_in_bytes_are_refused():
    model, _ = tiny("vit")
    with pytest.raises(FlowgraphError, match="pixel_values has dtype uint8; pass floating-point numbers"):
        trace(model, None, {"pixel_values": (255 * picture().clamp(0, 1)).byte()})


def test_pixels_in_double_are_read_in_the_models_precision():
    model, _ = tiny("vit")
    result = trace(model, None, {"pixel_values": picture().double()})
    assert result["attention"].dtype == np.float32


@pytest.mark.parametrize("name", ["CLIP", "Siglip"])
def test_classifiers_of_pictures_whose_configuration_speaks_of_text_too(name):
    import transformers

    sizes = {"text_config": {**models.SMALL, "num_attention_heads": 2}, "vision_config": dict(models.VISION)}
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = models.perturb(getattr(transformers, f"{name}ForImageClassification")(config)).eval()
    result = trace(model, None, {"pixel_values": picture()}, heads=3, verify=True)
    prefix = PREFIX[f"{name.lower()}-vision"]
    assert result.tokens[: len(prefix) + 1] == (*prefix, "patch 0,0")
    with pytest.raises(FlowgraphError, match="no head 4; the layer has 4"):
        trace(model, None, {"pixel_values": picture()}, heads=4)


def test_pictures_need_four_axes():
    model, _ = tiny("vit")
    with pytest.raises(FlowgraphError, match=r"pixel_values has shape \(3, 32, 32\)"):
        trace(model, None, {"pixel_values": picture()[0]})


@pytest.mark.parametrize(
    ("family", "pixels", "message"),
    [
        ("vit", picture(64), "pixel_values of 64x64, but the model reads 32x32"),
        ("deit", picture(8), "pixel_values of 8x8, but the model reads 32x32"),
        ("clip-vision", picture(64), "pixel_values of 64x64, but the model reads 32x32"),
        ("siglip-vision", picture(64), "pixel_values of 64x64, but the model reads 32x32"),
        ("vit", picture()[:, :1], r"shape \(1, 1, 32, 32\), but the model reads 3 channels"),
        ("dinov2", picture(4), "4x4 are smaller than a patch of 8x8"),
    ],
)
def test_pictures_that_do_not_fit_the_model_are_refused_with_the_numbers(family, pixels, message):
    model, _ = tiny(family)
    with pytest.raises(FlowgraphError, match=message):
        trace(model, None, {"pixel_values": pixels})


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ({"decoder_input_ids": torch.tensor([[0, -1]])}, "decoder_input_ids holds -1"),
        ({"decoder_input_ids": torch.tensor([[0, 99]])}, "token id 99 is outside"),
        ({"decoder_input_ids": torch.ones(1, 2)}, "decoder_input_ids has dtype float32"),
        (
            {"decoder_input_ids": token_ids(6), "decoder_attention_mask": torch.ones(1, 3)},
            r"decoder_attention_mask has shape \(1, 3\), but decoder_input_ids has shape \(1, 6\)",
        ),
    ],
)
def test_decoder_inputs_that_do_not_fit_are_refused_by_name(decoder, message):
    model, _ = tiny("t5")
    with pytest.raises(FlowgraphError, match=message):
        trace(model, None, {"input_ids": token_ids(4)} | decoder)
