"""From mixing to capacities: sign rules, rows, residual."""

import numpy as np
import pytest

from flowgraph.capacity import add_residual, apply_sign_rule, check_residual, normalise_rows, row_mass
from flowgraph.errors import FlowgraphError


def test_a_row_of_zeros_stays_zero():
    assert normalise_rows(np.array([[1.0, 0.0], [0.0, 0.0]])).tolist() == [[1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1.0, 1e300])
def test_rows_sum_to_one_at_any_scale(scale):
    rows = normalise_rows(np.array([[1.0, 3.0], [2.0, 2.0]]) * scale)
    assert rows == pytest.approx(np.array([[0.25, 0.75], [0.5, 0.5]]), rel=1e-2 if scale < 1e-310 else 1e-12)


def test_signed_rows_are_divided_by_the_sum_of_absolute_values():
    assert normalise_rows(np.array([[3.0, -1.0]])).tolist() == [[0.75, -0.25]]


def test_three_residual_rules_give_three_known_answers():
    attention = np.array([[[0.5, 0.5], [0.0, 1.0]]] * 2)
    half = add_residual(attention, 0.5)
    assert half[0].tolist() == [[0.75, 0.25], [0.0, 1.0]]
    added = normalise_rows(attention + np.eye(2))
    assert added == pytest.approx(half), "0.5 A + 0.5 I is A + I with its rows divided by their sums"
    assert add_residual(attention, None) is attention


@pytest.mark.parametrize("rule", ["clip", "abs", "keep"])
def test_sign_rules(rule):
    expected = {"clip": [[0.0, 2.0]], "abs": [[1.0, 2.0]], "keep": [[-1.0, 2.0]]}
    assert apply_sign_rule(np.array([[-1.0, 2.0]]), rule, "mixing").tolist() == expected[rule]


def test_negative_entries_are_refused_with_the_remedies():
    with pytest.raises(
        FlowgraphError, match=r"1 negative entries, the first -1 at \(0, 1\).*clip.*abs.*keep"
    ):
        apply_sign_rule(np.array([[2.0, -1.0]]), "error", "mixing")
    with pytest.raises(FlowgraphError, match="negative: unknown rule 'drop'"):
        apply_sign_rule(np.array([[2.0, -1.0]]), "drop", "mixing")


def test_row_mass_counts_absolute_values():
    assert row_mass(np.array([[[1.0, -2.0]]])).tolist() == [[3.0]]


@pytest.mark.parametrize("residual", [-0.1, 1.5, float("nan"), "half", [0.5]])
def test_a_residual_that_is_no_share_is_refused(residual):
    with pytest.raises(FlowgraphError, match="residual"):
        check_residual(residual)


@pytest.mark.parametrize("residual", [None, 0, 1, 0.25])
def test_a_residual_that_is_a_share(residual):
    assert check_residual(residual) == residual
