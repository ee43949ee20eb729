"""A graph as one of networkx or igraph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import igraph
    import networkx

    from flowgraph.graph import LayeredGraph


def to_networkx(graph: LayeredGraph) -> networkx.DiGraph:
    """See :meth:`flowgraph.graph.LayeredGraph.to_networkx`."""
    import networkx as nx

    graph.require_unsigned("a networkx graph")
    made = nx.DiGraph()
    for k, level in enumerate(graph.levels):
        made.add_nodes_from(
            ((k, p), {"token": token, "level": k, "position": p}) for p, token in enumerate(level.tokens)
        )
    for (upper, lower), capacity in _joined_blocks(graph).items():
        rows, columns = np.nonzero(capacity)
        ends = zip(rows.tolist(), columns.tolist(), capacity[rows, columns].tolist(), strict=True)
        made.add_edges_from(((upper, i), (lower, j), {"capacity": c}) for i, j, c in ends)
    return made


def _joined_blocks(graph: LayeredGraph) -> dict[tuple[int, int], np.ndarray]:
    """(upper, lower) -> capacities; blocks between the same levels are summed, as a DiGraph has one edge a pair."""
    joined: dict[tuple[int, int], np.ndarray] = {}
    for block in graph.blocks:
        ends = (block.upper, block.lower)
        joined[ends] = joined[ends] + block.capacity if ends in joined else block.capacity
    return joined


def to_igraph(graph: LayeredGraph) -> igraph.Graph:
    """See :meth:`flowgraph.graph.LayeredGraph.to_igraph`."""
    import igraph as ig

    graph.require_unsigned("an igraph graph")
    table = graph.edges()
    made = ig.Graph(
        n=graph.num_nodes, edges=np.column_stack([table["source"], table["target"]]), directed=True
    )
    made.es["capacity"] = table["capacity"].tolist()
    made.vs["level"] = [k for k, level in enumerate(graph.levels) for _ in range(level.size)]
    made.vs["position"] = [p for level in graph.levels for p in range(level.size)]
    made.vs["token"] = [token for level in graph.levels for token in level.tokens]
    return made
