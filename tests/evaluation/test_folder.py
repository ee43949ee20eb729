"""Evaluations kept in a folder: killed, gone on with, refused; the same result as one that nothing disturbed."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph.corpus.lock import locked
from flowgraph.corpus.run import StoppedError
from flowgraph.corpus.store import Store
from flowgraph.errors import FlowgraphError, FlowgraphWarning
from flowgraph.evaluation.folder import KIND
from flowgraph.evaluation.items import Item
from flowgraph.evaluation.records import WINDOW, records_of
from tests.evaluation.asked import TEXTS, asked_models, classifier

QUICK = {"resamples": 20}
WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "key",
    "keys",
    "cabinet",
    "on",
    "mat",
    "table",
    "runs",
    "sat",
    "and",
    "park",
]


def texts(count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 7))) for _ in range(count)]


def found(evaluation):
    return json.loads(evaluation.to_json())


@pytest.mark.parametrize("kind", ["classifier", "masked", "causal", "embedding"])
def test_a_folder_changes_nothing(tmp_path, kind):
    model, tokenizer, items, more = asked_models()[kind]
    plain = fg.evaluate(model, tokenizer, items, **QUICK, **more)
    counted = []
    for _ in range(2):
        kept = fg.evaluate(
            model, tokenizer, items, out=tmp_path / "out", progress=counted.append, **QUICK, **more
        )
        assert found(kept) == found(plain)
    assert counted == [1] * len(items) + [len(items)]  # the second time they are all known


def test_progress_counts_every_text_once(tmp_path):
    """Two windows and a half; the second time all are known."""
    model, tokenizer = classifier()
    many = texts(2 * WINDOW + 5)
    options = {
        "methods": ["raw"],
        "against": ["blank-out"],
        "erasure": False,
        "out": tmp_path,
        "resamples": 0,
    }
    counted = []
    for _ in range(2):
        fg.evaluate(model, tokenizer, many, progress=counted.append, **options)
    assert counted == [1] * len(many) + [WINDOW, WINDOW, 5]


def test_what_is_known_is_not_asked_again(tmp_path, monkeypatch):
    """By id, content and occurrence: texts that moved, that are new, that stand there twice."""
    model, tokenizer = classifier()
    options = {"methods": ["rollout"], "against": ["blank-out"], "out": tmp_path, **QUICK}
    fg.evaluate(model, tokenizer, TEXTS, **options)
    from flowgraph.evaluation.answers import Asker

    asked = []
    real = Asker._answer
    monkeypatch.setattr(Asker, "_answer", lambda *a: asked.append(a[1].item.text) or real(*a))
    moved = ["a dog", *reversed(TEXTS), TEXTS[0]]
    again = fg.evaluate(model, tokenizer, moved, **options)
    assert asked == ["a dog", TEXTS[0]]
    assert [r.facts["size"] for r in again.results] == [len(tokenizer(text)["input_ids"]) for text in moved]
    # another label is another record
    fg.evaluate(model, tokenizer, TEXTS[:1], labels=["yes"], **options)
    assert asked == ["a dog", TEXTS[0], TEXTS[0]]


def test_what_makes_a_record_another():
    items = [Item("a"), Item("b"), Item("a", 1), Item("a", 0), Item("a", candidates=("x", "y")),
             Item("a", candidates=("y", "x")), Item("a", problem="broken")]  # fmt: skip
    assert len({record.content for record in records_of(items)}) == len(items)


def test_a_bad_record_stops_nothing_and_is_not_tried_again_unless_asked(tmp_path, monkeypatch):
    model, tokenizer = classifier()
    items = [Item(TEXTS[0], name="a"), Item("the cat " * 40, name="b", line=7), Item(TEXTS[1], name="c")]
    with pytest.warns(FlowgraphWarning, match="1 of 3 left out"):
        first = fg.evaluate(model, tokenizer, items, out=tmp_path, **QUICK)
    assert [(f.id, f.line) for f in first.failures] == [("b", 7)]
    from flowgraph.evaluation import answers

    monkeypatch.setattr(answers, "check_item", lambda *_: None)  # now it would fail otherwise
    with pytest.warns(FlowgraphWarning, match="1 of 3 left out"):
        assert found(fg.evaluate(model, tokenizer, items, out=tmp_path, **QUICK)) == found(first)
    with pytest.warns(FlowgraphWarning, match="1 of 3 left out"):
        third = fg.evaluate(model, tokenizer, items, out=tmp_path, retry_errors=True, **QUICK)
    assert third.failures[0].reason != first.failures[0].reason


def test_all_failed(tmp_path):
    with pytest.raises(StoppedError, match=r"texts: all 2 records failed: most often .*at most 64"):
        fg.evaluate(*classifier(), ["the cat " * 40, "the dog " * 40], out=tmp_path)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"seed": 1}, "seed 0, now 1"),
        ({"edges": ["norm", "attention"]}, 'edges ["attention"], now ["norm", "attention"]'),
        ({"blank": "cat"}, "blank_token [MASK], now cat"),
        ({"explain": "true", "labels": ["yes"] * 4}, "explain predicted, now true"),
    ],
)
def test_other_settings_are_refused_with_what_differs(tmp_path, other, difference):
    model, tokenizer = classifier()
    options = {"methods": ["rollout"], "out": tmp_path, **QUICK}
    fg.evaluate(model, tokenizer, TEXTS, **options)
    with pytest.raises(FlowgraphError) as caught:
        fg.evaluate(model, tokenizer, TEXTS, **options | other)
    assert "begun with other settings: " + difference in str(caught.value)
    fg.evaluate(model, tokenizer, TEXTS, **options | {"resamples": 5})  # what is not kept may differ


def test_another_model_is_refused(tmp_path):
    import torch

    model, tokenizer = classifier()
    fg.evaluate(model, tokenizer, TEXTS[:2], out=tmp_path, **QUICK)
    with torch.no_grad():
        model.classifier.bias[0] += 1e-6
    with pytest.raises(FlowgraphError, match=r"model weights [0-9a-f]{12}, now [0-9a-f]{12}"):
        fg.evaluate(model, tokenizer, TEXTS[:2], out=tmp_path, **QUICK)


def test_a_folder_of_another_kind_is_refused(tmp_path):
    model, tokenizer = classifier()
    (tmp_path / "manifest.json").write_text('{"format": "flowgraph corpus 1"}')
    with pytest.raises(FlowgraphError, match=f"'flowgraph corpus 1', not as '{KIND.format}'"):
        fg.evaluate(model, tokenizer, TEXTS[:2], out=tmp_path)
    with pytest.raises(FlowgraphError, match="is a file"):
        fg.evaluate(model, tokenizer, TEXTS[:2], out=tmp_path / "manifest.json")


def test_one_run_at_a_time(tmp_path):
    model, tokenizer = classifier()
    fg.evaluate(model, tokenizer, TEXTS[:2], out=tmp_path, **QUICK)
    with locked(Store(tmp_path)), pytest.raises(FlowgraphError, match=f"in use .*process {os.getpid()}"):
        fg.evaluate(model, tokenizer, TEXTS[:2], out=tmp_path, **QUICK)


# --- real processes -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A saved model, a file of texts two of which are bad, the command, and what it prints undisturbed."""
    folder = tmp_path_factory.mktemp("job")
    model, tokenizer = classifier()
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    lines = [json.dumps({"id": k, "text": text}) for k, text in enumerate(texts(6 * WINDOW))]
    lines[3], lines[WINDOW + 5] = "{broken", json.dumps({"text": "the cat " * 40})
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    command = ["evaluate", "--data", str(folder / "texts.jsonl"), "--model", str(folder / "model"), "--format",
               "json", "--resamples", "20", "--against", "blank-out,gradient-input"]  # fmt: skip
    return command, _run(command, folder / "unbroken.json")


def _go(arguments, output):
    """The command line in a forked process."""
    import torch

    from flowgraph.cli import execute

    with open(output, "w") as file, open(os.devnull, "w") as nowhere:
        os.dup2(file.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    torch.set_num_threads(1)
    os._exit(execute(arguments))


def _start(arguments, output):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["transformers.models.bert.modeling_bert", "flowgraph.corpus.worker"])
    process = context.Process(target=_go, args=(arguments, output))
    process.start()
    return process


def _run(arguments, output):
    process = _start(arguments, output)
    process.join()
    assert process.exitcode == 0
    return json.loads(Path(output).read_text())


def _wait_for_shards(out, count, process):
    for _ in range(6000):
        if len(list(out.glob("data/0*.parquet"))) >= count or process.exitcode is not None:
            return
        time.sleep(0.01)
    raise AssertionError(f"no {count} shards after a minute")


def test_killed_again_and_again(job, tmp_path):
    """SIGKILL at random moments after the first, the third and the fourth shard; the end is as if undisturbed."""
    command, unbroken = job
    out = tmp_path / "out"
    arguments = [*command, "--out", str(out)]
    draw = random.Random(0)
    for shards in (1, 3, 4):
        process = _start(arguments, tmp_path / "killed.json")
        _wait_for_shards(out, shards, process)
        process.join(draw.uniform(0, 0.1))
        assert process.exitcode is None, "it ended before it was killed"
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    done = {file: file.stat().st_mtime_ns for file in out.glob("data/0*.parquet")}
    assert 4 <= len(done) < 6
    found = _run(arguments, tmp_path / "found.json")
    assert found == unbroken
    assert len(found["failures"]) == 2
    assert found["meta"]["texts"] == 6 * WINDOW - 2
    assert {file: file.stat().st_mtime_ns for file in done} == done
    assert not list(out.rglob("*.part"))


def test_a_signal_ends_it_with_the_window_under_way(job, tmp_path):
    command, unbroken = job
    out = tmp_path / "out"
    process = _start([*command, "--out", str(out)], tmp_path / "stopped.json")
    _wait_for_shards(out, 1, process)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    assert 1 <= len(list(out.glob("data/0*.parquet"))) < 6
    assert _run([*command, "--out", str(out)], tmp_path / "found.json") == unbroken
