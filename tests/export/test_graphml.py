"""GraphML: what is written reads back bit for bit, here and in networkx, igraph and graphology."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.export.escape import escape, unescape
from flowgraph.graph import Block, LayeredGraph, Level
from flowgraph.solvers.base import FlowResult

NASTY = [
    "plain", "<s>", "</s>", "]]>", "<!-- -->", "&amp;", '"\'', "\r", "a\r\nb", "\n", "\t", " lead", "trail ",
    "\x00", "\x1b[0m", "\x7f", "\x85", "\u2028", "\ud83d", "\udca9", "💩", "\ufffe", "\uffff", "\U0001fffe",
    "_x0041_", "_x0041\x00", "_x005F_", "\x00x0041_", "Ã¡", "Seán", "\\", "#", "", "é", "ÿ", "मी",
]  # fmt: skip


def stack(size: int = 6, layers: int = 3, seed: int = 0, **options: object) -> LayeredGraph:
    """Random causal mixing with zeros, so that some edges do not exist."""
    mixing = np.tril(np.random.default_rng(seed).random((layers, size, size)))
    return LayeredGraph.from_matrices(mixing / mixing.sum(-1, keepdims=True), **options)


def encoder_decoder() -> LayeredGraph:
    """Encoder of two levels, decoder with a self- and a cross-attention level, one level without edges."""
    rng = np.random.default_rng(1)
    source = ("Das", "</s>")
    target = ("<s>", "That", "is")
    levels = [
        Level("encoder 0", 2, source, source, (False, True), (0, None)),
        Level("encoder 1", 2, source, source, (False, True), (0, None)),
        Level("decoder 0", 3, target, None, (True, False, False), None),
        Level("decoder 1 self", 3, target),
        Level("decoder 1", 3, target),
    ]
    blocks = [
        Block(1, 0, rng.random((2, 2)), residual=0.25),
        Block(3, 2, np.tril(rng.random((3, 3)))),
        Block(4, 1, rng.random((3, 2)), kind="cross"),
        Block(4, 3, 0.5 * np.eye(3), kind="residual", residual=0.5),
    ]
    return LayeredGraph(
        levels, blocks, layers=[4], inputs=[0, 2], meta={"edges": "attention", "heads": "mean"}
    )


def one_path(graph: LayeredGraph, capacity: float) -> FlowResult:
    """A flow straight down position 0, and the cut that parts the source from everything else."""
    flows = tuple(np.zeros(b.capacity.shape) for b in graph.blocks)
    for flow in flows:
        flow[0, 0] = capacity
    cut = tuple(np.zeros(level.size, bool) for level in graph.levels)
    cut[-1][0] = True
    return FlowResult(capacity, flows, cut, capacity, "hand", (len(graph.levels) - 1, 0), (0, 0))


def assert_same(a: LayeredGraph, b: LayeredGraph) -> None:
    assert a.levels == b.levels
    assert (a.layers, a.inputs) == (b.layers, b.inputs)
    assert [(x.upper, x.lower, x.kind, x.residual) for x in a.blocks] == [
        (x.upper, x.lower, x.kind, x.residual) for x in b.blocks
    ]
    for x, y in zip(a.blocks, b.blocks, strict=True):
        assert x.capacity.tobytes() == y.capacity.tobytes()


@given(
    st.text(st.characters(), max_size=12) | st.from_regex(r"(_|x|0|4|1|F|\x00|\ud83d){0,12}", fullmatch=True)
)
def test_escape_is_reversible_and_xml_can_hold_it(text: str) -> None:
    from lxml import etree

    element = etree.Element("t")
    element.text = escape(text)  # lxml refuses what XML cannot hold
    assert unescape(etree.fromstring(etree.tostring(element)).text or "") == text


@pytest.mark.parametrize(
    "graph", [stack(), stack(1, 1), encoder_decoder()], ids=["stack", "1x1", "encoder-decoder"]
)
def test_round_trip(graph: LayeredGraph, tmp_path: Path) -> None:
    graph.write_graphml(tmp_path / "g.graphml")
    assert_same(LayeredGraph.read_graphml(tmp_path / "g.graphml"), graph)


def test_round_trip_of_any_token(tmp_path: Path) -> None:
    words = [None if k % 3 else k for k in range(len(NASTY))]
    levels = [
        Level(t, len(NASTY), tuple(NASTY), tuple(reversed(NASTY)), None, tuple(words)) for t in NASTY[:2]
    ]
    graph = LayeredGraph(levels, [Block(1, 0, np.eye(len(NASTY)))], meta={"text": "".join(NASTY)})
    graph.write_graphml(tmp_path / "g.graphml")
    back = LayeredGraph.read_graphml(tmp_path / "g.graphml")
    assert_same(back, graph)
    assert back.meta["text"] == "".join(NASTY)


@pytest.mark.parametrize(
    "value",
    [1 / 3, 0.1, 5e-324, 2.2250738585072014e-308, 1e-12, 1e6, 1.7976931348623157e308, 2.0**53 + 2, 1.0],
)
def test_round_trip_of_any_capacity(value: float, tmp_path: Path) -> None:
    graph = LayeredGraph([Level("a", 1, ("a",)), Level("b", 1, ("b",))], [Block(1, 0, np.array([[value]]))])
    graph.write_graphml(tmp_path / "g.graphml")
    assert LayeredGraph.read_graphml(tmp_path / "g.graphml").blocks[0].capacity[0, 0] == value


def test_flow_and_cut_stand_on_the_edges(tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    graph = stack()
    flow = one_path(graph, 0.25)
    graph.write_graphml(tmp_path / "g.graphml", flow=flow)
    read = networkx.read_graphml(tmp_path / "g.graphml")
    assert read.graph["flow_value"] == read.graph["cut_value"] == 0.25
    assert (read.graph["flow_source"], read.graph["flow_sink"]) == ("n3_0", "n0_0")
    for block, values in zip(graph.blocks, flow.edge_flow, strict=True):
        for i, j in np.argwhere(block.capacity > 0).tolist():
            edge = read.edges[f"n{block.upper}_{i}", f"n{block.lower}_{j}"]
            assert edge["flow"] == values[i, j]
            assert edge["cut"] is (bool(flow.cut[block.upper][i]) and not flow.cut[block.lower][j])
    assert_same(LayeredGraph.read_graphml(tmp_path / "g.graphml"), graph)


def expected_nodes(graph: LayeredGraph) -> dict[str, dict[str, object]]:
    return {
        f"n{k}_{p}": {
            "label": escape(level.tokens[p]),
            "token": escape((level.raw_tokens or level.tokens)[p]),
            "level": k,
            "level_name": level.name,
            "position": p,
            "special": bool(level.special and level.special[p]),
            "word": -1 if not level.words or level.words[p] is None else level.words[p],
        }
        for k, level in enumerate(graph.levels)
        for p in range(level.size)
    }


def expected_edges(graph: LayeredGraph) -> dict[tuple[str, str], dict[str, object]]:
    edges: dict[tuple[str, str], dict[str, object]] = {}
    for block in graph.blocks:
        for i, j in np.argwhere(block.capacity > 0).tolist():
            capacity = float(block.capacity[i, j])
            share = capacity if block.kind == "residual" else (block.residual or 0.0) if i == j else 0.0
            edges[f"n{block.upper}_{i}", f"n{block.lower}_{j}"] = {
                "weight": capacity,
                "capacity": capacity,
                "kind": block.kind,
                "residual": min(share, capacity),
            }
    return edges


def small_graphs() -> list[object]:
    words = LayeredGraph(
        [Level(t, len(NASTY), tuple(NASTY), tuple(NASTY), None, None) for t in ("<a>", "b]]>")],
        [Block(1, 0, np.random.default_rng(2).random((len(NASTY), len(NASTY))), residual=0.5)],
    )
    return [
        pytest.param(stack(residual=0.5), id="stack"),
        pytest.param(encoder_decoder(), id="encoder-decoder"),
        pytest.param(words, id="any-token"),
    ]


@pytest.mark.parametrize("graph", small_graphs())
def test_networkx_reads_every_value(graph: LayeredGraph, tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    graph.write_graphml(tmp_path / "g.graphml")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = networkx.read_graphml(tmp_path / "g.graphml")
    assert type(read) is networkx.DiGraph
    assert dict(read.nodes(data=True)) == expected_nodes(graph)
    edges = {(a, b): {k: v for k, v in d.items() if k != "id"} for a, b, d in read.edges(data=True)}
    assert edges == expected_edges(graph)
    ids = [d["id"] for _, _, d in read.edges(data=True)]
    assert len(set(ids)) == len(ids) == graph.num_edges


@pytest.mark.parametrize("graph", small_graphs())
def test_igraph_reads_every_value(graph: LayeredGraph, tmp_path: Path) -> None:
    igraph = pytest.importorskip("igraph")
    graph.write_graphml(tmp_path / "g.graphml")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = igraph.Graph.Read_GraphML(str(tmp_path / "g.graphml"))
    assert read.is_directed()
    assert {
        v["id"]: {k: x for k, x in v.attributes().items() if k != "id"} for v in read.vs
    } == expected_nodes(graph)
    names = read.vs["id"]
    assert {
        (names[e.source], names[e.target]): {k: x for k, x in e.attributes().items() if k != "id"}
        for e in read.es
    } == expected_edges(graph)


READER = """
const graphml = require('graphology-graphml'), {DirectedGraph} = require('graphology');
const graph = graphml.parse(DirectedGraph, require('fs').readFileSync(0, 'utf8'));
console.log(JSON.stringify({
  multi: graph.multi, type: graph.type, graph: graph.getAttributes(),
  nodes: graph.mapNodes((id, values) => [id, values]),
  edges: graph.mapEdges((id, values, source, target) => [source, target, values]),
}));
"""


def run_node(script: str, text: str) -> str:
    """Run ``script`` with ``text`` as its input; skip where Node.js or its GraphML reader is missing."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        pytest.skip("Node.js and npm are not installed")
    modules = subprocess.run([npm, "root", "-g"], capture_output=True, text=True, check=True).stdout.strip()
    environment = os.environ | {
        "NODE_PATH": os.pathsep.join(filter(None, [os.environ.get("NODE_PATH"), modules]))
    }
    done = subprocess.run([node, "-e", script], input=text, capture_output=True, text=True, env=environment)
    if "Cannot find module" in done.stderr:
        pytest.skip("graphology-graphml is not installed: npm install -g graphology graphology-graphml")
    assert not done.stderr, done.stderr  # no warning either
    return done.stdout


@pytest.mark.parametrize("graph", small_graphs())
def test_graphology_reads_every_value(graph: LayeredGraph, tmp_path: Path) -> None:
    graph.write_graphml(tmp_path / "g.graphml")
    read = json.loads(run_node(READER, (tmp_path / "g.graphml").read_text("utf-8")))
    assert (read["multi"], read["type"]) == (False, "directed")
    assert read["graph"]["edge_kind"] == graph.meta.get("edges", "custom")
    assert dict(read["nodes"]) == expected_nodes(graph)
    assert {(a, b): values for a, b, values in read["edges"]} == expected_edges(graph)
