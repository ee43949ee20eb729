"""Files that take the place of old ones, and what must never be replaced."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import flowgraph as fg
from flowgraph.errors import FlowgraphError
from flowgraph.export.files import replacing


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
