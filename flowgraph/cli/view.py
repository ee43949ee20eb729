"""``flowgraph view TEXT --out FILE``."""

from __future__ import annotations

from typing import Any

import click

from flowgraph.cli._options import (
    debug_option,
    graph_or_text_argument,
    graphs_of,
    several_graphs_options,
)
from flowgraph.cli._output import note_on_ending, say


@click.command(
    "view", epilog="Example: flowgraph view 'The cat sat on the mat.' --edges attention,alti --out cat.html"
)
@graph_or_text_argument
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), metavar="FILE.html", help="The file to write."
)
@click.option(
    "--max-mb",
    type=float,
    default=5.0,
    show_default=True,
    metavar="MB",
    help="Size budget beside the charting library (1.3 MB); what is too big is pruned.",
)
@several_graphs_options
@debug_option
def command(
    text: str | None,
    pair: str | None,
    graph_file: str | None,
    out: str,
    max_mb: float,
    model: str | None,
    edges: str,
    **options: Any,
) -> None:
    """Write one self-contained interactive page about TEXT: it loads nothing, so it can be sent to anyone.

    TEXT is a sentence in quotes, or - to read standard input. With several kinds of edges, or each head apart,
    the page lets its reader choose.
    """
    from flowgraph.export.page import page

    kinds = [kind.strip() for kind in edges.split(",")]
    page(graphs_of(text, pair, graph_file, model, edges=kinds, **options), out, max_mb=max_mb)
    note_on_ending(out, "HTML", ".html", ".htm", ".xhtml")
    say(f"wrote {out}: open it in a browser")
