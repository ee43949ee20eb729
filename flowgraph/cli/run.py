"""``flowgraph run --input FILE --out DIR``."""

from __future__ import annotations

from typing import Any

import click

from flowgraph.cli._options import (
    HEADS,
    LEVEL,
    RESIDUAL,
    debug_option,
    format_option,
    hybrid_option,
    model_or_embedded,
    parse_target,
    refuse_together,
)
from flowgraph.cli._output import leave_if_stopped, print_json


def _names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    """``a,b`` as two names."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _pair(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, str] | None:
    if value is None:
        return None
    columns = [part.strip() for part in value.split(",")]
    if len(columns) != 2 or not all(columns):
        raise click.BadParameter(f"{value!r} is not two columns; write for example premise,hypothesis")
    return columns[0], columns[1]


@click.command(
    "run",
    epilog="Example: flowgraph run --input reviews.jsonl --out reviews-flow --method rollout,flow --workers 4",
)
@click.option(
    "--input", required=True, metavar="FILE", help="A file at any address, or - for standard input."
)
@click.option(
    "--out", required=True, metavar="DIR", help="A folder at any address; a begun one is gone on with."
)
@click.option(
    "--input-format",
    type=click.Choice(["jsonl", "csv", "tsv", "parquet", "text"]),
    help="[default: by the file's name; text, a line a text, for standard input]",
)
@click.option(
    "--text-column", default="text", show_default=True, metavar="NAME", help="Where the text stands."
)
@click.option(
    "--pair-columns", callback=_pair, metavar="A,B", help="Two columns: sentence pairs, or source and target."
)
@click.option("--id-column", metavar="NAME", help="[default: id where there is one, else the line number]")
@click.option("--no-header", is_flag=True, help="CSV, TSV: the first line is a record; columns are 1, 2, ...")
@click.option(
    "--model", metavar="NAME_OR_FOLDER", help="A Hugging Face model.  [default: the embedded model]"
)
@click.option(
    "--method",
    "methods",
    default="flow",
    show_default=True,
    callback=_names,
    metavar="NAME,...",
    help="raw, rollout, flow: one or several.",
)
@click.option(
    "--edges",
    default="attention",
    show_default=True,
    callback=_names,
    metavar="KIND,...",
    help="Edge kinds, all from one forward pass. 'flowgraph models' lists them.",
)
@click.option("--level", type=LEVEL, default=-1, help="Layer, from 1, or all.  [default: the top]")
@click.option(
    "--target",
    "targets",
    default="auto",
    callback=_names,
    metavar="TARGET,...",
    help="cls, last, mean, each, or a position from 0.  [default: cls where the model has it, else last]",
)
@click.option(
    "--heads", type=HEADS, default="all", show_default=True, help="How heads are joined, or one head."
)
@click.option(
    "--residual",
    type=RESIDUAL,
    default="auto",
    show_default=True,
    help="Share of the residual connection: auto is 0.5, or none for edge kinds that hold it already.",
)
@click.option(
    "--negative",
    type=click.Choice(["error", "clip", "abs"]),
    default="error",
    show_default=True,
    help="What to do with negative entries of signed edge kinds.",
)
@click.option("--solver", default="auto", show_default=True, metavar="NAME", help="Maximum-flow solver.")
@click.option(
    "--normalize", type=click.Choice(["row", "receptive-field"]), help="Flow only: rows that sum to 1."
)
@click.option(
    "--time-limit",
    type=float,
    metavar="SECONDS",
    help="A text with a slower flow is an error.  [default: none]",
)
@click.option("--truncate", is_flag=True, help="Cut texts that are longer than the model takes.")
@click.option("--device", default="cpu", show_default=True, help="Where the model runs, such as cuda.")
@click.option(
    "--dtype", type=click.Choice(["float32", "float64", "float16", "bfloat16"]), help="[default: as saved]"
)
@click.option(
    "--workers", type=click.IntRange(min=0), default=1, show_default=True, help="Processes with the model."
)
@click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of each worker."
)
@click.option(
    "--window", type=click.IntRange(min=1), default=512, show_default=True, help="Records in a shard."
)
@click.option(
    "--batch", type=click.IntRange(min=1), default=32, show_default=True, help="Texts in a forward pass."
)
@click.option("--max-memory", metavar="SIZE", help="Most a forward pass may take, such as 4GB.")
@hybrid_option
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where workers run: processes of this machine, or a Ray cluster.",
)
@click.option(
    "--ray-address", metavar="ADDRESS", help="A Ray cluster.  [default: a Ray of its own on this machine]"
)
@click.option("--max-errors", type=click.IntRange(min=0), metavar="N", help="Stop when more records failed.")
@click.option("--retry-errors", is_flag=True, help="Try records again that failed in earlier runs.")
@click.option("--quiet", is_flag=True, help="No progress.")
@format_option("text", "json")
@debug_option
def command(
    input: str,
    out: str,
    model: str | None,
    input_format: str | None,
    text_column: str,
    pair_columns: tuple[str, str] | None,
    id_column: str | None,
    no_header: bool,
    workers: int,
    engine: str,
    ray_address: str | None,
    time_limit: float | None,
    max_errors: int | None,
    retry_errors: bool,
    quiet: bool,
    form: str,
    **options: Any,
) -> None:
    """Attribute every text of a data set, into Parquet shards.

    Killed at any moment and started again with the same command, it goes on where it was. The rows are in
    DIR/data, what failed in DIR/errors with its line and reason, settings and schema in DIR/manifest.json.
    """
    from flowgraph.corpus.formats import InputOptions
    from flowgraph.corpus.report import summary_lines, watching
    from flowgraph.corpus.run import StoppedError, run_corpus
    from flowgraph.corpus.settings import Settings

    refuse_together("pair_columns", "text_column")
    options["targets"] = tuple(parse_target(target) for target in options["targets"])
    stopped: StoppedError | None = None
    with watching(quiet) as observe:
        try:
            summary = run_corpus(
                input,
                out,
                model_or_embedded(model),
                settings=Settings(**options),
                columns=InputOptions(
                    input_format, text_column, pair_columns, id_column, header=not no_header
                ),
                workers=workers,
                engine=engine,
                ray_address=ray_address,
                time_limit=time_limit,
                max_errors=max_errors,
                retry_errors=retry_errors,
                observe=observe,
            )
        except StoppedError as error:
            stopped, summary = error, error.summary
    if form == "json":
        print_json(summary.to_dict())
    else:
        for line in summary_lines(summary):
            click.echo(line)
    if stopped is not None:
        leave_if_stopped(stopped)
        raise stopped
