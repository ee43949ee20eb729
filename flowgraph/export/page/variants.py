"""What a page shows: graphs by edge kind and head, each with its scores by method and level."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.graph import LayeredGraph

SMALL = 32
"""Tokens up to which flows of all pairs are computed when the page is made from a graph alone."""


@dataclass
class Variant:
    """One graph the page can show: an edge kind and a head, with scores by method and layer number."""

    graph: LayeredGraph
    kind: str
    head: str
    scores: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)


def read_subject(subject: Any) -> list[Variant]:
    """Variants of a graph, an attribution, or a list of them; those of one graph become one."""
    items = list(subject) if isinstance(subject, (list, tuple)) else [subject]
    if not items:
        raise FlowgraphError("subject: an empty list; pass a graph, an attribution, or a list of them")
    variants: list[Variant] = []
    for item in items:
        graph = item if isinstance(item, LayeredGraph) else getattr(item, "graph", None)
        if not isinstance(graph, LayeredGraph):
            raise FlowgraphError(
                f"subject: {type(item).__name__} without a graph; pass a LayeredGraph, or an attribution "
                "computed on one (from_json does not keep it)"
            )
        graph.require_unsigned("the page")
        if variants and [v.tokens for v in graph.levels] != [v.tokens for v in variants[0].graph.levels]:
            raise FlowgraphError("subject: graphs over different tokens; make one page for each text")
        variant = _variant_of(variants, graph)
        if item is not graph:
            variant.scores |= _whole_scores(item, graph)
    return variants


def _variant_of(variants: list[Variant], graph: LayeredGraph) -> Variant:
    """The variant of ``graph``, added where it is new; kinds and heads that clash are told apart by number."""
    for variant in variants:
        if variant.graph is graph or _same_capacities(variant.graph, graph):
            return variant
    meta = graph.meta
    head = meta.get("head")
    kind = str(meta.get("edges", "custom"))
    if any(v.kind == kind and v.graph.meta.get("residual") != meta.get("residual") for v in variants):
        kind += f", residual {meta.get('residual') or 0}"
    name = f"head {head}" if head is not None else str(meta.get("heads", "all"))
    taken = {(v.kind, v.head) for v in variants}
    while (kind, name) in taken:
        name += "′"
    variants.append(Variant(graph, kind, name))
    return variants[-1]


def _same_capacities(a: LayeredGraph, b: LayeredGraph) -> bool:
    return len(a.blocks) == len(b.blocks) and all(
        (x.upper, x.lower, x.kind) == (y.upper, y.lower, y.kind) and np.array_equal(x.capacity, y.capacity)
        for x, y in zip(a.blocks, b.blocks, strict=True)
    )


def _whole_scores(attribution: Any, graph: LayeredGraph) -> dict[tuple[str, int], np.ndarray]:
    """Scores by method and layer, where they cover all targets and inputs of the graph."""
    values = np.asarray(attribution.scores, dtype=float)
    stack = values if values.ndim == 3 else values[None]
    numbers = range(1, len(stack) + 1) if values.ndim == 3 else [int(attribution.level)]
    rule = (attribution.meta.get("flow") or {}).get("normalize")
    method = attribution.method if not rule else f"{attribution.method} ({rule})"
    width = sum(graph.levels[k].size for k in graph.inputs)
    return {
        (method, number): matrix
        for number, matrix in zip(numbers, stack, strict=True)
        if matrix.shape == (graph.levels[graph.layers[number - 1]].size, width)
    }


def add_scores(variants: list[Variant], all_flows: bool | None) -> None:
    """Raw and rollout of every layer; flow of the top one where it is asked for or cheap."""
    from flowgraph.flow import attention_flow
    from flowgraph.rollout import raw, rollout

    for variant in variants:
        graph = variant.graph
        for number in range(1, graph.num_layers + 1):
            own = raw(graph, level=number)
            if own.shape[1] == sum(graph.levels[k].size for k in graph.inputs):
                variant.scores.setdefault(("raw", number), own)
            variant.scores.setdefault(("rollout", number), rollout(graph, level=number))
        small = max(level.size for level in graph.levels) <= SMALL
        top = ("flow", graph.num_layers)
        if top not in variant.scores and (small if all_flows is None else all_flows):
            variant.scores[top] = attention_flow(graph)


def first_choice(subject: Any, variants: list[Variant]) -> dict[str, Any]:
    """What is chosen at first: the attribution's method and level, and a pair worth seeing."""
    graph, scores = variants[0].graph, variants[0].scores
    item = subject[0] if isinstance(subject, (list, tuple)) else subject
    given = _whole_scores(item, graph) if item is not graph else {}
    method, layer = next(reversed(given)) if given else ("rollout", graph.num_layers)
    if not given and ("flow", layer) in scores:
        method = "flow"
    values = scores[method, layer]
    level = graph.levels[graph.layers[layer - 1]]
    target = level.size - 1 if graph.meta.get("causal") else 0
    special = np.concatenate(
        [graph.levels[k].special or [False] * graph.levels[k].size for k in graph.inputs]
    )
    words = [any(map(str.isalnum, token)) for k in graph.inputs for token in graph.levels[k].tokens]
    # a token's own input is seldom news, nor is one the tokenizer added; a full stop, only where there is no word
    worth = np.where(special.astype(bool), -1.0, values[target]) + np.where(words, 0.0, -0.5)
    if len(worth) > target:
        worth[target] = -1.0
    return {"method": method, "layer": layer, "target": target, "input": int(np.argmax(worth))}
