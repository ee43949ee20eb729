"""Every example runs from a shell, in an empty folder, and leaves what it promises."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.timeout(900)  # some train a small model

FOLDER = Path(__file__).parent.parent / "examples"

WRITES = {
    "attention_and_norms": "attention_and_norms.png",
    "classifier_decision": "classifier_decision.png",
    "communities": "communities.graphml",
    "corpus_with_polars": "corpus_with_polars.csv",
    "effective_attention": "effective_attention.png",
    "first_attribution": "first_attribution.png",
    "generated_token": "generated_token.png",
    "image": "image.png",
    "own_solver": "own_solver.png",
    "three_methods": "three_methods.png",
    "which_solver": "which_solver.png",
}
NEEDS = {"corpus_with_polars": ("polars", "pyarrow"), "which_solver": ("ortools",)}
SMALLEST = {".png": 5000, ".graphml": 2000, ".csv": 50}
START = {".png": b"\x89PNG", ".graphml": b"<?xml", ".csv": b"token,"}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Run an example once: ``(folder, what it printed)``."""
    known = {}

    def run(name):
        if name not in known:
            for library in NEEDS.get(name, ()):
                pytest.importorskip(library)
            folder = tmp_path_factory.mktemp(name)
            # the sentences of the classifier are its own, so that its answers are the same everywhere
            inherited = {key: value for key, value in os.environ.items() if key != "FLOWGRAPH_DATA"}
            path = os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])
            done = subprocess.run(
                [sys.executable, str(FOLDER / f"{name}.py")],
                cwd=folder,
                env=inherited | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "COLUMNS": "200"},
                capture_output=True,
                text=True,
                timeout=800,
                stdin=subprocess.DEVNULL,
            )
            assert done.returncode == 0, done.stderr
            known[name] = folder, done.stdout
        return known[name]

    return run


def test_every_example_is_run():
    assert sorted(WRITES) == sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("name", WRITES)
def test_it_leaves_its_file(outputs, name):
    folder, printed = outputs(name)
    written = folder / WRITES[name]
    assert [path.name for path in folder.iterdir()] == [written.name]
    assert written.stat().st_size > SMALLEST[written.suffix]
    assert written.read_bytes().startswith(START[written.suffix])
    assert f"wrote {written.name}" in printed


def test_the_written_token_comes_from_the_capital_letter(outputs):
    _, printed = outputs("generated_token")
    line, first, *_ = printed.splitlines()
    assert line.endswith(": -> c")
    assert first.split()[1:] == ["C", "(4)"]


def test_the_class_token_holds_the_coloured_patch(outputs):
    _, printed = outputs("image")
    line, first, *_ = printed.splitlines()
    _, colour, *_, place = line.split(";")[0].split()
    assert line.endswith(f"says {colour}")
    assert first.split()[1:] == ["patch", place]


@pytest.mark.usefixtures("embedded")
def test_communities_are_the_phrases(outputs):
    _, printed = outputs("communities")
    assert "the farmers who own the fields " in printed
    assert "the river floods every spring " in printed


@pytest.mark.usefixtures("embedded")
def test_the_classifier_decides_as_a_reader_would(outputs):
    _, printed = outputs("classifier_decision")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]
    decided = {row[0]: float(row[1]) for row in rows if row[1][:1] in "+-" and row[1]}
    assert decided["a charming and wonderfully funny story"] > 0
    assert decided["the actors are great , but the film is dull"] < 0


def test_own_solver_is_right_and_certified(outputs):
    _, printed = outputs("own_solver")
    rows = [line.split() for line in printed.splitlines() if line.strip().startswith("boykov-kolmogorov")]
    assert [row[1] for row in rows if "held" in row] == ["right", "right"]


@pytest.mark.usefixtures("embedded")
def test_the_corpus_comes_back(outputs):
    folder, _ = outputs("corpus_with_polars")
    with (folder / "corpus_with_polars.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    counts = {row["token"]: int(row["texts"]) for row in rows}
    assert counts["table"] == 3
    assert counts["river"] == 2
    assert "farmers" not in counts
    scores = [float(row["mean_score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.usefixtures("embedded")
def test_the_picture_kept_is_the_one_drawn(outputs):
    """But for what fonts and libraries of another version change."""
    image = pytest.importorskip("PIL.Image")
    kept = FOLDER / "images" / "flow.png"
    assert kept.stat().st_size < 60_000
    folder, _ = outputs("three_methods")
    drawn, known = (image.open(path).convert("L") for path in (folder / "three_methods.png", kept))
    assert drawn.size == known.size
    difference = np.abs(np.asarray(drawn, float) - np.asarray(known, float))
    assert difference.mean() < 1.0  # of 255; the same picture of another sentence differs by 2.7
