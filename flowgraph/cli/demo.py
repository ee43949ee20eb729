"""``flowgraph demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flowgraph.cli._options import debug_option, model_or_embedded
from flowgraph.cli._output import bar_table, print_table, say

if TYPE_CHECKING:
    from rich.table import Table

    from flowgraph.attribution import Attribution

TARGET, INPUT = "are", "keys"
"""The verb that is explained, and the noun that its number comes from."""

EDGES = ("attention", "alti")
"""The paper's edges, and edges that count what attention moves: tables of both, files of the second."""


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

    Prints what the verb of the sentence holds of each input token, by three methods and two kinds of edges,
    and writes heatmap.png, graph.graphml and view.html.
    """
    from flowgraph.capture.run import trace
    from flowgraph.embedded import NAME, SENTENCE

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"the folder {str(out)!r} cannot be made: {error.strerror}; name another"
        raise click.BadParameter(reason, param_hint="'--out'") from error
    say(f"{NAME} reads: {SENTENCE}")
    traced = trace(model_or_embedded(None), None, SENTENCE, edges=EDGES)
    for edges in EDGES:
        methods = _by_method(traced, edges)
        print_table(_table(methods, edges))
    _write(out, methods["flow"])


def _by_method(traced: Any, edges: str) -> dict[str, Attribution]:
    """Attributions of all tokens by each method; raw without the residual, as in the paper."""
    from flowgraph.attribution import attribute_graph
    from flowgraph.graph import LayeredGraph

    graph = LayeredGraph.from_trace(traced, edges=edges)
    bare = LayeredGraph.from_trace(traced, edges=edges, residual=None)
    return {
        "raw": attribute_graph(bare, method="raw"),
        "rollout": attribute_graph(graph, method="rollout"),
        "flow": attribute_graph(graph, method="flow"),
    }


def _table(methods: dict[str, Attribution], edges: str) -> Table:
    """What the verb holds of each input token, one column a method."""
    flow = methods["flow"]
    row = flow.tokens.index(TARGET)
    columns = {name: attribution.scores[row] for name, attribution in methods.items()}
    title = f"What '{TARGET}' holds of each input token after layer {flow.level}, edges: {edges}"
    return bar_table(flow, columns, title)


def _write(out: Path, flow: Attribution) -> None:
    """The picture, the graph file with one pair's flow, and the page."""
    from flowgraph.cli.export import pair_flow

    graph = flow.graph
    assert graph is not None  # made a moment ago, not read from a file
    flow.plot(out / "heatmap.png")
    say(f"wrote {out / 'heatmap.png'}: attention flow of all tokens to all inputs, edges: {flow.edges}")
    result = pair_flow(graph, TARGET, INPUT)
    graph.write_graphml(out / "graph.graphml", flow=result)
    say(
        f"wrote {out / 'graph.graphml'}: {graph.num_nodes} nodes, {graph.num_edges} edges, "
        f"and the maximum flow {TARGET} -> {INPUT}, {result.value:.4f}"
    )
    flow.to_html(out / "view.html")
    say(f"wrote {out / 'view.html'}: open it in a browser")
