"""Making attributions: from a model and a text, or from a graph made before.

This is where the model side (a trace) and the graph side (levels and capacities) meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flowgraph._registry import normalise
from flowgraph.arrays import to_numpy
from flowgraph.attribution.result import Attribution
from flowgraph.axes import Axis, find_targets
from flowgraph.errors import FlowgraphError
from flowgraph.graph import LayeredGraph, check_graph
from flowgraph.rollout import raw, rollout
from flowgraph.selection import resolve_levels

METHODS = ("raw", "rollout", "flow")
"""The attribution methods, by name."""


def attribute(
    model: Any,
    tokenizer: Any,
    text: Any,
    *,
    method: str = "flow",
    edges: str = "attention",
    level: int | str = -1,
    targets: Any = None,
    inputs: Any = None,
    heads: str | int = "all",
    residual: float | str | None = "auto",
    normalize_rows: bool = True,
    negative: str = "error",
    solver: str = "auto",
    normalize: str | None = None,
    time_limit: float | None = None,
    progress: bool = False,
    verify: bool = False,
    generate: Mapping[str, Any] | None = None,
    truncate: bool = False,
    device: Any = None,
    max_memory: Any = None,
    hybrid: str = "error",
) -> Any:
    """How much of each input token the explained tokens of ``text`` hold.

    One forward pass, one graph, one attribution; :func:`flowgraph.trace`, :class:`LayeredGraph` and
    :func:`attribute_graph` are the steps for several methods or edge kinds at once.

    Parameters
    ----------
    model, tokenizer, text
        As for :func:`flowgraph.trace`: a loaded model or its name or folder; a text, a pair, a list of texts,
        or ready model inputs.
    method
        ``"raw"`` (one layer's own matrix; no residual unless told), ``"rollout"`` or ``"flow"``.
    edges
        One edge kind; ``flowgraph.mixing.names()`` lists them.
    level
        Layer number from 1, negative from the top, or ``"all"``.
    targets, inputs
        Positions (an int, a slice, a list, a mask), a token or a word; ``None``: all. Also ``"cls"``
        (the classifying token) and ``"last"``; targets ``"mean"`` (the average row of all tokens) or ``"auto"``
        (each token that the model wrote, by the row of the position that chose it, one before; without
        ``generate`` ``cls`` where there is one, else ``last``); these come before a word of the text that
        is spelt alike.
    heads
        As for :func:`flowgraph.trace`, but for ``"each"``: an attribution is of one graph.
    generate, truncate, device, max_memory, hybrid
        As for :func:`flowgraph.trace`.
    residual, negative, normalize_rows
        As for :meth:`LayeredGraph.from_trace`, where ``normalize_rows`` is called ``normalize``.
    solver, normalize, time_limit, progress
        As for :func:`flowgraph.attention_flow`; for ``method="flow"`` alone.
    verify
        Check the trace against the model's own output, and sampled flows by their certificates.

    Returns
    -------
    :class:`Attribution`, or a list of them for several texts.
    """
    _check_method(method)
    if not isinstance(edges, str):
        raise FlowgraphError(
            f"edges: an attribution has one edge kind, not {edges!r}; for several pass them to fg.trace"
        )
    if isinstance(heads, str) and normalise(heads) == "each":
        raise FlowgraphError(
            f"heads: an attribution is of one graph, not of {heads!r} head; pass one head, such as heads=3, or "
            "'mean', 'max' or 'min' to join them"
        )
    from flowgraph.capture.run import trace

    traced = trace(
        model,
        tokenizer,
        text,
        edges=edges,
        heads=heads,
        generate=generate,
        truncate=truncate,
        device=device,
        max_memory=max_memory,
        hybrid=hybrid,
        verify=verify,
    )
    if normalise(method) == "raw" and isinstance(residual, str):
        residual = None

    def explain(one: Any) -> Attribution:
        graph = LayeredGraph.from_trace(one, residual=residual, normalize=normalize_rows, negative=negative)
        return attribute_graph(
            graph,
            method=method,
            level=level,
            targets=targets,
            inputs=inputs,
            solver=solver,
            normalize=normalize,
            time_limit=time_limit,
            progress=progress,
            verify=verify,
        )

    return [explain(one) for one in traced] if isinstance(traced, list) else explain(traced)


def attribute_graph(
    graph: LayeredGraph,
    *,
    method: str = "flow",
    level: int | str = -1,
    targets: Any = None,
    inputs: Any = None,
    solver: str = "auto",
    normalize: str | None = None,
    time_limit: float | None = None,
    progress: bool = False,
    verify: bool = False,
) -> Attribution:
    """The attribution that :func:`attribute` makes, from a graph made before; parameters as there."""
    check_graph(graph)
    name = _check_method(method)
    flow_options: dict[str, Any] = {
        "solver": solver,
        "normalize": normalize,
        "time_limit": time_limit,
        "progress": progress,
        "verify": verify,
    }
    if name != "flow" and (solver != "auto" or normalize is not None):
        given = "solver" if solver != "auto" else "normalize"
        raise FlowgraphError(
            f"{given}: {flow_options[given]!r} is for method='flow' alone; leave it out with {name!r}"
        )
    levels, single = resolve_levels(graph, level)
    explained = Axis.of_level(graph, levels[-1])
    read = Axis.of_inputs(graph)
    rows = find_targets(targets, explained, graph)
    columns = read.resolve_inputs(inputs)
    where = {"level": level, "targets": rows.positions, "inputs": columns}
    if name == "flow":
        scores, held_by, found = _flow_scores(graph, where | flow_options)
    else:
        scores, held_by, found = _ALGEBRA[name](graph, **where), None, {}
    if rows.average:
        scores, held_by = scores.mean(-2, keepdims=True), None
    return Attribution(
        scores=scores,
        held_by=held_by,
        level=graph.layers.index(levels[0]) + 1 if single else "all",
        method=name,
        edges=str(graph.meta.get("edges", "custom")),
        meta=_plain(dict(graph.meta) | found),
        graph=graph,
        **read.picked(columns, ""),
        **(_AVERAGE if rows.average else explained.picked(rows.named, "target_")),
    )


def _flow_scores(
    graph: LayeredGraph, options: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray | None, dict[str, Any]]:
    """Attention flow, what holds each value, and what the attribution's ``meta`` says of it."""
    from flowgraph.flow import flow_matrix

    result = flow_matrix(graph, **options)
    return result.values, result.held_by, {"flow": dict(result.stats) | {"normalize": options["normalize"]}}


_ALGEBRA: dict[str, Callable[..., np.ndarray]] = {"raw": raw, "rollout": rollout}
_AVERAGE: dict[str, Any] = {
    "target_tokens": ("mean",),
    "target_positions": (None,),
    "target_special": None,
    "target_word_ids": None,
}


def _check_method(method: Any) -> str:
    name = normalise(method) if isinstance(method, str) else method
    if name not in METHODS:
        raise FlowgraphError(f"method: unknown method {method!r}; choose one of {', '.join(METHODS)}")
    return name


def _plain(value: Any) -> Any:
    """``value`` as JSON can hold it: mappings, lists, numbers, strings."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "detach"):
        return to_numpy(value).tolist()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
