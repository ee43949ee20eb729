"""How long does flowgraph's own push-relabel take beside igraph called pair by pair?

The whole matrix of one graph by every way: igraph on a graph built once, one value a pair; push-relabel in
batches, every value certified. One process, one thread, building charged to both. The columns of the matrix are
taken in turns by the two, a few at a time, so that what else the machine does falls on both alike; seconds are
the process's CPU seconds. Default graph: ``minilm_67.npz`` of the folder FLOWGRAPH_INSTANCES where that is set,
else random attention of the same size.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import flowgraph as fg
from benchmarks.ratio import Ratio

SIDES = ("igraph", "push-relabel")
COLUMNS = 7
"""Inputs taken at a time by one side."""


def load(path: str | None) -> fg.LayeredGraph:
    """The graph of an instance file, the default one, or a random one of its size."""
    folder = os.environ.get("FLOWGRAPH_INSTANCES")
    if path is None and folder is not None:
        path = str(Path(folder) / "minilm_67.npz")
    if path is None:
        logits = np.random.default_rng(0).standard_normal((6, 67, 67))
        attention = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    else:
        with np.load(path, allow_pickle=False) as arrays:
            attention = arrays["attention"].astype(np.float64)
    return fg.LayeredGraph.from_matrices(attention, residual=0.5)


def measure(graph: fg.LayeredGraph, columns: int | None = None) -> dict[str, float]:
    """CPU seconds of each side for the matrix, or for its first ``columns``; both must give the same values."""
    top = len(graph.levels) - 1
    sources = [(top, i) for i in range(graph.levels[top].size)]
    sinks = [(0, j) for j in range(graph.levels[0].size)][:columns]
    seconds, prepared, values = {}, {}, {name: [] for name in SIDES}
    for name in SIDES:
        start = time.process_time()
        prepared[name] = fg.solvers.get(name).prepare(graph)
        seconds[name] = time.process_time() - start
    for first in range(0, len(sinks), COLUMNS):
        for name in SIDES:
            start = time.process_time()
            values[name].append(prepared[name].values(sources, sinks[first : first + COLUMNS]))
            seconds[name] += time.process_time() - start
    ours, theirs = np.hstack(values["push-relabel"]), np.hstack(values["igraph"])
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    return seconds


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks solvers", description=__doc__)
    parser.add_argument("--graph", help="an .npz file with 'attention' (L, T, T)")
    parser.add_argument("--small", action="store_true", help=f"the first {2 * COLUMNS} columns only")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args(argv)
    threadpool_limits(1)
    graph = load(options.graph)
    columns = 2 * COLUMNS if options.small else graph.levels[0].size
    pairs = graph.levels[-1].size * columns
    for _ in range(options.repeats):
        seconds = measure(graph, columns)
        for name in SIDES:
            print(f"{name:<14} {seconds[name]:8.2f} s   {1e3 * seconds[name] / pairs:7.3f} ms a pair")
        print(f"push-relabel / igraph: {seconds['push-relabel'] / seconds['igraph']:.2f}  (bound: 3)")


def smoke() -> list[Ratio]:
    with threadpool_limits(1):
        seconds = measure(load(None), 2 * COLUMNS)
    ratio = seconds["igraph"] / seconds["push-relabel"]
    return [Ratio("igraph pair by pair / push-relabel", ratio, at_least=1 / 3)]
