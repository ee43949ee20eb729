"""Engines: every window once, however workers end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path

import pytest

from flowgraph import FlowgraphError, FlowgraphWarning
from flowgraph.corpus.engines import _deaf_to_ctrl_c, run_here, run_local
from tests.corpus.fakes import FakeSpec, fake_tasks


def calls(folder: Path) -> dict[int, int]:
    """Window -> how often it was begun."""
    numbers = [int(f.name.split(".")[0]) for f in folder.iterdir()]
    return {number: numbers.count(number) for number in sorted(set(numbers))}


def processes(folder: Path) -> set[int]:
    return {int(f.name.split(".")[1]) for f in folder.iterdir()}


def test_every_window_once(tmp_path):
    spec = FakeSpec(str(tmp_path), seconds=0.05)
    reports = list(run_local(spec, fake_tasks(12), 2, threading.Event()))
    assert sorted(r.window for r in reports) == list(range(12))
    assert calls(tmp_path) == dict.fromkeys(range(12), 1)
    assert len(processes(tmp_path)) == 2
    assert os.getpid() not in processes(tmp_path)
    assert all(_is_gone(process) for process in processes(tmp_path))


def test_in_this_process(tmp_path):
    list(run_here(FakeSpec(str(tmp_path)), fake_tasks(3), threading.Event()))
    assert processes(tmp_path) == {os.getpid()}


def test_windows_are_read_as_they_are_needed(tmp_path):
    """The input is not read far ahead of the workers."""
    read = []

    def tasks():
        for task in fake_tasks(40):
            read.append(task.number)
            yield task

    for done, _ in enumerate(run_local(FakeSpec(str(tmp_path)), tasks(), 2, threading.Event()), 1):
        assert len(read) <= done + 5


def test_workers_that_die_cost_nothing_but_time(tmp_path):
    spec = FakeSpec(str(tmp_path), die_once_at=(0, 5), seconds=0.02)
    with pytest.warns(FlowgraphWarning, match="workers: one died; its windows start again"):
        reports = list(run_local(spec, fake_tasks(8), 2, threading.Event()))
    assert sorted(r.window for r in reports) == list(range(8))


def test_a_window_that_kills_every_worker_ends_the_run(tmp_path):
    spec = FakeSpec(str(tmp_path), die_always_at=(2,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlowgraphWarning)
        with pytest.raises(FlowgraphError, match="a worker died 3 times"):
            list(run_local(spec, fake_tasks(3), 1, threading.Event()))
    assert calls(tmp_path)[2] == 3


def test_an_error_comes_back_as_it_is(tmp_path):
    with pytest.raises(FlowgraphError, match=r"^level: 9 is not a layer$"):
        list(run_local(FakeSpec(str(tmp_path), fail_at=1), fake_tasks(3), 1, threading.Event()))
    assert all(_is_gone(process) for process in processes(tmp_path))


def test_stop_finishes_what_is_under_way(tmp_path):
    stop = threading.Event()
    done = []
    for report in run_local(FakeSpec(str(tmp_path), seconds=0.2), fake_tasks(50), 2, stop):
        done.append(report.window)
        stop.set()
    assert sorted(done) == sorted(calls(tmp_path))
    assert len(done) <= 6


@pytest.mark.parametrize("engine", [run_here, partial(run_local, workers=1)], ids=["here", "local"])
def test_stop_while_the_model_is_loaded_computes_nothing(tmp_path, engine):
    stop = threading.Event()
    spec = FakeSpec(str(tmp_path), loading=1.0)

    def tasks():
        for task in fake_tasks(3):
            threading.Timer(0.5, stop.set).start()
            yield task

    assert list(engine(spec, tasks(), stop=stop)) == []
    assert calls(tmp_path) == {}


def test_a_window_under_way_starts_again_once_when_the_run_is_stopped(tmp_path):
    """A scheduler's signal may have ended the workers too; a second death ends the run without an error."""
    stop = threading.Event()
    spec = FakeSpec(str(tmp_path), die_always_at=(1,), seconds=0.5)
    with pytest.warns(FlowgraphWarning, match="one died"):
        for _ in run_local(spec, _stopping_at(1, stop), 1, stop):
            pass
    assert calls(tmp_path)[1] == 2


def test_a_window_that_a_signal_ended_is_reported_when_the_run_is_stopped(tmp_path):
    stop = threading.Event()
    spec = FakeSpec(str(tmp_path), die_once_at=(1,), seconds=0.5)
    with pytest.warns(FlowgraphWarning, match="one died"):
        done = [report.window for report in run_local(spec, _stopping_at(1, stop), 1, stop)]
    assert sorted(done) == [0, 1]


def _stopping_at(number, stop):
    """Tasks up to ``number``, which is under way when the run is stopped: the run asks for the next one then."""
    tasks = fake_tasks(number + 1)
    yield from tasks
    stop.set()


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of another kind")
def test_workers_never_hear_ctrl_c(tmp_path):
    """Not even while their interpreter starts, before any line of ours could say so."""
    code = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    with _deaf_to_ctrl_c():
        inside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    outside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (inside.stdout, outside.stdout) == ("True\n", "False\n")


def _is_gone(process: int) -> bool:
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
