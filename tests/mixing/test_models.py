"""Edge kinds on real models: against their formulas, and parts plus biases against the model's own
outputs."""

from __future__ import annotations

import pytest
import torch

import flowgraph as fg
from flowgraph import mixing
from flowgraph.errors import FlowgraphError
from tests import models, naive
from tests.mixing import traced as source
from tests.naive import assert_same

FAMILIES = [*source.FAMILIES, "embedded"]
ONE_MATRIX = ("alti", "globenc", "norm-residual", "norm-residual-ln", "value-zeroing")


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def traced(family):
    return source.embedded() if family == "embedded" else source.traced(family)


def possible(kind, record):
    return mixing.get(kind).refusal(record) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_follows_its_formula(family):
    checked = set()
    for record in traced(family).records:
        for kind, oracle in naive.KINDS.items():
            if possible(kind, record):
                assert_same(mixing.get(kind).compute(record), oracle(record))
                checked.add(kind)
        assert_same(mixing.get("norm").compute(record, "each"), naive.norm_per_head(record))
    assert checked == set(naive.KINDS)


@pytest.mark.parametrize("family", FAMILIES)
def test_effective(family):
    for record in traced(family).records:
        effective = mixing.get("effective").compute(record, "each")
        values = record.values.double().repeat_interleave(record.num_heads // len(record.values), 0)
        read = record.weights.double() @ values
        assert (effective @ values - read).abs().max() <= 1e-5 * read.abs().max()
        assert_same(effective, naive.effective(record))


def close(rebuilt, actual, scale=1.0):
    """Equal to a few roundings of float32, relative to the largest entry (or to ``scale`` where terms
    cancel)."""
    assert rebuilt.shape == actual.shape
    largest = max(float(actual.abs().max()), float(scale))
    assert (rebuilt - actual.double()).abs().max() <= 3e-6 * largest


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_and_biases_are_the_attention_output(family):
    for record in traced(family).records:
        rebuilt = naive.weighted_vectors(record).sum((0, 2))
        if record.output_bias is not None:
            rebuilt = rebuilt + record.output_bias.double()
        close(rebuilt, record.attention_output, naive.weighted_vectors(record).abs().sum((0, 2)).max())


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_and_biases_are_the_stream_after_attention(family):
    """What the block really went on with: the input of the feed-forward part's norm, or the sum it is left
    out of."""
    for record, call in traced(family).own:
        if record.block == "post-norm" or call.layout.cross_projection:
            continue
        rebuilt = naive.stream_parts(record).sum(1) + added_bias(record)
        if record.block == "parallel":
            actual = record.block_output.double() - call.given[0].reshape(record.block_output.shape).double()
        else:
            actual = call.seen[0].reshape(record.stream.shape)
        close(rebuilt, actual, naive.stream_parts(record).abs().sum(1).max())


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_and_biases_are_the_norms_outputs(family):
    for record, _ in traced(family).own:
        if record.block != "post-norm":
            continue
        first = record.attention_norm
        biases = naive_norm(first, added_bias(record)) + bias_of(first)
        close(naive.first_norm_parts(record).sum(1) + biases, record.attention_norm_output)
        if record.output_norm is None:
            assert not possible("globenc", record)
            continue
        second = record.output_norm
        beside = naive_norm(second, biases + record.feed_forward_output.double()) + bias_of(second)
        close(naive.second_norm_parts(record).sum(1) + beside, record.block_output)


def added_bias(record):
    """(T, D): the output bias after everything between projection and stream."""
    bias = torch.zeros_like(record.stream, dtype=torch.float64)
    if record.output_bias is not None:
        bias = bias + record.output_bias.double()
    if record.branch_norm is not None:
        bias = naive_norm(record.branch_norm, bias) + bias_of(record.branch_norm)
    return bias if record.branch_scale is None else bias * record.branch_scale.double()


def naive_norm(norm, vectors):
    return torch.stack([naive.frozen_norm(norm, row, i) for i, row in enumerate(vectors)])


def bias_of(norm):
    return 0.0 if norm.bias is None else norm.bias.double()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_check_of_the_product_agrees(family):
    for record in traced(family).records:
        found = mixing.check_decomposition(record)
        assert "attention output" in found
        assert max(found.values()) <= 64 * torch.finfo(torch.float32).eps


# --- value zeroing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "embedded"])
def test_value_zeroing_equals_zeroing_and_running_the_layer_again(family):
    """The whole layer run once a token by the model's own code; in double precision where the model can."""
    done = 0
    dtype = (
        torch.float32 if family in ("mixtral", "gpt-oss") else torch.float64
    )  # torch multiplies experts so
    for record, call in source.traced(family, dtype).own:
        if not possible("value-zeroing", record):
            assert call.layout.cross_projection
            continue
        found = mixing.get("value-zeroing").compute(record)
        assert_same(found, zeroed_and_run_again(record, call), 1e-5 if computes_in_single(family) else 1e-8)
        done += 1
    assert done


def computes_in_single(family):
    """RMSNorm and rotary angles of transformers are float32 whatever the model is."""
    return family not in models.ENCODERS and family not in models.VISIONS


def test_value_zeroing_of_the_embedded_model():
    for record, call in source.embedded().own[::3]:
        found = mixing.get("value-zeroing").compute(record)
        assert_same(found, zeroed_and_run_again(record, call))


def zeroed_and_run_again(record, call):
    columns = [source.run_block(call, zero) for zero in [None, *range(len(record.visible))]]
    actual = columns[0]
    distances = torch.stack([naive.unit_distance(actual, changed) for changed in columns[1:]], dim=1)
    return distances * record.visible


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ONE_MATRIX)
def test_kinds_with_the_residual_are_refused_for_cross_attention(kind):
    record = next(r for r in source.traced("bart").records if r.block == "cross")
    with pytest.raises(FlowgraphError, match=f"edges: '{kind}' is not defined for cross-attention: it holds"):
        mixing.get(kind).compute(record)


@pytest.mark.parametrize("kind", ["attention", "effective", "norm"])
def test_kinds_for_cross_attention(kind):
    for record in source.traced("bart").records:
        if record.block == "cross":
            assert mixing.get(kind).compute(record).shape == record.visible.shape
            assert record.visible.shape[0] != record.visible.shape[1]


def test_a_kind_is_refused_with_what_is_missing_and_why():
    record = next(r for r, call in source.traced("bart").own if call.layout.cross_projection)
    with pytest.raises(
        FlowgraphError, match="'globenc' needs the output norm of layer 1: cross-attention stands"
    ):
        mixing.get("globenc").compute(record)


@pytest.mark.parametrize("kind", sorted(mixing.names()))
def test_measuring_heeds_no_autocast(kind):
    for record in traced("bert").records:
        alone = mixing.get(kind).compute(record)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(mixing.get(kind).compute(record), alone)


def test_a_model_under_autocast_gives_every_kind():
    model, tokenizer = models.tiny("bert")
    kinds = mixing.names()
    full = fg.trace(model, tokenizer, "the cat sat", edges=kinds)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = fg.trace(model, tokenizer, "the cat sat", edges=kinds)
    for kind in kinds:
        scale = abs(full[kind]).max()
        assert abs(half[kind] - full[kind]).max() <= 0.1 * scale, kind


@pytest.mark.parametrize("kind", [k for k in sorted(mixing.names()) if k != "attention"])
def test_weights_that_are_not_numbers_are_named(kind):
    model, tokenizer = models.tiny("bert")
    with torch.no_grad():
        model.encoder.layer[1].attention.self.value.weight[0, 0] = torch.nan
    with pytest.raises(FlowgraphError, match=rf"edges: '{kind}' returned NaN or infinity in layer 2"):
        fg.trace(model, tokenizer, "the cat sat", edges=kind)
