"""``flowgraph export TEXT --out FILE``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flowgraph.cli._options import (
    LEVEL,
    debug_option,
    graph_options,
    model_or_embedded,
    parse_target,
    read_text,
    text_argument,
    trace_graphs,
)
from flowgraph.cli._output import say

if TYPE_CHECKING:
    from flowgraph.graph import LayeredGraph
    from flowgraph.solvers import FlowResult


@click.command(
    "export",
    epilog="Example: flowgraph export 'The cat sat on the mat.' --out cat.graphml --flow sat cat",
)
@text_argument
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), metavar="FILE", help="The file to write."
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
    text: str,
    pair: str | None,
    out: str,
    flow: tuple[str, str] | None,
    level: int | str,
    threshold: float | None,
    top_k: int | None,
    solver: str,
    model: str | None,
    edges: str,
    **options: Any,
) -> None:
    """Write the layered graph of TEXT as GraphML, for Gephi, Cytoscape, yEd, networkx or igraph.

    TEXT is a sentence in quotes, or - to read standard input. Nodes are tokens at levels, edges carry
    capacities; with --flow also one pair's flow and minimum cut.
    """
    (graph,) = trace_graphs(model_or_embedded(model), read_text(text, pair), edges=[edges], **options)
    result = pair_flow(graph, *flow, level=level, solver=solver) if flow else None
    pruning = {"threshold": threshold, "top_k": top_k}
    graph.write_graphml(
        out, flow=result, **{name: value for name, value in pruning.items() if value is not None}
    )
    if result is not None:
        say(f"flow {flow[0]} -> {flow[1]}: {result.value:.6g} ({result.solver})" if flow else "")
    say(f"wrote {out}: {graph.num_nodes} nodes, {graph.num_edges} edges before pruning")


def pair_flow(
    graph: LayeredGraph, target: str, source: str, *, level: int | str = -1, solver: str = "auto"
) -> FlowResult:
    """The maximum flow from a target at ``level`` down to an input token, both positions or tokens."""
    from flowgraph.axes import pair_of_nodes
    from flowgraph.flow import max_flow

    upper, lower = pair_of_nodes(graph, parse_target(target), parse_target(source), level=level)
    return max_flow(graph, upper, lower, solver=solver)
