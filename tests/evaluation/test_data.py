"""Files of texts, and the command."""

from __future__ import annotations

import json

import pytest

from flowgraph import cli
from flowgraph.errors import FlowgraphError
from flowgraph.evaluation.data import Columns, read_data
from flowgraph.evaluation.items import Item
from flowgraph.evaluation.report import Evaluation
from tests.evaluation.asked import classifier, masked_model


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_tables_lines_and_objects(tmp_path):
    items = [Item("a cat", "1"), Item("the dog", "0")]
    assert read_data(write(tmp_path, "a.tsv", "text\tlabel\na cat\t1\nthe dog\t0\n")) == items
    assert read_data(write(tmp_path, "a.csv", "label,text\n1,a cat\n0,the dog\n")) == items
    objects = '{"text": "a cat", "label": 1}\n{"text": "the dog", "label": 0}\n'
    assert read_data(write(tmp_path, "a.jsonl", objects)) == [Item("a cat", 1), Item("the dog", 0)]
    assert read_data(write(tmp_path, "a.txt", "a cat\nthe dog\n")) == [Item("a cat"), Item("the dog")]


def test_columns_by_name_and_number(tmp_path):
    path = write(tmp_path, "numpred.val", "VBZ\tthe key\nVBP\tthe keys\n")
    columns = Columns(text="2", label="1")
    assert read_data(path, columns, form="tsv", header=False)[1] == Item("the keys", "VBP")
    assert read_data(path, columns, form="tsv", header=False, limit=1) == [Item("the key", "VBZ")]
    path = write(tmp_path, "b.jsonl", '{"prefix": "the key", "yes": "is", "no": "are", "more": "a"}\n')
    columns = Columns(text="prefix", second="more", candidates=("yes", "no"))
    assert read_data(path, columns) == [Item(("the key", "a"), None, ("is", "are"))]


def test_template_and_candidates(tmp_path):
    path = write(tmp_path, "b.jsonl", '{"text": "the keys", "good": "are", "bad": "is"}\n')
    (item,) = read_data(path, template="{text} {mask} .", mask="[MASK]")
    assert item == Item("the keys [MASK] .", None, ("are", "is"))
    with pytest.raises(FlowgraphError, match="no mask token"):
        read_data(path, template="{text} {mask}")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "txt\tlabel\na cat\t1\n", "text_column: the input has no column 'text'"),
        ("a.txt", "", "holds no text"),
        ("a.parquet", "", "jsonl, csv, tsv or text"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, text, message):
    with pytest.raises(FlowgraphError, match=message):
        read_data(write(tmp_path, name, text))


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "a.jsonl",
            '{"text": "a"}\n{"txt": "b"}\n{"text": "c"}\n',
            "text_column: there is no column 'text', only txt",
        ),
        (
            "b.jsonl",
            '{"text": "a"}\n{"text": "b", "good": null, "bad": "is"}\n{"text": "c"}\n',
            "'good' holds None",
        ),
        ("a.jsonl", '{"text": "a"}\n{"text": \n{"text": "c"}\n', "broken JSON"),
        ("a.jsonl", '{"text": "a"}\n{"text": null}\n{"text": "c"}\n', "not text: 'text' is null"),
        ("a.txt", "a\n\nc\n", "empty"),
    ],
)
def test_a_record_that_cannot_be_read_stops_no_other(tmp_path, name, text, problem):
    before, bad, after = read_data(write(tmp_path, name, text))
    assert (before, after) == (Item("a"), Item("c"))
    assert problem in bad.problem
    assert (bad.line, after.line) == (2, 3)


@pytest.mark.parametrize("argument", ["text", "second", "label", "id", "candidates"])
def test_a_column_that_is_not_there_is_named_with_its_argument(tmp_path, argument):
    path = write(tmp_path, "a.tsv", "text\tgood\na cat\tare\n")
    columns = Columns(**{argument: ("good", "worse") if argument == "candidates" else "worse"})
    name = "candidate_columns" if argument == "candidates" else f"{argument}_column"
    if argument == "text":
        with pytest.raises(FlowgraphError, match=name):
            read_data(path, columns)
    else:
        (item,) = read_data(path, columns)
        assert item.problem == f"{name}: there is no column 'worse', only text, good"


def test_a_label_stays_a_number_or_a_name(tmp_path):
    """A class may be named 1: the number 1 of an object is not its name."""
    path = write(tmp_path, "a.jsonl", '{"text": "a cat", "class": 1}\n{"text": "the dog", "class": "1"}\n')
    assert [item.label for item in read_data(path, Columns(label="class"))] == [1, "1"]


def test_an_empty_label_is_none(tmp_path):
    assert read_data(write(tmp_path, "a.tsv", "text\tlabel\na cat\t\n")) == [Item("a cat")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "{txt}"}, "template: '{txt}' has no place for the text"),
        ({"template": ""}, "template: ''"),
        ({"limit": 0}, "limit: 0"),
    ],
)
def test_options_that_cannot_be_heeded(tmp_path, options, message):
    with pytest.raises(FlowgraphError, match=message):
        read_data(write(tmp_path, "a.txt", "a cat\n"), **options)


def test_a_limit_beyond_all_files(tmp_path):
    assert read_data(write(tmp_path, "a.txt", "a cat\n"), limit=10**30) == [Item("a cat")]


def test_ids(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"id": 7, "text": "a", "nr": "x"}\n')
    assert read_data(path) == [Item("a", name="7")]
    assert read_data(path, Columns(id="nr")) == [Item("a", name="x")]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders of a classifier and a masked language model."""
    folder = tmp_path_factory.mktemp("models")
    for name, (model, tokenizer) in {"classifier": classifier(), "masked": masked_model()}.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def test_the_command_prints_json(saved, tmp_path, capfd):
    data = write(tmp_path, "a.tsv", "text\tlabel\na cat sat on the mat\tyes\nthe dog runs\tno\n")
    plot, curves = tmp_path / "levels.svg", tmp_path / "curves.png"
    line = [
        "evaluate",
        "--data",
        data,
        "--model",
        saved / "classifier",
        "--format",
        "json",
        "--resamples",
        20,
    ]
    line += [
        "--edges",
        "attention,alti",
        "--methods",
        "rollout,flow",
        "--against",
        "blank-out",
        "--plot",
        plot,
        "--plot-curves",
        curves,
    ]
    assert cli.execute([str(word) for word in line]) == 0
    values = json.loads(capfd.readouterr().out)
    assert values["meta"]["score"] == ["classifier"]
    assert values["meta"]["accuracy"] is not None
    assert {(r["edges"], r["method"]) for r in values["correlations"] if r["edges"]} == {
        (edges, method) for edges in ("attention", "alti") for method in ("rollout", "flow")
    }
    assert plot.read_text().startswith("<?xml")
    assert curves.read_bytes()[:4] == b"\x89PNG"


def test_the_command_prints_tables(saved, tmp_path, capfd):
    data = write(tmp_path, "b.jsonl", '{"text": "the keys", "good": "are", "bad": "is"}\n')
    line = [
        "evaluate",
        "--data",
        data,
        "--model",
        saved / "masked",
        "--template",
        "{text} {mask} on the table .",
    ]
    assert cli.execute([str(word) for word in [*line, "--resamples", 0]]) == 0
    out, err = capfd.readouterr()
    for expected in (
        "Spearman with blank-out, all tokens",
        "gradient-norm, content",
        "comprehensiveness",
        "random",
    ):
        assert expected in out
    for expected in (
        "log-odds of two words at the mask",
        "blanked with [MASK]",
        "row of the attribution: [MASK]",
        "1 texts, accuracy",
    ):
        assert expected in err


def test_the_command_refuses_in_one_line(saved, tmp_path, capfd):
    data = write(tmp_path, "a.txt", "a cat\n")
    line = ["evaluate", "--data", str(data), "--model", str(saved / "masked")]
    assert cli.execute(line) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert cli.execute([*line, "--methods", "rollouts"]) == 2
    assert "rollouts" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--target", "--5"),
        ("--target", "²"),
        ("--target", ""),
        ("--target", "AUTO"),
        ("--target", "99"),
        ("--limit", "0"),
        ("--seed", "-1"),
        ("--resamples", "1000001"),
        ("--template", "{mask}"),
        ("--blank", ""),
        ("--out", ""),
        ("--label-column", "x"),
        ("--against", ","),
    ],
)
def test_the_command_names_what_it_cannot_use(saved, tmp_path, capfd, monkeypatch, option, value):
    monkeypatch.chdir(tmp_path)
    data = write(tmp_path, "a.txt", "a cat\n")
    line = ["evaluate", "--data", str(data), "--model", str(saved / "classifier"), option, value]
    before = sorted(tmp_path.iterdir())
    assert cli.execute(line) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert option[2:].replace("-", "_") in err.replace("-", "_")
    assert repr(value) in err or value in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_picture_that_cannot_be_written_costs_no_result(saved, tmp_path, capfd, monkeypatch):
    data = write(tmp_path, "a.txt", "a cat sat\n")
    line = ["evaluate", "--data", data, "--model", saved / "classifier", "--methods", "raw", "--no-erasure"]
    line += ["--against", "blank-out", "--format", "json"]
    assert cli.execute([str(word) for word in line]) == 0
    expected = capfd.readouterr().out

    def full(*_):
        raise FlowgraphError("path: no space")

    monkeypatch.setattr(Evaluation, "plot", full)
    assert cli.execute([*map(str, line), "--plot", str(tmp_path / "b.png")]) == 2
    out, err = capfd.readouterr()
    assert out == expected
    assert "no space" in err
