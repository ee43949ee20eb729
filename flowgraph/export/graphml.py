"""GraphML: written as a stream from the arrays, read back bit for bit.

Opens in Gephi, Cytoscape, yEd, networkx, igraph and graphology. What stands in the file is documented in
:mod:`flowgraph.export.rows` and, key by key, in the file's own ``<desc>``; every value is written out, none
left to a default, since readers differ in what they make of a missing one. Doubles are written with ``repr``,
the shortest decimal that reads back as the same double.

Gephi has no place for data of the graph itself and names them in its import report; GEXF
(:mod:`flowgraph.export.gexf`) is read without a word. yEd shows labels once Edit > Properties Mapper maps
``label`` to them.

Brandes, Eiglsperger, Herman, Himsolt, Marshall: GraphML progress report, Graph Drawing 2001
(10.1007/3-540-45848-4_59).
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import IO, Any

import numpy as np

from flowgraph.errors import FlowgraphWarning
from flowgraph.export import rows
from flowgraph.export.escape import RULE, escape
from flowgraph.export.files import megabytes, replacing
from flowgraph.export.graphml_reader import NAMESPACE, read_graphml
from flowgraph.export.literals import booleans, doubles, interleave, literal, markup
from flowgraph.graph import LayeredGraph
from flowgraph.solvers.base import FlowResult

__all__ = ["estimate_bytes", "read_graphml", "write_graphml"]

_SCHEMA = f"{NAMESPACE} {NAMESPACE}/1.0/graphml.xsd"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"

# short key ids, since all stand on every edge; not r, g, b, x, y, z, nor size, which Gephi takes for looks
_EDGE_KEYS = {"weight": "w", "capacity": "c", "kind": "k", "residual": "s", "flow": "f", "cut": "t"}

LARGE = 200_000_000
"""Bytes from which on writing warns first."""


def write_graphml(
    graph: LayeredGraph,
    path: str | PathLike[str],
    flow: FlowResult | None = None,
    *,
    threshold: float | None = None,
    top_k: int | None = None,
) -> None:
    """Write ``graph`` to ``path`` as GraphML, in memory that does not grow with the file.

    Parameters
    ----------
    flow
        What :func:`flowgraph.max_flow` returned for one pair of this graph; adds ``flow`` and ``cut`` to each
        edge, and the pair, its value and its cut's value to the graph.
    threshold, top_k
        Leave out edges of a capacity below ``threshold``, all but the ``top_k`` largest that leave a node.
        Edges that carry the flow or cross its cut stay. How many were left out, and their capacity together,
        stands in the graph's data (``dropped_edges``, ``dropped_mass``, ``pruning``).

    The file is written beside ``path`` and renamed, so an old one survives a failure. A file of more than
    200 MB is announced by a :class:`~flowgraph.errors.FlowgraphWarning` before it is begun
    (:func:`estimate_bytes`).
    """
    rows.check_exportable(graph, flow, "GraphML")
    pruning = rows.prune(graph, threshold=threshold, top_k=top_k, flow=flow)
    size = _estimate(graph, pruning, flow)
    if size > LARGE:
        edges = sum(int(mask.sum()) for mask in pruning.keep)
        warnings.warn(
            f"GraphML of {edges} edges takes about {megabytes(size)}; few programs read that much: "
            "pass threshold= or top_k= to write fewer edges",
            FlowgraphWarning,
            stacklevel=2,
        )
    with replacing(path, expected_bytes=size) as file:
        _write(graph, file, pruning, flow, (text for _, text in _edge_texts(graph, pruning, flow)))


def estimate_bytes(
    graph: LayeredGraph,
    flow: FlowResult | None = None,
    *,
    threshold: float | None = None,
    top_k: int | None = None,
) -> int:
    """About how many bytes :func:`write_graphml` would write, from a sample of the edges."""
    rows.check_exportable(graph, flow, "GraphML")
    return _estimate(graph, rows.prune(graph, threshold=threshold, top_k=top_k, flow=flow), flow)


def _estimate(graph: LayeredGraph, pruning: rows.Pruning, flow: FlowResult | None, sample: int = 40) -> int:
    """Edges by what those of ``sample`` evenly spread nodes take; all the rest as it is."""
    rest = io.BytesIO()
    _write(graph, rest, pruning, flow, ())
    counts = np.concatenate([mask.sum(1) for mask in pruning.keep]) if pruning.keep else np.zeros(0, int)
    edges = int(counts.sum())
    step = max(1, int((counts > 0).sum()) // sample)
    taken = [(len(run.columns), len(text)) for run, text in _edge_texts(graph, pruning, flow, step)]
    per_edge = sum(size for _, size in taken) / max(1, sum(count for count, _ in taken))
    return int(edges * per_edge) + rest.tell()


# --- writing ----------------------------------------------------------------------------------------------


def _write(
    graph: LayeredGraph,
    file: IO[bytes],
    pruning: rows.Pruning,
    flow: FlowResult | None,
    edges: Iterable[bytes],
) -> None:
    from lxml import etree

    data = rows.graph_data(graph, pruning, flow) | {
        "escape": RULE,
        "flowgraph": rows.structure(graph, pruning),
    }
    # in ASCII everything else is a character reference, which no reader takes for a line end (some do U+2028)
    with etree.xmlfile(file, encoding="us-ascii") as xml:
        xml.write_declaration()
        schema = {f"{{{_XSI}}}schemaLocation": _SCHEMA}
        with xml.element("graphml", schema, nsmap={None: NAMESPACE, "xsi": _XSI}):
            _write_keys(xml, data, flow is not None)
            with xml.element("graph", id="flowgraph", edgedefault="directed"):
                for name, value in data.items():
                    _line(xml, _data(f"g_{name}", value))
                for node in rows.node_rows(graph):
                    element = etree.Element("node", id=node.id)
                    element.extend([_data(f"n_{name}", getattr(node, name)) for name in rows.NODE_FIELDS])
                    _line(xml, element)
                xml.flush()  # what follows goes past the XML writer, straight to the file
                for text in edges:
                    file.write(text)


def _line(xml: Any, element: Any) -> None:
    element.tail = "\n"
    xml.write(element)


def _write_keys(xml: Any, data: dict[str, Any], with_flow: bool) -> None:
    for name, value in data.items():
        _line(xml, _key(f"g_{name}", "graph", name, _type_of(value), ""))
    for name, (kind, what) in rows.NODE_FIELDS.items():
        _line(xml, _key(f"n_{name}", "node", name, kind, what))
    for name, (kind, what) in _edge_fields(with_flow).items():
        _line(xml, _key(_EDGE_KEYS[name], "edge", name, kind, what))


def _edge_fields(with_flow: bool) -> dict[str, tuple[str, str]]:
    return rows.EDGE_FIELDS | (rows.FLOW_FIELDS if with_flow else {})


def _key(key: str, domain: str, name: str, kind: str, what: str) -> Any:
    from lxml import etree

    element = etree.Element("key", {"id": key, "for": domain, "attr.name": name, "attr.type": kind})
    if what:
        etree.SubElement(element, "desc").text = what
    return element


def _type_of(value: object) -> str:
    return {bool: "boolean", int: "int", float: "double", str: "string"}[type(value)]


def _data(key: str, value: str | float | bool) -> Any:
    from lxml import etree

    element = etree.Element("data", key=key)
    element.text = escape(value) if isinstance(value, str) else literal(value)
    return element


def _edge_texts(
    graph: LayeredGraph, pruning: rows.Pruning, flow: FlowResult | None, step: int = 1
) -> Iterator[tuple[rows.EdgeRun, bytes]]:
    """The XML of every ``step``-th run of edges.

    Numbers are nearly all of the work, so the rest is put together once a run: an edge is the run's head,
    what depends on its lower node alone (made once a block), its numbers, and constant text between them;
    the pieces are laid into one list by strided slices and joined.
    """
    block, ends = -1, []
    for count, run in enumerate(rows.edge_runs(graph, pruning, flow)):
        if count % step:
            continue
        if run.block != block:
            block = run.block
            ends = [
                f'{column}" target="{rows.node_id(run.lower, column)}"><data key="w">'
                for column in range(graph.levels[run.lower].size)
            ]
        yield run, _run_text(run, ends).encode("ascii")


def _run_text(run: rows.EdgeRun, ends: list[str]) -> str:
    head = f'<edge source="{rows.node_id(run.upper, run.row)}" id="e{run.block}_{run.row}_'
    columns = run.columns.tolist()
    capacity = list(map(float.__repr__, run.capacity.tolist()))
    fields: list[Any] = [
        head,
        [ends[column] for column in columns],
        capacity,
        '</data><data key="c">',
        capacity,
        f'</data><data key="k">{markup(run.kind)}</data><data key="s">',
        doubles(run.residual),
    ]
    if run.flow is not None and run.cut is not None:
        fields += ['</data><data key="f">', doubles(run.flow), '</data><data key="t">', booleans(run.cut)]
    fields.append("</data></edge>\n")
    return interleave(fields, len(columns))
