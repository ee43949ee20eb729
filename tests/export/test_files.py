"""Files that take the place of old ones, and what must never be replaced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowgraph as fg
from flowgraph.attribution import attribute_graph
from flowgraph.errors import FlowgraphError
from flowgraph.export.files import replacing
from flowgraph.export.gexf import write_gexf
from flowgraph.export.json import write_json
from flowgraph.export.page import page


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["old.txt"]


def test_permissions_and_links_are_kept(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a thing of POSIX")
def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    graph = fg.LayeredGraph.from_matrices(np.eye(3)[None])
    graph.write_graphml(tmp_path / "file")
    writer = threading.Thread(target=graph.write_graphml, args=(pipe,), daemon=True)
    writer.start()
    assert pipe.read_bytes() == (tmp_path / "file").read_bytes()
    writer.join()
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="there is no /dev/stdout")
def test_standard_output_as_a_file() -> None:
    code = (
        "import numpy as np, flowgraph as fg\n"
        "fg.LayeredGraph.from_matrices(np.eye(2)[None]).write_graphml('/dev/stdout')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"<?xml")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
def test_a_full_device_is_one_error_and_stays_a_device() -> None:
    with pytest.raises(FlowgraphError, match="/dev/full' cannot be written: No space left"):
        fg.LayeredGraph.from_matrices(np.eye(3)[None]).write_graphml("/dev/full")
    assert Path("/dev/full").is_char_device()


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="there is no /dev/stdout")
def test_a_log_that_standard_output_goes_to_is_added_to(tmp_path) -> None:
    log = tmp_path / "log"
    log.write_text("earlier\n")
    code = (
        "import numpy as np, flowgraph as fg\n"
        "fg.LayeredGraph.from_matrices(np.eye(2)[None]).write_graphml('/dev/stdout')"
    )
    with log.open("ab") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, timeout=60, check=True)
    assert log.read_bytes().startswith(b"earlier\n<?xml")


# --- paths that name no file ------------------------------------------------------------------------------


def graph() -> fg.LayeredGraph:
    return fg.LayeredGraph.from_matrices(np.eye(2)[None])


WRITERS = {
    "graphml": lambda path: graph().write_graphml(path),
    "gexf": lambda path: write_gexf(graph(), path),
    "json": lambda path: write_json(graph(), path),
    "page": lambda path: page(graph(), path),
    "html": lambda path: attribute_graph(graph(), method="rollout").to_html(path),
    "plot": lambda path: attribute_graph(graph(), method="rollout").plot(path),
    "graph plot": lambda path: graph().plot(path),
}
READERS = {"graphml": fg.LayeredGraph.read_graphml}
CALLS = [pytest.param(call, id=f"write {name}") for name, call in WRITERS.items()]
CALLS += [pytest.param(call, id=f"read {name}") for name, call in READERS.items()]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("path", "words"),
    [
        (3, "path: 3 is a int; pass a file's name or a Path"),
        (True, "path: True is a bool; pass a file's name or a Path"),
        (b"a.png", "path: b'a.png' is a name in bytes; pass text"),
        ("", "path: '' names no file"),
        ("a\0b.png", "path: 'a\\x00b.png' holds a NUL character, which no file's name can; leave it out"),
        ("a\ud800.png", "path: 'a\\ud800.png' holds '\\ud800', which file names cannot hold here"),
        ("x" * 300 + ".png", "(304 characters) cannot be "),
        ("folder.png", "folder"),
    ],
)
def test_paths_that_name_no_file_are_one_error(
    call: Any, path: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.png").mkdir()
    with pytest.raises(FlowgraphError, match=re.escape(words)) as caught:
        call(path)
    said = str(caught.value)
    assert said.startswith("path: ")
    assert len(said) < 300
    assert re.search("pass |leave it out|name a file", said), "no remedy"
    assert os.listdir(tmp_path) == ["folder.png"]


def test_a_name_of_the_greatest_length_is_written(tmp_path: Path) -> None:
    longest = tmp_path / ("x" * (os.pathconf(tmp_path, "PC_NAME_MAX") - 4) + ".xml")
    graph().write_graphml(longest)
    assert os.listdir(tmp_path) == [longest.name]


@pytest.mark.parametrize("mode", [0o444, 0o400])
def test_a_write_protected_file_is_not_replaced(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "old.png"
    path.write_text("old")
    path.chmod(mode)
    for write in WRITERS.values():
        with pytest.raises(
            FlowgraphError, match=r"old.png' is write-protected; make it writable \(chmod u\+w\)"
        ):
            write(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["old.png"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a thing of POSIX")
def test_a_graph_is_read_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=graph().write_graphml, args=(pipe,), daemon=True)
    writer.start()
    assert fg.LayeredGraph.read_graphml(pipe).num_edges == 2
    writer.join()
