"""GraphML: what is written reads back bit for bit, here and in networkx, igraph and graphology."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.errors import FlowgraphError, FlowgraphWarning
from flowgraph.export import graphml, graphml_reader, rows
from flowgraph.export.escape import escape, unescape
from flowgraph.graph import Block, LayeredGraph, Level
from tests.export.graphs import (
    NASTY,
    assert_same,
    encoder_decoder,
    expected_edges,
    expected_nodes,
    one_path,
    stack,
)

# texts that look like escapes, or would once their neighbours are escaped
LOOKALIKES = st.lists(
    st.sampled_from(["_", "x0041", "_x0041_", "_x005F_", "_x004", "1_", "\x00", "\ud83d", "a"]), max_size=6
).map("".join)


@given(st.text(st.characters(), max_size=12) | LOOKALIKES)
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


def changed(graph: LayeredGraph, path: Path, old: str, new: str) -> Path:
    """The file of ``graph`` with every ``old`` replaced."""
    graph.write_graphml(path)
    text = path.read_text("ascii")
    assert old in text
    path.write_text(text.replace(old, new))
    return path


# --- what people met with other writers and readers -------------------------------------------------------


def test_values_of_any_python_type_become_plain_ones(tmp_path: Path) -> None:
    """NumPy scalars, None, lists, tuples, mappings, np.bool_ in the metadata."""
    meta = {
        "heads": np.int64(3), "residual": np.float32(0.5), "normalize": np.bool_(True), "model": None,
        "text": ("a", "b"), "versions": {"torch": "2.13"}, "row_mass": np.array([[1 / 3, 1.0]]), "odd": {1},
        "nan": float("nan"), "long": np.longdouble(2),
    }  # fmt: skip
    graph = LayeredGraph(
        [Level("0", 1, ("a",)), Level("1", 1, ("a",))], [Block(1, 0, np.ones((1, 1)))], meta=meta
    )
    graph.write_graphml(tmp_path / "g.graphml")
    back = LayeredGraph.read_graphml(tmp_path / "g.graphml").meta
    assert back["row_mass"].tobytes() == meta["row_mass"].tobytes()
    assert {k: v for k, v in back.items() if k != "row_mass"} == {
        "heads": 3, "residual": 0.5, "normalize": True, "model": None, "text": ["a", "b"],
        "versions": {"torch": "2.13"}, "odd": [1], "nan": "nan", "long": "2.0",
    }  # fmt: skip
    types = set(re.findall(r'attr.type="(\w+)"', (tmp_path / "g.graphml").read_text()))
    assert types == {"string", "int", "double", "boolean"}


def test_no_value_is_left_to_a_default(tmp_path: Path) -> None:
    """A reader may take a missing boolean for false and a missing capacity for infinite."""
    encoder_decoder().write_graphml(tmp_path / "g.graphml")
    text = (tmp_path / "g.graphml").read_text()
    assert "<default" not in text
    assert {len(re.findall("<data", line)) for line in text.split("\n") if line.startswith("<edge")} == {4}
    assert {len(re.findall("<data", line)) for line in text.split("\n") if line.startswith("<node")} == {7}
    assert all(" for=" in line for line in re.findall("<key[^>]*>", text))
    assert not set(re.findall('attr.name="([^"]*)"', text)) & {"id", "name"}


# ids and names of keys that Gephi's importer takes for looks or for what it knows itself
GEPHI_OWN = {
    "node": {"label", "d3", "x", "y", "xpos", "ypos", "z", "size", "r", "g", "b", "color"},
    "edge": {"label", "edgelabel", "d7", "weight", "Edge Weight", "id", "edgeid", "r", "g", "b", "color"},
}


def test_gephi_takes_label_and_weight_and_nothing_else_for_its_own(tmp_path: Path) -> None:
    stack().write_graphml(tmp_path / "g.graphml", flow=one_path(stack(), 0.1))
    keys = re.findall(r'<key id="(.*?)" for="(.*?)" attr.name="(.*?)"', (tmp_path / "g.graphml").read_text())
    assert {(domain, name) for key, domain, name in keys if {key, name} & GEPHI_OWN.get(domain, set())} == {
        ("node", "label"),
        ("edge", "weight"),
    }


# what the schema of GraphML asks for, of the elements written here, in RELAX NG
SCHEMA = """
<grammar xmlns="http://relaxng.org/ns/structure/1.0" ns="http://graphml.graphdrawing.org/xmlns"
         datatypeLibrary="http://www.w3.org/2001/XMLSchema-datatypes">
  <start><element name="graphml">
    <attribute name="schemaLocation" ns="http://www.w3.org/2001/XMLSchema-instance"/>
    <zeroOrMore><element name="key">
      <attribute name="id" ns=""><data type="NMTOKEN"/></attribute>
      <attribute name="for" ns=""><choice>
        <value>graph</value><value>node</value><value>edge</value></choice></attribute>
      <attribute name="attr.name" ns=""><data type="NMTOKEN"/></attribute>
      <attribute name="attr.type" ns=""><choice>
        <value>boolean</value><value>int</value><value>double</value><value>string</value></choice></attribute>
      <optional><element name="desc"><text/></element></optional>
    </element></zeroOrMore>
    <element name="graph">
      <attribute name="id" ns=""><data type="NMTOKEN"/></attribute>
      <attribute name="edgedefault" ns=""><value>directed</value></attribute>
      <ref name="data"/>
      <zeroOrMore><element name="node">
        <attribute name="id" ns=""><data type="NMTOKEN"/></attribute><ref name="data"/></element></zeroOrMore>
      <zeroOrMore><element name="edge">
        <attribute name="id" ns=""><data type="NMTOKEN"/></attribute>
        <attribute name="source" ns=""><data type="NMTOKEN"/></attribute>
        <attribute name="target" ns=""><data type="NMTOKEN"/></attribute><ref name="data"/></element></zeroOrMore>
    </element>
  </element></start>
  <define name="data"><zeroOrMore><element name="data">
    <attribute name="key" ns=""><data type="NMTOKEN"/></attribute><text/></element></zeroOrMore></define>
</grammar>
"""


@pytest.mark.parametrize("graph", small_graphs())
def test_the_schema_of_graphml_holds(graph: LayeredGraph, tmp_path: Path) -> None:
    from lxml import etree

    graph.write_graphml(tmp_path / "g.graphml")
    file = etree.parse(tmp_path / "g.graphml")
    etree.RelaxNG(etree.fromstring(SCHEMA)).assertValid(file)
    space = {"g": "http://graphml.graphdrawing.org/xmlns"}
    ids = {name: file.xpath(f"//g:{name}/@id", namespaces=space) for name in ("key", "node", "edge")}
    assert all(len(set(found)) == len(found) for found in ids.values())
    assert set(file.xpath("//g:data/@key", namespaces=space)) == set(ids["key"])
    ends = file.xpath("//g:edge/@source | //g:edge/@target", namespaces=space)
    assert set(ends) <= set(ids["node"])
    for parent in file.xpath("//*[g:data]", namespaces=space):
        keys = [data.get("key") for data in parent.iterfind("g:data", space)]
        assert len(set(keys)) == len(keys)


def test_edges_of_no_capacity_are_not_written(tmp_path: Path) -> None:
    graph = encoder_decoder()
    graph.write_graphml(tmp_path / "g.graphml")
    text = (tmp_path / "g.graphml").read_text()
    assert text.count("<edge ") == graph.num_edges < sum(b.capacity.size for b in graph.blocks)


def test_two_blocks_alike_are_refused(tmp_path: Path) -> None:
    """Parallel edges: some readers drop them."""
    levels = [Level("0", 1, ("a",)), Level("1", 1, ("a",))]
    graph = LayeredGraph(levels, [Block(1, 0, np.ones((1, 1))), Block(1, 0, np.ones((1, 1)))])
    with pytest.raises(FlowgraphError, match="two blocks of kind 'self' join level 1 to level 0"):
        graph.write_graphml(tmp_path / "g.graphml")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Every byte Python and NumPy take beyond the graph itself, while 80,000 edges are written."""
    import tracemalloc

    graph = stack(size=200, layers=4)
    graph.write_graphml(tmp_path / "g.graphml")  # imports
    tracemalloc.start()
    graph.write_graphml(tmp_path / "g.graphml")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "g.graphml").stat().st_size > 15_000_000
    assert peak < 3_000_000


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"threshold": 0.05}])
def test_the_size_is_known_before(options: dict[str, float], tmp_path: Path) -> None:
    graph = stack(40, 4)
    graph.write_graphml(tmp_path / "g.graphml", **options)
    size = (tmp_path / "g.graphml").stat().st_size
    assert graphml.estimate_bytes(graph, **options) == pytest.approx(size, rel=0.03)


def test_large_files_are_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphml, "LARGE", 10_000)
    with pytest.warns(FlowgraphWarning, match=r"takes about .* MB; .* pass threshold= or top_k="):
        stack(20).write_graphml(tmp_path / "g.graphml")


def test_a_full_disk_is_seen_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))
    with pytest.raises(FlowgraphError, match=r"has 0\.0 MB free; pass threshold= or top_k="):
        stack().write_graphml(tmp_path / "g.graphml")
    assert list(tmp_path.iterdir()) == []


# --- pruning ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"threshold": 0.2}, {"top_k": 2}, {"threshold": 0.2, "top_k": 2}])
def test_pruning_says_what_was_dropped(options: dict[str, float], tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    graph = stack(8, seed=3, residual=None)
    graph.write_graphml(tmp_path / "g.graphml", **options)
    read = networkx.read_graphml(tmp_path / "g.graphml")
    kept = {(a, b): d["capacity"] for a, b, d in read.edges(data=True)}
    for block in graph.blocks:
        for i, row in enumerate(block.capacity.tolist()):
            best = sorted(range(8), key=lambda j: (-row[j], j))[: options.get("top_k", 8)]
            expected = {j for j in best if row[j] > 0 and row[j] >= options.get("threshold", 0.0)}
            assert {j for j in range(8) if (f"n{block.upper}_{i}", f"n{block.lower}_{j}") in kept} == expected
    total = sum(b.capacity.sum() for b in graph.blocks)
    assert read.graph["dropped_edges"] == graph.num_edges - len(kept) > 0
    assert read.graph["dropped_mass"] == pytest.approx(total - sum(kept.values()))
    back = LayeredGraph.read_graphml(tmp_path / "g.graphml")
    assert back.num_edges == len(kept)
    assert back.meta["pruning"].startswith(f"dropped {read.graph['dropped_edges']} edges")


def test_top_k_counts_over_all_blocks_of_a_node() -> None:
    kept = rows.prune(encoder_decoder(), top_k=1)
    assert kept.keep[2].sum() + kept.keep[3].sum() == 3  # decoder level 1: three nodes, two blocks


def test_edges_of_the_flow_and_the_cut_are_never_dropped() -> None:
    graph = stack()
    flow = one_path(graph, 0.01)
    kept = rows.prune(graph, threshold=10.0, flow=flow).keep
    assert all(keep[0, 0] for keep in kept)
    top = graph.blocks[-1].capacity
    assert (kept[-1][0] == (top[0] > 0)).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threshold": -1}, "threshold: -1 is not a capacity"),
        ({"threshold": float("nan")}, "threshold: nan is not a capacity"),
        ({"threshold": "a"}, "threshold: 'a' is not a capacity"),
        ({"top_k": 0}, "top_k: 0 is not a number of edges"),
        ({"top_k": 1.5}, "top_k: 1.5 is not a number of edges"),
        ({"top_k": True}, "top_k: True is not a number of edges"),
        ({"flow": 3}, "flow: int is not a FlowResult"),
        ({"flow": one_path(stack(5), 0.1)}, "pass a flow computed on this graph"),
    ],
)
def test_bad_arguments(options: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(FlowgraphError, match=re.escape(words)):
        stack().write_graphml(tmp_path / "g.graphml", **options)


def test_signed_graphs_are_refused(tmp_path: Path) -> None:
    graph = LayeredGraph.from_matrices([[[1.0, -1.0], [0.0, 1.0]]], negative="keep", normalize=False)
    with pytest.raises(FlowgraphError, match="GraphML needs capacities that are not negative"):
        graph.write_graphml(tmp_path / "g.graphml")


# --- files ------------------------------------------------------------------------------------------------


def test_the_old_file_survives_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "g.graphml"
    stack().write_graphml(path)
    before = path.read_bytes()

    written = graphml._edge_texts

    def fail(*arguments: Any) -> Iterator[Any]:
        """As before for the estimate, which passes a step; then one part is written, and no more."""
        yield from written(*arguments) if len(arguments) == 4 else [next(written(*arguments))]
        if len(arguments) != 4:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(graphml, "_edge_texts", fail)
    with pytest.raises(FlowgraphError, match="cannot be written: No space left on device"):
        stack(7).write_graphml(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_read_by_others_as_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    stack().write_graphml(tmp_path / "g.graphml")
    assert (tmp_path / "g.graphml").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "g.graphml").chmod(0o640)
    stack().write_graphml(tmp_path / "g.graphml")
    assert (tmp_path / "g.graphml").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_a_link_keeps_pointing(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    stack().write_graphml(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text().startswith("<?xml")


@pytest.mark.parametrize(("where", "words"), [(".", "is a folder"), ("no/g.graphml", "does not exist")])
def test_paths_that_cannot_be_written(where: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(FlowgraphError, match=words):
        stack().write_graphml(tmp_path / where)


# --- reading ----------------------------------------------------------------------------------------------


def test_a_file_written_again_by_networkx_reads_back(tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    graph = encoder_decoder()
    graph.write_graphml(tmp_path / "g.graphml")
    networkx.write_graphml(networkx.read_graphml(tmp_path / "g.graphml"), tmp_path / "again.graphml")
    assert_same(LayeredGraph.read_graphml(tmp_path / "again.graphml"), graph)


def test_chunks_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = encoder_decoder()
    graph.write_graphml(tmp_path / "g.graphml")
    for size in (1, 7, 1000):
        monkeypatch.setattr(graphml_reader._growing_graph, "__defaults__", (size,))
        assert_same(LayeredGraph.read_graphml(tmp_path / "g.graphml"), graph)


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    path = tmp_path / "g.graphml"
    networkx.write_graphml(networkx.path_graph(3, create_using=networkx.DiGraph), path)
    with pytest.raises(FlowgraphError, match=r"read it with networkx\.read_graphml"):
        LayeredGraph.read_graphml(path)
    path.write_text("<graphml>")
    with pytest.raises(FlowgraphError, match="is not well-formed XML"):
        LayeredGraph.read_graphml(path)
    path.write_text("<graphml/>")
    with pytest.raises(FlowgraphError, match="holds no graph that flowgraph wrote"):
        LayeredGraph.read_graphml(path)
    with pytest.raises(FlowgraphError, match="cannot be read: No such file"):
        LayeredGraph.read_graphml(tmp_path / "missing")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('<data key="c">', '<data key="w">', "has no data 'c'; none has a default"),
        ('target="n0_0"', 'target="n0_1"', "one stands twice"),
        ('<data key="k">self', '<data key="k">cross', "which no block joins"),
        ('<data key="c">0', '<data key="c">-0', "negative"),
        ('<data key="c">0', '<data key="c">nan', "not as flowgraph writes it"),
        ('"format": 1', '"format": 99', "written by a later flowgraph"),
        ('<node id="n0_0">', '<node id="n9">', "KeyError"),
    ],
)
def test_broken_files(old: str, new: str, words: str, tmp_path: Path) -> None:
    path = changed(stack(), tmp_path / "g.graphml", old, new)
    with pytest.raises(FlowgraphError, match=re.escape(words)):
        LayeredGraph.read_graphml(path)


@pytest.mark.parametrize("claimed", [100_000_000, 7, 5, 0])
def test_a_file_that_claims_more_positions_than_it_has_is_refused_before_memory_is_asked_for(
    claimed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = changed(stack(), tmp_path / "g.graphml", '"size": 6', f'"size": {claimed}')
    monkeypatch.setattr(graphml_reader, "_empty_blocks", lambda structure: pytest.fail("asked for memory"))
    words = (
        rf"^path: the graph's data claim {claimed} positions at level 0, and 6 nodes stand before the edges"
    )
    with pytest.raises(FlowgraphError, match=words):
        LayeredGraph.read_graphml(path)


def test_matrices_larger_than_the_machine_are_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack().write_graphml(tmp_path / "g.graphml")

    def too_large(shape: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(graphml_reader.np, "zeros", too_large)
    with pytest.raises(FlowgraphError, match=r"matrices take 0\.0 MB, which this machine does not have"):
        LayeredGraph.read_graphml(tmp_path / "g.graphml")


def test_entities_are_not_expanded(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    path = changed(stack(), tmp_path / "g.graphml", '<data key="n_label">0<', '<data key="n_label">&x;<')
    doctype = f'<!DOCTYPE graphml [<!ENTITY x SYSTEM "{(tmp_path / "secret").as_uri()}">]>'
    path.write_text(path.read_text().replace("?>", "?>" + doctype, 1))
    assert "secret" not in str(LayeredGraph.read_graphml(path).levels)


@pytest.mark.parametrize("path", [None, 5])
def test_a_path_that_is_none_is_refused_by_name(path: Any) -> None:
    with pytest.raises(FlowgraphError, match=f"^path: {path} is a .*; pass a file's name"):
        graphml.write_graphml(stack(residual=0.5), path)


def test_what_is_no_graph_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FlowgraphError, match=r"^graph: NoneType is not a LayeredGraph"):
        graphml.write_graphml(None, tmp_path / "none.graphml")
