"""How much of importing everything ``import flowgraph`` and ``flowgraph --help`` save.

Each statement runs in a fresh interpreter, in interleaved order; the median of the repeats counts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

from benchmarks.ratio import Ratio

STATEMENTS = {
    "nothing": "pass",
    "import numpy": "import numpy",
    "import flowgraph": "import flowgraph",
    "flowgraph --help": "from flowgraph.cli import execute; execute(['--help'])",
    "all libraries": "import torch, transformers, igraph, networkx, flowgraph",
}


def measure(repeats: int) -> dict[str, float]:
    """Median seconds of each statement."""
    seconds: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(repeats):
        for name, code in STATEMENTS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks import_time", description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    for name, value in measure(parser.parse_args(argv).repeats).items():
        print(f"{name:<20} {value:8.3f} s")


def smoke() -> list[Ratio]:
    seconds = measure(3)
    everything = seconds["all libraries"]
    return [
        Ratio(f"importing all libraries / {name}", everything / seconds[name], at_least=4.0)
        for name in ("import flowgraph", "flowgraph --help")
    ]
