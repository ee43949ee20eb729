"""Which tokens are erased, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from flowgraph.evaluation.erasure import aopc, erased, how_many, ranks


def test_highest_removed_and_highest_kept():
    relevance = np.array([0.9, 0.1, 0.5, 0.5, 0.3, 0.8])
    erasable = np.array([False, True, True, True, True, False])  # order of the erasable: 2 3 4 1
    removed, kept = erased(relevance, erasable, (0.0, 0.5, 0.75, 1.0))
    assert [np.flatnonzero(row).tolist() for row in removed] == [[], [2, 3], [2, 3, 4], [1, 2, 3, 4]]
    assert [np.flatnonzero(row).tolist() for row in kept] == [[1, 2, 3, 4], [1, 4], [1], []]


def test_equal_ones_in_the_order_of_the_text():
    removed, _ = erased(np.tile([0.0, 1.0], 100), np.ones(200, dtype=bool), (0.25,))
    assert np.flatnonzero(removed[0]).tolist() == list(range(1, 101, 2))


@pytest.mark.parametrize(
    ("relevance", "expected"),
    [([], False), ([1.0], False), ([0.0, 0.0], False), ([0.3, 0.3, 0.4], True)],
)
def test_what_ranks(relevance, expected):
    assert ranks(np.array(relevance)) is expected


@pytest.mark.parametrize(
    ("fraction", "tokens", "count"),
    [(0.1, 10, 1), (0.3, 10, 3), (0.1, 9, 1), (0.6, 5, 3), (1.0, 7, 7), (0.0, 4, 0), (0.07, 100, 7)],
)
def test_how_many(fraction, tokens, count):
    assert how_many(fraction, tokens) == count


def test_aopc_averages_its_fractions_alone():
    assert aopc(np.array([9.0, 1.0, 2.0, 9.0]), (0.0, 0.1, 0.2, 0.3), (0.1, 0.2)) == 1.5
