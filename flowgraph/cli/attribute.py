"""``flowgraph attribute TEXT``."""

from __future__ import annotations

from typing import Any

import click

from flowgraph.cli._options import (
    LEVEL,
    check_picture,
    debug_option,
    flow_options,
    format_option,
    given_options,
    graph_options,
    model_or_embedded,
    parse_targets,
    read_text,
    text_argument,
    watched,
)
from flowgraph.cli._output import note_on_flows, print_attribution, print_csv, print_json, say


@click.command(
    "attribute",
    epilog="Example: flowgraph attribute 'The cat sat on the mat.' --method rollout --target sat --words",
)
@text_argument
@click.option(
    "--method",
    type=click.Choice(["raw", "rollout", "flow"]),
    default="flow",
    show_default=True,
    help="One layer's matrix, product of matrices, or maximum flow.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="POSITION_OR_TOKEN",
    help="What to explain: a position from 0 (an integer is always one), a token or word of the text, cls, "
    "last, mean or all; may be repeated.  [default: each token written, else cls, else last]",
)
@click.option(
    "--level", type=LEVEL, default=-1, help="Layer whose output is explained, from 1.  [default: the top]"
)
@click.option(
    "--normalize",
    type=click.Choice(["row", "receptive-field"]),
    help="Flow only: rows that sum to 1, or also corrected for what each token can see (causal models).",
)
@click.option("--words", is_flag=True, help="Whole words instead of pieces.")
@click.option("--without-special", is_flag=True, help="Leave out tokens such as [CLS]; rows keep their sums.")
@format_option("table", "json", "csv")
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Also draw a heat map (.png, .svg, .pdf)."
)
@graph_options
@flow_options
@debug_option
def command(
    text: str,
    pair: str | None,
    targets: tuple[str, ...],
    words: bool,
    without_special: bool,
    form: str,
    plot: str | None,
    model: str | None,
    progress: bool | None,
    **options: Any,
) -> None:
    """Attribute one TEXT: how much of each input token a later token holds.

    TEXT is a sentence in quotes, or - to read standard input.
    """
    from flowgraph.attribution import attribute

    check_picture(plot)
    if options["method"] != "flow" and given_options("time_limit"):
        raise click.UsageError("--time-limit is for --method flow alone; leave it out")
    attribution = attribute(
        model_or_embedded(model),
        None,
        read_text(text, pair),
        targets=parse_targets(targets or ("auto",)),
        progress=watched(progress),
        **options,
    )
    attribution = attribution.words() if words else attribution
    attribution = attribution.without_special() if without_special else attribution
    if plot is not None:
        attribution.plot(plot)
        say(f"wrote {plot}")
    if form == "json":
        print_json(attribution.to_dict())
    elif form == "csv":
        print_csv(attribution)
    else:
        print_attribution(attribution)
        note_on_flows(attribution)
