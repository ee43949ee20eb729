"""Runs and resumed runs on a folder, in this process."""

from __future__ import annotations

import errno
import json
import os
import random
from dataclasses import replace

import pytest
from pyarrow import parquet

import flowgraph as fg
from flowgraph import FlowgraphError
from flowgraph.corpus.formats import InputOptions
from flowgraph.corpus.run import StoppedError
from flowgraph.corpus.schema import DATA, ERRORS
from flowgraph.corpus.settings import Settings
from tests.corpus.corpora import SETTINGS, errors, rows, run, shards, texts, write_jsonl, write_lines
from tests.models import tiny

COUNT = 30


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Thirty texts with ids."""
    items = [(f"t{k}", text) for k, text in enumerate(texts(COUNT))]
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", items)


@pytest.fixture(scope="module")
def unbroken(corpus, model, tmp_path_factory):
    """The folder of a run that nothing disturbed."""
    out = tmp_path_factory.mktemp("runs") / "unbroken"
    summary = run(corpus, out, model)
    assert (summary.computed, summary.failed, summary.windows, summary.complete) == (COUNT, 0, 4, True)
    return out


def items_of(corpus):
    return [(value["id"], value["text"]) for value in map(json.loads, corpus.read_text().splitlines())]


class Stop(Exception):
    pass


def stop_after(windows):
    """An observer that ends the run with an error after so many windows."""

    def observe(summary, fraction):
        if summary.windows >= windows:
            raise Stop

    return observe


def partial_run(source, out, model, windows, **options):
    with pytest.raises(Stop):
        run(source, out, model, observe=stop_after(windows), **options)


# --- what is in the folder ----------------------------------------------------------------------------------


def test_rows_are_what_attribute_gives(corpus, unbroken, embedded_free_model):
    """Batched, several methods and kinds from one pass, and yet each row is the attribution of its text alone."""
    network, tokenizer = embedded_free_model
    found = {(r["id"], r["method"], r["edges"]): r for r in rows(unbroken)}
    assert len(found) == COUNT * 4
    for name, text in items_of(corpus)[::7]:
        for method in ("rollout", "flow"):
            for edges in ("attention", "norm"):
                row = found[name, method, edges]
                alone = fg.attribute(network, tokenizer, text, method=method, edges=edges, targets="cls")
                assert row["scores"] == pytest.approx(alone.scores[0].tolist(), abs=1e-6)
                assert tuple(row["tokens"]) == alone.tokens
                assert (row["level"], row["target"], row["target_token"]) == (3, 0, "[CLS]")


@pytest.fixture(scope="module")
def embedded_free_model(model):
    from flowgraph.capture.loading import load

    return load(model)


def test_schema_stands_in_the_manifest_and_in_the_files(unbroken):
    manifest = json.loads((unbroken / "manifest.json").read_text())
    assert [c["name"] for c in manifest["schema"]["data"]] == [c.name for c in DATA]
    assert [c["name"] for c in manifest["schema"]["errors"]] == [c.name for c in ERRORS]
    assert manifest["complete"] is True
    for file in (unbroken / "data").iterdir():
        assert parquet.read_schema(file).names == [c.name for c in DATA]


def test_read_by_pandas_polars_and_datasets(unbroken, tmp_path):
    count = COUNT * 4
    pandas = pytest.importorskip("pandas")
    assert len(pandas.read_parquet(unbroken / "data")) == count
    polars = pytest.importorskip("polars")
    assert polars.read_parquet(str(unbroken / "data" / "*.parquet")).height == count
    datasets = pytest.importorskip("datasets")
    files = [str(f) for f in (unbroken / "data").iterdir()]
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path))
    assert loaded.num_rows == count
    assert fg.open_run(unbroken).count_rows() == count


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (("cls",), {0: "[CLS]"}),
        (("last",), {4: "[SEP]"}),
        (("mean",), {None: "mean"}),
        (("each",), {0: "[CLS]", 1: "the", 2: "cat", 3: "sat", 4: "[SEP]"}),
        ((2,), {2: "cat"}),
        (("cls", 0, "last", -1, "mean"), {0: "[CLS]", 4: "[SEP]", None: "mean"}),
    ],
)
def test_targets_and_levels(tmp_path, model, embedded_free_model, target, expected):
    source = write_lines(tmp_path / "a.txt", ["the cat sat"])
    settings = Settings(methods=("raw", "rollout"), level="all", targets=target)
    run(source, tmp_path / "out", model, settings=settings)
    found = rows(tmp_path / "out")
    assert len(found) == 2 * 3 * len(expected)
    assert {r["target"]: r["target_token"] for r in found} == expected
    network, tokenizer = embedded_free_model
    for method in ("raw", "rollout"):
        whole = fg.attribute(network, tokenizer, "the cat sat", method=method, level="all").scores
        for row in (r for r in found if r["method"] == method):
            stack = whole[row["level"] - 1]
            scores = stack.mean(0) if row["target"] is None else stack[row["target"]]
            assert row["scores"] == pytest.approx(scores.tolist(), abs=1e-6)


def test_one_forward_pass_a_batch(tmp_path, model, monkeypatch):
    from flowgraph.capture import run as capture

    calls = []
    original = capture.trace
    monkeypatch.setattr(
        capture, "trace", lambda *a, **k: calls.append((len(a[2]), k["edges"])) or original(*a, **k)
    )
    source = write_lines(tmp_path / "a.txt", ["the cat sat"] * 5 + ["a dog"] * 2)
    run(source, tmp_path / "out", model)
    # windows of 8, batches of at most 4 texts of one length, both kinds at once
    assert calls == [(4, ("attention", "norm")), (1, ("attention", "norm")), (2, ("attention", "norm"))]


def test_an_empty_input(tmp_path, model):
    summary = run(write_lines(tmp_path / "a.txt", []), tmp_path / "out", model)
    assert (summary.records, summary.complete) == (0, True)
    assert rows(tmp_path / "out") == []


def test_pairs(tmp_path, model):
    source = write_lines(tmp_path / "a.jsonl", [json.dumps({"p": "the cat", "h": "it sleeps"})])
    run(source, tmp_path / "out", model, columns=InputOptions(pair_columns=("p", "h")))
    (row, *_) = rows(tmp_path / "out")
    assert row["tokens"] == ["[CLS]", "the", "cat", "[SEP]", "it", "sleeps", "[SEP]"]


# --- resuming -----------------------------------------------------------------------------------------------


def test_a_finished_run_has_nothing_to_do(corpus, unbroken, model):
    before = {f: f.stat().st_mtime_ns for f in (unbroken / "data").iterdir()}
    summary = run(corpus, unbroken, model)
    assert (summary.computed, summary.known) == (0, COUNT)
    assert {f: f.stat().st_mtime_ns for f in (unbroken / "data").iterdir()} == before


@pytest.mark.parametrize("windows", [1, 2, 3])
def test_broken_and_resumed_is_unbroken(corpus, unbroken, model, tmp_path, windows):
    out = tmp_path / "out"
    partial_run(corpus, out, model, windows)
    summary = run(corpus, out, model)
    assert summary.known == 8 * windows
    assert shards(out) == shards(unbroken)


def test_a_truncated_shard_is_computed_again(corpus, unbroken, model, tmp_path):
    out = tmp_path / "out"
    run(corpus, out, model)
    draw = random.Random(1)
    victim = draw.choice(sorted((out / "data").iterdir()))
    data = victim.read_bytes()
    victim.write_bytes(data[: draw.randrange(len(data))])
    summary = run(corpus, out, model)
    assert summary.damaged == [f"data/{victim.name}"]
    assert shards(out) == shards(unbroken)


def test_a_flipped_byte_is_found(corpus, unbroken, model, tmp_path):
    """Pages carry checksums: a shard whose keys are damaged is no shard."""
    out = tmp_path / "out"
    run(corpus, out, model)
    victim = min((out / "data").iterdir())
    column = parquet.read_metadata(victim).row_group(0).column(3)
    assert column.path_in_schema == "record"
    data = bytearray(victim.read_bytes())
    data[column.dictionary_page_offset + column.total_compressed_size // 2] ^= 0xFF
    victim.write_bytes(bytes(data))
    assert run(corpus, out, model).damaged == [f"data/{victim.name}"]
    assert shards(out) == shards(unbroken)


def test_an_empty_file_and_left_over_parts(corpus, unbroken, model, tmp_path):
    out = tmp_path / "out"
    partial_run(corpus, out, model, 2)
    part = out / "data" / ".00000002-abc.parquet.1234.part"
    part.write_bytes(b"half")
    min((out / "data").glob("0*")).write_bytes(b"")
    run(corpus, out, model)
    assert not part.exists()
    assert shards(out) == shards(unbroken)


def test_errors_without_their_shard_are_no_errors(tmp_path, model):
    """A kill between the two files of a window: the window is computed again, whole."""
    source = write_lines(tmp_path / "a.txt", ["the cat", "", "a dog"])
    run(source, tmp_path / "out", model)
    expected = shards(tmp_path / "out"), errors(tmp_path / "out")
    for file in (tmp_path / "out" / "data").iterdir():
        file.unlink()
    assert run(source, tmp_path / "out", model).known_errors == 0
    assert (shards(tmp_path / "out"), errors(tmp_path / "out")) == expected


# --- a changed input ----------------------------------------------------------------------------------------


def test_new_lines_are_computed_and_nothing_else(corpus, unbroken, model, tmp_path):
    items = items_of(corpus)
    source = write_jsonl(tmp_path / "a.jsonl", items[:20])
    run(source, tmp_path / "out", model)
    write_jsonl(source, items)
    summary = run(source, tmp_path / "out", model)
    assert (summary.computed, summary.known, summary.removed) == (10, 20, 0)
    close(rows(tmp_path / "out"), rows(unbroken))


def close(found, expected):
    """The same rows; scores to rounding, since batches of a window that grew were others."""
    assert [row | {"scores": None} for row in found] == [row | {"scores": None} for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert row["scores"] == pytest.approx(other["scores"], abs=1e-6)


def test_an_edited_line(corpus, model, tmp_path):
    items = items_of(corpus)
    source = write_jsonl(tmp_path / "a.jsonl", items)
    run(source, tmp_path / "out", model)
    items[11] = (items[11][0], "a dog runs fast")
    write_jsonl(source, items)
    summary = run(source, tmp_path / "out", model)
    assert (summary.computed, summary.removed) == (1, 1)
    run(source, tmp_path / "fresh", model)
    close(rows(tmp_path / "out"), rows(tmp_path / "fresh"))
    assert run(source, tmp_path / "out", model).removed == 0


def test_a_new_line_has_the_bits_of_an_unbroken_run(corpus, model, tmp_path):
    """Batches are those of the whole window, although one record of it is wanted."""
    items = items_of(corpus)
    source = write_jsonl(tmp_path / "a.jsonl", items)
    run(source, tmp_path / "out", model)
    items[11] = ("t11", "cat " * len(items[11][1].split()))
    write_jsonl(source, items)
    run(source, tmp_path / "out", model)
    run(source, tmp_path / "fresh", model)
    assert rows(tmp_path / "out") == rows(tmp_path / "fresh")


def test_removed_lines_are_put_aside_and_come_back(corpus, unbroken, model, tmp_path):
    items = items_of(corpus)
    source = write_jsonl(tmp_path / "a.jsonl", items)
    out = tmp_path / "out"
    run(source, out, model)
    write_jsonl(source, items[5:])
    summary = run(source, out, model)
    assert (summary.removed, summary.computed) == (5, 0)
    kept = {name for name, _ in items[5:]}
    assert rows(out) == [row for row in rows(unbroken) if row["id"] in kept]
    assert sum(parquet.read_table(f).num_rows for f in (out / "removed").iterdir()) == 5 * 4
    write_jsonl(source, items)
    summary = run(source, out, model)
    assert (summary.returned, summary.computed) == (5, 0)
    assert rows(out) == rows(unbroken)
    assert list((out / "removed").iterdir()) == []


def test_moved_lines_keep_their_rows_and_get_their_numbers(model, tmp_path):
    lines = [*texts(12), "a cat", "", "a cat"]
    source = write_lines(tmp_path / "a.txt", lines)
    out = tmp_path / "out"
    run(source, out, model)
    write_lines(source, ["it sleeps", *lines])
    summary = run(source, out, model)
    assert (summary.computed, summary.moved, summary.removed) == (1, 15, 0)
    run(source, tmp_path / "fresh", model)
    close(rows(out), rows(tmp_path / "fresh"))
    assert [(e["id"], e["line"]) for e in errors(out)] == [("15", 15)]


def test_equal_records_are_told_apart(model, tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", [(1, "a cat"), (1, "a cat"), (2, "a cat")])
    run(source, tmp_path / "out", model)
    found = {(r["id"], r["occurrence"]) for r in rows(tmp_path / "out")}
    assert found == {("1", 0), ("1", 1), ("2", 0)}


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"threads": 2}, "threads 1, now 2"),
        ({"edges": ("attention",)}, r'edges \["attention", "norm"\], now \["attention"\]'),
        ({"window": 16}, "window 8, now 16"),
        ({"residual": 0.3}, "residual auto, now 0.3"),
    ],
)
def test_other_settings_are_refused(corpus, unbroken, model, change, difference):
    from dataclasses import replace

    with pytest.raises(FlowgraphError, match=f"begun with other settings: {difference}"):
        run(corpus, unbroken, model, settings=replace(SETTINGS, **change))


def test_a_run_that_ended_before_its_first_shard_binds_nobody(tmp_path, model):
    source = write_lines(tmp_path / "a.jsonl", ['{"text": "a cat", "name": "x"}'])
    out = tmp_path / "out"
    with pytest.raises(FlowgraphError, match="id_column: the input has no column 'nmae'"):
        run(source, out, model, columns=InputOptions(id_column="nmae"))
    run(source, out, model, columns=InputOptions(id_column="name"))
    assert json.loads((out / "manifest.json").read_text())["columns"]["id"] == "name"
    assert {r["id"] for r in rows(out)} == {"x"}
    with pytest.raises(FlowgraphError, match="begun with other settings: column id name, now id"):
        run(source, out, model)


def test_errors_of_other_settings_are_not_mixed(tmp_path, model):
    source = write_lines(tmp_path / "a.txt", [""])
    with pytest.raises(FlowgraphError, match="all 1 records failed"):
        run(source, tmp_path / "out", model)
    with pytest.raises(FlowgraphError, match="begun with other settings: level"):
        run(source, tmp_path / "out", model, settings=replace(SETTINGS, level=1))


def test_other_weights_and_versions_are_refused(corpus, unbroken, model, tmp_path, monkeypatch):
    import shutil

    from flowgraph.corpus import settings

    other = shutil.copytree(model, tmp_path / "model")
    data = bytearray((other / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (other / "model.safetensors").write_bytes(bytes(data))
    with pytest.raises(FlowgraphError, match=r"model weights [0-9a-f]{12}, now [0-9a-f]{12}"):
        run(corpus, unbroken, other)
    monkeypatch.setattr(settings, "versions", lambda: {"torch": "0.0"})
    with pytest.raises(FlowgraphError, match=r"version of torch .*, now 0\.0"):
        run(corpus, unbroken, model)


def test_a_copy_of_the_model_elsewhere_is_the_same_model(corpus, unbroken, model, tmp_path):
    import shutil

    other = shutil.copytree(model, tmp_path / "elsewhere")
    assert run(corpus, unbroken, other).known == COUNT


def test_a_folder_without_or_with_a_broken_manifest(corpus, model, tmp_path):
    out = tmp_path / "out"
    run(corpus, out, model)
    (out / "manifest.json").write_text('{"format"')
    with pytest.raises(FlowgraphError, match=r"manifest\.json in .* is damaged"):
        run(corpus, out, model)
    (out / "manifest.json").unlink()
    with pytest.raises(FlowgraphError, match=r"holds shards but no manifest\.json"):
        run(corpus, out, model)
    with pytest.raises(FlowgraphError, match=r"has no manifest\.json"):
        fg.open_run(out)


# --- records that fail --------------------------------------------------------------------------------------


def test_bad_records_stop_nothing(model, tmp_path):
    long = "cat " * 100
    lines = [
        '{"text": "a cat"}',
        '{"text": ',
        '{"text": ""}',
        json.dumps({"text": long, "id": "long"}),
        '{"text": "a dog"}',
    ]
    source = tmp_path / "a.jsonl"
    source.write_bytes("\n".join(lines).encode() + b'\n{"text": "\xff"}\n{"text": 3}\n')
    summary = run(source, tmp_path / "out", model)
    assert (summary.computed, summary.failed) == (2, 5)
    found = {e["line"]: e for e in errors(tmp_path / "out")}
    assert sorted(found) == [2, 3, 4, 6, 7]
    for line, reason in {
        2: "broken JSON",
        3: "empty",
        4: "text: 102 tokens, but the model reads at most 64; shorten the text or pass --truncate",
        6: "invalid UTF-8",
        7: "not text",
    }.items():
        assert reason in found[line]["reason"]
    assert found[4]["id"] == "long"
    assert sum(summary.reasons.values()) == 5
    again = run(source, tmp_path / "out", model)
    assert (again.computed, again.failed, again.known_errors) == (0, 0, 5)


def test_truncate_cuts_and_says_so(model, tmp_path):
    source = write_lines(tmp_path / "a.txt", ["cat " * 100])
    summary = run(source, tmp_path / "out", model, settings=Settings(methods=("rollout",), truncate=True))
    assert (summary.computed, summary.warnings) == (1, {"text": 1})
    assert len(rows(tmp_path / "out")[0]["tokens"]) == 64


def test_a_hybrid_model_is_refused_or_its_layers_passed_over(tmp_path):
    folder = tmp_path / "jamba"
    for part in tiny("jamba"):
        part.save_pretrained(folder)
    source = write_lines(tmp_path / "a.txt", ["the cat", "a dog sat"])
    with pytest.raises(FlowgraphError, match="layers without attention"):
        run(source, tmp_path / "refused", folder, settings=Settings(methods=("rollout",)))
    settings = Settings(methods=("rollout",), hybrid="skip")
    summary = run(source, tmp_path / "out", folder, settings=settings)
    assert (summary.computed, summary.failed) == (2, 0)
    assert "hybrid='skip'" in summary.warnings
    with pytest.raises(FlowgraphError, match="hybrid skip, now error"):
        run(source, tmp_path / "out", folder, settings=Settings(methods=("rollout",)))


def test_a_forward_pass_that_would_not_fit_is_refused_before_it_starts(model, tmp_path):
    source = write_lines(tmp_path / "a.txt", ["cat " * 50, "cat"])
    settings = Settings(methods=("rollout",), max_memory="100KB")
    summary = run(source, tmp_path / "out", model, settings=settings)
    assert (summary.computed, summary.failed) == (1, 1)
    assert "max_memory: 52 tokens take about" in errors(tmp_path / "out")[0]["reason"]


def test_a_text_that_spoils_its_batch_fails_alone(model, tmp_path, monkeypatch):
    from flowgraph.capture import run as capture

    original = capture.trace

    def spoilt(network, tokenizer, batch, **options):
        if "dog mat" in batch:
            raise RuntimeError("index out of range")
        return original(network, tokenizer, batch, **options)

    monkeypatch.setattr(capture, "trace", spoilt)
    source = write_lines(tmp_path / "a.txt", ["a cat", "dog mat", "the dog"])
    summary = run(source, tmp_path / "out", model)
    assert (summary.computed, summary.failed) == (2, 1)
    assert errors(tmp_path / "out")[0]["reason"] == "RuntimeError: index out of range"


def test_time_limit_and_retry(model, tmp_path):
    source = write_lines(tmp_path / "a.txt", texts(5))
    settings = Settings(methods=("flow",), solver="push-relabel")
    out = tmp_path / "out"
    with pytest.raises(StoppedError, match="all 5 records failed"):
        run(source, out, model, settings=settings, time_limit=1e-9)
    assert {e["attempt"] for e in errors(out)} == {1}
    with pytest.raises(StoppedError, match="all 5 records failed"):
        run(source, out, model, settings=settings, time_limit=1e-9, retry_errors=True)
    assert [e["attempt"] for e in errors(out)] == [2] * 5
    summary = run(source, out, model, settings=settings, retry_errors=True)
    assert (summary.computed, summary.retried) == (5, 5)
    assert errors(out) == []
    run(source, tmp_path / "fresh", model, settings=settings)
    assert rows(out) == rows(tmp_path / "fresh")


def test_retried_records_have_the_bits_of_an_unbroken_run(corpus, unbroken, model, tmp_path, monkeypatch):
    """Some fail, some fail again, and in the end nothing tells that they ever did."""
    from flowgraph.corpus.worker import Worker

    out = tmp_path / "out"
    original, fails = Worker._rows, {"t3", "t4", "t17"}

    def flaky(self, member, *rest):
        if member.record.id in fails:
            raise RuntimeError("out of luck")
        return original(self, member, *rest)

    monkeypatch.setattr(Worker, "_rows", flaky)
    assert run(corpus, out, model).failed == 3
    fails -= {"t4"}
    summary = run(corpus, out, model, retry_errors=True)
    assert (summary.computed, summary.failed) == (1, 2)
    assert sorted((e["id"], e["attempt"]) for e in errors(out)) == [("t17", 2), ("t3", 2)]
    fails.clear()
    run(corpus, out, model, retry_errors=True)
    assert errors(out) == []
    assert rows(out) == rows(unbroken)


def test_errors_that_are_every_texts_end_the_run(corpus, model, tmp_path):
    with pytest.raises(FlowgraphError, match="level: 9 is not a layer"):
        run(corpus, tmp_path / "out", model, settings=Settings(level=9))
    with pytest.raises(FlowgraphError, match="edges: unknown 'nrom'"):
        run(corpus, tmp_path / "out", model, settings=Settings(edges=("nrom",)))
    with pytest.raises(FlowgraphError, match="target: 'cat' is no target of every text"):
        run(corpus, tmp_path / "out", model, settings=Settings(targets=("cat",)))


@pytest.mark.parametrize("device", ["meta", "nowhere", "cuda:77"])
def test_a_device_that_cannot_be_used_ends_the_run(corpus, model, tmp_path, device):
    with pytest.raises(FlowgraphError, match=f"^device: '{device}'"):
        run(corpus, tmp_path / "out", model, settings=Settings(device=device))


def test_max_errors(model, tmp_path):
    source = write_lines(tmp_path / "a.txt", ["a cat", "", "", ""] * 10)
    with pytest.raises(StoppedError, match="max_errors: 6 records failed, 5 may: most often empty") as caught:
        run(source, tmp_path / "out", model, max_errors=5)
    assert caught.value.summary.windows == 1
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["complete"] is False
    assert run(source, tmp_path / "out", model, max_errors=30).complete


# --- folders that cannot be used ----------------------------------------------------------------------------


def test_a_second_run_is_refused(corpus, model, tmp_path):
    out = tmp_path / "out"
    messages = []

    def second(summary, fraction):
        if summary.windows == 1 and not messages:
            with pytest.raises(FlowgraphError, match=r"is in use by another run \(process \d+") as caught:
                run(corpus, out, model)
            messages.append(str(caught.value))

    assert run(corpus, out, model, observe=second).computed == COUNT
    assert messages


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_full_or_forbidden_disk_leaves_finished_shards(
    corpus, unbroken, model, tmp_path, monkeypatch, cause
):
    out = tmp_path / "out"
    partial_run(corpus, out, model, 2)
    finished = shards(out)

    def full(*_):
        raise OSError(cause, os.strerror(cause))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            FlowgraphError, match=f"cannot be written: {os.strerror(cause)}; finished shards are intact"
        ):
            run(corpus, out, model)
    assert shards(out) == finished
    assert not list(out.rglob("*.part"))
    run(corpus, out, model)
    assert shards(out) == shards(unbroken)


def test_a_folder_that_cannot_be_made(corpus, model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        FlowgraphError, match=r"out: .* cannot be made: [^;]*; pass a folder that can be written"
    ):
        run(corpus, tmp_path / "file" / "out", model)


def test_a_file_in_place_of_the_folder(corpus, model, tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(FlowgraphError, match=r"^out: '[^']*/file' is a file; .*pass another path$"):
        run(corpus, tmp_path / "file", model)
    assert (tmp_path / "file").read_text() == "kept"


def test_a_model_that_is_none(corpus, tmp_path):
    with pytest.raises(FlowgraphError, match=r"model: .* is not a folder"):
        run(corpus, tmp_path / "out", "./none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FlowgraphError, match=r"has no \.safetensors file"):
        run(corpus, tmp_path / "out", tmp_path / "empty")


def test_an_empty_path_is_not_the_current_folder(corpus, model, tmp_path, monkeypatch):
    monkeypatch.chdir(model)
    with pytest.raises(FlowgraphError, match=r"^model: the name is empty"):
        run(corpus, tmp_path / "out", "")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FlowgraphError, match=r"^out: the address is empty; pass a path"):
        run(corpus, "", model)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": -1}, "workers: -1"),
        ({"engine": "slurm"}, "engine: unknown engine 'slurm'; choose one of local, ray"),
        ({"ray_address": "auto"}, "ray_address: 'auto' is for engine 'ray'"),
        ({"max_errors": -1}, "max_errors: -1"),
        ({"time_limit": -1.0}, "time_limit: -1.0 is not a number of seconds"),
        ({"settings": Settings(max_memory="abc")}, "max_memory: 'abc' is not a size"),
        ({"settings": Settings(threads=0)}, "threads: 0 is not a whole number from 1"),
        (
            {"settings": Settings(threads=10**15)},
            "threads: 1000000000000000 is not a whole number from 1 to 4096",
        ),
        (
            {"settings": Settings(window=10**18)},
            "window: 1000000000000000000 is not a whole number from 1 to 1",
        ),
        (
            {"settings": Settings(batch=10**20)},
            "batch: 100000000000000000000 is not a whole number from 1 to 1",
        ),
        ({"workers": 10**20}, "workers: 100000000000000000000 is not a number of processes up to 10000"),
        ({"settings": Settings(methods=())}, "method: none given"),
        ({"settings": Settings(dtype="int8")}, "dtype: unknown 'int8'"),
        ({"settings": Settings(solver="magic")}, "solver: unknown solver 'magic'"),
        (
            {"settings": Settings(methods=("raw", "rollout"), solver="igraph")},
            "solver: 'igraph' is for method 'flow' alone; leave it out",
        ),
        (
            {"settings": Settings(methods=("rollout",)), "time_limit": 5.0},
            "time_limit: 5.0 is for method 'flow' alone; leave it out",
        ),
        ({"settings": Settings(residual=2.0)}, "residual: 2.0 is not a share"),
    ],
)
def test_bad_options(corpus, model, tmp_path, options, message):
    with pytest.raises(FlowgraphError, match=message):
        run(corpus, tmp_path / "out", model, **options)
    assert not (tmp_path / "out" / "manifest.json").exists()


# --- numbers ------------------------------------------------------------------------------------------------


def test_threads_are_set_whatever_the_environment_says(corpus, model, tmp_path, monkeypatch):
    """Ray sets OMP_NUM_THREADS=1 when it is imported; a worker has the threads of its settings."""
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    seen = []
    try:
        run(
            write_lines(tmp_path / "a.txt", ["a cat"]),
            tmp_path / "out",
            model,
            settings=Settings(methods=("rollout",), threads=2),
            observe=lambda *_: seen.append(torch.get_num_threads()),
        )
    finally:
        torch.set_num_threads(1)
    assert seen[-1] == 2


def test_share_of_flows_settled_by_bounds(corpus, model, tmp_path):
    """Two levels have a closed form; above them a small graph is solved pair by pair."""
    closed = run(corpus, tmp_path / "a", model, settings=Settings(level=2))
    assert closed.settled_by_bounds == 1.0
    solved = run(corpus, tmp_path / "b", model, settings=Settings(level=3))
    assert solved.settled_by_bounds < 1.0
    assert sum(solved.settled.values()) == solved.tokens
    assert (
        run(corpus, tmp_path / "c", model, settings=Settings(methods=("rollout",))).settled_by_bounds is None
    )


def test_read_only_arrays_give_the_same(model):
    """What comes out of an object store cannot be written to; nothing edits its inputs in place."""
    import numpy as np

    mixing = np.random.default_rng(0).dirichlet(np.ones(6), (4, 6))
    expected = {
        m: fg.attribute_graph(fg.LayeredGraph.from_matrices(mixing), method=m).scores
        for m in ("raw", "rollout", "flow")
    }
    frozen = mixing.copy()
    frozen.flags.writeable = False
    for method, scores in expected.items():
        found = fg.attribute_graph(fg.LayeredGraph.from_matrices(frozen), method=method).scores
        np.testing.assert_array_equal(found, scores)
