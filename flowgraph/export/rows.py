"""What every file format writes of a graph: its data, one row a node, one run of edges a node.

========== ======================================================================================
graph      ``model``, ``text``, ``edge_kind``, ``heads``, ``residual``, ``method``, ``versions``,
           ``pruning`` and counts, ``escape``; with a flow also its pair, value, cut and solver
node       ``label`` (readable token), ``token`` (as the vocabulary spells it), ``level``,
           ``level_name``, ``position``, ``special``, ``word`` (-1 where it belongs to none)
edge       ``weight`` = ``capacity``, ``kind``, ``residual`` (the part of the capacity that is the
           residual connection); with a flow also ``flow`` and ``cut`` (the edge crosses the cut)
========== ======================================================================================

Edges of capacity 0 do not exist and are not written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.graph import LayeredGraph, check_graph
from flowgraph.solvers.base import FlowResult

FORMAT = 1
"""Version of what stands in the graph data ``flowgraph``."""

NODE_FIELDS = {
    "label": ("string", "readable token"),
    "token": ("string", "token as the tokenizer's vocabulary spells it"),
    "level": ("int", "level, 0 = inputs"),
    "level_name": ("string", "name of the level"),
    "position": ("int", "position in the level, from 0"),
    "special": ("boolean", "a token the tokenizer added; false where that is not known"),
    "word": ("int", "number of the word the token belongs to; -1 for none or not known"),
}
EDGE_FIELDS = {
    "weight": ("double", "capacity, under the name that layout programs look for"),
    "capacity": ("double", "capacity"),
    "kind": ("string", "self: own stack; cross: decoder to encoder; residual: a level passed on"),
    "residual": ("double", "part of the capacity that is the residual connection"),
}
FLOW_FIELDS = {
    "flow": ("double", "flow of the pair named in the graph's data"),
    "cut": ("boolean", "the edge leads from the source side of the minimum cut to the sink side"),
}


@dataclass(frozen=True)
class NodeRow:
    """One node; fields as in ``NODE_FIELDS``."""

    id: str
    label: str
    token: str
    level: int
    level_name: str
    position: int
    special: bool
    word: int


@dataclass(frozen=True)
class EdgeRun:
    """The edges of one block that leave one node. All arrays have one entry an edge, ``(E,)``."""

    block: int
    upper: int
    row: int
    lower: int
    kind: str
    columns: np.ndarray
    capacity: np.ndarray
    residual: np.ndarray
    flow: np.ndarray | None
    cut: np.ndarray | None


@dataclass(frozen=True)
class Pruning:
    """Which edges are left out. ``keep``: one boolean mask a block."""

    keep: tuple[np.ndarray, ...]
    threshold: float | None
    top_k: int | None
    dropped_edges: int
    dropped_mass: float
    total_mass: float

    def describe(self) -> str:
        if not self.dropped_edges:
            return "none"
        rules = [f"capacity below {self.threshold!r}"] if self.threshold is not None else []
        rules += [f"not among the {self.top_k} largest of its upper node"] if self.top_k is not None else []
        return (
            f"dropped {self.dropped_edges} edges ({' or '.join(rules)}) of capacity {self.dropped_mass!r} "
            f"out of {self.total_mass!r}"
        )


def node_id(level: int, position: int) -> str:
    return f"n{level}_{position}"


def node_rows(graph: LayeredGraph) -> Iterator[NodeRow]:
    """Nodes from the inputs up, in order of position."""
    for k, level in enumerate(graph.levels):
        raw = level.raw_tokens or level.tokens
        special = level.special or (False,) * level.size
        words = level.words or (None,) * level.size
        for p in range(level.size):
            word = words[p]
            yield NodeRow(
                node_id(k, p),
                level.tokens[p],
                raw[p],
                k,
                level.name,
                p,
                special[p],
                -1 if word is None else word,
            )


def edge_runs(graph: LayeredGraph, pruning: Pruning, flow: FlowResult | None = None) -> Iterator[EdgeRun]:
    """Edges block by block, node by node; nodes without edges are left out."""
    for number, block in enumerate(graph.blocks):
        for row, capacity in enumerate(block.capacity):
            (columns,) = np.nonzero(pruning.keep[number][row])
            if not len(columns):
                continue
            yield EdgeRun(
                number,
                block.upper,
                row,
                block.lower,
                block.kind,
                columns,
                capacity[columns],
                residual_part(block.kind, block.residual, row, columns, capacity[columns]),
                None if flow is None else np.asarray(flow.edge_flow[number][row], float)[columns],
                None
                if flow is None
                else flow.cut[block.upper][row] & ~np.asarray(flow.cut[block.lower])[columns],
            )


def residual_part(
    kind: str, share: float | None, row: int, columns: np.ndarray, capacity: np.ndarray
) -> np.ndarray:
    """``(E,)``: what the residual connection adds to each capacity; never more than the capacity."""
    if kind == "residual":
        return capacity
    if kind == "cross" or not share:
        return np.zeros(len(columns))
    return np.where(columns == row, np.minimum(share, capacity), 0.0)


def prune(
    graph: LayeredGraph,
    *,
    threshold: float | None = None,
    top_k: int | None = None,
    flow: FlowResult | None = None,
) -> Pruning:
    """Keep edges of capacity ``threshold`` or more that are among the ``top_k`` largest of their upper node.

    ``top_k`` counts over all blocks that leave a node; of equal capacities the earlier position stays. With a
    ``flow``, edges that carry flow or cross the cut always stay, so that the file still proves its value.
    """
    _check_limits(threshold, top_k)
    exists = [block.capacity != 0 for block in graph.blocks]
    keep = [mask.copy() for mask in exists]
    if threshold is not None:
        keep = [mask & (b.capacity >= threshold) for mask, b in zip(keep, graph.blocks, strict=True)]
    if top_k is not None:
        keep = [mask & top for mask, top in zip(keep, _largest(graph, top_k), strict=True)]
    if flow is not None:
        keep = [mask | used for mask, used in zip(keep, _used(graph, flow), strict=True)]
    dropped = [mask & ~kept for mask, kept in zip(exists, keep, strict=True)]
    return Pruning(
        tuple(keep),
        None if threshold is None else float(threshold),
        None if top_k is None else int(top_k),
        sum(int(mask.sum()) for mask in dropped),
        float(sum(b.capacity[mask].sum() for b, mask in zip(graph.blocks, dropped, strict=True))),
        float(sum(b.capacity.sum() for b in graph.blocks)),
    )


def _check_limits(threshold: Any, top_k: Any) -> None:
    number = isinstance(threshold, (int, float, np.integer, np.floating)) and not isinstance(threshold, bool)
    if threshold is not None and not (number and 0 <= threshold < np.inf):
        raise FlowgraphError(
            f"threshold: {threshold!r} is not a capacity; pass a number of 0 or more, or None"
        )
    whole = isinstance(top_k, (int, np.integer)) and not isinstance(top_k, bool)
    if top_k is not None and not (whole and top_k >= 1):
        raise FlowgraphError(
            f"top_k: {top_k!r} is not a number of edges; pass an integer of 1 or more, or None for all"
        )


def _largest(graph: LayeredGraph, top_k: int) -> list[np.ndarray]:
    """One mask a block: the edge is among the ``top_k`` largest of its upper node, over all its blocks."""
    masks: list[np.ndarray] = [np.zeros(0, bool)] * len(graph.blocks)
    for upper in {block.upper for block in graph.blocks}:
        numbers = [k for k, block in enumerate(graph.blocks) if block.upper == upper]
        capacity = np.concatenate([graph.blocks[k].capacity for k in numbers], 1)  # (upper size, all lower)
        best = np.argsort(-capacity, axis=1, kind="stable")[:, :top_k]
        mask = np.zeros(capacity.shape, bool)
        np.put_along_axis(mask, best, True, axis=1)
        widths = np.cumsum([graph.blocks[k].capacity.shape[1] for k in numbers])[:-1]
        for k, part in zip(numbers, np.split(mask, widths, axis=1), strict=True):
            masks[k] = part
    return masks


def _used(graph: LayeredGraph, flow: FlowResult) -> list[np.ndarray]:
    """One mask a block: the edge carries flow or crosses the cut."""
    return [
        (np.asarray(f) > 0) | ((b.capacity > 0) & np.outer(flow.cut[b.upper], ~np.asarray(flow.cut[b.lower])))
        for b, f in zip(graph.blocks, flow.edge_flow, strict=True)
    ]


def check_exportable(graph: Any, flow: FlowResult | None, purpose: str) -> None:
    """Refuse what cannot be written: not a graph, signed, blocks alike, a foreign flow."""
    check_graph(graph)
    graph.require_unsigned(purpose)
    seen = set()
    for block in graph.blocks:
        key = (block.upper, block.lower, block.kind)
        if key in seen:
            raise FlowgraphError(
                f"graph: two blocks of kind {block.kind!r} join level {block.upper} to level {block.lower}; "
                "add their capacities in one block"
            )
        seen.add(key)
    if flow is not None:
        check_flow_fits(graph, flow)


def check_flow_fits(graph: LayeredGraph, flow: FlowResult) -> None:
    """``flow`` must have been computed on a graph of this shape."""
    if not isinstance(flow, FlowResult):
        raise FlowgraphError(
            f"flow: {type(flow).__name__} is not a FlowResult; pass what fg.max_flow returned"
        )
    shapes = [np.shape(f) for f in flow.edge_flow]
    masks = [np.shape(mask) for mask in flow.cut]
    if shapes != [b.capacity.shape for b in graph.blocks] or masks != [(v.size,) for v in graph.levels]:
        raise FlowgraphError(
            f"flow: its edge flows have the shapes {shapes}, the graph's blocks "
            f"{[b.capacity.shape for b in graph.blocks]}; pass a flow computed on this graph"
        )
    if not all(np.isfinite(f).all() for f in flow.edge_flow):
        raise FlowgraphError("flow: edge flows that are not finite; pass what fg.max_flow returned")


def graph_data(graph: LayeredGraph, pruning: Pruning, flow: FlowResult | None = None) -> dict[str, Any]:
    """What explains the file: strings, ints and floats by name."""
    meta = graph.meta
    residual = meta.get("residual")
    data: dict[str, Any] = {
        "model": _as_text(meta.get("model")),
        "text": _as_text(meta.get("text")),
        "edge_kind": _as_text(meta.get("edges", "custom")),
        "heads": _as_text(meta.get("heads")),
        "residual": "none added" if residual is None else _as_text(residual),
        "method": "capacities" if flow is None else f"maximum flow, {flow.solver}",
        "versions": json.dumps(plain(meta.get("versions") or {"flowgraph": _version()})),
        "threshold": 0.0 if pruning.threshold is None else float(pruning.threshold),
        "top_k": 0 if pruning.top_k is None else int(pruning.top_k),
        "dropped_edges": pruning.dropped_edges,
        "dropped_mass": pruning.dropped_mass,
        "pruning": pruning.describe(),
    }
    if flow is not None:
        data |= {
            "flow_source": node_id(*flow.source),
            "flow_sink": node_id(*flow.sink),
            "flow_value": float(flow.value),
            "cut_value": float(flow.cut_value),
        }
    return data


def structure(graph: LayeredGraph, pruning: Pruning) -> str:
    """JSON that, with nodes and edges, makes the graph again: what is known of levels, blocks, meta."""
    meta = dict(graph.meta)
    if pruning.dropped_edges:
        meta["pruning"] = pruning.describe()
    return json.dumps(
        {
            "format": FORMAT,
            "levels": [
                {
                    "name": level.name,
                    "size": level.size,
                    "raw_tokens": level.raw_tokens is not None,
                    "special": level.special is not None,
                    "words": level.words is not None,
                }
                for level in graph.levels
            ],
            "blocks": [[b.upper, b.lower, b.kind, b.residual] for b in graph.blocks],
            "layers": list(graph.layers),
            "inputs": list(graph.inputs),
            "meta": plain(meta),
        },
        allow_nan=False,
        ensure_ascii=False,  # two halves of a surrogate pair side by side would come back as one character
    )


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it: NumPy scalars and arrays, tuples, mappings; anything else as text.

    Arrays become ``{"ndarray": [...], "dtype": "float64"}``, which :func:`revive` turns back. A number that
    is not finite becomes text, since JSON has none.
    """
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else str(float(value))
    if isinstance(value, np.generic):
        item = value.item()
        return str(item) if isinstance(item, np.generic) else plain(item)  # longdouble has no Python type
    if isinstance(value, np.ndarray):
        return {"ndarray": plain(value.tolist()), "dtype": str(value.dtype)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (bytes, bytearray)):
        return [plain(item) for item in value]
    return str(value)


def revive(value: Any) -> Any:
    """What :func:`plain` was given, arrays included; tuples stay lists."""
    if isinstance(value, dict):
        if set(value) == {"ndarray", "dtype"}:
            array = np.array(value["ndarray"], dtype=value["dtype"])
            array.setflags(write=False)
            return array
        return {key: revive(item) for key, item in value.items()}
    return [revive(item) for item in value] if isinstance(value, list) else value


def _as_text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(plain(value))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("attention-flowgraph")
    except PackageNotFoundError:
        return "unknown"
