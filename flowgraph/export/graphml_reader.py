"""Reading what :mod:`flowgraph.export.graphml` wrote, in memory that does not grow with the file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import IO, Any

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.export import rows
from flowgraph.export.escape import unescape
from flowgraph.export.files import megabytes, reading
from flowgraph.graph import Block, LayeredGraph, Level

NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_TAG = f"{{{NAMESPACE}}}"


def read_graphml(path: str | PathLike[str]) -> LayeredGraph:
    """The graph that :func:`write_graphml` wrote: capacities bit for bit, tokens character for character.

    A graph that was pruned comes back pruned, with what was left out in ``meta["pruning"]``. The file may
    have been written again by a program that keeps attributes. Other files are refused: networkx and igraph
    read any GraphML.
    """
    from lxml import etree

    try:
        return _read(path)
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
    with reading(path) as file:
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
        self._blocks: dict[tuple[int, int, str], np.ndarray] | None = None
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
        capacity = self._capacity()
        if key not in capacity:
            raise FlowgraphError(
                f"path: edges of kind {key[2]!r} from level {key[0]} to level {key[1]}, which no block joins"
            )
        return capacity[key]

    def _capacity(self) -> dict[tuple[int, int, str], np.ndarray]:
        """The matrix of each block; made once all nodes are there, which stand before the edges."""
        if self._structure is None:
            raise FlowgraphError("path: the graph's data 'flowgraph' does not stand before its edges")
        if self._blocks is None:
            _check_sizes(self._structure, self._texts)
            self._blocks = _empty_blocks(self._structure)
        return self._blocks

    def graph(self) -> LayeredGraph:
        structure = self._structure
        if structure is None:
            raise FlowgraphError(
                "path: the file holds no graph that flowgraph wrote; read it with networkx.read_graphml"
            )
        blocks = self._capacity()
        found = sum(int(np.count_nonzero(matrix)) for matrix in blocks.values())
        if found != self._count:
            raise FlowgraphError(
                f"path: {self._count} edges, but {found} pairs of nodes with a capacity: one stands twice "
                "or has the capacity 0"
            )
        return LayeredGraph(
            [self._level(k, known) for k, known in enumerate(structure["levels"])],
            [Block(u, v, blocks[u, v, kind], kind, share) for u, v, kind, share in structure["blocks"]],
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


def _check_sizes(structure: dict[str, Any], nodes: Iterable[tuple[int, int]]) -> None:
    """Each level must have the nodes it claims: matrices are made of these sizes, whatever the file's own size."""
    if structure["format"] > rows.FORMAT:
        raise FlowgraphError(
            f"path: written by a later flowgraph (format {structure['format']}, this one reads "
            f"{rows.FORMAT}); upgrade attention-flowgraph"
        )
    found = Counter(level for level, _ in nodes)
    for number, level in enumerate(structure["levels"]):
        if level["size"] != found[number]:
            raise FlowgraphError(
                f"path: the graph's data claim {level['size']} positions at level {number}, and {found[number]} "
                "nodes stand before the edges: the file is damaged or was cut; write it again"
            )


def _empty_blocks(structure: dict[str, Any]) -> dict[tuple[int, int, str], np.ndarray]:
    """A matrix of zeros for each block, by upper level, lower level and kind."""
    sizes = [level["size"] for level in structure["levels"]]
    try:
        return {(u, v, kind): np.zeros((sizes[u], sizes[v])) for u, v, kind, _ in structure["blocks"]}
    except MemoryError as error:
        total = sum(8 * sizes[u] * sizes[v] for u, v, *_ in structure["blocks"])
        raise FlowgraphError(
            f"path: the graph's matrices take {megabytes(total)}, which this machine does not have; read the "
            "file with networkx.read_graphml"
        ) from error
