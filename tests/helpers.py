"""Graphs for tests, and oracles that share no code with the package."""

from __future__ import annotations

import os
from collections import deque
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from flowgraph.graph import Block, LayeredGraph, Level

DATA = Path(__file__).parent / "data"

STYLES = ("even", "peaky", "sparse", "ties", "wide", "causal", "window", "unit")


def level(number, size):
    return Level(f"level {number}", size, tuple(str(p) for p in range(size)))


def graph_of(sizes, blocks):
    """A graph from level sizes, inputs first, and ``(upper, lower, capacities)``."""
    levels = [level(k, n) for k, n in enumerate(sizes)]
    return LayeredGraph(levels, [Block(u, v, np.array(c, dtype=float)) for u, v, c in blocks])


def stack(matrices):
    """A plain stack with these capacities, the first leading to the inputs; rows need not sum to 1."""
    matrices = [np.array(m, dtype=float) for m in matrices]
    sizes = [matrices[0].shape[1]] + [len(m) for m in matrices]
    return graph_of(sizes, [(k + 1, k, m) for k, m in enumerate(matrices)])


def random_stack(seed, layers, size, style):
    """A stack of ``layers`` matrices; styles stand in ``STYLES``."""
    rng = np.random.default_rng(seed)
    return stack([_capacities(rng, (size, size), style) for _ in range(layers)])


def _capacities(rng, shape, style):
    capacity = rng.random(shape)
    if style == "peaky":
        capacity = np.exp(6 * rng.standard_normal(shape))
    if style == "sparse":
        capacity *= rng.random(shape) < 0.25
    if style == "ties":
        capacity = np.round(capacity * 4) / 4
    if style == "wide":
        capacity = 10.0 ** rng.integers(-12, 7, shape) * (rng.random(shape) < 0.7)
    if style == "causal":
        capacity = np.tril(capacity)
    if style == "window":
        capacity = np.triu(np.tril(capacity), -2)
    if style == "unit":
        capacity = (capacity < 0.4).astype(float)
    return capacity


def encoder_decoder(seed, encoder_layers=2, decoder_layers=2, sources=3, targets=2, style="even"):
    """Encoder levels, then decoder level 0, then a self- and a cross-attention level for each decoder layer: the
    cross-attention level reads the encoder's last level and the level below it."""
    rng = np.random.default_rng(seed)
    sizes = [sources] * (encoder_layers + 1) + [targets] * (2 * decoder_layers + 1)
    blocks = [(k + 1, k, _capacities(rng, (sources, sources), style)) for k in range(encoder_layers)]
    top = encoder_layers + 1
    for _ in range(decoder_layers):
        blocks.append((top + 1, top, _capacities(rng, (targets, targets), style)))
        blocks.append((top + 2, top + 1, np.diag(_capacities(rng, (targets,), "even"))))
        blocks.append((top + 2, encoder_layers, _capacities(rng, (targets, sources), style)))
        top += 2
    return graph_of(sizes, blocks)


def tangle(seed, style="even"):
    """Levels of different sizes, a block between any two or none, some pairs with two parallel blocks."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, rng.integers(2, 6)).tolist()
    blocks = [
        (u, v, _capacities(rng, (sizes[u], sizes[v]), style))
        for u in range(len(sizes))
        for v in range(u)
        for _ in range(rng.integers(0, 3))
    ]
    return graph_of(sizes, blocks)


@st.composite
def stacks(draw, max_layers=8, max_size=12):
    """Random stacks up to ``max_layers`` x ``max_size``, every style."""
    return random_stack(
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(1, max_layers)),
        draw(st.integers(1, max_size)),
        draw(st.sampled_from(STYLES)),
    )


@st.composite
def small_stacks(draw):
    """Stacks of at most 3 x 3 whose every capacity hypothesis chooses, and can shrink."""
    layers, size = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    capacity = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1e-12, 1e6]) | st.floats(1e-12, 1e6)
    flat = draw(st.lists(capacity, min_size=layers * size**2, max_size=layers * size**2))
    return stack(np.array(flat).reshape(layers, size, size))


@st.composite
def pairs(draw, graph):
    """A source and a sink below it."""
    upper = draw(st.integers(1, len(graph.levels) - 1))
    lower = draw(st.integers(0, upper - 1))
    return (
        (upper, draw(st.integers(0, graph.levels[upper].size - 1))),
        (lower, draw(st.integers(0, graph.levels[lower].size - 1))),
    )


def all_pairs(graph):
    """Every source with every sink below it."""
    nodes = [(k, p) for k, one in enumerate(graph.levels) for p in range(one.size)]
    return [(source, sink) for source in nodes for sink in nodes if source[0] > sink[0]]


def exact_value(graph, source, sink):
    """The maximum flow in exact arithmetic: shortest augmenting paths on fractions, one at a time."""
    room = {}
    for block in graph.blocks:
        for i, j in zip(*np.nonzero(block.capacity), strict=True):
            u, v = (block.upper, int(i)), (block.lower, int(j))
            room.setdefault(u, {}).setdefault(v, Fraction(0))
            room.setdefault(v, {}).setdefault(u, Fraction(0))
            room[u][v] += Fraction(float(block.capacity[i, j]))
    value = Fraction(0)
    while path := _shortest_path(room, source, sink):
        amount = min(room[u][v] for u, v in path)
        for u, v in path:
            room[u][v] -= amount
            room[v][u] += amount
        value += amount
    return value


def _shortest_path(room, source, sink):
    previous, queue = {source: None}, deque([source])
    while queue:
        u = queue.popleft()
        if u == sink:
            path = []
            while previous[u] is not None:
                path.append((previous[u], u))
                u = previous[u]
            return path[::-1]
        for v, left in room.get(u, {}).items():
            if left > 0 and v not in previous:
                previous[v] = u
                queue.append(v)
    return None


def close(value, reference):
    """Within the promise: 1e-9 * max(1, reference)."""
    return abs(float(value) - float(reference)) <= 1e-9 * max(1.0, float(reference))


def instance(name):
    """A real graph and what is known of it: ``(graph, targets, flow)``; skips where it is not to be had."""
    path = DATA / f"{name}.npz"
    if not path.exists():
        folder = os.environ.get("FLOWGRAPH_INSTANCES")
        if not folder:
            pytest.skip("FLOWGRAPH_INSTANCES is not set: the folder with the real attention graphs")
        path = Path(folder) / f"{name}.npz"
    with np.load(path, allow_pickle=False) as file:
        graph = LayeredGraph.from_matrices(file["attention"].astype(np.float64), residual=0.5)
        return graph, file["targets"].tolist(), file["flow"]
