"""Folders that are not on this disk, and their locks."""

from __future__ import annotations

import json
import os
import socket
import time

import fsspec
import pytest

from flowgraph import FlowgraphError
from flowgraph.corpus import lock
from flowgraph.corpus.lock import locked
from flowgraph.corpus.store import Store
from tests.corpus.corpora import errors, rows, run, texts, write_lines


@pytest.fixture
def memory(monkeypatch):
    """An address in fsspec's memory file system, empty again afterwards."""
    monkeypatch.setattr(lock, "SETTLE", 0.0)
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield "memory://bucket/run"
    fs.store.clear()


def test_a_run_in_an_object_store(memory, model, tmp_path):
    source = write_lines(tmp_path / "a.txt", [*texts(12), ""])
    with fsspec.open("memory://bucket/in.txt", "wb") as file:
        file.write(source.read_bytes())
    assert run("memory://bucket/in.txt", memory, model).computed == 12
    run(source, tmp_path / "out", model)
    assert rows(memory) == rows(tmp_path / "out")
    assert errors(memory) == errors(tmp_path / "out")
    assert run(source, memory, model).known == 12
    names = [path.rsplit("/", 1)[1] for path in fsspec.filesystem("memory").find("bucket/run")]
    assert not [name for name in names if name.startswith(".")]


def test_an_address_of_the_local_disk(model, tmp_path):
    source = write_lines(tmp_path / "a.txt", texts(3))
    assert run(f"file://{source}", f"file://{tmp_path}/out", model).computed == 3
    assert rows(f"file://{tmp_path}/out") == rows(tmp_path / "out")


def test_an_address_of_no_kind():
    with pytest.raises(FlowgraphError, match="out: 'nowhere://a' is at no address that can be opened"):
        Store("nowhere://a")


def test_pyarrow_serves_what_fsspec_cannot(monkeypatch, tmp_path):
    """An address whose fsspec library is not installed is opened by ``pyarrow.fs``."""

    def missing(*_, **__):
        raise ImportError("install it")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    store = Store(f"file://{tmp_path}/run")
    store.make("data")
    store.write("data/a", b"one")
    store.write("data/a", b"two")
    assert store.read("data/a") == b"two"
    assert store.names("data") == ["a"]
    assert store.read("data/b") is None
    store.remove("data/a")
    store.remove("data/a")
    assert store.names("data") == []


# --- locks --------------------------------------------------------------------------------------------------


def leave_lease(address, **owner):
    Store(address).write(".lock", json.dumps(owner).encode())


def test_a_lease_is_held_and_let_go(memory):
    store = Store(memory)
    with locked(store), pytest.raises(FlowgraphError, match="in use by another run"), locked(Store(memory)):
        pass
    with locked(store):
        pass


def test_the_lease_of_a_killed_process_does_not_block(memory):
    leave_lease(memory, process=2**22 + 1, host=socket.gethostname(), token="x", time=time.time())
    with locked(Store(memory)):
        pass


@pytest.mark.parametrize(("age", "free"), [(0.0, False), (lock.STALE + 1, True)])
def test_the_lease_of_another_machine_runs_out(memory, age, free):
    leave_lease(memory, process=1, host="elsewhere", token="x", time=time.time() - age)
    if free:
        with locked(Store(memory)):
            pass
    else:
        with pytest.raises(FlowgraphError, match="process 1 on elsewhere"), locked(Store(memory)):
            pass


def test_a_lease_is_renewed(memory, monkeypatch):
    monkeypatch.setattr(lock, "RENEWED", 0.01)
    store = Store(memory)
    with locked(store):
        first = json.loads(store.read(".lock"))["time"]
        for _ in range(200):
            time.sleep(0.01)
            if json.loads(store.read(".lock") or b'{"time": 0}')["time"] > first:
                return
    raise AssertionError("not renewed in two seconds")


def test_of_two_that_start_at_once_one_gives_way(memory, monkeypatch):
    """The other writes its lease after ours was written: ours is not the one that stands."""
    monkeypatch.setattr(
        time, "sleep", lambda _: leave_lease(memory, process=1, host="elsewhere", token="y", time=time.time())
    )
    with pytest.raises(FlowgraphError, match="process 1 on elsewhere"), locked(Store(memory)):
        pass


def test_the_lock_of_a_killed_process_does_not_block(tmp_path):
    """The operating system lets go of a lock when its owner dies; the file that stays means nothing."""
    store = Store(tmp_path)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(store):
            os.write(write, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(read, 1)
    with pytest.raises(FlowgraphError, match=f"process {child} on"), locked(store):
        pass
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert (tmp_path / ".lock").exists()
    with locked(store):
        pass
