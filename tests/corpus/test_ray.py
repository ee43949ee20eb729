"""The Ray engine on a local Ray that the tests start."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace

import pytest

from flowgraph import FlowgraphError
from tests.corpus.corpora import SETTINGS, errors, run, shards, texts, write_lines
from tests.corpus.fakes import FakeSpec, fake_tasks

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Two workers' worth of Ray on this machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def test_a_worker_killed_in_the_middle_costs_nothing_but_time(tmp_path):
    from flowgraph.corpus.ray_engine import run_on_ray

    spec = FakeSpec(str(tmp_path), die_once_at=(3,), seconds=0.05)
    reports = list(run_on_ray(spec, fake_tasks(8), 2, threading.Event(), None))
    assert sorted(r.window for r in reports) == list(range(8))
    begun = [int(f.name.split(".")[0]) for f in tmp_path.iterdir()]
    assert begun.count(3) > 1


def test_rounds_are_bounded_and_an_error_comes_back_as_it_is(tmp_path, monkeypatch):
    from flowgraph.corpus import ray_engine

    monkeypatch.setattr(ray_engine, "ROUND", 1)
    taken = []

    def tasks():
        for task in fake_tasks(9):
            taken.append(task.number)
            yield task

    spec = FakeSpec(str(tmp_path), fail_at=1)
    reports = ray_engine.run_on_ray(spec, tasks(), 1, threading.Event(), None)
    assert next(reports).window == 0
    assert taken == [0]
    with pytest.raises(FlowgraphError, match=r"^level: 9 is not a layer$"):
        list(reports)


def test_same_shards_as_the_local_engine(model, tmp_path):
    source = write_lines(tmp_path / "a.txt", [*texts(20), ""])
    settings = replace(SETTINGS, methods=("rollout",))
    summary = run(source, tmp_path / "ray", model, settings=settings, engine="ray", workers=1)
    assert (summary.computed, summary.failed, summary.complete) == (20, 1, True)
    run(source, tmp_path / "local", model, settings=settings)
    assert shards(tmp_path / "ray") == shards(tmp_path / "local")
    assert errors(tmp_path / "ray") == errors(tmp_path / "local")


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:none", "127.0.0.1:99999999"]
)
def test_an_address_where_no_cluster_answers_is_one_error(tmp_path, monkeypatch, address):
    """Ray itself would go on asking for minutes."""
    from flowgraph.corpus.ray_engine import run_on_ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("asked Ray"))
    reports = run_on_ray(FakeSpec(str(tmp_path)), fake_tasks(1), 1, threading.Event(), address)
    with pytest.raises(FlowgraphError, match=f"^ray_address: '{address}' does not answer"):
        list(reports)
