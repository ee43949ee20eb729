"""Rank correlation against SciPy's own, row by row, and against the formula for ties."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from flowgraph.evaluation.correlation import spearman, summarise, tied


def test_rows_equal_scipys_with_and_without_ties():
    draw = np.random.default_rng(0)
    a = draw.integers(0, 5, (3, 4, 9)).astype(float)  # many ties
    b = draw.random((4, 9))
    found = spearman(a, b)
    assert found.shape == (3, 4)
    for i, j in np.ndindex(3, 4):
        assert found[i, j] == pytest.approx(spearmanr(a[i, j], b[j]).statistic, abs=1e-12)


def test_ties_by_hand():
    # ranks 1.5 1.5 3 4 and 2 1 3 4; covariance 4.5, sizes 4.5 and 5
    assert spearman([1, 1, 2, 3], [5, 4, 6, 7]) == pytest.approx(4.5 / np.sqrt(4.5 * 5))


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [2.0], []])
def test_no_order_is_not_a_number(values):
    assert np.isnan(spearman(values, np.arange(len(values))))


def test_values_that_differ_in_their_last_digits_are_one():
    values = np.array([[0.5, 0.1, 0.5 + 5e-10, 0.5 + 2e-9, 0.1], [3.0, 2.0, 1.0, 0.0, -1.0]])
    found = tied(values, 1e-9)
    np.testing.assert_array_equal(found, [[0.5, 0.1, 0.5, 0.5 + 2e-9, 0.1], values[1]])
    assert tied(np.zeros((2, 0)), 1e-9).shape == (2, 0)


def test_summary_against_the_formulas():
    values = np.array([0.2, 0.4, np.nan, 0.9, -0.1])
    found = summarise(values, resamples=2000, seed=1)
    assert (found.count, found.undefined) == (4, 1)
    assert found.mean == pytest.approx(0.35)
    assert found.sd == pytest.approx(np.sqrt(sum((v - 0.35) ** 2 for v in (0.2, 0.4, 0.9, -0.1)) / 3))
    draw = np.random.default_rng(5)
    means = draw.choice([0.2, 0.4, 0.9, -0.1], (20_000, 4)).mean(1)
    np.testing.assert_allclose([found.low, found.high], np.quantile(means, [0.025, 0.975]), atol=0.04)
    assert found == summarise(values, resamples=2000, seed=1)


def test_an_interval_covers_the_truth_as_often_as_it_says():
    draw = np.random.default_rng(2)
    summaries = [summarise(draw.normal(0.3, 1, 60), resamples=300, seed=k) for k in range(200)]
    covered = np.mean([s.low <= 0.3 <= s.high for s in summaries])
    assert 0.88 < covered < 0.99


def test_small_samples():
    assert np.isnan(summarise(np.array([np.nan])).mean)
    one = summarise(np.array([0.5]))
    assert one.mean == 0.5
    assert np.isnan([one.sd, one.low, one.high]).all()
    assert np.isnan(summarise(np.array([0.5, 0.6]), resamples=0).low)
