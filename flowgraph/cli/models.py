"""``flowgraph models``."""

from __future__ import annotations

from typing import Any

import click

from flowgraph.cli._options import debug_option, format_option, model_option, model_or_embedded
from flowgraph.cli._output import families_table, print_json, print_table, say, support_table


@click.command("models", epilog="Example: flowgraph models --model gpt2")
@model_option
@click.option("--list", "listed", is_flag=True, help="List the families of models that are known instead.")
@format_option("table", "json")
@debug_option
def command(model: str | None, listed: bool, form: str) -> None:
    """Show which edge kinds work for a model, and for the others why they do not.

    A kind that works can be named with --edges in every other command. Of an encoder-decoder model, kinds that
    cross-attention cannot have work for a trace of its self-attention alone.
    """
    if listed:
        if model is not None:
            raise click.UsageError("--list is of all families; leave out --model, or --list")
        _list_families(form)
        return
    from flowgraph.capture.loading import load
    from flowgraph.capture.support import support

    loaded, _ = load(model_or_embedded(model))
    found = support(loaded)
    name, family = type(loaded).__name__, loaded.config.model_type
    if form == "json":
        print_json({"model": name, "model_type": family} | found.to_dict())
        return
    if found.refusal is not None:
        click.echo(f"No edge kind works for {name} ({family}): {found.refusal}")
        return
    print_table(support_table(found, f"Edge kinds of {name} ({family})"))
    if found.hybrid is not None:
        say(f"note: this is what --hybrid skip gives; without it the model is refused: {found.hybrid}")


def _list_families(form: str) -> None:
    from flowgraph.capture.architectures import REFUSED
    from flowgraph.capture.survey import known_families

    families: dict[str, Any] = {"families": known_families(), "refused": REFUSED}
    if form == "json":
        print_json(families)
    else:
        print_table(families_table(**families))
