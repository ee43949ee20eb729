"""Norms of values, their spread, the mixing ratio: what a trace carries beside its matrices."""

from __future__ import annotations

import numpy as np
import pytest

import flowgraph as fg
from flowgraph import mixing
from flowgraph.capture.trace import Trace
from flowgraph.errors import FlowgraphError
from tests import models, naive
from tests.mixing.traced import collect

TEXT = "the keys to the cabinet are on the table"


@pytest.fixture(scope="module")
def bert():
    return models.tiny("bert")


@pytest.fixture(scope="module")
def trace(bert):
    return fg.trace(*bert, TEXT, edges=("norm", "norm-residual-ln", "attention"), heads="all")


def test_norms_and_weights_are_the_factors_of_norm(bert, trace):
    each = fg.trace(*bert, TEXT, edges=("norm", "attention"), heads="each")
    lengths = fg.norms(each)
    assert lengths.shape == (3, 4, len(trace.tokens))
    assert lengths.dtype == np.float64
    assert np.allclose(each["attention"] * lengths[:, :, None, :], each["norm"], rtol=1e-6)
    assert np.array_equal(fg.norms(trace), lengths)


def test_coefficient_of_variation(bert, trace):
    other = fg.trace(*bert, "a cat sat", edges="norm")
    together = np.concatenate([fg.norms(trace), fg.norms(other)], axis=2)
    found = mixing.coefficient_of_variation([trace, other])
    assert found.shape == (3, 4)
    assert np.allclose(found, together.std(2) / together.mean(2))
    assert np.allclose(
        mixing.coefficient_of_variation(trace), fg.norms(trace).std(2) / fg.norms(trace).mean(2)
    )


def test_mixing_ratio(bert, trace):
    records = collect(*bert, TEXT).records
    oracle = np.stack([naive.mixing_ratio(record).detach().numpy() for record in records])
    found = fg.mixing_ratio(trace)
    assert found.shape == (3, len(trace.tokens))
    assert np.allclose(found, oracle, atol=1e-5)
    assert (found > 0).all()
    assert (found < 1).all()


def test_a_single_token_mixes_nothing():
    model, _ = models.tiny("gpt2")
    trace = fg.trace(model, None, {"input_ids": models.token_ids(1)}, edges="norm-residual-ln")
    assert np.allclose(fg.mixing_ratio(trace), 0, atol=1e-6)


def test_they_survive_saving(trace, tmp_path):
    trace.save(tmp_path / "trace.safetensors")
    again = Trace.load(tmp_path / "trace.safetensors")
    assert np.array_equal(fg.norms(again), fg.norms(trace))
    assert np.array_equal(fg.mixing_ratio(again), fg.mixing_ratio(trace))


@pytest.mark.parametrize(
    ("measure", "kind"), [("norms", "'norm'"), ("mixing_ratio", "'norm-residual-ln'")], ids=["norms", "ratio"]
)
def test_the_kind_to_trace_is_named(bert, measure, kind):
    trace = fg.trace(*bert, TEXT, edges="attention")
    with pytest.raises(FlowgraphError, match=rf"trace: holds attention, .* needs {kind}; trace with edges="):
        getattr(fg, measure)(trace)


def test_an_encoder_decoder_has_norms_for_each_stack():
    model, _ = models.tiny("bart")
    trace = fg.trace(model, None, models.model_inputs("bart"), edges="norm")
    found = fg.norms(trace)
    assert {name: array.shape for name, array in found.items()} == {
        "encoder": (2, 4, 7),
        "decoder": (3, 4, 5),
        "cross": (3, 4, 7),
    }
    with pytest.raises(FlowgraphError, match="traces: an encoder–decoder trace"):
        mixing.coefficient_of_variation(trace)


def test_no_traces():
    with pytest.raises(FlowgraphError, match="traces: none given"):
        mixing.coefficient_of_variation([])
