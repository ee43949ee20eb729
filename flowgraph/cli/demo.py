"""``flowgraph demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowgraph.cli._options import debug_option
from flowgraph.cli._output import bar_table, print_table, say

if TYPE_CHECKING:
    from rich.table import Table

    from flowgraph.attribution import Attribution
    from flowgraph.graph import LayeredGraph

TARGET, INPUT = "are", "keys"
"""The verb that is explained, and the noun that its number comes from."""


@click.command("demo", epilog="Example: flowgraph demo --out first-look")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("flowgraph-demo"),
    show_default=True,
    metavar="DIR",
    help="Folder for the files; made where it is missing.",
)
@debug_option
def command(out: Path) -> None:
    """The whole job on a built-in sentence with the embedded model.

    Prints a table (what the verb of the sentence holds of each input token, by three methods) and writes
    heatmap.png, graph.graphml and view.html.
    """
    from flowgraph.attribution import attribute_graph
    from flowgraph.capture.run import trace
    from flowgraph.cli._options import model_or_embedded
    from flowgraph.embedded import NAME, SENTENCE
    from flowgraph.graph import LayeredGraph

    say(f"{NAME} reads: {SENTENCE}")
    traced = trace(model_or_embedded(None), None, SENTENCE, edges="attention")
    graph = LayeredGraph.from_trace(traced)
    methods = {
        "raw": attribute_graph(LayeredGraph.from_trace(traced, residual=None), method="raw"),
        "rollout": attribute_graph(graph, method="rollout"),
        "flow": attribute_graph(graph, method="flow"),
    }
    print_table(_table(methods))
    _write(out, graph, methods["flow"])


def _table(methods: dict[str, Attribution]) -> Table:
    """What the verb holds of each input token, one column a method."""
    tokens = methods["flow"].tokens
    row = tokens.index(TARGET)
    columns = {name: attribution.scores[row] for name, attribution in methods.items()}
    level = methods["flow"].level
    return bar_table(tokens, columns, f"What '{TARGET}' holds of each input token after layer {level}")


def _write(out: Path, graph: LayeredGraph, flow: Attribution) -> None:
    """The picture, the graph file with one pair's flow, and the page."""
    from flowgraph.cli.export import pair_flow

    out.mkdir(parents=True, exist_ok=True)
    flow.plot(out / "heatmap.png")
    say(f"wrote {out / 'heatmap.png'}: attention flow of all tokens to all inputs")
    result = pair_flow(graph, TARGET, INPUT)
    graph.write_graphml(out / "graph.graphml", flow=result)
    say(
        f"wrote {out / 'graph.graphml'}: {graph.num_nodes} nodes, {graph.num_edges} edges, "
        f"and the maximum flow {TARGET} -> {INPUT}, {result.value:.4f}"
    )
    flow.to_html(out / "view.html")
    say(f"wrote {out / 'view.html'}: open it in a browser")
