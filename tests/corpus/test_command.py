"""``flowgraph run`` as a person meets it: exit codes, streams, the summary."""

from __future__ import annotations

import io
import json
import sys

import pytest

from flowgraph.cli import execute as command_line
from flowgraph.corpus import report
from flowgraph.corpus.report import describe, summary_lines
from flowgraph.corpus.summary import Summary
from flowgraph.corpus.worker import Report
from tests.corpus.corpora import rows, write_lines


@pytest.fixture
def go(model, tmp_path):
    """The command in this process, on the tiny model and a folder of its own."""

    def run(*arguments):
        return command_line(
            [
                "run",
                "--out",
                str(tmp_path / "out"),
                "--model",
                str(model),
                "--workers",
                "0",
                *map(str, arguments),
            ]
        )

    return run


def test_summary_on_standard_output_and_nothing_else(go, tmp_path, capsys):
    source = write_lines(tmp_path / "a.txt", ["the cat sat", "", "a dog"])
    assert go("--input", source, "--method", "rollout,flow", "--quiet") == 0
    output, complaint = capsys.readouterr()
    assert complaint == ""
    assert "2 texts attributed, 1 failed, 0 known before" in output
    assert "tokens/s" in output
    assert "% of the flows settled by bounds" in output
    assert "failed: empty (1)" in output
    assert len(rows(tmp_path / "out")) == 4
    assert go("--input", source, "--method", "rollout,flow", "--format", "json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["computed"], summary["known"], summary["known_errors"]) == (0, 2, 1)


def test_standard_input(go, tmp_path, capsys, monkeypatch):
    text = '{"text": "the cat", "id": "x"}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert go("--input", "-", "--input-format", "jsonl", "--method", "rollout") == 0
    assert [r["id"] for r in rows(tmp_path / "out")] == ["x"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "error: input: all 2 records failed: most often empty (2); see errors/"),
        (["--max-errors", "1"], 2, "error: max_errors: 2 records failed, 1 may: most often empty (2)"),
        (["--method", "magic"], 2, "error: method: unknown 'magic'; choose one of raw, rollout, flow"),
        (["--target", "cat"], 2, "error: target: 'cat' is no target of every text"),
        (["--pair-columns", "a"], 2, "'a' is not two columns"),
        (["--window", "0"], 2, "--window"),
        (["--window", str(10**18)], 2, "error: window: 1000000000000000000 is not a whole number"),
        (
            ["--pair-columns", "a,b", "--text-column", "text"],
            2,
            "error: --text-column and --pair-columns exclude each other; leave one out",
        ),
    ],
)
def test_exit_codes(go, tmp_path, capsys, arguments, code, message):
    source = write_lines(tmp_path / "a.txt", ["", ""])
    assert go("--input", source, *arguments) == code
    complaint = capsys.readouterr().err
    assert message in complaint
    assert len(complaint.splitlines()) == 1


def test_lines_in_a_log(go, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report, "_EVERY", 0.0)
    source = write_lines(tmp_path / "a.txt", ["the cat sat"] * 4)
    assert go("--input", source, "--method", "rollout", "--window", "2") == 0
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("2 texts, ") and "% of the input, about 0 min" in line for line in lines)


def test_a_bar_on_a_terminal(go, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    source = write_lines(tmp_path / "a.txt", ["the cat sat"] * 4)
    assert go("--input", source, "--method", "rollout") == 0
    assert "4 texts" in capsys.readouterr().err


def test_rates_leave_out_start_up():
    summary = Summary(out="x", seconds=100.0)
    summary.add(Report(0, texts=30, failed=2, tokens=600, started=50.0, ended=53.0))
    summary.add(Report(1, texts=30, tokens=300, started=51.0, ended=56.0))
    assert (summary.rate, summary.tokens_per_second) == (10.0, 150.0)
    assert describe(summary) == "60 texts, 2 errors, 10.0 texts/s"
    assert any("over 6.0 s (100.0 s with start-up)" in line for line in summary_lines(summary))
