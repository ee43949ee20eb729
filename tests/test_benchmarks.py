"""The benchmarks' entry point: what it lists, what it sums up, and when it fails."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks import __main__ as entry
from benchmarks.ratio import Ratio


@pytest.fixture
def benchmarks(monkeypatch):
    """Replace the benchmarks by functions that stand for their small runs."""

    def replace(**smokes):
        modules = {
            name: SimpleNamespace(smoke=smoke, main=lambda argv: None) for name, smoke in smokes.items()
        }
        monkeypatch.setattr(entry, "_module", modules.__getitem__)
        monkeypatch.setattr(entry, "names", lambda: sorted(modules))

    return replace


def test_ratios_that_hold_pass(benchmarks, capsys):
    benchmarks(first=lambda: [Ratio("a / b", 3.0, at_least=2.0)], second=lambda: [])
    assert entry.main([]) == 0
    out = capsys.readouterr().out
    assert "--- first" in out
    assert "a / b" in out.split("summary")[1]


def test_a_ratio_below_its_bound_fails(benchmarks, capsys):
    benchmarks(first=lambda: [Ratio("a / b", 1.5, at_least=2.0), Ratio("c / d", 9.0)])
    assert entry.main([]) == 1
    assert "TOO LOW" in capsys.readouterr().out


def test_an_error_fails_and_the_others_still_run(benchmarks, capsys):
    def raises():
        raise RuntimeError("no such solver")

    benchmarks(first=raises, second=lambda: [Ratio("a / b", 3.0)])
    assert entry.main([]) == 1
    out, err = capsys.readouterr()
    assert "no such solver" in err
    assert "first: RAISED AN ERROR" in out
    assert "a / b" in out


def test_one_benchmark_gets_the_options(benchmarks, monkeypatch):
    seen = []
    monkeypatch.setattr(entry, "_module", lambda name: SimpleNamespace(main=seen.append))
    monkeypatch.setattr(entry, "names", lambda: ["first"])
    assert entry.main(["first", "--repeats", "3"]) == 0
    assert seen == [["--repeats", "3"]]


def test_an_unknown_benchmark_lists_the_known(capsys):
    assert entry.main(["nothing"]) == 2
    assert "unknown benchmark 'nothing'; choose one of " in capsys.readouterr().err


def test_helpers_are_no_benchmarks():
    assert "import_time" in entry.names()
    assert not {"ratio", "__main__", "__init__"} & set(entry.names())
