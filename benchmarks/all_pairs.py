"""How much faster is the whole matrix of attention flows than a packaged solver called pair by pair?

For each graph: ``fg.attention_flow(graph)`` in full, and every packaged solver on pairs drawn at random (graph built
once, building charged in full), its time scaled to all pairs. Both sides run in turns in one process with one thread;
seconds are the process's CPU seconds, medians of the turns. ``--levels`` adds all levels together; ``--plot`` draws
growth with T and L.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import flowgraph as fg
from benchmarks.ratio import Ratio
from flowgraph.bench.generate import generate
from flowgraph.bench.peers import PEERS
from flowgraph.flow import flow_matrix

GRAPHS = ("minilm_14", "minilm_67", "minilm_120", "12x128f", "12x128p", "12x128c", "smollm2_64", "dinov2_145")
LETTERS = {"f": "softmax", "c": "causal", "p": "peaky", "w": "window"}
SOLVERS = ("igraph", "or-tools", "scipy", "pymaxflow")


def load(name: str) -> fg.LayeredGraph:
    """A real graph of the folder FLOWGRAPH_INSTANCES, or a generated one.

    ``minilm_120``: the first 120 tokens of minilm_146; ``12x128f``: 12 layers, 128 tokens, full attention.
    """
    if name[0].isdigit():
        layers, tokens = name[:-1].split("x")
        return generate(int(layers), int(tokens), LETTERS[name[-1]])
    folder = os.environ.get("FLOWGRAPH_INSTANCES")
    if folder is None:
        raise SystemExit(
            f"{name}: set FLOWGRAPH_INSTANCES to the folder that holds the real graphs, or leave it out"
        )
    size = int(name.split("_")[1])
    file = name if (Path(folder) / f"{name}.npz").exists() else "minilm_146"
    with np.load(Path(folder) / f"{file}.npz", allow_pickle=False) as arrays:
        attention = arrays["attention"].astype(np.float64)[:, :size, :size]
    return fg.LayeredGraph.from_matrices(attention / attention.sum(-1, keepdims=True))


class PairByPair:
    """A packaged solver on random pairs; ``seconds()`` is what all pairs would take it."""

    def __init__(self, graph: fg.LayeredGraph, name: str, pairs: int) -> None:
        solver: Any = PEERS[name] if name in PEERS else fg.solvers.get(name)
        self.top, self.size = len(graph.levels) - 1, graph.levels[0].size
        start = time.process_time()
        self.prepared = solver.prepare(graph)
        self.build = time.process_time() - start
        drawn = np.random.default_rng(0).integers(self.size, size=(pairs, 2)).tolist()
        self.pairs = [(int(i), int(j)) for i, j in drawn]

    def values(self) -> np.ndarray:
        one = self.prepared.values
        return np.array([one([(self.top, i)], [(0, j)])[0, 0] for i, j in self.pairs])

    def seconds(self) -> float:
        start = time.process_time()
        self.values()
        return self.build + (time.process_time() - start) * self.size**2 / len(self.pairs)


def timed(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(name: str, solvers: Sequence[str], pairs: int, repeats: int, levels: bool) -> dict[str, Any]:
    """Medians of seconds, largest relative error on the drawn pairs, and how the pairs were settled."""
    graph = load(name)
    peers = {s: PairByPair(graph, s, pairs) for s in solvers}
    found = flow_matrix(graph)
    errors = {s: _error(found.values, peer) for s, peer in peers.items()}
    seconds: dict[str, list[float]] = {s: [] for s in ("auto", *(["all levels"] if levels else []), *solvers)}
    for _ in range(repeats):
        seconds["auto"].append(timed(lambda: fg.attention_flow(graph)))
        if levels:
            seconds["all levels"].append(timed(lambda: fg.attention_flow(graph, level="all")))
        for s, peer in peers.items():
            seconds[s].append(peer.seconds())
    return {
        "seconds": {s: median(v) for s, v in seconds.items()},
        "errors": errors,
        "settled": found.stats["settled"],
        "layers": graph.num_layers,
        "tokens": graph.levels[0].size,
    }


def _error(values: np.ndarray, peer: PairByPair) -> float:
    expected = peer.values()
    found = np.array([values[i, j] for i, j in peer.pairs])
    return float((np.abs(found - expected) / np.maximum(1.0, expected)).max())


def report(name: str, result: dict[str, Any], solvers: Sequence[str]) -> float:
    """Print one graph's lines; the ratio to the fastest packaged solver."""
    auto = result["seconds"]["auto"]
    fastest = min(solvers, key=result["seconds"].__getitem__)
    print(f"\n{name}: {result['layers']} layers x {result['tokens']} tokens, whole matrix")
    print(f"  {'auto':<12} {auto:10.3f} s   settled by {result['settled']}")
    for s in solvers:
        seconds = result["seconds"][s]
        print(
            f"  {s:<12} {seconds:10.3f} s   {seconds / auto:9.1f} x   largest difference {result['errors'][s]:.1e}"
        )
    if "all levels" in result["seconds"]:
        every = result["seconds"]["all levels"]
        print(f"  {'all levels':<12} {every:10.3f} s   {every / auto:9.1f} x the top level alone")
    ratio = result["seconds"][fastest] / auto
    print(f"  against the fastest packaged solver, {fastest}: {ratio:.1f} x", flush=True)
    return ratio


def plot_growth(path: str, repeats: int) -> None:
    """Seconds of the whole matrix against T (12 layers) and against L (64 tokens), auto and igraph."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    sweeps = (
        ("tokens (12 layers)", [(12, t) for t in (16, 32, 64, 128)], 1),
        ("layers (64 tokens)", [(n, 64) for n in (4, 8, 16, 32)], 0),
    )
    for axis, (label, sizes, which) in zip(axes, sweeps, strict=True):
        for letter, colour in (("f", "#0072B2"), ("c", "#D55E00")):
            results = [compare(f"{n}x{t}{letter}", ["igraph"], 24, repeats, False) for n, t in sizes]
            at = [size[which] for size in sizes]
            for solver, style in (("auto", "-o"), ("igraph", "--s")):
                seconds = [r["seconds"][solver] for r in results]
                axis.loglog(at, seconds, style, color=colour, label=f"{solver}, {LETTERS[letter]}")
        axis.set(xlabel=label, ylabel="seconds, whole matrix")
        axis.legend(frameon=False)
    figure.savefig(path, dpi=150)
    print(f"growth drawn to {path}")


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks all_pairs", description=__doc__)
    parser.add_argument(
        "--graphs", nargs="+", default=list(GRAPHS), help="real graphs, or LAYERSxTOKENS and f, p, c or w"
    )
    parser.add_argument("--solvers", nargs="+", default=list(SOLVERS))
    parser.add_argument("--pairs", type=int, default=40, help="pairs on which a packaged solver is timed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--levels", action="store_true", help="time level='all' as well")
    parser.add_argument("--plot", metavar="FILE", help="draw growth with T and L")
    chosen = parser.parse_args(argv)
    threadpool_limits(1)
    solvers = [s for s in chosen.solvers if s not in PEERS or PEERS[s].installed]
    for name in chosen.graphs:
        report(name, compare(name, solvers, chosen.pairs, chosen.repeats, chosen.levels), solvers)
    if chosen.plot:
        plot_growth(chosen.plot, chosen.repeats)


def smoke() -> list[Ratio]:
    """Small graphs, igraph alone: the gain grows with size, so these bounds are far below the figures in full."""
    bounds = {"6x16f": 0.6, "8x48f": 10.0, "8x48p": 1.5, "6x48c": 0.8}
    return [
        Ratio(
            f"igraph pair by pair / attention_flow, {name}",
            report(name, compare(name, ["igraph"], 60, 3, False), ["igraph"]),
            bound,
        )
        for name, bound in bounds.items()
    ]
