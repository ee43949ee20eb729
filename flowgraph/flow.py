"""Attention flow: the maximum flow from an explained token down to an input token.

Abnar & Zuidema 2020, section 3 (10.18653/v1/2020.acl-main.385): attention weights, mixed with the residual
connection, are capacities of a layered graph; the flow from node ``(l, i)`` to input ``j`` is the most that
can pass through levels ``l .. 0``. One maximum flow for each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowgraph import solvers
from flowgraph.cuts import CutEdge, cut_edges, held_by
from flowgraph.errors import CertificateError, FlowgraphError
from flowgraph.graph import LayeredGraph, Node, check_graph
from flowgraph.progress import progress_bar
from flowgraph.receptive_field import even_graph
from flowgraph.rollout import num_inputs
from flowgraph.selection import resolve_levels, resolve_positions
from flowgraph.solvers.all_pairs import AllPairs, prepare_auto
from flowgraph.solvers.base import FlowResult, check_flow, check_pair
from flowgraph.solvers.many import pair_values

NORMALIZATIONS = (None, "row", "receptive-field")


@dataclass(frozen=True)
class FlowMatrix:
    """Maximum flow values of many pairs, and how they were found."""

    values: np.ndarray
    """``(targets, inputs)``, or ``(L, targets, inputs)`` for ``level="all"``."""
    stats: Mapping[str, Any]
    """``solver``; for ``auto`` also ``settled``: how many pairs each step settled."""
    held_by: np.ndarray | None
    """Shaped as ``values``: ``"input"``, ``"target"`` or ``"between"`` (see :func:`flowgraph.cuts.held_by`); None
    where values were normalised."""


def attention_flow(
    graph: LayeredGraph,
    *,
    level: Any = -1,
    targets: Any = None,
    inputs: Any = None,
    solver: str = "auto",
    normalize: str | None = None,
    time_limit: float | None = None,
    progress: bool | Callable[[int], None] = False,
    verify: bool = False,
) -> np.ndarray:
    """Attention flow of all pairs of targets and inputs.

    Parameters
    ----------
    graph
        A layered graph with non-negative capacities.
    level
        Layer number from 1, negative from the top, or ``"all"``.
    targets, inputs
        Positions: an int, a slice, a list, a mask; ``None`` is all.
    solver
        ``"auto"`` (bounds for all pairs at once, then exact flows for what they leave open) or the name of a
        solver, called pair by pair.
    normalize
        ``None``: maximum flow values. ``"row"``: each target's row over all inputs sums to 1, as in the
        authors' code. ``"receptive-field"``: divided by the flow of the graph whose queries spread their
        attention evenly over the keys they see, then rows sum to 1; for causal and windowed attention, where
        early tokens can be reached from more positions.
    time_limit
        Seconds for each pair; past it :class:`~flowgraph.errors.TimeLimitError`.
    progress
        A bar on standard error, or a function called with the number of pairs just finished.
    verify
        Certify a sample of pairs by a second solver's flow and cut (CertificateError where they disagree).

    Returns
    -------
    ``(targets, inputs)`` float64, or ``(L, targets, inputs)`` for ``level="all"``; exact to
    ``1e-9 * max(1, value)``.
    """
    return np.asarray(
        flow_matrix(
            graph,
            level=level,
            targets=targets,
            inputs=inputs,
            solver=solver,
            normalize=normalize,
            time_limit=time_limit,
            progress=progress,
            verify=verify,
        ).values
    )


def flow_matrix(
    graph: LayeredGraph,
    *,
    level: Any = -1,
    targets: Any = None,
    inputs: Any = None,
    solver: str = "auto",
    normalize: str | None = None,
    time_limit: float | None = None,
    progress: bool | Callable[[int], None] = False,
    verify: bool = False,
) -> FlowMatrix:
    """What :func:`attention_flow` computes, with statistics of how each value was found."""
    _check_options(graph, solver, normalize, time_limit)
    levels, single = resolve_levels(graph, level)
    rows, columns = _rows_and_columns(graph, levels, targets, inputs, whole_rows=normalize is not None)
    engine = _Engine(graph, solver)
    with progress_bar(progress, "attention flow", len(levels) * len(rows) * len(columns)) as advance:
        matrices = engine.values(levels, rows, columns, time_limit, advance)
    if verify:
        _verify_sample(graph, levels, rows, columns, matrices)
    stats = engine.stats()
    held = [held_by(graph, m, k, rows, columns) for k, m in zip(levels, matrices, strict=True)]
    if normalize == "receptive-field":
        even = _Engine(even_graph(graph), "auto").values(levels, rows, columns, time_limit, None)
        matrices = [_divide(m, e) for m, e in zip(matrices, even, strict=True)]
    if normalize is not None:
        chosen = resolve_positions(inputs, num_inputs(graph), "inputs")
        matrices = [_divide(m, m.sum(-1, keepdims=True))[:, chosen] for m in matrices]
    return FlowMatrix(
        matrices[0] if single else np.stack(matrices),
        stats,
        None if normalize is not None else held[0] if single else np.stack(held),
    )


def max_flow(
    graph: LayeredGraph, source: Node, sink: Node, *, solver: str = "auto", time_limit: float | None = None
) -> FlowResult:
    """The maximum flow of one pair, with its edge flows and its minimum cut.

    ``source`` and ``sink``: ``(index into graph.levels, position)``, the source above the sink. The result of any
    solver is checked by :func:`flowgraph.check_flow`, which raises :class:`~flowgraph.errors.CertificateError`.
    """
    check_graph(graph)
    graph.require_unsigned("maximum flow")
    upper, lower = check_pair(graph, source, sink)
    _check_time_limit(time_limit)
    name = choose_single(graph) if solver == "auto" else solver
    result = solvers.get(name).prepare(graph).solve(upper, lower, time_limit=time_limit)
    _check_answer(graph, result, (upper, lower), name)
    if solver == "auto":
        result.stats["chosen"] = (
            f"{name}: the fastest installed solver for one pair of {graph.num_edges} edges"
        )
    return result


def _check_answer(graph: LayeredGraph, result: FlowResult, pair: tuple[Node, Node], name: str) -> None:
    """No solver is taken at its word, least of all one that a user registered."""
    try:
        check_flow(graph, result)
        if (result.source, result.sink) != pair:
            raise CertificateError(
                f"answered {result.source} to {result.sink}, asked for {pair[0]} to {pair[1]}"
            )
    except CertificateError as error:
        raise CertificateError(f"solver: {name!r} gave no maximum flow: {error}; use another") from None


def choose_single(graph: LayeredGraph) -> str:
    """The solver for one pair: igraph, whose conversion and solve are compiled, whatever the size."""
    return "igraph" if "igraph" in solvers.names() else "push-relabel"


def bottleneck(
    graph: LayeredGraph, source: Node, sink: Node, *, solver: str = "auto", time_limit: float | None = None
) -> list[CutEdge]:
    """The edges of a minimum cut between two nodes, with their tokens and capacities, the largest first.

    Their capacities sum to the maximum flow: no more can pass, whatever the rest of the graph. Of several
    minimum cuts it is the one the solver found; parameters as for :func:`max_flow`.
    """
    return cut_edges(graph, max_flow(graph, source, sink, solver=solver, time_limit=time_limit))


class _Engine:
    """One graph prepared for many pairs, by bounds first (``auto``) or by a named solver pair by pair."""

    def __init__(self, graph: LayeredGraph, solver: str) -> None:
        self.graph, self.name = graph, solver
        self._auto: AllPairs | None = prepare_auto(graph) if solver == "auto" else None
        self._prepared = None if self._auto else solvers.get(solver).prepare(graph)

    def values(
        self,
        levels: list[int],
        rows: np.ndarray,
        columns: list[Node],
        time_limit: float | None,
        advance: Callable[[int], None] | None,
    ) -> list[np.ndarray]:
        """One ``(rows, columns)`` matrix a level; 0 for an input that does not lie below the level."""
        return [self._level(k, rows, columns, time_limit, advance) for k in levels]

    def _level(self, k: int, rows: Any, columns: list[Node], time_limit: Any, advance: Any) -> np.ndarray:
        below = [c for c, (lower, _) in enumerate(columns) if lower < k]
        matrix = np.zeros((len(rows), len(columns)))
        sinks = [columns[c] for c in below]
        if self._auto is not None:
            matrix[:, below] = self._auto.values(k, rows, sinks, time_limit=time_limit, progress=advance)
        else:
            sources = [(k, int(r)) for r in rows]
            matrix[:, below] = pair_values(
                self._prepared, sources, sinks, time_limit=time_limit, progress=advance
            )
        return matrix

    def stats(self) -> dict[str, Any]:
        return {"solver": self.name} | (self._auto.stats() if self._auto is not None else {})


def _rows_and_columns(
    graph: LayeredGraph, levels: list[int], targets: Any, inputs: Any, whole_rows: bool
) -> tuple[np.ndarray, list[Node]]:
    """Positions of the targets, and the input node of each column (all inputs where rows are normalised)."""
    sizes = {graph.levels[k].size for k in levels}
    if len(sizes) > 1:
        raise FlowgraphError(
            f"level: 'all' needs levels of one size, these have {sorted(sizes)}; pass one level at a time"
        )
    nodes = [(k, p) for k in graph.inputs for p in range(graph.levels[k].size)]
    chosen = resolve_positions(inputs, len(nodes), "inputs")
    rows = resolve_positions(targets, sizes.pop(), "targets")
    return rows, nodes if whole_rows else [nodes[c] for c in chosen]


def _divide(values: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Quotients; 0 where there is nothing to divide by."""
    return np.divide(values, by, out=np.zeros_like(values), where=by > 0)


def _verify_sample(
    graph: LayeredGraph,
    levels: list[int],
    rows: np.ndarray,
    columns: list[Node],
    matrices: list[np.ndarray],
    count: int = 16,
) -> None:
    """Certified flows of ``count`` pairs, drawn with a fixed seed, against the values found."""
    prepared = solvers.get(choose_single(graph)).prepare(graph)
    draw = np.random.default_rng(0)
    for _ in range(count):
        k, r, c = (int(draw.integers(n)) for n in (len(levels), len(rows), len(columns)))
        if columns[c][0] >= levels[k]:
            continue
        result = prepared.solve((levels[k], int(rows[r])), columns[c])
        check_flow(graph, result)
        found = matrices[k][r, c]
        if abs(found - result.value) > 1e-9 * max(1.0, result.value):
            raise CertificateError(
                f"verify: {found:.12g} found from {result.source} to {result.sink}, "
                f"a certified flow has {result.value:.12g}"
            )


def _check_options(graph: LayeredGraph, solver: str, normalize: Any, time_limit: Any) -> None:
    check_graph(graph)
    graph.require_unsigned("attention flow")
    _check_sums(graph)
    if normalize not in NORMALIZATIONS:
        raise FlowgraphError(
            f"normalize: unknown rule {normalize!r}; choose None, 'row' or 'receptive-field'"
        )
    _check_time_limit(time_limit)
    if solver != "auto":
        solvers.get(solver)


def _check_sums(graph: LayeredGraph) -> None:
    with np.errstate(over="ignore"):
        total = sum(float(block.capacity.sum()) for block in graph.blocks)
    if not np.isfinite(total):
        raise FlowgraphError(
            "graph: capacities so large that their sums overflow; divide them by a number of their size"
        )


def _check_time_limit(time_limit: Any) -> None:
    if time_limit is not None and not (isinstance(time_limit, (int, float)) and time_limit > 0):
        raise FlowgraphError(
            f"time_limit: {time_limit!r} is not a number of seconds above 0; pass None for no limit"
        )
