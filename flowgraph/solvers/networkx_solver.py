"""networkx: pure Python, slow, everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.errors import FlowgraphError, TimeLimitError
from flowgraph.graph import LayeredGraph, Node
from flowgraph.solvers.base import FlowResult, check_pair
from flowgraph.solvers.residual import Deadline, certified

if TYPE_CHECKING:
    import networkx

ALGORITHMS = ("shortest_augmenting_path", "edmonds_karp")
"""In the order they are tried. networkx's ``dinitz`` raises IndexError or KeyError on some float graphs and
its ``preflow_push`` leaves flows that are none; both are left out."""


class NetworkxSolver:
    """Maximum flow by networkx's ``shortest_augmenting_path``.

    Pure Python: seconds a pair beyond a few hundred nodes. The residual network is built once and reused. Of
    networkx's answer only the flow is taken: its ``minimum_cut`` returns a wrong partition on some float
    graphs, so value and cut are read off the residual graph and certified. Where an algorithm raises or its
    flow cannot be certified the next one is tried; ``stats["algorithm"]`` and ``stats["failed"]`` say so.

    A time limit holds inside a pair too, in any thread: the residual network looks at the clock whenever the
    algorithm looks up a node.
    """

    name = "networkx"

    def prepare(self, graph: LayeredGraph) -> PreparedNetworkx:
        return PreparedNetworkx(graph)


class _Clock:
    """A deadline shared by all dictionaries of one residual network; none unless a pair is being solved."""

    deadline: Deadline | None = None


class PreparedNetworkx:
    """One graph as a networkx residual network, node ``offsets[level] + position``."""

    def __init__(self, graph: LayeredGraph) -> None:
        graph.require_unsigned("networkx")
        self._graph = graph
        self._offsets = graph.offsets.tolist()
        self._clock = _Clock()
        self._native, self._residual = _residual_network(graph, self._clock)

    def solve(self, source: Node, sink: Node, *, time_limit: float | None = None) -> FlowResult:
        """Certified maximum flow within ``time_limit`` seconds."""
        source, sink = check_pair(self._graph, source, sink)
        deadline = Deadline(time_limit, f"networkx on {source} to {sink}")
        failed: dict[str, str] = {}
        for algorithm in ALGORITHMS:
            stats = {"algorithm": algorithm} | ({"failed": dict(failed)} if failed else {})
            try:
                flow = self._run(algorithm, source, sink, deadline)
                return certified(self._graph, source, sink, flow, "networkx", stats, deadline)
            except TimeLimitError:
                raise
            # the library's own failures are of every type (IndexError, KeyError, NetworkXError ...)
            except Exception as error:
                failed[algorithm] = f"{type(error).__name__}: {error}"
        raise FlowgraphError(
            f"solver: networkx found no flow from {source} to {sink} ({failed}); use another solver"
        )

    def _run(self, algorithm: str, source: Node, sink: Node, deadline: Deadline) -> list[np.ndarray]:
        from networkx.algorithms import flow

        self._clock.deadline = deadline
        try:
            getattr(flow, algorithm)(
                self._native,
                self._offsets[source[0]] + source[1],
                self._offsets[sink[0]] + sink[1],
                residual=self._residual,
            )
        finally:
            self._clock.deadline = None
        return self._by_block()

    def _by_block(self) -> list[np.ndarray]:
        """The residual network's flow, one array a block; parallel edges are filled one after another."""
        left = {(b.upper, b.lower): np.zeros(b.capacity.shape) for b in self._graph.blocks}
        levels = [k for k, level in enumerate(self._graph.levels) for _ in range(level.size)]
        for u, v, flow in self._residual.edges(data="flow"):
            upper, lower = levels[u], levels[v]
            # the arcs of the residual network that run up hold the negative of the same flow, and residues
            if flow > 0 and upper > lower:
                left[upper, lower][u - self._offsets[upper], v - self._offsets[lower]] = flow
        result = []
        for block in self._graph.blocks:
            result.append(np.minimum(left[block.upper, block.lower], block.capacity))
            left[block.upper, block.lower] -= result[-1]
        return result


def _residual_network(graph: LayeredGraph, clock: _Clock) -> tuple[networkx.DiGraph, networkx.DiGraph]:
    """The graph (networkx reads the nodes off it) and its residual network, watched by ``clock``."""
    import networkx as nx
    from networkx.algorithms.flow import build_residual_network

    native = nx.DiGraph()
    native.add_nodes_from(range(graph.num_nodes))
    offsets = graph.offsets.tolist()
    for block in graph.blocks:
        rows, columns = np.nonzero(block.capacity)
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
            u, v = offsets[block.upper] + i, offsets[block.lower] + j
            # networkx overwrites a parallel edge; here capacities of parallel edges add up
            known = native[u][v]["capacity"] if native.has_edge(u, v) else 0.0
            native.add_edge(u, v, capacity=known + float(block.capacity[i, j]))
    residual = _watched_class(clock)()
    plain = build_residual_network(native, "capacity")
    residual.graph.update(plain.graph)
    residual.add_nodes_from(plain.nodes(data=True))
    residual.add_edges_from(plain.edges(data=True))
    residual.__networkx_cache__ = None
    return native, residual


def _watched_class(clock: _Clock) -> Callable[[], Any]:
    """A DiGraph class whose outer adjacency dictionaries check ``clock`` at every look-up of a node."""
    import networkx as nx

    class WatchedDict(dict):
        def __getitem__(self, node: Any) -> Any:
            if clock.deadline is not None:
                clock.deadline.check()
            return super().__getitem__(node)

    class WatchedDiGraph(nx.DiGraph):
        adjlist_outer_dict_factory = WatchedDict

    return WatchedDiGraph
