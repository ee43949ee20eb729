"""GEXF and node-link JSON hold the same rows as GraphML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

from flowgraph.errors import FlowgraphError
from flowgraph.export.escape import escape, unescape
from flowgraph.export.gexf import write_gexf
from flowgraph.export.json import write_json
from flowgraph.graph import Block, LayeredGraph, Level
from tests.export.graphs import NASTY, encoder_decoder, expected_edges, expected_nodes, one_path, stack

any_token = LayeredGraph(
    [Level(name, len(NASTY), tuple(NASTY), tuple(reversed(NASTY))) for name in ("<a>", "b]]>")],
    [Block(1, 0, np.random.default_rng(2).random((len(NASTY), len(NASTY))), kind='"<k>"', residual=0.5)],
)
graphs = pytest.mark.parametrize("graph", [stack(residual=0.5), encoder_decoder(), any_token])


def spelled(values: dict[str, Any]) -> dict[str, Any]:
    return {name: escape(value) if isinstance(value, str) else value for name, value in values.items()}


@graphs
def test_gexf_holds_every_value(graph: LayeredGraph, tmp_path: Path) -> None:
    write_gexf(graph, tmp_path / "g.gexf")
    read = networkx.read_gexf(tmp_path / "g.gexf")
    assert {
        node: {k: v for k, v in data.items() if k != "viz"} for node, data in read.nodes(data=True)
    } == expected_nodes(graph)
    edges = {(a, b): {k: v for k, v in d.items() if k != "id"} for a, b, d in read.edges(data=True)}
    assert edges == {pair: spelled(values) for pair, values in expected_edges(graph).items()}


@graphs
def test_json_holds_every_value(graph: LayeredGraph, tmp_path: Path) -> None:
    write_json(graph, tmp_path / "g.json")
    read = networkx.node_link_graph(json.loads((tmp_path / "g.json").read_text("ascii")), edges="links")
    assert isinstance(read, networkx.DiGraph)
    expected = {
        node: {k: unescape(v) if k in ("label", "token") else v for k, v in values.items()}
        for node, values in expected_nodes(graph).items()
    }
    assert dict(read.nodes(data=True)) == expected
    assert {(a, b): d for a, b, d in read.edges(data=True)} == expected_edges(graph)


def test_flow_and_pruning_stand_in_both(tmp_path: Path) -> None:
    graph = stack()
    flow = one_path(graph, 0.25)
    write_gexf(graph, tmp_path / "g.gexf", flow, top_k=2)
    write_json(graph, tmp_path / "g.json", flow, top_k=2)
    gexf = networkx.read_gexf(tmp_path / "g.gexf")
    read = networkx.node_link_graph(json.loads((tmp_path / "g.json").read_text()), edges="links")
    assert {(a, b): (d["flow"], d["cut"]) for a, b, d in gexf.edges(data=True)} == {
        (a, b): (d["flow"], d["cut"]) for a, b, d in read.edges(data=True)
    }
    assert read.edges["n3_0", "n2_0"]["flow"] == 0.25
    assert read.edges["n3_0", "n2_0"]["cut"] is True
    assert read.graph["dropped_edges"] == graph.num_edges - read.number_of_edges() > 0
    assert "not among the 2 largest" in (tmp_path / "g.gexf").read_text()


@pytest.mark.parametrize("write", [write_gexf, write_json])
def test_signed_graphs_are_refused(write: Any, tmp_path: Path) -> None:
    graph = LayeredGraph.from_matrices([[[1.0, -1.0], [0.0, 1.0]]], negative="keep", normalize=False)
    with pytest.raises(FlowgraphError, match="negative='clip'"):
        write(graph, tmp_path / "g")
