"""Node-link JSON: the same rows as GraphML, as d3's force layouts and networkx read them.

``{"directed": true, "multigraph": false, "graph": {...}, "nodes": [...], "links": [...]}``. Each node has an
``id``, each link the ``source`` and ``target`` of one edge; further fields are those of
:mod:`flowgraph.export.rows`. Tokens need no escape: JSON can hold any character. Numbers read back exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from os import PathLike
from typing import Any

from flowgraph.export import rows
from flowgraph.export.files import replacing
from flowgraph.export.literals import booleans, doubles, interleave
from flowgraph.graph import LayeredGraph
from flowgraph.solvers.base import FlowResult


def write_json(
    graph: LayeredGraph,
    path: str | PathLike[str],
    flow: FlowResult | None = None,
    *,
    threshold: float | None = None,
    top_k: int | None = None,
) -> None:
    """Write ``graph`` as node-link JSON; parameters as for :func:`flowgraph.export.graphml.write_graphml`."""
    rows.check_exportable(graph, flow, "JSON")
    pruning = rows.prune(graph, threshold=threshold, top_k=top_k, flow=flow)
    with replacing(path) as file:
        for text in _parts(graph, pruning, flow):
            file.write(text.encode("ascii"))


def _parts(graph: LayeredGraph, pruning: rows.Pruning, flow: FlowResult | None) -> Iterator[str]:
    data = json.dumps(rows.graph_data(graph, pruning, flow), allow_nan=False)
    yield f'{{"directed": true, "multigraph": false, "graph": {data},\n"nodes": [\n'
    yield ",\n".join(json.dumps(asdict(node)) for node in rows.node_rows(graph))
    yield '\n],\n"links": [\n'
    before = ""
    for run in rows.edge_runs(graph, pruning, flow):
        yield before + _links(run)
        before = ",\n"
    yield "\n]}\n"


def _links(run: rows.EdgeRun) -> str:
    capacity = list(map(float.__repr__, run.capacity.tolist()))
    fields: list[Any] = [
        f'{{"source": "{rows.node_id(run.upper, run.row)}", "target": "',
        [rows.node_id(run.lower, column) for column in run.columns.tolist()],
        '", "weight": ',
        capacity,
        ', "capacity": ',
        capacity,
        f', "kind": {json.dumps(run.kind)}, "residual": ',
        doubles(run.residual),
    ]
    if run.flow is not None and run.cut is not None:
        fields += [', "flow": ', doubles(run.flow), ', "cut": ', booleans(run.cut)]
    fields.append("},\n")
    return interleave(fields, len(run.columns)).removesuffix(",\n")
