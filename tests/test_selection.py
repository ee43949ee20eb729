"""Levels, positions, tokens and words, and the errors that say what else to pass."""

from __future__ import annotations

import numpy as np
import pytest

from flowgraph import FlowgraphError, LayeredGraph
from flowgraph.selection import join_pieces, resolve_levels, resolve_positions, word_groups

TOKENS = ["[CLS]", "the", "##me", "The", "cat", "sat", "cat", "[SEP]"]
WORDS = [None, 0, 0, 1, 2, 3, 4, None]


def graph(layers: int = 3, size: int = 2) -> LayeredGraph:
    return LayeredGraph.from_matrices(np.full((layers, size, size), 1 / size))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (None, [0, 1, 2, 3]),
        (2, [2]),
        (-1, [3]),
        (np.int64(1), [1]),
        ([3, -4, 3], [3, 0, 3]),
        (np.array([1, 2]), [1, 2]),
        (slice(1, None, 2), [1, 3]),
        (slice(None, None, -1), [3, 2, 1, 0]),
        (np.array([True, False, False, True]), [0, 3]),
        (range(2), [0, 1]),
    ],
)
def test_positions(selection, expected):
    assert resolve_positions(selection, 4, "targets").tolist() == expected


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (4, r"^inputs: position 4 is not among 4 positions; pass 0 to 3, or -1 to -4"),
        (-5, r"^inputs: position -5"),
        (1.0, r"^inputs: 1.0 is not a selection"),
        (True, r"^inputs: True is not"),
        ([0, 1.5], r"^inputs: 1.5 is not a position"),
        ([], r"^inputs: an empty selection"),
        (np.zeros(4, bool), r"^inputs: an empty selection"),
        (np.ones(3, bool), r"^inputs: a mask of shape \(3,\) for 4 positions"),
        (slice(7, 9), r"^inputs: slice\(7, 9, None\) selects none of 4"),
        (slice(None, None, 0), r"^inputs: .* has step 0"),
        (slice("a", None), r"^inputs: .* its ends must be integers"),
        ("cat", r"^inputs: 'cat' is a string, and the tokens are not known"),
    ],
)
def test_bad_positions_are_named(selection, message):
    with pytest.raises(FlowgraphError, match=message):
        resolve_positions(selection, 4, "inputs")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sat", [5]),
        (" SAT ", [5]),
        ("theme", [1, 2]),  # a word of two pieces selects both
        ("##me", [2]),
        ("[CLS]", [0]),
        ("The", [3]),  # spelt so once; the piece of 'theme' is another spelling
        (["sat", -1], [5, 7]),
    ],
)
def test_tokens_and_words(text, expected):
    assert resolve_positions(text, 8, "targets", tokens=TOKENS, words=WORDS).tolist() == expected


def test_the_spelling_as_given_comes_before_another_case():
    tokens = ["The", "cat", "the"]
    assert resolve_positions("the", 3, "targets", tokens=tokens).tolist() == [2]
    assert resolve_positions("The", 3, "targets", tokens=tokens).tolist() == [0]
    with pytest.raises(FlowgraphError, match=r"'THE' stands 2 times, at positions 0, 2"):
        resolve_positions("THE", 3, "targets", tokens=tokens)


def test_whole_words_come_before_pieces():
    # "me" is a word at 2 and the second piece of "theme" at 1
    found = resolve_positions("me", 3, "targets", tokens=["the", "me", "me"], words=[0, 0, 1])
    assert found.tolist() == [2]


def test_raw_spelling_is_found():
    found = resolve_positions(
        "cat", 2, "targets", tokens=["\u0120the", "\u0120cat"], raw_tokens=["\u0120the", "\u0120cat"]
    )
    assert found.tolist() == [1]


def test_a_word_that_stands_twice_lists_its_positions():
    with pytest.raises(
        FlowgraphError, match=r"^targets: 'cat' stands 2 times, at positions 4, 6; pass the position"
    ):
        resolve_positions("cat", 8, "targets", tokens=TOKENS, words=WORDS)


def test_a_word_of_pieces_that_stands_twice_lists_its_spans():
    with pytest.raises(FlowgraphError, match=r"'theme' stands 2 times, at positions 0-1, 2-3;"):
        resolve_positions("theme", 4, "targets", tokens=["the", "##me"] * 2, words=[0, 0, 1, 1])


def test_an_unknown_word_lists_the_tokens():
    with pytest.raises(
        FlowgraphError, match=r"^targets: 'dog' is not a token of this text; its tokens are 0 \[CLS\], 1 the"
    ):
        resolve_positions("dog", 8, "targets", tokens=TOKENS)


def test_a_long_text_is_listed_in_part():
    with pytest.raises(FlowgraphError, match=r"39 t39, \.\.\. \(50 in all\)$"):
        resolve_positions("dog", 50, "targets", tokens=[f"t{k}" for k in range(50)])


@pytest.mark.parametrize(
    ("level", "expected"),
    [(1, ([1], True)), (-1, ([3], True)), (-3, ([1], True)), ("all", ([1, 2, 3], False))],
)
def test_levels(level, expected):
    assert resolve_levels(graph(), level) == expected


@pytest.mark.parametrize("level", [0, 4, -4, 1.5, True, "top", None])
def test_bad_levels_are_named(level):
    with pytest.raises(FlowgraphError, match=r"^level: "):
        resolve_levels(graph(), level)


def test_word_groups_are_neighbours():
    assert word_groups([None, 0, 0, 1, None, 0, 1]) == [[0], [1, 2], [3], [4], [5], [6]]


@pytest.mark.parametrize(
    ("pieces", "word"),
    [(["un", "##like", "##ly"], "unlikely"), (["\u2581un", "like"], "unlike"), (["##"], "##")],
)
def test_join_pieces(pieces, word):
    assert join_pieces(pieces) == word


@pytest.mark.parametrize(
    ("pieces", "word"),
    [
        (["Se", "\\xc3", "\\xa1n"], "Seán"),
        (["▁Se", "<0xC3>", "<0xA1>", "n"], "Seán"),
        (["␣", "\\xf0\\x9f", "\\x92\\xa9"], "💩"),
        (["a", "\\xf0\\x9f"], "a\\xf0\\x9f"),  # cut inside a character: no UTF-8
        (["a", "<0xF0>"], "a<0xF0>"),
        (["␣", "␣"], "␣␣"),
    ],
)
def test_pieces_of_bytes_are_joined_as_characters(pieces, word):
    assert join_pieces(pieces) == word
