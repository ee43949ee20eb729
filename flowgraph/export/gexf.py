"""GEXF 1.2: the same rows as GraphML, in Gephi's own format, with node positions to start from.

Strings are escaped as in GraphML (:mod:`flowgraph.export.escape`), and doubles are written with ``repr``. The
graph's data stand in ``<meta>`` as one ``description``, since GEXF has no attributes for a graph.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from os import PathLike
from typing import IO, Any

from flowgraph.export import rows
from flowgraph.export.escape import RULE, escape
from flowgraph.export.files import replacing
from flowgraph.export.literals import booleans, doubles, interleave, literal, markup
from flowgraph.graph import LayeredGraph
from flowgraph.solvers.base import FlowResult

NAMESPACE = "http://www.gexf.net/1.2draft"
_VIZ = "http://www.gexf.net/1.2draft/viz"
_SPACING = (120.0, 20.0)  # from level to level, from position to position


def write_gexf(
    graph: LayeredGraph,
    path: str | PathLike[str],
    flow: FlowResult | None = None,
    *,
    threshold: float | None = None,
    top_k: int | None = None,
) -> None:
    """Write ``graph`` as GEXF; parameters as for :func:`flowgraph.export.graphml.write_graphml`."""
    rows.check_exportable(graph, flow, "GEXF")
    pruning = rows.prune(graph, threshold=threshold, top_k=top_k, flow=flow)
    with replacing(path) as file:
        _write(graph, file, pruning, flow)


def _write(graph: LayeredGraph, file: IO[bytes], pruning: rows.Pruning, flow: FlowResult | None) -> None:
    from lxml import etree

    data = rows.graph_data(graph, pruning, flow) | {"escape": RULE}
    edge_fields = rows.EDGE_FIELDS | (rows.FLOW_FIELDS if flow is not None else {})
    with etree.xmlfile(file, encoding="us-ascii") as xml:
        xml.write_declaration()
        with xml.element("gexf", version="1.2", nsmap={None: NAMESPACE, "viz": _VIZ}):
            with xml.element("meta"), xml.element("description"):
                xml.write(escape(json.dumps(data, ensure_ascii=False)))
            with xml.element("graph", defaultedgetype="directed", mode="static"):
                xml.write(_attributes("node", rows.NODE_FIELDS))
                xml.write(_attributes("edge", edge_fields))
                with xml.element("nodes"):
                    for node in rows.node_rows(graph):
                        xml.write(_node(node))
                with xml.element("edges"):
                    xml.flush()  # what follows goes past the XML writer, straight to the file
                    for text in _edges(graph, pruning, flow, list(edge_fields)):
                        file.write(text.encode("ascii"))


def _attributes(domain: str, fields: dict[str, tuple[str, str]]) -> Any:
    from lxml import etree

    element = etree.Element("attributes", {"class": domain, "mode": "static"})
    kinds = {"int": "integer"}
    for number, (name, (kind, _)) in enumerate(fields.items()):
        etree.SubElement(element, "attribute", id=str(number), title=name, type=kinds.get(kind, kind))
    return element


def _node(node: rows.NodeRow) -> Any:
    from lxml import etree

    element = etree.Element("node", id=node.id, label=escape(node.label))
    values = etree.SubElement(element, "attvalues")
    for number, name in enumerate(rows.NODE_FIELDS):
        value = getattr(node, name)
        text = escape(value) if isinstance(value, str) else literal(value)
        etree.SubElement(values, "attvalue", {"for": str(number), "value": text})
    x, y = node.level * _SPACING[0], -node.position * _SPACING[1]
    etree.SubElement(element, f"{{{_VIZ}}}position", x=repr(x), y=repr(y), z="0.0")
    element.tail = "\n"
    return element


def _edges(
    graph: LayeredGraph, pruning: rows.Pruning, flow: FlowResult | None, names: list[str]
) -> Iterator[str]:
    number = {name: k for k, name in enumerate(names)}

    def open_value(name: str) -> str:
        return f'"/><attvalue for="{number[name]}" value="'

    for run in rows.edge_runs(graph, pruning, flow):
        columns = run.columns.tolist()
        capacity = list(map(float.__repr__, run.capacity.tolist()))
        fields: list[Any] = [
            f'<edge source="{rows.node_id(run.upper, run.row)}" id="e{run.block}_{run.row}_',
            [f'{column}" target="{rows.node_id(run.lower, column)}" weight="' for column in columns],
            capacity,
            f'"><attvalues><attvalue for="{number["weight"]}" value="',
            capacity,
            open_value("capacity"),
            capacity,
            open_value("kind") + markup(run.kind).replace('"', "&quot;") + open_value("residual"),
            doubles(run.residual),
        ]
        if run.flow is not None and run.cut is not None:
            fields += [open_value("flow"), doubles(run.flow), open_value("cut"), booleans(run.cut)]
        fields.append('"/></attvalues></edge>\n')
        yield interleave(fields, len(columns))
