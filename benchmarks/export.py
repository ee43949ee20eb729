"""How fast is GraphML written, and in how much memory, beside networkx's lxml writer?

Both write the same graph with the same attributes on nodes and edges, in one process with one thread, and both have it
in memory before the clock starts: flowgraph as arrays, networkx as a ``DiGraph``. Seconds are the process's CPU time;
extra memory is the largest resident set while writing less that before. ``--read`` also times flowgraph's reader and
checks that every capacity comes back bit for bit.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import psutil

import flowgraph as fg
from benchmarks.ratio import Ratio
from flowgraph.errors import FlowgraphWarning
from flowgraph.export import rows


@dataclass(frozen=True)
class Cost:
    seconds: float
    extra_mib: float
    megabytes: float

    def __str__(self) -> str:
        return f"{self.seconds:8.2f} s CPU  {self.extra_mib:8.1f} MiB extra  {self.megabytes:8.1f} MB written"


def setup(layers: int, tokens: int, seed: int = 0) -> fg.LayeredGraph:
    """Attention that is full and peaked, as softmax makes it: no two capacities alike."""
    logits = 2.0 * np.random.default_rng(seed).standard_normal((layers, tokens, tokens))
    weights = np.exp(logits)
    return fg.LayeredGraph.from_matrices(weights / weights.sum(-1, keepdims=True))


def as_networkx(graph: fg.LayeredGraph) -> nx.DiGraph:
    """The graph with every attribute that flowgraph writes."""
    made = nx.DiGraph(**rows.graph_data(graph, rows.prune(graph)))
    for node in rows.node_rows(graph):
        made.add_node(node.id, **{name: value for name, value in asdict(node).items() if name != "id"})
    for run in rows.edge_runs(graph, rows.prune(graph)):
        source = rows.node_id(run.upper, run.row)
        columns, capacity, residual = run.columns.tolist(), run.capacity.tolist(), run.residual.tolist()
        for j, c, r in zip(columns, capacity, residual, strict=True):
            made.add_edge(source, rows.node_id(run.lower, j), weight=c, capacity=c, kind=run.kind, residual=r)
    return made


def measure(write: Callable[[Path], None], path: Path) -> Cost:
    """Cost of one call, resident memory watched from a thread every 5 ms."""
    process, done = psutil.Process(), threading.Event()
    before = peak = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.process_time()
    try:
        write(path)
        seconds = time.process_time() - start
    finally:
        done.set()
        watcher.join()
    return Cost(seconds, (peak - before) / 2**20, path.stat().st_size / 1e6)


def compare(layers: int, tokens: int, folder: Path) -> tuple[fg.LayeredGraph, Cost, Cost]:
    """flowgraph's cost and networkx's; flowgraph first, so that memory networkx frees is not reused unseen."""
    graph = setup(layers, tokens)
    setup(1, 4).write_graphml(folder / "warm.graphml")  # imports
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlowgraphWarning)  # the size of the file, which is the point here
        ours = measure(graph.write_graphml, folder / "flowgraph.graphml")
    other = as_networkx(graph)
    theirs = measure(lambda path: nx.write_graphml_lxml(other, path), folder / "networkx.graphml")
    return graph, ours, theirs


def read_back(graph: fg.LayeredGraph, path: Path) -> float:
    start = time.process_time()
    back = fg.LayeredGraph.read_graphml(path)
    seconds = time.process_time() - start
    for a, b in zip(graph.blocks, back.blocks, strict=True):
        if a.capacity.tobytes() != b.capacity.tobytes():
            raise SystemExit("a capacity did not come back bit for bit")
    return seconds


def main(arguments: Sequence[str]) -> None:
    parser: Any = argparse.ArgumentParser(prog="python -m benchmarks export", description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument(
        "--folder", type=Path, help="where the files are written (default: a temporary folder)"
    )
    parser.add_argument("--read", action="store_true", help="also read the file back")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        graph, ours, theirs = compare(options.layers, options.tokens, Path(name))
        print(f"{options.layers} layers, {options.tokens} tokens, {graph.num_edges} edges")
        print(f"flowgraph  {ours}")
        print(f"networkx   {theirs}")
        print(f"flowgraph is {theirs.seconds / ours.seconds:.1f} times as fast")
        if options.read:
            seconds = read_back(graph, Path(name) / "flowgraph.graphml")
            print(f"read back bit for bit in {seconds:.2f} s CPU")


def smoke() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        graph, ours, theirs = compare(4, 128, Path(name))
        read_back(graph, Path(name) / "flowgraph.graphml")
    return [
        Ratio("export: GraphML, networkx's seconds / flowgraph's", theirs.seconds / ours.seconds, 5.0),
        Ratio("export: GraphML, 200 MiB / extra memory", 200.0 / max(ours.extra_mib, 1.0), 1.0),
    ]
