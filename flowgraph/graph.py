"""The layered graph: levels of nodes, blocks of edges between them, capacities on the edges.

Level 0 holds the input tokens, level ``l`` the outputs of layer ``l``. An edge runs from ``(l, i)`` down to
``(l - 1, j)``: query ``i`` of layer ``l`` reads key ``j``. A graph knows nothing of models: it is made from
arrays, checked once, and never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.arrays import check_finite
from flowgraph.errors import FlowgraphError, wrong_object

if TYPE_CHECKING:
    import igraph
    import networkx

Node = tuple[int, int]
"""(index into ``graph.levels``, position)."""


@dataclass(frozen=True)
class Level:
    """One level of nodes. All tuples have ``size`` entries; ``None`` where nothing is known."""

    name: str
    size: int
    tokens: tuple[str, ...]
    """Readable tokens; positions as text where none were given."""
    raw_tokens: tuple[str, ...] | None = None
    """Tokens as the tokenizer's vocabulary spells them."""
    special: tuple[bool, ...] | None = None
    words: tuple[int | None, ...] | None = None


@dataclass(frozen=True)
class Block:
    """All edges between two levels: ``capacity[i, j]`` from ``(upper, i)`` to ``(lower, j)``; 0 means no edge."""

    upper: int
    lower: int
    capacity: np.ndarray
    kind: str = "self"
    """``self``, ``cross`` (decoder to encoder) or ``residual`` (a level passed on to the next)."""
    residual: float | None = None
    """Share of the identity inside ``capacity``."""


def check_graph(
    graph: Any, remedy: str = "make one with fg.LayeredGraph.from_trace or from_matrices"
) -> None:
    """An error unless ``graph`` is a graph, such as for the trace that one is made from."""
    if not isinstance(graph, LayeredGraph):
        raise wrong_object("graph", graph, "LayeredGraph", remedy)


class LayeredGraph:
    """A layered directed acyclic graph with capacities.

    Parameters
    ----------
    levels, blocks
        Levels from the inputs up; blocks with ``upper > lower``.
    layers
        For layer ``l`` (from 1), ``layers[l - 1]`` is the index of the level that holds its outputs, the
        targets of ``level=l``. Default: levels 1, 2, ... of a plain stack.
    inputs
        Indices of the levels that hold input tokens, in the order of the columns of an attribution.
    meta
        How the graph was made: edge kind, residual, rules, model, text.
    signed
        True if capacities may be negative (raw and rollout only).
    """

    def __init__(
        self,
        levels: Iterable[Level],
        blocks: Iterable[Block],
        *,
        layers: Sequence[int] | None = None,
        inputs: Sequence[int] = (0,),
        meta: Mapping[str, Any] | None = None,
        signed: bool = False,
    ) -> None:
        self.levels: tuple[Level, ...] = tuple(levels)
        self.blocks: tuple[Block, ...] = tuple(_frozen_block(b) for b in blocks)
        self.layers: tuple[int, ...] = tuple(range(1, len(self.levels))) if layers is None else tuple(layers)
        self.inputs: tuple[int, ...] = tuple(inputs)
        self.signed = signed
        self.meta: Mapping[str, Any] = MappingProxyType(dict(meta or {}))
        _check_graph(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by its parts: the copy's arrays are read-only, too."""
        make = partial(
            type(self), layers=self.layers, inputs=self.inputs, meta=dict(self.meta), signed=self.signed
        )
        return make, (self.levels, self.blocks)

    # --- making one -------------------------------------------------------------------------------------

    @classmethod
    def from_matrices(
        cls,
        mixing: Any,
        *,
        tokens: Sequence[str] | None = None,
        residual: float | str | None = 0.5,
        normalize: bool = True,
        negative: str = "error",
    ) -> LayeredGraph:
        """A graph from mixing matrices ``(L, T, T)``, first token axis the query. Needs no torch.

        ``residual`` is the share r of the identity, ``(1 - r) M + r I`` after rows are divided by their sums;
        ``None`` adds none. ``normalize=False`` keeps row sums. ``negative``: ``"error"``, ``"clip"``,
        ``"abs"`` or ``"keep"`` (raw and rollout only; rows are divided by the sum of absolute values).
        """
        from flowgraph.stack_graph import graph_from_matrices

        return graph_from_matrices(
            mixing, tokens=tokens, residual=residual, normalize=normalize, negative=negative
        )

    @classmethod
    def from_attentions(
        cls,
        attentions: Any,
        heads: str | int = "mean",
        *,
        tokens: Sequence[str] | None = None,
        residual: float | str | None = 0.5,
        normalize: bool = True,
        negative: str = "error",
    ) -> LayeredGraph:
        """A graph from what a Hugging Face model returned as ``outputs.attentions``, one example.

        ``attentions``: one ``(1, H, T, T)`` or ``(H, T, T)`` array or tensor a layer. ``heads``: ``"mean"``,
        ``"max"``, ``"min"`` or the number of one head, from 0.
        """
        from flowgraph.stack_graph import graph_from_attentions

        return graph_from_attentions(
            attentions, heads, tokens=tokens, residual=residual, normalize=normalize, negative=negative
        )

    @classmethod
    def from_trace(
        cls,
        trace: Any,
        *,
        edges: str | None = None,
        head: int | None = None,
        part: str | None = None,
        residual: float | str | None = "auto",
        normalize: bool = True,
        negative: str = "error",
    ) -> LayeredGraph:
        """A graph from one edge kind of a :class:`~flowgraph.capture.trace.Trace`.

        ``edges`` may be left out when one kind was traced; ``head`` picks one where heads were kept
        (``heads="each"``). ``part="encoder"`` or ``"decoder"`` of an encoder-decoder trace makes a plain stack of
        that part's self-attention, the only graphs there of kinds that hold the residual stream.
        ``residual="auto"`` is 0.5, or none for such kinds.
        """
        from flowgraph.trace_graph import graph_from_trace

        return graph_from_trace(
            trace,
            edges=edges,
            head=head,
            part=part,
            residual=residual,
            normalize=normalize,
            negative=negative,
        )

    # --- looking at it ----------------------------------------------------------------------------------

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def num_nodes(self) -> int:
        return sum(level.size for level in self.levels)

    @property
    def num_edges(self) -> int:
        """Edges with a capacity other than 0."""
        return sum(int(np.count_nonzero(b.capacity)) for b in self.blocks)

    @property
    def is_stack(self) -> bool:
        """True where block ``k`` joins level ``k + 1`` to level ``k`` and nothing else exists."""
        return self.inputs == (0,) and [(b.upper, b.lower) for b in self.blocks] == [
            (k + 1, k) for k in range(len(self.levels) - 1)
        ]

    @property
    def offsets(self) -> np.ndarray:
        """(number of levels + 1,): node ``(k, p)`` has the number ``offsets[k] + p``."""
        return np.concatenate([[0], np.cumsum([level.size for level in self.levels])]).astype(np.int64)

    def __repr__(self) -> str:
        shape = " ".join(str(level.size) for level in self.levels)
        return (
            f"<LayeredGraph {self.meta.get('edges', 'custom')}: {len(self.levels)} levels ({shape}), "
            f"{self.num_edges} edges>"
        )

    def level_index(self, level: int) -> int:
        """Index into ``levels`` of the outputs of layer ``level`` (from 1; -1 is the top)."""
        if isinstance(level, (bool, np.bool_)) or not isinstance(level, (int, np.integer)):
            raise FlowgraphError(
                f"level: {level!r} is not a layer number; pass an integer from 1, -1 for the top, or 'all'"
            )
        count = self.num_layers
        number = int(level) if level > 0 else count + 1 + int(level)
        if level == 0 or not 1 <= number <= count:
            raise FlowgraphError(
                f"level: {int(level)} is not a layer of this graph, which has {count}; "
                f"pass 1 to {count}, or -1 to -{count} counted from the top"
            )
        return self.layers[number - 1]

    def check_node(self, node: Any, argument: str) -> Node:
        """``node`` as (level index, position) with non-negative ints, or an error naming ``argument``."""
        try:
            level, position = node
            level, position = _as_int(level), _as_int(position)
        except (TypeError, ValueError):
            raise FlowgraphError(
                f"{argument}: {node!r} is not a node; pass (index into graph.levels, position)"
            ) from None
        if not 0 <= level < len(self.levels):
            raise FlowgraphError(
                f"{argument}: level {level} is not in the graph, whose levels are 0 to {len(self.levels) - 1}"
            )
        size = self.levels[level].size
        if not 0 <= position < size:
            raise FlowgraphError(
                f"{argument}: position {position} is not in level {level}, whose positions are 0 to {size - 1}"
            )
        return level, position

    def require_unsigned(self, purpose: str) -> None:
        if self.signed:
            raise FlowgraphError(
                f"negative: {purpose} needs capacities that are not negative, and this graph was made with "
                "negative='keep'; make it with negative='clip' or negative='abs'"
            )

    # --- turning it into something else -----------------------------------------------------------------

    def edges(self) -> dict[str, np.ndarray]:
        """Columns of the edge table, one entry an edge, ready for ``pandas.DataFrame`` or ``pyarrow.table``.

        ``source``, ``target``: node numbers (``offsets[level] + position``); ``source_level``,
        ``source_position``, ``target_level``, ``target_position``; ``capacity``.
        """
        offsets = self.offsets
        places = [np.nonzero(b.capacity) for b in self.blocks]
        upper = _concat(
            [np.full(len(i), b.upper) for b, (i, _) in zip(self.blocks, places, strict=True)], np.int64
        )
        lower = _concat(
            [np.full(len(i), b.lower) for b, (i, _) in zip(self.blocks, places, strict=True)], np.int64
        )
        rows = _concat([i for i, _ in places], np.int64)
        columns = _concat([j for _, j in places], np.int64)
        capacities = [b.capacity[place] for b, place in zip(self.blocks, places, strict=True)]
        return {
            "source": offsets[upper] + rows,
            "target": offsets[lower] + columns,
            "source_level": upper,
            "source_position": rows,
            "target_level": lower,
            "target_position": columns,
            "capacity": _concat(capacities, np.float64),
        }

    def by_block(self, edge_values: np.ndarray) -> list[np.ndarray]:
        """One value an edge, in the order of :meth:`edges`, as one array a block, shaped as its capacities."""
        result, start = [], 0
        for block in self.blocks:
            values, there = np.zeros(block.capacity.shape), block.capacity != 0
            count = int(np.count_nonzero(there))
            values[there] = edge_values[start : start + count]
            start += count
            result.append(values)
        return result

    def to_networkx(self) -> networkx.DiGraph:
        """A ``networkx.DiGraph`` with nodes ``(level, position)`` and the edge attribute ``capacity``."""
        from flowgraph.export.networks import to_networkx

        return to_networkx(self)

    def to_igraph(self) -> igraph.Graph:
        """A directed ``igraph.Graph``: vertex ``offsets[level] + position``, edge attribute ``capacity``."""
        from flowgraph.export.networks import to_igraph

        return to_igraph(self)

    def plot(self, path: str | PathLike[str] | None = None, **options: Any) -> Any:
        """The graph with edge widths as a picture; see :func:`flowgraph.export.plot.layered`."""
        from flowgraph.export.plot import layered

        return layered(self, path, **options)

    def to_html(self, path: str | PathLike[str] | None = None, **options: Any) -> str:
        """One self-contained interactive page; see :func:`flowgraph.export.page.page`."""
        from flowgraph.export.page import page

        return page(self, path, **options)

    def _repr_html_(self) -> str:
        from flowgraph.export.notebook import graph_html

        return graph_html(self)

    def write_graphml(self, path: str | PathLike[str], flow: Any = None, **options: Any) -> None:
        """Write the graph as GraphML; see :func:`flowgraph.export.graphml.write_graphml`."""
        from flowgraph.export.graphml import write_graphml

        write_graphml(self, path, flow=flow, **options)

    @staticmethod
    def read_graphml(path: str | PathLike[str]) -> LayeredGraph:
        """The graph that :meth:`write_graphml` wrote, capacities bit for bit."""
        from flowgraph.export.graphml import read_graphml

        return read_graphml(path)


def _frozen_block(block: Block) -> Block:
    capacity = np.array(block.capacity, dtype=np.float64)
    capacity.setflags(write=False)
    return Block(block.upper, block.lower, capacity, block.kind, block.residual)


def _check_graph(graph: LayeredGraph) -> None:
    count = len(graph.levels)
    if count < 2:
        raise FlowgraphError(f"levels: {count} given; a graph has an input level and at least one above it")
    for k in (*graph.layers, *graph.inputs):
        if not 0 <= k < count:
            raise FlowgraphError(f"layers, inputs: {k} is not a level; the graph has levels 0 to {count - 1}")
    for number, block in enumerate(graph.blocks):
        if not 0 <= block.lower < block.upper < count:
            raise FlowgraphError(
                f"blocks: block {number} joins level {block.upper} to {block.lower}; "
                f"edges run down, within 0 to {count - 1}"
            )
        shape = (graph.levels[block.upper].size, graph.levels[block.lower].size)
        if block.capacity.shape != shape:
            raise FlowgraphError(
                f"blocks: block {number} has capacities of shape {block.capacity.shape}, its levels need {shape}"
            )
        check_finite(block.capacity, f"capacity of block {number}")
        if not graph.signed and (block.capacity < 0).any():
            raise FlowgraphError(
                f"capacity of block {number}: negative entries, the least {block.capacity.min():.6g}; "
                "capacities cannot be negative"
            )


def _as_int(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError
    return int(value)


def _concat(parts: list[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)
