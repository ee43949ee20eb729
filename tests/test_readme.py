"""The README cannot drift: its commands and its Python run, and what it lists is what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowgraph import cli, mixing

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A fenced block, and the comment on the line before it."""

    language: str
    body: str
    mark: str | None

    @property
    def runs(self) -> bool:
        """False for the two that `.ci/run` runs, and for what is marked `not run here: WHY`."""
        return self.mark is None

    @property
    def commands(self) -> list[str]:
        return self.body.replace("\\\n", " ").splitlines()


BLOCKS = [Block(m["language"], m["body"], m["mark"]) for m in _BLOCK.finditer(README)]
PRINTED = {"printed by: flowgraph demo"}
"""Marks of blocks that show what a command printed; each has its test."""
SHELL = [block.body for block in BLOCKS if block.language == "bash" and block.runs]


def environment() -> dict[str, str]:
    """This interpreter's scripts first on the path, so that `flowgraph` is the one under test."""
    path = os.pathsep.join(
        [sysconfig.get_path("scripts"), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    return os.environ | {"PATH": path, "HF_HUB_OFFLINE": "1"}


def test_every_block_is_run_or_says_why_not():
    assert README.count("```") == 2 * len(BLOCKS)
    for block in BLOCKS:
        if block.language == "text":
            assert block.mark in PRINTED, block
            continue
        assert block.language in ("bash", "python"), block
        assert block.mark is None or re.match(r"ci: (install|test)$|not run here: \w", block.mark), block.mark


def test_the_two_commands_are_the_ones_ci_runs():
    runner = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for name in ("install", "test"):
        (block,) = [b for b in BLOCKS if b.mark == f"ci: {name}"]
        assert len(block.commands) == 1
        assert "pip install torch==2.13.0 -e" in block.body
        assert f"run_readme_block {name}" in runner


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=250,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the blocks run, one after the other, as they do when they are pasted."""
    return tmp_path_factory.mktemp("readme")


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("block", SHELL)
def test_every_command_runs(block, folder):
    run(["bash", "-euo", "pipefail", "-c", block], folder)
    wanted = re.findall(r"--out (\S+)", block)
    assert [name for name in wanted if not (folder / name).exists()] == []


def table_rows(text: str) -> list[tuple[str, list[float]]]:
    """Input token and scores of each line of a printed table, the bars left out."""
    lines = re.findall(r"^ *\d+ +(\S+) +(.*\d.*)$", text, re.M)
    return [(token, [float(score) for score in re.findall(r"\d\.\d{4}", rest)]) for token, rest in lines]


@pytest.mark.usefixtures("embedded")
def test_the_demo_prints_what_the_readme_shows(tmp_path):
    (block,) = [b for b in BLOCKS if b.language == "text"]
    done = subprocess.run(
        ["flowgraph", "demo"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=250
    )
    printed = table_rows(done.stdout)
    shown = table_rows(block.body)
    assert len(shown) >= 5
    for token, scores in shown:
        # the last digits are the machine's
        assert any(token == t and scores == pytest.approx(s, abs=2e-3) for t, s in printed), (token, scores)


@pytest.mark.usefixtures("embedded")
def test_the_python_runs_from_top_to_bottom(folder):
    code = "\n".join(block.body for block in BLOCKS if block.language == "python" and block.runs)
    run([sys.executable, "-c", code], folder)
    assert (folder / "heat.png").stat().st_size > 1000


def test_every_command_is_in_its_table():
    listed = re.findall(r"^\| `flowgraph ([\w-]+)[^|]*\|", README, re.M)
    assert sorted(listed) == sorted(cli.COMMANDS)


def test_every_option_it_names_exists():
    """Options named in prose, beside the commands that run."""
    known = set()
    for name in cli.COMMANDS:
        known |= set(re.findall(r"--[\w-]+", CliRunner().invoke(cli.group, [name, "--help"], obj={}).output))
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.M | re.S)
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", prose)) - {"--index-url"}
    assert named <= known


def test_every_built_in_edge_kind_is_in_its_table():
    listed = re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\| (`[^|]*) \|", README, re.M)))
    assert set(mixing._MODULES) <= set(listed)


def test_every_extra_it_names_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    section = README.split("## Extras")[1].split("##")[0]
    named = set(re.findall(r"`([a-z]+)`", section))
    assert named <= set(extras)
    assert set(extras) - named <= {"test", "lint"}


def test_every_family_it_names_is_in_the_table_of_architectures():
    from flowgraph.capture.architectures import BLOCKS

    known = {re.sub(r"[^a-z0-9]", "", block.split(".")[0]) for block in BLOCKS}
    rows = re.findall(
        r"^\| (?:encoders|decoders|encoder–decoders|vision|hybrids[^|]*) \| ([^|]*) \|$", README, re.M
    )
    named = [re.sub(r"[^a-z0-9]", "", name.lower()) for row in rows for name in row.split(",")]
    assert len(rows) == 5
    assert set(named) <= known


def test_the_keys_it_names_are_written():
    from flowgraph.bench.report import Report
    from flowgraph.corpus.summary import Summary

    def named(command):
        (row,) = re.findall(rf"^\| `{command}` \| (.*) \|$", README, re.M)
        return set(re.findall(r"`([a-z_]+)`", row))

    assert named("run") <= set(Summary().to_dict())
    top = set(Report([], {}, {}, {}, []).to_dict())
    assert {"machine", "versions", "settings", "growth", "graphs"} <= named("bench") & top
    assert named("evaluate") == {"meta", "correlations", "curves", "failures"}


def test_every_link_to_a_file_leads_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert "examples/images/flow.png" in links
    assert [link for link in links if not (ROOT / link).exists()] == []
