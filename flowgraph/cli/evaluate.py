"""``flowgraph evaluate --data FILE``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flowgraph.cli._options import (
    RESIDUAL,
    check_picture,
    debug_option,
    format_option,
    model_option,
    model_or_embedded,
    parse_target,
    watched,
)
from flowgraph.cli._output import leave_if_stopped, print_json, print_table, say
from flowgraph.errors import FlowgraphError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from flowgraph.evaluation.correlation import Summary
    from flowgraph.evaluation.report import Evaluation


_MOST_FAILURES = 10
"""How many are printed."""
_MOST_NAMES = 6
"""How many classes are named."""


def _listed(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]


@click.command(
    "evaluate",
    epilog="Example: flowgraph evaluate --data reviews.tsv --model ./my-classifier --edges attention,alti --plot r.png",
)
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Texts: .jsonl, .csv, .tsv, or one a line.",
)
@model_option
@click.option(
    "--input-format", type=click.Choice(["jsonl", "csv", "tsv", "text"]), help="[default: by the name]"
)
@click.option("--no-header", is_flag=True, help="The first line is a text too; columns are called 1, 2, ...")
@click.option(
    "--text-column", default="text", show_default=True, metavar="NAME", help="Where the text stands."
)
@click.option("--second-column", metavar="NAME", help="Where the second sentence of a pair stands.")
@click.option("--label-column", metavar="NAME", help="True classes.  [default: label, where there is one]")
@click.option(
    "--candidate-columns",
    nargs=2,
    metavar="FIRST SECOND",
    help="Two words for a language model, the right one first.  [default: good and bad, where there are]",
)
@click.option("--candidates", nargs=2, metavar="FIRST SECOND", help="The same two words for all texts.")
@click.option(
    "--template",
    default="{text}",
    show_default=True,
    help="What the model reads, such as '{text} {mask} .' for a masked language model.",
)
@click.option("--id-column", metavar="NAME", help="[default: id where there is one, else the line number]")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The first N texts.")
@click.option(
    "--methods", callback=_listed, default="raw,rollout,flow", show_default=True, help="With commas between."
)
@click.option(
    "--edges",
    callback=_listed,
    default="attention",
    show_default=True,
    metavar="KINDS",
    help="Edge kinds with commas between; 'flowgraph models' lists them.",
)
@click.option(
    "--against",
    callback=_listed,
    help="blank-out, gradient, gradient-input, gradient-norm, with commas between.  [default: all]",
)
@click.option(
    "--explain",
    type=click.Choice(["predicted", "true"]),
    default="predicted",
    show_default=True,
    help="The class whose probability is the score.",
)
@click.option(
    "--target",
    default="auto",
    show_default=True,
    metavar="auto|mask|max|mean|cls|last|POSITION",
    help="Row of the attribution: auto is the classifying token, the mask or the last token.",
)
@click.option(
    "--blank", metavar="TOKEN", help="Replaces a blanked token.  [default: the mask, else the unknown token]"
)
@click.option(
    "--residual", type=RESIDUAL, default="auto", show_default=True, help="Share of the residual connection."
)
@click.option(
    "--negative",
    type=click.Choice(["error", "clip", "abs", "keep"]),
    default="error",
    show_default=True,
    help="What to do with negative entries of signed edge kinds; keep is for raw and rollout alone.",
)
@click.option(
    "--erasure/--no-erasure", default=True, show_default=True, help="Comprehensiveness and sufficiency too."
)
@click.option(
    "--resamples",
    type=click.IntRange(0, 1_000_000),
    default=1000,
    show_default=True,
    help="Bootstrap samples.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the bootstrap and of random relevance.",
)
@click.option(
    "--out",
    metavar="DIR",
    help="Keep each text's result in a folder, at any address; a begun one is gone on with.",
)
@click.option("--retry-errors", is_flag=True, help="With --out: ask texts again that failed before.")
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Also draw correlations by level."
)
@click.option(
    "--plot-curves", type=click.Path(dir_okay=False), metavar="FILE", help="Also draw the erasure curves."
)
@click.option(
    "--progress/--no-progress", default=None, help="A progress bar.  [default: where a person is watching]"
)
@format_option("table", "json")
@debug_option
def command(
    data: str,
    model: str | None,
    target: str,
    candidates: tuple[str, str] | None,
    progress: bool | None,
    plot: str | None,
    plot_curves: str | None,
    form: str,
    **options: Any,
) -> None:
    """Faithfulness: does an attribution rank tokens as the model's own score does?

    Each token is blanked out, and gradients are taken, of the probability of a class (a classifier), of the log-odds of
    two words (a language model), or of the text's vector (a model without a head); Spearman's rank correlation with
    raw attention, rollout and flow is averaged over the texts, level by level.
    """
    from flowgraph.evaluation.loading import load_with_head
    from flowgraph.evaluation.run import evaluate

    check_picture(plot, "--plot")
    check_picture(plot_curves, "--plot-curves")
    if plot_curves is not None and not options["erasure"]:
        raise click.BadParameter("there are no curves with --no-erasure", param_hint="'--plot-curves'")
    loaded, tokenizer = load_with_head(model_or_embedded(model))
    items = _items(data, getattr(tokenizer, "mask_token", None), options)
    try:
        evaluation = evaluate(
            loaded,
            tokenizer,
            items,
            candidates=candidates or None,
            target=parse_target(target),
            progress=watched(progress),
            **options,
        )
    except FlowgraphError as error:
        leave_if_stopped(error)
        raise
    if form == "json":
        print_json(evaluation.to_dict())
    else:
        for table in _tables(evaluation):
            print_table(table)
        say(_asked(evaluation))
    for failure in evaluation.failures[:_MOST_FAILURES]:
        say(f"left out: {failure.id} (line {failure.line}): {failure.reason}")
    if len(evaluation.failures) > _MOST_FAILURES:
        say(f"left out: {len(evaluation.failures) - _MOST_FAILURES} more; --format json lists all")
    for path, draw in ((plot, evaluation.plot), (plot_curves, evaluation.plot_curves)):
        if path is not None:
            draw(path)
            say(f"wrote {path}")


def _items(path: str, mask: str | None, options: dict[str, Any]) -> list[Any]:
    """The texts; takes what concerns them out of ``options``."""
    from flowgraph.evaluation.data import Columns, read_data

    columns = Columns(
        text=options.pop("text_column"),
        second=options.pop("second_column"),
        label=options.pop("label_column"),
        candidates=options.pop("candidate_columns") or None,
        id=options.pop("id_column"),
    )
    return read_data(
        path,
        columns,
        form=options.pop("input_format"),
        header=not options.pop("no_header"),
        template=options.pop("template"),
        mask=mask,
        limit=options.pop("limit"),
    )


def _asked(evaluation: Evaluation) -> str:
    """One line: model, texts, score, class, blank, special tokens."""
    meta = evaluation.meta
    what = {
        "classifier": f"probability of the {meta['explain']} class",
        "masked": "log-odds of two words at the mask",
        "causal": "log-odds of two words after the text",
        "regression": "the model's one output",
        "embedding": "the text's vector along its own direction",
    }
    scores = " / ".join(what[kind] for kind in meta["score"])
    accuracy = "" if meta["accuracy"] is None else f", accuracy {meta['accuracy']:.3f}"
    classes = f" ({_several(meta['classes'])})" if meta["classes"] else ""
    return (
        f"{meta['model']}: {meta['texts']} texts{accuracy}; score: {scores}{classes}; row of the attribution: "
        f"{_several(meta['rows'])}; blanked with "
        f"{meta['blank_token']}; 'all' counts special tokens, 'content' leaves them out"
    )


def _several(names: list[str]) -> str:
    """The names; of many the first."""
    more = f", … {len(names)} in all" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _tables(evaluation: Evaluation) -> Iterator[Table]:
    """A table an importance and rule for tokens: methods down, levels across; then one of erasure."""
    for rule in evaluation.axes["tokens"]:
        for against in evaluation.axes["against"]:
            yield _by_level(evaluation, against, rule)
    if evaluation.curves:
        yield _erasure(evaluation)


def _by_level(evaluation: Evaluation, against: str, rule: str) -> Table:
    headings = [
        "method",
        "edges",
        *(f"level {k}" for k in range(1, evaluation.levels + 1)),
        "top ± sd",
        "95 %",
    ]
    table = _table(f"Spearman with {against}, {rule} tokens: mean over texts", headings)
    for kind in evaluation.axes["edges"]:
        for method in evaluation.axes["methods"]:
            found = evaluation.find(method, edges=kind, against=against, tokens=rule)
            table.add_row(method, kind, *(_figure(s.mean) for s in found), *_spread(found[-1]))
    (random,) = evaluation.find("random", against=against, tokens=rule)
    blanks = [""] * (evaluation.levels - 1)
    table.add_row("random", "", *blanks, _figure(random.mean), *_spread(random))
    return table


def _erasure(evaluation: Evaluation) -> Table:
    shares = ", ".join(f"{share:g}" for share in evaluation.meta["fractions"])
    title = f"Erasure by the top level's ranking, mean over shares {shares}: AOPC"
    headings = ["ranked by", "edges", "comprehensiveness ↑", "95 %", "sufficiency ↓", "95 %"]
    table = _table(title, headings)
    for curve in evaluation.curves:
        both = (curve.comprehensiveness, curve.sufficiency)
        cells = [cell for s in both for cell in (_figure(s.mean), _spread(s)[1])]
        table.add_row(curve.method, curve.edges or "", *cells)
    return table


def _table(title: str, headings: list[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < 2 else "right")
    return table


def _figure(value: float) -> str:
    return "–" if value != value else f"{value:.3f}"


def _spread(summary: Summary) -> tuple[str, str]:
    """Deviation, and interval."""
    return f"± {_figure(summary.sd)}", f"{_figure(summary.low)} to {_figure(summary.high)}"
