"""Every edge kind against its formula, on small blocks of every build."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from flowgraph import mixing
from flowgraph.errors import FlowgraphError
from tests import naive
from tests.blocks import SHAPES, Shape, make_block
from tests.naive import assert_same

RESIDUAL = ("alti", "globenc", "norm-residual", "norm-residual-ln", "value-zeroing")


@pytest.fixture(params=SHAPES, scope="module")
def block(request):
    return make_block(SHAPES[request.param])


@pytest.mark.parametrize("kind", naive.KINDS)
def test_kinds_of_parts_follow_their_formula(block, kind):
    product = mixing.get(kind).compute(block.record)
    assert_same(product, naive.KINDS[kind](block.record), 1e-11)


@pytest.mark.parametrize("kind", naive.KINDS)
def test_kinds_of_parts_in_single_precision(kind):
    record = make_block(Shape(tokens=40, width=48, head_width=12), dtype=torch.float32).record
    assert_same(mixing.get(kind).compute(record), naive.KINDS[kind](record))


def test_norm_per_head(block):
    kind = mixing.get("norm")
    oracle = naive.norm_per_head(block.record)
    assert_same(kind.compute(block.record, "each"), oracle, 1e-12)
    assert_same(kind.compute(block.record, "mean"), oracle.mean(0), 1e-12)
    assert_same(kind.compute(block.record, "max"), oracle.max(0).values, 1e-12)
    assert_same(kind.compute(block.record, "min"), oracle.min(0).values, 1e-12)
    assert_same(kind.compute(block.record, 1), oracle[1], 1e-12)


def test_norm_of_all_heads_is_not_the_mean(block):
    kind = mixing.get("norm")
    assert not torch.allclose(
        kind.compute(block.record, "all"), kind.compute(block.record, "mean"), rtol=1e-2
    )


def test_attention_is_the_weight(block):
    kind, weights = mixing.get("attention"), block.record.weights
    assert torch.equal(kind.compute(block.record, "each"), weights)
    assert torch.equal(kind.compute(block.record, "all"), weights.mean(0))
    assert torch.equal(kind.compute(block.record, 1), weights[1])


def test_half_precision_is_widened_before_the_mean():
    record = make_block(SHAPES["post-norm"]).record
    record = replace(record, weights=record.weights.bfloat16())
    found = mixing.get("attention").compute(record)
    assert found.dtype == torch.float32
    assert torch.equal(found, record.weights.float().mean(0))


# --- effective --------------------------------------------------------------------------------------------


def test_effective_follows_its_formula(block):
    assert_same(mixing.get("effective").compute(block.record, "each"), naive.effective(block.record), 1e-9)


def test_effective_reads_the_same(block):
    record = block.record
    values = record.values.repeat_interleave(record.num_heads // len(record.values), 0)
    effective = mixing.get("effective").compute(record, "each")
    assert torch.allclose(effective @ values, record.weights @ values, atol=1e-10)


def test_effective_is_attention_where_values_have_full_row_rank():
    record = make_block(SHAPES["wide heads"]).record
    assert torch.equal(mixing.get("effective").compute(record, "each"), record.weights)


def test_effective_parts_from_attention_beyond_the_head_width():
    record = make_block(SHAPES["post-norm more tokens than head width"]).record
    effective = mixing.get("effective").compute(record, "each")
    assert (effective - record.weights).abs().max() > 0.01
    assert (effective < 0).any()


def deficient(name, spread):
    """A block whose values lie in one direction of head 0 but for ``spread`` of another."""
    record = make_block(SHAPES[name]).record
    values = record.values.clone()
    direction = torch.linspace(-1, 1, values.shape[2], dtype=values.dtype)
    values[0] = values[0, :, :1] * direction + spread * values[0]
    return replace(record, values=values)


@pytest.mark.parametrize(
    "name", ["post-norm", "post-norm causal", "pre-norm rms multi-query window", "wide heads"]
)
@pytest.mark.parametrize("spread", [0.0, 1e-9, 1e-7, 1e-6, 1e-5, 1e-3])
def test_effective_rank_is_counted_as_the_rule_says(name, spread):
    record = deficient(name, spread)
    assert_same(mixing.get("effective").compute(record, "each"), naive.effective(record), 1e-8)


def test_effective_of_repeated_tokens():
    record = make_block(SHAPES["post-norm causal"]).record
    values = record.values.clone()
    values[:, 1::2] = values[:, ::2][:, : values[:, 1::2].shape[1]]
    record = replace(record, values=values)
    assert_same(mixing.get("effective").compute(record, "each"), naive.effective(record), 1e-9)


def test_effective_of_no_values_at_all_is_zero():
    record = make_block(SHAPES["post-norm"]).record
    found = mixing.get("effective").compute(replace(record, values=torch.zeros_like(record.values)))
    assert torch.equal(found, torch.zeros_like(found))


def test_effective_tolerance_is_single_precisions_whatever_the_model_computes_in():
    record = deficient("post-norm", 1e-7)
    double = mixing.get("effective").compute(record, "each")
    # in float64's own rounding 1e-7 would count as a direction of its own
    basis = torch.linalg.qr(record.values[0]).Q
    assert not torch.allclose(double[0], record.weights[0] @ basis @ basis.T, atol=1e-3)


# --- value zeroing ----------------------------------------------------------------------------------------


def test_value_zeroing_equals_zeroing_and_running_again(block):
    oracle = naive.value_zeroing(block.run, block.record.values, block.record.visible)
    assert_same(mixing.get("value-zeroing").compute(block.record), oracle, 1e-10)


def test_value_zeroing_in_single_precision():
    block = make_block(Shape(tokens=20, width=48, head_width=12), dtype=torch.float32)
    oracle = naive.value_zeroing(block.run, block.record.values, block.record.visible)
    assert_same(mixing.get("value-zeroing").compute(block.record), oracle)


@pytest.mark.parametrize("name", ["pre-norm", "parallel"])
def test_value_zeroing_keeps_small_distances(name):
    """A key of weight 1e-7 turns the output by about 1e-14: 1 - cos would be all rounding, even in float64."""
    block = make_block(replace(SHAPES[name], mask="full"))
    weights = block.record.weights.clone()
    weights[:, :, 2] = 1e-7
    record = replace(block.record, weights=weights)
    attended = (
        torch.einsum("hij,hjd,hdm->im", weights, record.values, record.output_weight) + record.output_bias
    )
    positions = torch.arange(len(attended))
    record = replace(record, attention_output=attended, block_output=record.rerun(attended, positions))
    found = mixing.get("value-zeroing").compute(record)[:, 2]
    changed = attended - torch.einsum(
        "hi,hd,hdm->im", weights[:, :, 2], record.values[:, 2], record.output_weight
    )
    oracle = naive.unit_distance(record.block_output, record.rerun(changed, positions))
    assert (found > 0).all()
    assert torch.allclose(found, oracle, rtol=1e-3, atol=0)
    assert oracle.max() < 1e-12


def test_value_zeroing_of_parallel_blocks_runs_nothing_again():
    record = make_block(SHAPES["parallel"]).record
    assert torch.equal(
        mixing.get("value-zeroing").compute(replace(record, rerun=None)),
        mixing.get("value-zeroing").compute(record),
    )


# --- what all kinds share ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", mixing.names())
def test_masked_keys_are_exactly_zero(block, kind):
    found = mixing.get(kind).compute(block.record)
    assert found.shape == block.record.visible.shape
    assert torch.isfinite(found).all()
    assert not found[~block.record.visible].any()


@pytest.mark.parametrize("kind", mixing.names())
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_agrees_to_its_rounding(kind, dtype):
    whole = make_block(Shape(tokens=6, width=24, head_width=8), dtype=torch.float32).record
    half = make_block(Shape(tokens=6, width=24, head_width=8), dtype=dtype).record
    found, expected = mixing.get(kind).compute(half), mixing.get(kind).compute(whole)
    assert found.dtype in (torch.float32, torch.float64)
    assert (found - expected).abs().max() <= 20 * torch.finfo(dtype).eps * expected.abs().max()


@pytest.mark.parametrize("kind", ["norm", "norm-residual", "norm-residual-ln", "globenc"])
def test_heads_that_cancel(kind):
    """Two heads read alike and write opposite, but for a thousandth: a float32 Gram matrix is lost in
    rounding."""
    record = make_block(Shape(heads=2, value_heads=2, tokens=8), dtype=torch.float32).record
    weights, values, output = record.weights.clone(), record.values.clone(), record.output_weight.clone()
    weights[1], values[1] = weights[0], values[0]
    output[1] = -output[0] + 1e-3 * output[1]
    record = replace(record, weights=weights, values=values, output_weight=output)
    assert_same(mixing.get(kind).compute(record), naive.KINDS[kind](record), 1e-7)


def test_heads_that_cancel_altogether():
    """Rounding alone makes the quadratic form of nothing negative now and then; a root of it is not a number."""
    record = make_block(Shape(heads=3, value_heads=3, tokens=30, width=48)).record
    weights, values, output = record.weights.clone(), record.values.clone(), record.output_weight.clone()
    weights[1:], values[1:] = weights[0], values[0]
    output[2] = -(output[0] + output[1])
    record = replace(record, weights=weights, values=values, output_weight=output)
    found = mixing.get("norm").compute(record)
    assert torch.isfinite(found).all()
    assert found.max() < 1e-6


@pytest.mark.parametrize("kind", ["alti", "globenc", "norm-residual", "norm-residual-ln"])
def test_single_precision_is_summed_in_double(kind):
    """With one key of weight near 1 the others' parts are small; they keep their relative precision."""
    record = make_block(Shape("pre-norm", tokens=8), dtype=torch.float32).record
    found, oracle = mixing.get(kind).compute(record), naive.KINDS[kind](record)
    assert torch.allclose(found.double(), oracle, rtol=1e-4, atol=1e-6 * float(oracle.max()))


@pytest.mark.parametrize("kind", RESIDUAL)
@pytest.mark.parametrize("heads", ["mean", "max", "min", "each", 0])
def test_kinds_that_hold_the_residual_refuse_heads(block, kind, heads):
    assert mixing.get(kind).holds_residual
    with pytest.raises(FlowgraphError, match=f"heads: {kind} has one matrix"):
        mixing.get(kind).compute(block.record, heads)


def test_all_refusing_kinds_are_named_together():
    kinds = [mixing.get(name) for name in mixing.names()]
    with pytest.raises(
        FlowgraphError, match="alti, globenc, norm-residual, norm-residual-ln, value-zeroing have"
    ):
        mixing.check_heads(kinds, "each")


@pytest.mark.parametrize("heads", ["median", -1, 4, None, True, 1.5])
def test_heads_that_do_not_exist(heads):
    record = make_block(SHAPES["post-norm"]).record
    with pytest.raises(FlowgraphError, match="heads: "):
        mixing.get("attention").compute(record, heads)


# --- mixing ratio and norms -------------------------------------------------------------------------------


def test_mixing_ratio(block):
    found = mixing.get("norm-residual-ln").extras(block.record)["mixing-ratio"]
    oracle = naive.mixing_ratio(block.record)
    assert torch.allclose(found, oracle, rtol=1e-10, atol=1e-12)


def test_norms(block):
    found = mixing.get("norm").extras(block.record)["norms"]
    assert torch.allclose(found, naive.attended_vectors(block.record).norm(dim=-1), rtol=1e-12)
