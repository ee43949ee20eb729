"""``flowgraph export TEXT --out FILE``."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from flowgraph.cli._options import (
    LEVEL,
    debug_option,
    given_options,
    graph_options,
    graph_or_text_argument,
    graphs_of,
    parse_target,
)
from flowgraph.cli._output import note_on_ending, say

if TYPE_CHECKING:
    from flowgraph.graph import LayeredGraph
    from flowgraph.solvers import FlowResult


FORMATS = ("graphml", "gexf", "json")
_ENDINGS = {"graphml": (".graphml", ".xml"), "gexf": (".gexf", ".xml"), "json": (".json",)}


@click.command(
    "export",
    epilog="Example: flowgraph export 'The cat sat on the mat.' --out cat.graphml --flow sat cat",
)
@graph_or_text_argument
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), metavar="FILE", help="The file to write."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Form of the file.  [default: by the ending of its name, else graphml]",
)
@click.option(
    "--flow",
    nargs=2,
    metavar="TARGET INPUT",
    help="Add the maximum flow and minimum cut between two tokens, each a position or a token.",
)
@click.option(
    "--level", type=LEVEL, default=-1, help="Layer of the flow's target, from 1.  [default: the top]"
)
@click.option("--threshold", type=float, metavar="CAPACITY", help="Leave out edges below this capacity.")
@click.option("--top-k", type=int, metavar="N", help="Keep each node's N largest edges.")
@click.option("--solver", default="auto", show_default=True, metavar="NAME", help="Maximum-flow solver.")
@graph_options
@debug_option
def command(
    text: str | None,
    pair: str | None,
    graph_file: str | None,
    out: str,
    form: str | None,
    flow: tuple[str, str] | None,
    level: int | str,
    threshold: float | None,
    top_k: int | None,
    solver: str,
    model: str | None,
    edges: str,
    **options: Any,
) -> None:
    """Write the layered graph of TEXT for other programs.

    GraphML is for Gephi, Cytoscape, yEd, networkx and igraph; GEXF for Gephi, with positions to start from;
    JSON is node-link data, as d3 and networkx read it. TEXT is a sentence in quotes, or - to read standard
    input. Nodes are tokens at levels, edges carry capacities; with --flow also one pair's flow and minimum cut.
    """
    if flow is None and (idle := given_options("level", "solver")):
        raise click.UsageError(f"{', '.join(idle)}: for a flow; name its tokens too, by --flow TARGET INPUT.")
    (graph,) = graphs_of(text, pair, graph_file, model, edges=[edges], **options)
    result = pair_flow(graph, *flow, level=level, solver=solver) if flow else None
    form = form or _form_of(out)
    _writer(form)(graph, out, flow=result, threshold=threshold, top_k=top_k)
    if flow and result is not None:
        say(f"flow {flow[0]} -> {flow[1]}: {result.value:.6g} ({result.solver})")
    note_on_ending(out, "GraphML" if form == "graphml" else form.upper(), *_ENDINGS[form])
    say(f"wrote {out}: {graph.num_nodes} nodes, {_edges_written(graph, threshold, top_k, result)}")


def _edges_written(
    graph: LayeredGraph, threshold: float | None, top_k: int | None, flow: FlowResult | None
) -> str:
    from flowgraph.export.rows import prune

    dropped = prune(graph, threshold=threshold, top_k=top_k, flow=flow).dropped_edges
    kept = f"{graph.num_edges - dropped} edges"
    return f"{kept} of {graph.num_edges}, the others pruned" if dropped else kept


def _form_of(path: str) -> str:
    """The form that the ending of a file's name stands for."""
    ending = os.path.splitext(path)[1].lower().lstrip(".")
    return ending if ending in FORMATS else FORMATS[0]


def _writer(form: str) -> Callable[..., None]:
    """``write_graphml`` and its like; each stands in a module of its own."""
    return getattr(import_module(f"flowgraph.export.{form}"), f"write_{form}")


def pair_flow(
    graph: LayeredGraph, target: str, source: str, *, level: int | str = -1, solver: str = "auto"
) -> FlowResult:
    """The maximum flow from a target at ``level`` down to an input token, both positions or tokens."""
    from flowgraph.axes import pair_of_nodes
    from flowgraph.flow import max_flow

    upper, lower = pair_of_nodes(graph, parse_target(target), parse_target(source), level=level)
    return max_flow(graph, upper, lower, solver=solver)
