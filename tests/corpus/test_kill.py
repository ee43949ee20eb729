"""Real processes, killed at random moments (from a seed): what is resumed is what nothing disturbed."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.corpus.corpora import errors, run, shards, texts, write_lines

ROOT = Path(__file__).parents[2]
COUNT = 96
OPTIONS = [
    "--method",
    "rollout,flow",
    "--edges",
    "attention,norm",
    "--window",
    "8",
    "--batch",
    "4",
    "--quiet",
]


@pytest.fixture(scope="module")
def server():
    """A process with the libraries loaded, which forks those that are to be killed; nothing has run in it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["transformers.models.bert.modeling_bert", "flowgraph.corpus.worker"])
    return context


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    lines = texts(COUNT, seed=3)
    lines[10], lines[50] = "", "cat " * 100  # an error here and there
    return write_lines(tmp_path_factory.mktemp("kill") / "corpus.txt", lines)


def command(corpus, out, model, *more):
    return ["run", "--input", str(corpus), "--out", str(out), "--model", str(model), *OPTIONS, *more]


def go(arguments):
    """The command line in a forked process; its output goes nowhere."""
    import torch

    from flowgraph.cli import execute

    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    torch.set_num_threads(1)
    os._exit(execute(arguments))


@pytest.fixture(scope="module")
def unbroken(server, corpus, model, tmp_path_factory):
    """The folder of a run that nothing disturbed, and the seconds of a window."""
    out = tmp_path_factory.mktemp("kill") / "unbroken"
    process = server.Process(target=go, args=(command(corpus, out, model, "--workers", "0"),))
    process.start()
    process.join()
    assert process.exitcode == 0
    times = [file.stat().st_mtime for file in (out / "data").iterdir()]
    assert len(times) == COUNT // 8
    return out, (max(times) - min(times)) / (len(times) - 1)


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(server, corpus, model, unbroken, tmp_path, seed):
    """Killed again and again, at any moment of loading, computing or writing, until it is done."""
    expected, seconds = unbroken
    draw = random.Random(seed)
    out = tmp_path / "out"
    arguments = command(corpus, out, model, "--workers", "0")
    kills = 0
    while True:
        process = server.Process(target=go, args=(arguments,))
        process.start()
        if kills < 8:
            _wait_for_shards(out, _count(out) + draw.randint(0, 3), process)
            process.join(draw.uniform(0.0, 2.0) * seconds)
        else:
            process.join()
        if process.exitcode is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
    assert process.exitcode == 0
    assert kills > 0
    assert shards(out) == shards(expected)
    assert errors(out) == errors(expected)
    assert not list(out.rglob("*.part"))


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_shard_and_says_how_to_go_on(corpus, model, unbroken, tmp_path, sent, code):
    """Two spawned workers, the terminal's Ctrl-C (or a scheduler's signal) for all; then the same command."""
    out = tmp_path / "out"
    process = _start(command(corpus, out, model, "--workers", "2", "--format", "json"))
    _wait_for_shards(out, 1)
    os.killpg(process.pid, sent)
    output, complaint = process.communicate(timeout=120)
    assert process.returncode == code
    assert "finishing the windows under way" in complaint
    assert "the same command goes on from here" in complaint
    assert "Traceback" not in complaint
    summary = json.loads(output)
    done = _count(out)
    assert summary["windows"] == done
    assert 1 <= done < COUNT // 8
    from flowgraph.corpus.settings import Settings

    settings = Settings(("rollout", "flow"), ("attention", "norm"), window=8, batch=4)
    assert run(corpus, out, model, settings=settings).known == summary["computed"]
    assert shards(out) == shards(unbroken[0])
    assert errors(out) == errors(unbroken[0])


def test_a_killed_run_leaves_no_workers_behind(tmp_path):
    code = (
        "import sys, threading\n"
        "from flowgraph.corpus.engines import run_local\n"
        "from tests.corpus.fakes import FakeSpec, fake_tasks\n"
        "if __name__ == '__main__':\n"
        "    list(run_local(FakeSpec(sys.argv[1], seconds=0.2), fake_tasks(1000), 2, threading.Event()))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT)
    while len({f.name.split(".")[1] for f in tmp_path.iterdir()}) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    workers = {int(f.name.split(".")[1]) for f in tmp_path.iterdir()}
    process.kill()
    process.wait()
    _wait_until_gone(workers)


def _start(arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "flowgraph.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _count(out):
    return len(list(out.glob("data/0*.parquet")))


def _wait_for_shards(out, count, process=None):
    """Until there are so many, or the process has ended."""
    for _ in range(12000):
        if _count(out) >= count or (process is not None and process.exitcode is not None):
            return
        time.sleep(0.01)
    raise AssertionError(f"no {count} shards after two minutes")


def _wait_until_gone(processes):
    """A run that is killed leaves no workers behind."""
    for _ in range(400):
        if not any(os.path.exists(f"/proc/{p}") and _state(p) != "Z" for p in processes):
            return
        time.sleep(0.05)
    raise AssertionError(f"still there: {processes}")


def _state(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"
