"""Alignment error rate against published figures, readers, and alignments from cross-attention."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import flowgraph as fg
from flowgraph.capture.trace import Trace
from flowgraph.errors import FlowgraphError
from flowgraph.evaluation.alignment import heaviest

PUBLISHED = {
    # awesome-align's README, and the result files beside the systems' outputs
    "enfr.awesome-align.out": 4.07,
    "roen.awesome-align.out": 20.75,
    "system_outputs/giza.test.enfr.talp": 8.0,
    "system_outputs/giza.test.enfr.reverse.talp": 9.8,
    "system_outputs/giza.test.enfr.grow-diagonal.talp": 5.9,
    "system_outputs/giza.test.enfr.union.talp": 9.9,
    "system_outputs/giza.test.enfr.intersection.talp": 7.6,
    "system_outputs/giza.test.roen.talp": 28.7,
    "system_outputs/giza.test.roen.reverse.talp": 32.2,
    "system_outputs/giza.test.roen.grow-diagonal.talp": 27.9,
    "system_outputs/giza.test.roen.union.talp": 30.3,
    "system_outputs/giza.test.roen.intersection.talp": 30.7,
    "system_outputs/fastalign.test.enfr.talp": 16.4,
    "system_outputs/fastalign.test.enfr.reverse.talp": 15.9,
    "system_outputs/fastalign.test.roen.talp": 33.8,
    "system_outputs/fastalign.test.roen.reverse.talp": 35.6,
}


@pytest.mark.parametrize("output", PUBLISHED)
def test_published_error_rates(output):
    if "FLOWGRAPH_DATA" not in os.environ:
        pytest.skip("FLOWGRAPH_DATA names no folder with data sets")
    folder = Path(os.environ["FLOWGRAPH_DATA"]) / "wordalign"
    language = "enfr" if "enfr" in output else "roen"
    gold = fg.read_alignments(folder / f"{language}.gold", first=1)
    system = fg.read_alignments(folder / output, reverse="reverse" in output)
    rate = 100 * fg.alignment_error_rate(system.sure, gold.sure, gold.possible)
    assert rate == pytest.approx(PUBLISHED[output], abs=0.1)


def test_error_rate_by_hand():
    predicted = [{(0, 0), (1, 2)}, {(0, 1)}]
    sure = [{(0, 0)}, {(0, 0)}]
    possible = [{(0, 0), (1, 2)}, {(0, 0)}]
    # A∩S: 1; A∩P: 2; |A| 3; |S| 2
    assert fg.alignment_error_rate(predicted, sure, possible) == pytest.approx(1 - 3 / 5)
    assert fg.alignment_error_rate(sure, sure, possible) == 0
    # possible holds sure, whether or not the lists say so
    assert fg.alignment_error_rate(predicted, sure, [{(1, 2)}, set()]) == pytest.approx(1 - 3 / 5)


def test_links_are_counted_over_the_whole_set_and_not_averaged():
    predicted = [{(0, 0)}, {(i, i + 1) for i in range(8)}]
    gold = [{(0, 0)}, {(i, i) for i in range(8)}]
    assert fg.alignment_error_rate(predicted, gold, gold) == pytest.approx(1 - 2 / 18)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([set()], [set(), set()], [set()]), "1 sentences, with 2 sure"),
        (([set()], [set()], [set()]), "no error rate"),
        (([{1, 2}], [set()], [set()]), "predicted: .* is no set of"),
        (([set()], [{(0.5, 1)}], [set()]), "sure: .* is no set of"),
        (([set()], [{(float("inf"), 1)}], [set()]), "sure: .* is no set of"),
        (([set()], [set()], [{(-1, 0)}]), "possible: .* from 0"),
        (([set()], [set()], [{"12"}]), "possible: .* is no set of"),
        (([None], [set()], [set()]), "predicted: None is no set of"),
        ((None, [set()], [set()]), "predicted: None is no list"),
        (([set()], {(0, 0)}, [set()]), "sure: .* is no list"),
        (([set()], [set()], "x"), "possible: 'x' is no list"),
    ],
)
def test_error_rates_that_cannot_be_had(arguments, message):
    with pytest.raises(FlowgraphError, match=message):
        fg.alignment_error_rate(*arguments)


# --- readers ----------------------------------------------------------------------------------------------


def write(tmp_path, text):
    path = tmp_path / "links"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("first", "text"), [(0, "0-0 1p2\n\n2-0:0.7 1?1\n"), (1, "1-1 2p3\n\n3-1:0.7 2?2\n")]
)
def test_a_line_a_sentence(tmp_path, first, text):
    gold = fg.read_alignments(write(tmp_path, text), first=first)
    assert gold.sure == [{(0, 0)}, set(), {(2, 0)}]
    assert gold.possible == [{(0, 0), (1, 2)}, set(), {(2, 0), (1, 1)}]


def test_target_first(tmp_path):
    assert fg.read_alignments(write(tmp_path, "0-3 1p2\n"), reverse=True).possible == [{(3, 0), (2, 1)}]


def test_a_line_a_link(tmp_path):
    text = "0001 1 1 S\n0001 2 3 P\n\n0003 1 2\n0003 2 2 S 0.9\n"
    gold = fg.read_alignments(write(tmp_path, text), sentences=4)
    assert gold.sure == [{(0, 0)}, set(), {(0, 1), (1, 1)}, set()]
    assert gold.possible == [{(0, 0), (1, 2)}, set(), {(0, 1), (1, 1)}, set()]
    assert len(fg.read_alignments(write(tmp_path, text)).sure) == 3


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("0-0\n1-x\n", {}, "line 2: '1-x' is no link"),
        ("0-0\n", {"first": 1}, "line 1: word 0"),
        ("0-0\n", {"first": 2}, "first: 2"),
        ("0-0\n", {"sentences": 3}, "1 sentences, 3 were expected"),
        ("1 1 1 S\nx\n", {}, "line 2"),
        ("5 1 1 S\n", {"sentences": 2}, "sentence 5"),
        ("1 0 1 S\n", {}, "line 1: .* words count from 1"),
        ("1 1 1 S\n1 1 0 S\n", {"first": 0}, "line 2: .* words count from 1"),
        ("0 1 1 S\n", {}, "line 1"),
        ("0-0\n", {"sentences": -1}, "sentences: -1"),
        ("0-0\n", {"sentences": "1"}, "sentences: '1'"),
        ("0-0\n", {"first": True}, "first: True"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, text, options, message):
    with pytest.raises(FlowgraphError, match=message):
        fg.read_alignments(write(tmp_path, text), **options)


def test_files_that_are_none(tmp_path):
    (tmp_path / "latin").write_bytes(b"0-0\n\xe9\n")
    for path, message in (
        (tmp_path / "latin", "is not UTF-8 at byte 4"),
        (tmp_path / "missing", "cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
        ("a\0b", "cannot be read"),
        ("", "cannot be read"),
        (None, "path: None is no path"),
    ):
        with pytest.raises(FlowgraphError, match=message):
            fg.read_alignments(path)


def test_a_byte_order_mark_is_no_link(tmp_path):
    assert fg.read_alignments(write(tmp_path, "\ufeff0-1\n")).sure == [{(0, 1)}]


# --- from cross-attention ---------------------------------------------------------------------------------


def trace_of(cross, **fields):
    """A trace of cross-attention alone: source ``a ##b c </s>``, target ``<s> x y ##z``."""
    stacks = {
        "encoder": np.zeros((1, 4, 4)),
        "decoder": np.zeros((len(cross), 4, 4)),
        "cross": np.asarray(cross),
    }
    given = {
        "arrays": {"attention": stacks},
        "tokens": ("a", "b", "c", "</s>"),
        "raw_tokens": ("a", "##b", "c", "</s>"),
        "word_ids": (0, 0, 1, None),
        "special": (False, False, False, True),
        "target_tokens": ("<s>", "x", "y", "z"),
        "target_word_ids": (None, 0, 1, 1),
        "target_special": (True, False, False, False),
        "meta": {},
    }
    return Trace(**given | fields)


ROWS = [  # what each decoder step reads: start, x, y, z
    [0.1, 0.2, 0.6, 0.1],
    [0.7, 0.1, 0.1, 0.1],
    [0.0, 0.3, 0.1, 0.6],
    [0.1, 0.1, 0.5, 0.3],
]


def test_output_and_input_settings():
    trace = trace_of([ROWS])
    # x is written by step 0 (c), y by step 1 (a), z by step 2 (b: </s> may not win)
    assert fg.align(trace) == {(1, 0), (0, 1)}
    assert fg.align(trace, words=False) == {(2, 0), (0, 1), (1, 2)}
    # x is read by step 1 (a), y by step 2 (b), z by step 3 (c)
    assert fg.align(trace, setting="input") == {(0, 0), (0, 1), (1, 1)}


def test_a_special_token_that_wins_leaves_its_word_unaligned():
    assert fg.align(trace_of([ROWS]), words=False, special=True) == {(2, 0), (0, 1)}


def test_layers_and_heads():
    flat = np.full((4, 4), 0.25)
    reversed_rows = np.array(ROWS)[:, ::-1]
    trace = trace_of([[ROWS, flat], [reversed_rows, ROWS]])  # 2 layers, 2 heads
    plain = fg.align(trace_of([ROWS]), words=False)
    assert fg.align(trace, layer=1, head=0, words=False) == plain
    assert fg.align(trace, layer=-2, head="mean", words=False) == plain
    assert fg.align(trace, layer=2, head=1, words=False) == plain
    both = (np.array(ROWS) + flat + reversed_rows + ROWS) / 4
    assert fg.align(trace, layer="mean", words=False) == fg.align(trace_of([both]), words=False)
    for wrong in (
        {"layer": 0},
        {"layer": 3},
        {"head": 2},
        {"head": -1},
        {"setting": "AWO"},
        {"edges": "norm"},
    ):
        with pytest.raises(FlowgraphError, match=next(iter(wrong))):
            fg.align(trace, **wrong)
    with pytest.raises(FlowgraphError, match="heads were joined"):
        fg.align(trace_of([ROWS]), head=0)


def test_a_model_of_one_stack_has_nothing_to_align():
    trace = Trace(
        arrays={"attention": np.zeros((1, 2, 2))}, tokens=("a", "b"), raw_tokens=("a", "b"), meta={}
    )
    with pytest.raises(FlowgraphError, match="no cross-attention"):
        fg.align(trace)


def test_words_that_are_not_known_are_not_made_of_tokens():
    for missing in ("word_ids", "target_word_ids"):
        trace = trace_of([ROWS], **{missing: None})
        with pytest.raises(FlowgraphError, match="words: not known"):
            fg.align(trace)
        assert fg.align(trace, words=False) == {(2, 0), (0, 1), (1, 2)}


def test_what_is_no_trace():
    for given, said in (
        ([trace_of([ROWS])], "a list of 1; pass one of them"),
        (None, "NoneType is not a Trace; pass what fg.trace returned"),
    ):
        with pytest.raises(FlowgraphError, match=f"^trace: {said}"):
            fg.align(given)


@pytest.mark.parametrize("setting", ["output", "input"])
def test_rows_of_a_real_trace(setting):
    """Against the model's own cross-attention, read off its output."""
    import torch

    from tests.models import tiny

    model, tokenizer = tiny("bart")
    source, target = "the keys to the cabinet", "a cat sat on the mat"
    trace = fg.trace(model, tokenizer, (source, target))
    ids = torch.tensor([tokenizer(source)["input_ids"]])
    read = torch.tensor([list(trace.target_token_ids)])
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(input_ids=ids, decoder_input_ids=read, output_attentions=True)
    weights = output.cross_attentions[-1][0].mean(0).numpy()  # (Tt, Ts)
    content = [j for j, special in enumerate(trace.special) if not special]
    written = [p for p, special in enumerate(trace.target_special) if not special]
    shift = 1 if setting == "output" else 0
    expected = {(int(weights[p - shift, content].argmax()), k) for k, p in enumerate(written)}
    assert fg.align(trace, setting=setting, words=False) == expected


def test_heaviest_takes_the_first_of_equal_ones():
    assert heaviest([[0.2, 0.4, 0.4], [0.5, 0.5, 0.0]]).tolist() == [1, 0]
    with pytest.raises(FlowgraphError, match="special"):
        heaviest([[1.0]], allowed=[False])
