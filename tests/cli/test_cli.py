"""The command line: results on standard output, one clear line for bad input, exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys

import click
import numpy as np
import pytest

import flowgraph as fg
from flowgraph import cli
from flowgraph.cli._options import with_options
from flowgraph.embedded import SENTENCE
from tests import models

pytestmark = pytest.mark.usefixtures("embedded")

TEXT = "The unhappiest cat sat on the mat."


@pytest.fixture
def flowgraph(capsys):
    """Run a command line: (exit code, standard output, standard error)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.execute([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def script(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "flowgraph.cli", *arguments]


# --- help -------------------------------------------------------------------------------------------------


def test_help_lists_every_command(flowgraph):
    code, out, err = flowgraph("--help")
    assert (code, err) == (0, "")
    for name, line in cli.COMMANDS.items():
        assert f"  {name}" in out
        assert line in out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_an_example(flowgraph, name):
    code, out, err = flowgraph(name, "--help")
    assert (code, err) == (0, "")
    assert f"Example: flowgraph {name}" in " ".join(out.split())
    assert "--debug" in out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_option_is_explained(name):
    command = cli.group.get_command(click.Context(cli.group), name)
    assert command is not None
    assert command.name == name
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_no_commands_module_hides_a_function_of_the_package():
    # importing flowgraph.cli.NAME makes NAME an attribute of flowgraph.cli
    assert {"main", "execute", "group"}.isdisjoint(cli.COMMANDS)


def test_version(flowgraph):
    assert flowgraph("--version")[1] == f"flowgraph, version {fg.__version__}\n"


def test_no_command_is_help_and_an_error(flowgraph):
    code, out, err = flowgraph()
    assert (code, out) == (2, "")
    assert "Commands:" in err


# --- attribute --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["raw", "rollout", "flow"])
def test_json_is_what_python_gives(flowgraph, embedded, method):
    code, out, err = flowgraph("attribute", TEXT, "--method", method, "--target", "cat", "--format", "json")
    assert (code, err) == (0, "")
    expected = fg.attribute(*embedded, TEXT, method=method, targets="cat")
    values = json.loads(out)
    np.testing.assert_allclose(values["scores"], expected.scores, atol=1e-6)
    assert values["tokens"] == list(expected.tokens)
    assert values["target_tokens"] == ["cat"]
    assert values["meta"]["model"] == expected.meta["model"]


def test_csv_has_a_row_a_score(flowgraph, embedded):
    code, out, _ = flowgraph(
        "attribute", TEXT, "--method", "rollout", "--target", "all", "--level", "all", "--format", "csv"
    )
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    expected = fg.attribute(*embedded, TEXT, method="rollout", level="all")
    assert len(rows) == expected.scores.size
    row = rows[-2]
    assert row["level"] == "6"
    assert row["target_token"] == expected.target_tokens[int(row["target"])]
    value = expected.scores[5, int(row["target"]), int(row["input"])]
    assert float(row["score"]) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("target", "position"), [("-1", "12"), ("cat", "6"), ("mean", "")])
def test_positions_are_those_of_the_text(flowgraph, target, position):
    arguments = ("attribute", TEXT, "--method", "rollout", "--target", target, "--without-special")
    _, out, _ = flowgraph(*arguments, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["target"] for row in rows} == {position}
    assert (rows[0]["input"], rows[0]["token"]) == ("1", "the")
    _, out, _ = flowgraph(*arguments)
    assert next(line for line in out.splitlines() if line.split()[1:2] == ["cat"]).split()[0] == "6"


def test_a_picture_that_cannot_be_made_is_found_before_the_work(flowgraph, monkeypatch):
    monkeypatch.setattr("flowgraph.attribution.attribute", lambda *_, **__: pytest.fail("worked first"))
    assert flowgraph("attribute", TEXT, "--plot", "x.bmp")[0] == 2


def test_the_table_names_tokens_and_scores(flowgraph, embedded):
    code, out, err = flowgraph("attribute", TEXT, "--method", "rollout")
    assert (code, err) == (0, "")
    expected = fg.attribute(*embedded, TEXT, method="rollout", targets="cls")
    assert "rollout over attention, level 6" in out
    for j, token in enumerate(expected.tokens):
        line = next(line for line in out.splitlines() if line.split()[:2] == [str(j), token])
        assert f"{expected.scores[0, j]:.4f}" in line


def test_many_targets_and_all_levels_are_tables_too(flowgraph):
    code, out, _ = flowgraph("attribute", TEXT, "--method", "rollout", "--target", "all")
    assert code == 0
    assert "largest inputs" in out
    code, out, _ = flowgraph("attribute", TEXT, "--method", "rollout", "--level", "all")
    assert code == 0
    assert all(f"level {level}" in out for level in range(1, 7))
    code, out, _ = flowgraph("attribute", TEXT, "--method", "rollout", "--target", "cat", "--target", "-1")
    assert code == 0
    assert out.count("cat") == 2  # a row, and the heading of a column


def test_words_and_special_tokens(flowgraph):
    _, out, _ = flowgraph(
        "attribute", TEXT, "--method", "rollout", "--words", "--without-special", "--format", "json"
    )
    values = json.loads(out)
    assert values["tokens"] == ["the", "unhappiest", "cat", "sat", "on", "the", "mat", "."]
    assert sum(values["scores"][0]) == pytest.approx(1)


def test_an_integer_is_a_position(flowgraph):
    _, out, _ = flowgraph(
        "attribute", "In 1999 it rained.", "--target", "1", "--method", "raw", "--format", "json"
    )
    assert json.loads(out)["target_tokens"] == ["in"]


def test_text_from_standard_input(flowgraph, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT + "\n"))
    _, out, _ = flowgraph("attribute", "-", "--method", "raw", "--format", "json")
    assert json.loads(out)["meta"]["text"] == TEXT


def test_terminal_control_characters_are_shown_as_escapes():
    from flowgraph.cli._output import printable

    assert printable("\x1b[31mé\u202e") == "\\x1b[31mé\\u202e"
    assert printable("a" * 30) == "a" * 30


def test_bars_in_any_encoding(monkeypatch):
    from flowgraph.cli._output import bar

    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert [bar(value, 2.0, 2) for value in (2.0, 1.0, 0.125, 0.0, -1.0)] == ["██", "█", "▏", "", ""]
    assert bar(0.0, 0.0) == ""
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert [bar(value, 2.0, 2) for value in (2.0, 1.0)] == ["##", "#"]


# --- export -----------------------------------------------------------------------------------------------


def test_export_writes_the_graph_and_a_flow(flowgraph, embedded, tmp_path):
    path = tmp_path / "cat.graphml"
    code, out, err = flowgraph("export", TEXT, "--out", path, "--flow", "sat", "cat")
    assert (code, out) == (0, "")
    graph = fg.LayeredGraph.from_trace(fg.trace(*embedded, TEXT))
    back = fg.LayeredGraph.read_graphml(path)
    for ours, read in zip(graph.blocks, back.blocks, strict=True):
        np.testing.assert_allclose(read.capacity, ours.capacity, atol=1e-6)
    value = fg.max_flow(graph, (6, 5), (0, 4)).value if graph.levels[0].tokens[4] == "cat" else None
    assert "flow sat -> cat: " in err
    assert value is None or f"{value:.4f}"[:5] in err


def test_export_prunes(flowgraph, tmp_path):
    path = tmp_path / "cat.graphml"
    code, _, err = flowgraph("export", TEXT, "--out", path, "--top-k", 1)
    graph = fg.LayeredGraph.read_graphml(path)
    assert code == 0
    assert graph.num_edges == graph.num_nodes - graph.levels[0].size
    assert f"{graph.num_nodes} nodes, {graph.num_edges} edges of " in err
    page = tmp_path / "cat.html"
    assert flowgraph("view", "--graph", path, "--out", page)[0] == 0
    assert "The graph was pruned before: dropped " in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "options", "start"),
    [
        ("cat.gexf", (), "<?xml version='1.0' encoding='us-ascii'?>\n<gexf "),
        ("cat.JSON", (), '{"directed": true'),
        ("cat.txt", (), "<?xml version='1.0' encoding='us-ascii'?>\n<graphml "),
        ("cat.graphml", ("--format", "json"), '{"directed": true'),
    ],
)
def test_export_forms_hold_the_same_graph(name, options, start, flowgraph, tmp_path):
    asked = ("--flow", "sat", "cat", "--top-k", 3)
    assert flowgraph("export", TEXT, "--out", tmp_path / "source.graphml", *asked)[0] == 0
    edges = fg.LayeredGraph.read_graphml(tmp_path / "source.graphml").num_edges
    code, _, err = flowgraph("export", TEXT, "--out", tmp_path / name, *asked, *options)
    assert code == 0, err
    text = (tmp_path / name).read_text("ascii")
    assert text.startswith(start)
    assert text.count("<edge ") + text.count('"source": ') == edges
    assert text.count('"flow": ') == (edges if text.startswith("{") else 0)


def test_a_graph_that_was_exported_is_exported_again_and_viewed(flowgraph, tmp_path):
    first, again = tmp_path / "first.graphml", tmp_path / "again.graphml"
    assert flowgraph("export", TEXT, "--edges", "norm", "--out", first)[0] == 0
    code, _, err = flowgraph("export", "--graph", first, "--out", again)
    assert code == 0, err
    assert again.read_bytes() == first.read_bytes()
    code, _, err = flowgraph("view", "--graph", first, "--out", tmp_path / "view.html")
    assert code == 0, err
    assert "all-MiniLM-L6-v2" in (tmp_path / "view.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("command", "name", "options", "kind"),
    [
        ("export", "cat.html", (), "GraphML"),
        ("export", "cat.pdf", (), "GraphML"),
        ("export", "cat.graphml", ("--format", "json"), "JSON"),
        ("export", "cat.xml", (), None),
        ("export", "cat", (), None),
        ("view", "cat.png", (), "HTML"),
        ("view", "cat.htm", (), None),
    ],
)
def test_a_name_that_ends_otherwise_is_remarked_on(command, name, options, kind, flowgraph, tmp_path):
    code, _, err = flowgraph(command, "A cat.", "--out", tmp_path / name, *options)
    assert code == 0
    assert err.count("note: ") == (kind is not None)
    if kind:
        assert f"{name} holds {kind}, which programs may not look for in a {name[3:]}; name it ." in err


def test_a_text_for_a_model_of_images_is_one_error(flowgraph, tmp_path):
    from transformers import ViTConfig, ViTModel

    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    ViTModel(ViTConfig(image_size=16, patch_size=8, **small)).save_pretrained(tmp_path)
    code, _, err = flowgraph("view", "A cat.", "--model", tmp_path, "--out", tmp_path / "x.html")
    assert code == 2
    assert "error: text: ViTModel reads images, not text; in Python pass its image processor's" in err


# --- view and demo ----------------------------------------------------------------------------------------


def test_view_writes_one_page(flowgraph, tmp_path):
    path = tmp_path / "cat.html"
    code, out, err = flowgraph("view", "A cat sat.", "--edges", "attention, norm", "--out", path)
    assert (code, out) == (0, "")
    assert err == f"wrote {path}: open it in a browser\n"
    page = path.read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "<h1>What each token holds: all-MiniLM-L6-v2</h1>" in page
    assert "attention" in page
    assert "norm" in page


def test_view_of_each_head(flowgraph, tmp_path):
    code, _, err = flowgraph("view", "A cat.", "--heads", "each", "--out", tmp_path / "heads.html")
    assert code == 0, err


def test_demo_does_the_whole_job(flowgraph, embedded, tmp_path):
    folder = tmp_path / "a" / "demo"
    code, out, err = flowgraph("demo", "--out", folder)
    assert code == 0, err
    assert sorted(p.name for p in folder.iterdir()) == ["graph.graphml", "heatmap.png", "view.html"]
    assert (folder / "heatmap.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "view.html").stat().st_size > 100_000
    graph = fg.LayeredGraph.from_trace(fg.trace(*embedded, SENTENCE, edges="alti"))
    back = fg.LayeredGraph.read_graphml(folder / "graph.graphml")
    assert back.levels[0].tokens == graph.levels[0].tokens
    assert back.num_edges == graph.num_edges
    assert (
        out.count("raw ") == out.count("rollout ") == out.count("flow ") == 2
    )  # two tables of three methods
    row = graph.levels[0].tokens.index("are")
    for score in fg.rollout(graph, targets=row)[0]:
        assert f"{score:.4f}" in out
    assert all(str(folder / name) in err for name in ("heatmap.png", "graph.graphml", "view.html"))


def test_demo_does_not_write_over_a_file(flowgraph, tmp_path):
    (tmp_path / "taken").write_text("mine")
    code, _, err = flowgraph("demo", "--out", tmp_path / "taken")
    assert code == 2
    assert "--out" in err
    assert (tmp_path / "taken").read_text() == "mine"


def test_demo_names_a_folder_that_cannot_be_made_before_it_begins(flowgraph, tmp_path):
    (tmp_path / "taken").write_text("mine")
    code, out, err = flowgraph("demo", "--out", tmp_path / "taken" / "demo")
    assert (code, out) == (2, "")
    assert "'--out'" in err
    assert "cannot be made" in err


def test_models_shows_what_works(flowgraph):
    code, out, _ = flowgraph("models", "--format", "json")
    assert code == 0
    values = json.loads(out)
    assert values["model_type"] == "bert"
    assert set(values["edges"]) == set(fg.mixing.names())
    assert all(kind == {"works": True, "why_not": None} for kind in values["edges"].values())
    code, out, _ = flowgraph("models")
    assert code == 0
    assert all(f" {kind} " in out for kind in fg.mixing.names())


@pytest.fixture
def folder_of(tmp_path):
    def save(family):
        model, _ = models.tiny(family)
        model.save_pretrained(tmp_path / family)
        return tmp_path / family

    return save


def test_models_says_why_not_and_for_which_parts(flowgraph, folder_of):
    folder = folder_of("t5")
    _, out, _ = flowgraph("models", "--model", folder)
    assert "encoder, decoder" in out
    assert "is not defined for cross-attention" in " ".join(out.split())
    _, out, _ = flowgraph("models", "--model", folder, "--format", "json")
    values = json.loads(out)
    alti = values["edges"]["alti"]
    assert alti["works"] is False
    assert "cross-attention" in alti["why_not"]
    assert alti["parts"] == {"encoder": None, "decoder": None, "cross": alti["why_not"]}
    assert values["edges"]["norm"]["works"] is True
    assert "hybrid" not in values


def test_models_shows_what_a_hybrid_gives_when_its_other_layers_are_passed_over(flowgraph, folder_of):
    folder = folder_of("qwen3-next")
    code, out, err = flowgraph("models", "--model", folder)
    assert code == 0
    assert "note: this is what --hybrid skip gives" in err
    assert "layers without attention (linear attention: layer 1, 3)" in err
    assert "a gate stands between" in " ".join(out.split())
    _, out, _ = flowgraph("models", "--model", folder, "--format", "json")
    values = json.loads(out)
    assert values["edges"]["attention"]["works"] is True
    assert values["edges"]["alti"]["works"] is False
    assert "layers without attention" in values["hybrid"]


def test_models_says_once_why_a_model_cannot_be_traced(flowgraph, tmp_path):
    from transformers import CanineConfig, CanineModel

    small = {k: v for k, v in models.SMALL.items() if k != "vocab_size"}
    CanineModel(CanineConfig(**small)).save_pretrained(tmp_path)
    code, out, _ = flowgraph("models", "--model", tmp_path)
    assert code == 0
    assert out.startswith("No edge kind works for CanineModel (canine): ")
    assert out.count("no layout for its blocks (CanineLayer)") == 1
    _, out, _ = flowgraph("models", "--model", tmp_path, "--format", "json")
    edges = json.loads(out)["edges"]
    assert set(edges) == set(fg.mixing.names())
    assert all("CanineLayer" in kind["why_not"] for kind in edges.values())


def test_models_lists_families(flowgraph):
    from flowgraph.capture.survey import known_families

    code, out, _ = flowgraph("models", "--list")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert all("yes" in lines[family] for family in known_families())
    assert "windows of an image" in lines["swin"]
    values = json.loads(flowgraph("models", "--list", "--format", "json")[1])
    assert values["families"] == known_families()
    assert "reformer" in values["refused"]
    code, _, err = flowgraph("models", "--list", "--model", "bert")
    assert code == 2
    assert "--list is of all families" in err


# --- bad input --------------------------------------------------------------------------------------------

ATTRIBUTE = ("attribute", TEXT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("attribute", ""), "error: text: "),
        (("attribute", "   "), "error: text: "),
        (("attribute",), "error: Missing argument 'TEXT'."),
        (("attribute", "word " * 600), "512; shorten the text or pass --truncate\n"),
        (
            (*ATTRIBUTE, "--max-memory", "1"),
            "shorten the text (--truncate), ask for fewer kinds, or pass a larger --max",
        ),
        ((*ATTRIBUTE, "--solver", "magic"), "error: solver: unknown solver 'magic'; choose one of igraph"),
        ((*ATTRIBUTE, "--edges", "weights"), "error: edges: unknown edge kind 'weights'; choose one of alti"),
        ((*ATTRIBUTE, "--level", "7"), "error: level: 7 is not a layer of this graph, which has 6"),
        ((*ATTRIBUTE, "--level", "0"), "error: level: 0 is not a layer"),
        ((*ATTRIBUTE, "--level", "top"), "'top' is not an integer or one of all"),
        ((*ATTRIBUTE, "--target", "dog"), "error: targets: 'dog' is not a token of this text"),
        ((*ATTRIBUTE, "--target", "the"), "error: targets: 'the' stands 2 times, at positions 1, "),
        ((*ATTRIBUTE, "--target", "99"), "error: targets: position 99"),
        ((*ATTRIBUTE, "--heads", "12"), "error: heads: "),
        ((*ATTRIBUTE, "--heads", "0", "--edges", "alti"), "error: heads: alti has one matrix"),
        ((*ATTRIBUTE, "--residual", "2"), "error: residual: 2.0 is not a share"),
        ((*ATTRIBUTE, "--residual", "half"), "'half' is not a number or one of auto, none"),
        ((*ATTRIBUTE, "--method", "flux"), "'flux' is not one of 'raw', 'rollout', 'flow'"),
        (
            (*ATTRIBUTE, "--method", "raw", "--normalize", "row"),
            "error: normalize: 'row' is for --method flow alone",
        ),
        ((*ATTRIBUTE, "--device", "nowhere"), "error: device: "),
        ((*ATTRIBUTE, "--time-limit", "-1"), "error: time_limit: "),
        ((*ATTRIBUTE, "--model", "/no/such/folder"), "error: model: /no/such/folder is not a folder"),
        (
            (*ATTRIBUTE, "--model", "nobody/no-such-model"),
            "error: model: nobody/no-such-model cannot be fetched",
        ),
        ((*ATTRIBUTE, "--target", "all", "--target", "cat"), "'--target': 'all' stands alone; leave out"),
        (
            (*ATTRIBUTE, "--method", "rollout", "--time-limit", "1"),
            "--time-limit is for --method flow alone; leave it out",
        ),
        ((*ATTRIBUTE, "--plot", "x.bmp"), "'--plot': 'x.bmp' does not end in .png, .svg, .pdf"),
        ((*ATTRIBUTE, "--plot", ""), "'--plot': '' does not end in .png, .svg, .pdf"),
        ((*ATTRIBUTE, "--plot", "nowhere/x.png"), "'--plot': the folder of 'nowhere/x.png' does not exist"),
        ((*ATTRIBUTE, "--bogus"), "No such option"),
        (("attribut", TEXT), "error: No such command 'attribut'"),
        (("export", TEXT), "error: Missing option '--out'"),
        (("export", TEXT, "--out", "/no/such/folder/x.graphml"), "error: path: the folder '/no/such/folder'"),
        (("export", TEXT, "--out", "x.graphml", "--flow", "sat"), "Option '--flow' requires 2 arguments"),
        (("export", TEXT, "--out", "x.graphml", "--edges", "norm,alti"), "unknown edge kind 'norm,alti'"),
        (("export", "--out", "x.graphml"), "error: Name a TEXT, or a graph by --graph"),
        (
            ("export", TEXT, "--graph", __file__, "--out", "x.graphml"),
            "error: TEXT and --graph are both given; leave one of them out",
        ),
        (
            ("export", TEXT, "--out", "x.graphml", "--level", "2", "--solver", "scipy"),
            "error: --level, --solver: for a flow; name its tokens too, by --flow TARGET INPUT",
        ),
        (
            ("view", "--graph", __file__, "--edges", "norm", "--heads", "each", "--out", "x.html"),
            "error: --edges, --heads: for a TEXT; the graph of --graph is made already",
        ),
        (("view", "--graph", __file__, "--out", "x.html"), "is not well-formed XML"),
        (("view", TEXT), "error: Missing option '--out'"),
        (("view", TEXT, "--out", "x.html", "--max-mb", "0"), "error: max_mb: "),
        (("models", "--model", "nobody/no-such-model"), "error: model: nobody/no-such-model cannot be"),
    ],
)
def test_bad_input_is_one_clear_line(flowgraph, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = flowgraph(*arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("pass truncate=True", "pass --truncate"),
        ("a larger max_memory=", "a larger --max-memory"),
        ("time_limit: -1 is no time", "time_limit: -1 is no time"),
        ("pass hybrid='skip' to go on", "pass --hybrid skip to go on"),
        ("pass targets=3, or", "pass --target 3, or"),
        ("output_attentions=True, time_limit=None", "output_attentions=True, time_limit=None"),
    ],
)
def test_errors_name_options(message, said):
    assert with_options(message, cli.group.get_command(click.Context(cli.group), "attribute")) == said


def test_a_folder_without_a_model_is_named(flowgraph, tmp_path):
    code, _, err = flowgraph("attribute", TEXT, "--model", tmp_path)
    assert code == 2
    assert err == (
        f"error: model: folder {tmp_path} has no config.json, so it holds no model; "
        "pass a folder saved by save_pretrained\n"
    )


def test_a_long_text_can_be_cut(flowgraph):
    code, out, err = flowgraph(
        "attribute", "word " * 600, "--truncate", "--method", "raw", "--format", "json"
    )
    assert code == 0
    assert len(json.loads(out)["tokens"]) == 512
    assert err.startswith("warning: ") or err == ""


def test_an_old_file_survives_a_failure(flowgraph, tmp_path):
    path = tmp_path / "old.graphml"
    path.write_text("old")
    assert flowgraph("export", TEXT, "--out", path, "--flow", "sat", "dog")[0] == 2
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["old.graphml"]


@pytest.mark.parametrize(
    "arguments", [("--debug", *ATTRIBUTE, "--level", "9"), (*ATTRIBUTE, "--level", "9", "--debug")]
)
def test_debug_shows_the_traceback(flowgraph, arguments):
    code, _, err = flowgraph(*arguments)
    assert code == 2
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith("error: level: 9")


# --- when things go wrong outside -------------------------------------------------------------------------


def test_a_fault_of_our_own_says_so(flowgraph, monkeypatch):
    def broken(*_, **__):
        raise KeyError("oops")

    monkeypatch.setattr("flowgraph.attribution.attribute", broken)
    code, out, err = flowgraph(*ATTRIBUTE)
    assert (code, out) == (1, "")
    assert err == "error: KeyError: 'oops' (a fault of flowgraph's own; --debug shows where)\n"


def test_warnings_are_lines_on_standard_error(flowgraph, monkeypatch):
    import warnings

    def warns(*_, **__):
        warnings.warn("of a library", UserWarning, stacklevel=2)
        warnings.warn("rows were\nrescaled", fg.FlowgraphWarning, stacklevel=2)
        raise fg.FlowgraphError("done")

    monkeypatch.setattr("flowgraph.attribution.attribute", warns)
    assert flowgraph(*ATTRIBUTE) == (2, "", "warning: rows were rescaled\nerror: done\n")


def test_interrupting_exits_with_130(flowgraph, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("flowgraph.attribution.attribute", interrupt)
    assert flowgraph(*ATTRIBUTE) == (130, "", "interrupted\n")


WAITING = """
import signal, sys, time
from flowgraph.cli import execute

class Terminal:
    def read(self):
        print("reading", flush=True)
        time.sleep(60)

# a job in the background of a script is started with the signal ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.stdin = Terminal()
sys.exit(execute(["attribute", "-"]))
"""


def test_a_signal_exits_with_130():
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "interrupted\n"


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is a signal elsewhere")
@pytest.mark.parametrize(
    ("library", "arguments"),
    [
        ("numpy", ["models"]),
        ("numpy", ["run", "--input", "a", "--out", "b"]),
        ("numpy", ["attribute", TEXT]),
        ("torch", ["attribute", TEXT]),
    ],
)
def test_ctrl_c_while_libraries_are_imported_is_one_line(tmp_path, library, arguments):
    (tmp_path / f"{library}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        script(*arguments), capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_reader_that_leaves_is_no_error():
    code = "from flowgraph.cli import execute; exit(execute(['--help']))"
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""


def test_the_module_runs_as_a_script():
    done = subprocess.run(script("attribute"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "error: Missing argument 'TEXT'. (see 'flowgraph attribute --help')\n"
