"""``flowgraph bench``: tables, JSON, pictures, one line for bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph import cli
from flowgraph.bench import generate

OWN = Path(__file__).parents[2] / "examples" / "own_solver.py"
QUICK = ("--repeats", "2", "--pairs", "2", "--time-limit", "20")


@pytest.fixture
def bench(capsys):
    """Run ``flowgraph bench``: (exit code, standard output, standard error)."""

    def run(*arguments):
        code = cli.execute(["bench", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def forget_own_solver():
    yield
    if "boykov-kolmogorov" in fg.solvers.names():
        fg.solvers.unregister("boykov-kolmogorov")


def test_own_solver_takes_part(bench, forget_own_solver):
    code, out, err = bench(
        "--load", OWN, "--sizes", "3x5", "--solver", "boykov-kolmogorov,igraph", "--format", "json", *QUICK
    )
    assert code == 0, err
    (graph,) = json.loads(out)["graphs"]
    own, igraph = graph["solvers"]
    assert (own["solver"], own["verdict"], own["certificate"]) == ("boykov-kolmogorov", "right", "held")
    assert own["tasks"]["matrix"]["median"] > igraph["tasks"]["matrix"]["median"] > 0


def test_sizes_give_a_table_each_growth_and_a_picture(bench, tmp_path):
    picture = tmp_path / "growth.svg"
    code, out, err = bench(
        "--sizes",
        "2x4, 2x8",
        "--kind",
        "causal",
        "--solver",
        "igraph",
        "--tasks",
        "value",
        "--plot",
        picture,
        *QUICK,
    )
    assert code == 0, err
    assert "2x4 causal: 2 layers, 4 tokens, 20 edges" in out
    assert "2x8 causal: 2 layers, 8 tokens, 72 edges" in out
    assert "Growth: seconds ~ tokens" in out
    assert "whole matrix" not in out
    assert picture.read_text().startswith("<?xml")
    assert f"wrote {picture}" in err
    assert "cpu seconds" in err
    assert "igraph 1" in err


@pytest.mark.usefixtures("embedded")
def test_texts_give_a_graph_for_each_kind_of_edges(bench, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("The cat sat.\nIt slept on the mat.\nNever read.\n")
    options = (
        "--edges",
        "attention,alti",
        "--tasks",
        "matrix",
        "--solver",
        "auto",
        "--format",
        "json",
        *QUICK,
    )
    code, out, err = bench("--input", texts, "--limit", 2, *options)
    assert code == 0, err
    graphs = json.loads(out)["graphs"]
    assert [(g["name"], g["tokens"]) for g in graphs] == [
        ("text 1, attention", 6),
        ("text 1, alti", 6),
        ("text 2, attention", 8),
        ("text 2, alti", 8),
    ]
    assert {fit["family"] for fit in json.loads(out)["growth"]} == {"attention", "alti"}
    code, out, err = bench("--text", "The cat sat.", *options)
    assert [g["edges"] for g in json.loads(out)["graphs"]] == [g["edges"] for g in graphs[:2]]


def test_a_graphml_file_is_measured(bench, tmp_path):
    path = tmp_path / "graph.graphml"
    generate(2, 3).write_graphml(path)
    code, out, err = bench(
        "--graph", path, "--solver", "igraph", "--tasks", "flow", "--format", "json", *QUICK
    )
    assert code == 0, err
    (graph,) = json.loads(out)["graphs"]
    assert (graph["name"], graph["edges"]) == (str(path), 18)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes", "6by32"), "'6by32' is not sizes such as 6x32,12x128"),
        (("--sizes", "0x32"), "'0x32' is not sizes"),
        (("--sizes", "2x3", "--kind", "round"), "round"),
        (("--sizes", "2x3", "--text", "a"), "--text and --sizes exclude each other"),
        (("--sizes", "2x3", "--solver", "nobody"), "unknown solver 'nobody'; choose from auto, "),
        (("--sizes", "2x3", "--tasks", "all"), "tasks: 'all'; choose from build, value, flow, matrix"),
        (("--sizes", "2x3", "--plot", "growth.bmp"), "does not end in .png"),
        (
            ("--sizes", "2x3", "--plot", "nowhere/growth.png"),
            "the folder of 'nowhere/growth.png' does not exist",
        ),
        (("--sizes", "2x3", "--time-limit", "0"), "time-limit"),
        (("--sizes", "2x3", "--seed", "-1"), "seed"),
        (("--sizes", "1000000x1000000"), "'--sizes': these graphs take 3.2e+10 GB to generate, and "),
        (("--sizes", "99999999999999999999x1"), "'--sizes': these graphs take "),
        (("--kind", "causal"), "--kind: only for graphs of --sizes; leave it out"),
        (("--sizes", "2x3", "--edges", "alti"), "--edges: only for graphs of --text or --input"),
        (("--graph", __file__, "--heads", "1"), "--heads: only for graphs of --text or --input"),
        (("--text", "a", "--limit", "2"), "--limit: only for graphs of --input; leave it out"),
        (("--sizes", "2x3", "--text-column", "a"), "--text-column: only for graphs of --input"),
        (("--graph", __file__), f"error: --graph: {__file__!r} is not well-formed XML"),
        (("--input", __file__), f"error: input: line 2 of {__file__!r}: empty"),
        (("--graph", "no.graphml"), "no.graphml"),
        (("--load", "no.py"), "no.py"),
    ],
)
def test_bad_input_is_one_line(bench, arguments, message):
    code, out, err = bench(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_graph_of_another_program_is_named(bench, tmp_path):
    path = tmp_path / "other.graphml"
    path.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed"/></graphml>'
    )
    code, _, err = bench("--graph", path)
    assert code == 2
    assert err.startswith(f"error: --graph {path}: the file holds no graph that flowgraph wrote")


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is a signal elsewhere")
def test_ctrl_c_ends_the_solvers_too():
    psutil = pytest.importorskip("psutil")
    command = [sys.executable, "-m", "flowgraph.cli", "bench", "--sizes", "6x64", "--solver", "networkx"]
    running = subprocess.Popen(
        [*command, "--time-limit", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    children = []
    while not children and running.poll() is None:
        time.sleep(0.1)
        children = psutil.Process(running.pid).children()
    time.sleep(3)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out, err) == (130, "", "interrupted\n")
    assert children
    assert not any(child.is_running() for child in children)


def test_a_script_that_raises_is_bad_input(bench, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("import flowgraph\nflowgraph.solvers.register('igraph', 3)\n")
    code, out, err = bench("--load", script, "--sizes", "2x3")
    assert (code, out) == (2, "")
    assert "mine.py' raised FlowgraphError: solver: 3 has no method prepare" in err
    assert len(err.strip().splitlines()) == 1
    text = tmp_path / "mine.txt"
    text.write_text("")
    assert "its name must end in .py" in bench("--load", text, "--sizes", "2x3")[2]


def test_a_script_that_exits_is_one_error(bench, tmp_path):
    script = tmp_path / "leaves.py"
    script.write_text("import sys\nsys.exit(0)\n")
    code, _, complaint = bench("--load", script, "--sizes", "2x3")
    assert code == 2
    assert "raised SystemExit" in complaint
