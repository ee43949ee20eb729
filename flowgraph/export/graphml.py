"""GraphML: written as a stream from the arrays, read back bit for bit.

Opens in Gephi, Cytoscape, yEd, networkx, igraph and graphology. What stands in the file is documented in
:mod:`flowgraph.export.rows` and, key by key, in the file's own ``<desc>``; every value is written out, none
left to a default, since readers differ in what they make of a missing one. Doubles are written with ``repr``,
the shortest decimal that reads back as the same double.

Brandes, Eiglsperger, Herman, Himsolt, Marshall: GraphML progress report, Graph Drawing 2001
(10.1007/3-540-45848-4_59).
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import IO, Any

import numpy as np

from flowgraph.errors import FlowgraphError, FlowgraphWarning
from flowgraph.export import rows
from flowgraph.export.escape import RULE, escape, unescape
from flowgraph.export.files import megabytes, replacing
from flowgraph.graph import Block, LayeredGraph, Level
from flowgraph.solvers.base import FlowResult

NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_SCHEMA = f"{NAMESPACE} {NAMESPACE}/1.0/graphml.xsd"
_TAG = f"{{{NAMESPACE}}}"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"

# short key ids: two of them stand on every edge
_EDGE_KEYS = {"weight": "w", "capacity": "c", "kind": "k", "residual": "r", "flow": "f", "cut": "x"}

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


def literal(value: float | bool) -> str:
    """As XML Schema and every reader spell it: ``true``, ``3``, ``0.1``."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


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
        f'</data><data key="k">{markup(run.kind)}</data><data key="r">',
        doubles(run.residual),
    ]
    if run.flow is not None and run.cut is not None:
        fields += ['</data><data key="f">', doubles(run.flow), '</data><data key="x">', booleans(run.cut)]
    fields.append("</data></edge>\n")
    return interleave(fields, len(columns))


def interleave(fields: list[Any], count: int) -> str:
    """Text of ``count`` records, each the fields in order; a field is one text for all or a list of texts."""
    width = len(fields)
    pieces = [""] * (width * count)
    for k, field in enumerate(fields):
        pieces[k::width] = [field] * count if isinstance(field, str) else field
    return "".join(pieces)


def doubles(values: np.ndarray) -> list[str] | str:
    """``repr`` of each; one text where all are 0, which most residuals are."""
    return list(map(float.__repr__, values.tolist())) if values.any() else "0.0"


def booleans(values: np.ndarray) -> list[str]:
    """As XML Schema and JSON spell them."""
    return ["true" if value else "false" for value in values.tolist()]


def markup(text: str) -> str:
    """``text`` escaped, as it stands between tags, ASCII alone."""
    from lxml import etree

    element = etree.Element("t")
    element.text = escape(text)
    return etree.tostring(element)[3:-4].decode("ascii") if text else ""


# --- reading ----------------------------------------------------------------------------------------------


def read_graphml(path: str | PathLike[str]) -> LayeredGraph:
    """The graph that :func:`write_graphml` wrote: capacities bit for bit, tokens character for character.

    A graph that was pruned comes back pruned, with what was left out in ``meta["pruning"]``. The file may
    have been written again by a program that keeps attributes. Other files are refused: networkx and igraph
    read any GraphML.
    """
    from lxml import etree

    try:
        return _read(path)
    except OSError as error:
        raise FlowgraphError(
            f"path: {os.fspath(path)!r} cannot be read: {error.strerror or error}"
        ) from error
    except etree.XMLSyntaxError as error:
        raise FlowgraphError(f"path: {os.fspath(path)!r} is not well-formed XML: {error.msg}") from error
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, FlowgraphError):
            raise
        raise FlowgraphError(
            f"path: {os.fspath(path)!r} is GraphML, but not as flowgraph writes it ({type(error).__name__}: "
            f"{error}); read it with networkx.read_graphml"
        ) from error


def _read(path: str | PathLike[str]) -> LayeredGraph:
    reader = _Reader()
    with open(path, "rb") as file:
        for graph, children in _growing_graph(file):
            reader.take(graph, children)
    return reader.graph()


def _growing_graph(file: IO[bytes], chunk: int = 1 << 20) -> Iterator[tuple[Any, list[Any]]]:
    """The ``<graph>`` element after each chunk of the file, and those of its children that are complete.

    All are, but the last. They are dropped when they have been given, so memory does not grow with the file.
    """
    from lxml import etree

    parser = etree.XMLPullParser(
        events=("start",),
        tag=_TAG + "graph",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=True,  # metadata of large graphs passes libxml2's limit of 10 MB for one text
    )
    graph = None
    while data := file.read(chunk):
        parser.feed(data)
        for _, element in parser.read_events():
            graph = element
        if graph is not None and len(graph) > 1:
            yield graph, graph[:-1]
            del graph[:-1]
    parser.close()
    if graph is not None:
        yield graph, graph[:]


class _Reader:
    """Puts nodes and edges into levels and blocks as they come, whole columns of them at a time."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {}
        self._nodes: dict[str, tuple[int, int]] = {}
        self._texts: dict[tuple[int, int], dict[str, str]] = {}
        self._structure: dict[str, Any] | None = None
        self._capacity: dict[tuple[int, int, str], np.ndarray] = {}
        self._count = 0

    def take(self, graph: Any, children: list[Any]) -> None:
        """Take these children of the element ``graph``."""
        if not self._names:
            self._names = _key_names(graph)
        parts: dict[str, list[Any]] = {_TAG + name: [] for name in ("data", "node", "edge")}
        for child in children:
            parts.get(child.tag, []).append(child)
        data, nodes, edges = parts.values()
        self._take_graph_data(data)
        for node in nodes:
            self._take_node(node.get("id"), self._values("node", node))
        if edges:
            self._take_edges(edges)

    def _values(self, domain: str, element: Any) -> dict[str, str]:
        names = self._names[domain]
        return {names[data.get("key")]: unescape(data.text or "") for data in element}

    def _take_graph_data(self, elements: list[Any]) -> None:
        for element in elements:
            if self._names["graph"][element.get("key")] == "flowgraph":
                self._structure = json.loads(unescape(element.text))
                self._capacity = _empty_blocks(self._structure)

    def _take_node(self, node: str, values: dict[str, str]) -> None:
        place = (int(values["level"]), int(values["position"]))
        self._nodes[node] = place
        self._texts[place] = values

    def _take_edges(self, edges: list[Any]) -> None:
        keys = {name: key for key, name in self._names["edge"].items()}
        upper, rows_ = np.array([self._nodes[edge.get("source")] for edge in edges]).T
        lower, columns = np.array([self._nodes[edge.get("target")] for edge in edges]).T
        capacity = np.array([float(value) for value in _column(edges, keys["capacity"])])
        kinds = _column(edges, keys["kind"])
        names, which = np.unique(np.array(kinds), return_inverse=True)
        for block in np.unique(np.column_stack([upper, lower, which]), axis=0):
            mask = (upper == block[0]) & (lower == block[1]) & (which == block[2])
            matrix = self._block((int(block[0]), int(block[1]), unescape(str(names[block[2]]))))
            matrix[rows_[mask], columns[mask]] = capacity[mask]
        self._count += len(edges)

    def _block(self, key: tuple[int, int, str]) -> np.ndarray:
        if self._structure is None:
            raise FlowgraphError("path: the graph's data 'flowgraph' does not stand before its edges")
        if key not in self._capacity:
            raise FlowgraphError(
                f"path: edges of kind {key[2]!r} from level {key[0]} to level {key[1]}, which no block joins"
            )
        return self._capacity[key]

    def graph(self) -> LayeredGraph:
        structure = self._structure
        if structure is None:
            raise FlowgraphError(
                "path: the file holds no graph that flowgraph wrote; read it with networkx.read_graphml"
            )
        found = sum(int(np.count_nonzero(matrix)) for matrix in self._capacity.values())
        if found != self._count:
            raise FlowgraphError(
                f"path: {self._count} edges, but {found} pairs of nodes with a capacity: one stands twice "
                "or has the capacity 0"
            )
        return LayeredGraph(
            [self._level(k, known) for k, known in enumerate(structure["levels"])],
            [
                Block(u, v, self._capacity[u, v, kind], kind, share)
                for u, v, kind, share in structure["blocks"]
            ],
            layers=structure["layers"],
            inputs=structure["inputs"],
            meta=rows.revive(structure["meta"]),
        )

    def _level(self, k: int, known: dict[str, Any]) -> Level:
        texts = [self._texts[k, p] for p in range(known["size"])]
        words = [int(t["word"]) for t in texts]
        return Level(
            known["name"],
            known["size"],
            tuple(t["label"] for t in texts),
            tuple(t["token"] for t in texts) if known["raw_tokens"] else None,
            tuple(t["special"].lower() == "true" for t in texts) if known["special"] else None,
            tuple(None if word < 0 else word for word in words) if known["words"] else None,
        )


def _column(edges: list[Any], key: str) -> list[str]:
    """The text each edge has under ``key``; fastest where it stands at the same place in all."""
    place = next((k for k, data in enumerate(edges[0]) if data.get("key") == key), 0)
    texts = []
    for edge in edges:
        data = edge[place] if place < len(edge) else None
        if data is None or data.get("key") != key:
            data = next((d for d in edge if d.get("key") == key), None)
        if data is None:
            raise FlowgraphError(f"path: the edge {edge.get('id')!r} has no data {key!r}; none has a default")
        texts.append(data.text or "")
    return texts


def _key_names(graph: Any) -> dict[str, dict[str, str]]:
    """For graph, node and edge: attribute name by key id."""
    names: dict[str, dict[str, str]] = {"graph": {}, "node": {}, "edge": {}}
    for key in graph.getparent().iterchildren(_TAG + "key"):
        for domain in names if key.get("for", "all") == "all" else [key.get("for")]:
            names[domain][key.get("id")] = key.get("attr.name")
    return names


def _empty_blocks(structure: dict[str, Any]) -> dict[tuple[int, int, str], np.ndarray]:
    """A matrix of zeros for each block, by upper level, lower level and kind."""
    if structure["format"] > rows.FORMAT:
        raise FlowgraphError(
            f"path: written by a later flowgraph (format {structure['format']}, this one reads "
            f"{rows.FORMAT}); upgrade attention-flowgraph"
        )
    sizes = [level["size"] for level in structure["levels"]]
    return {(u, v, kind): np.zeros((sizes[u], sizes[v])) for u, v, kind, _ in structure["blocks"]}
