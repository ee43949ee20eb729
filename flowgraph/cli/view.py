"""``flowgraph view TEXT --out FILE``."""

from __future__ import annotations

from typing import Any

import click

from flowgraph.cli._options import (
    debug_option,
    graph_options,
    model_or_embedded,
    read_text,
    text_argument,
    trace_graph,
)
from flowgraph.cli._output import say


@click.command("view", epilog="Example: flowgraph view 'The cat sat on the mat.' --out cat.html")
@text_argument
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), metavar="FILE.html", help="The file to write."
)
@click.option(
    "--max-mb",
    type=float,
    default=5.0,
    show_default=True,
    metavar="MB",
    help="Size budget; what is too big is pruned.",
)
@graph_options
@debug_option
def command(text: str, pair: str | None, out: str, max_mb: float, model: str | None, **options: Any) -> None:
    """Write one self-contained interactive page about TEXT: it loads nothing, so it can be sent to anyone.

    TEXT is a sentence in quotes, or - to read standard input.
    """
    from flowgraph.export.page import page

    graph = trace_graph(model_or_embedded(model), read_text(text, pair), **options)
    page(graph, out, max_mb=max_mb)
    say(f"wrote {out}: open it in a browser")
