"""``flowgraph models``."""

from __future__ import annotations

import click

from flowgraph.cli._options import debug_option, format_option, model_option, model_or_embedded
from flowgraph.cli._output import print_json, print_table, support_table


@click.command("models", epilog="Example: flowgraph models --model gpt2")
@model_option
@format_option("table", "json")
@debug_option
def command(model: str | None, form: str) -> None:
    """Show which edge kinds work for a model, and for the others why they do not.

    A kind that works can be named with --edges in every other command.
    """
    from flowgraph.capture.loading import load
    from flowgraph.capture.support import supported_kinds

    loaded, _ = load(model_or_embedded(model))
    reasons = supported_kinds(loaded)
    if form == "json":
        kinds = {kind: {"works": why is None, "why_not": why} for kind, why in reasons.items()}
        print_json({"model": type(loaded).__name__, "model_type": loaded.config.model_type, "edges": kinds})
    else:
        title = f"Edge kinds of {type(loaded).__name__} ({loaded.config.model_type})"
        print_table(support_table(reasons, title))
