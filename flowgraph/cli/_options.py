"""Options that several commands share, and what their values mean."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flowgraph.errors import FlowgraphError, in_options

if TYPE_CHECKING:
    from flowgraph.graph import LayeredGraph

F = TypeVar("F", bound=Callable[..., Any])


def with_options(message: str, command: click.Command | None) -> str:
    """``message`` with the arguments of the library in it as options of ``command``."""
    if command is None:
        return message
    return in_options(
        message,
        {p.name: max(p.opts, key=len) for p in command.params if isinstance(p, click.Option) and p.name},
    )


def debug_option(function: F) -> F:
    """``--debug``: on any command, or before it."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value and context.obj is not None:
            context.obj["debug"] = True

    return click.option(
        "--debug",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=remember,
        help="Show the traceback of an error.",
    )(function)


class _WordOr(click.ParamType):
    """A number, or one of a few words; ``None`` stands for the word ``none``."""

    def __init__(self, number: type, *words: str) -> None:
        self.number, self.words = number, words
        self.name = "number or word"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join(("N" if self.number is int else "SHARE", *self.words))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        word = value.strip().lower()
        if word in self.words:
            return None if word == "none" else word
        try:
            return self.number(word)
        except ValueError:
            kind = "an integer" if self.number is int else "a number"
            self.fail(f"{value!r} is not {kind} or one of {', '.join(self.words)}", param, ctx)


LEVEL = _WordOr(int, "all")
HEADS = _WordOr(int, "all", "mean", "max", "min")
HEADS_OR_EACH = _WordOr(int, "all", "mean", "max", "min", "each")
RESIDUAL = _WordOr(float, "auto", "none")


def _stack(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator of several options, in the order they are written."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


model_option: Callable[[F], F] = click.option(
    "--model", metavar="NAME_OR_FOLDER", help="A Hugging Face model.  [default: the embedded model]"
)

text_argument: Callable[[F], F] = _stack(
    click.argument("text"),
    click.option(
        "--pair",
        metavar="TEXT",
        help="A second text: the target of an encoder-decoder model, or the second sentence of a pair.",
    ),
)


hybrid_option: Callable[[F], F] = click.option(
    "--hybrid",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="What to do with layers without attention: refuse the model, or pass over them.",
)


def _graph_options(edges_help: str, heads: click.ParamType, heads_help: str) -> Callable[[F], F]:
    """The options that say what graph is made of a text."""
    return _stack(
        model_option,
        click.option("--edges", default="attention", show_default=True, metavar="KIND", help=edges_help),
        click.option("--heads", type=heads, default="all", show_default=True, help=heads_help),
        click.option(
            "--residual",
            type=RESIDUAL,
            default="auto",
            show_default=True,
            help="Share of the residual connection: auto is 0.5, or none for edge kinds that hold it already.",
        ),
        click.option(
            "--negative",
            type=click.Choice(["error", "clip", "abs"]),
            default="error",
            show_default=True,
            help="What to do with negative entries of signed edge kinds.",
        ),
        click.option(
            "--generate",
            type=click.IntRange(min=1),
            metavar="N",
            callback=lambda _, __, count: None if count is None else {"max_new_tokens": count},
            help="Let the model write N tokens more first; each of them is then a target by default.",
        ),
        click.option("--truncate", is_flag=True, help="Cut a text that is longer than the model takes."),
        click.option("--device", metavar="DEVICE", help="Where to run the model, such as cpu or cuda."),
        click.option("--max-memory", metavar="SIZE", help="Most a forward pass may take, such as 4GB."),
        hybrid_option,
    )


graph_options: Callable[[F], F] = _graph_options(
    "What a layer's edges weigh; 'flowgraph models' lists the kinds.",
    HEADS,
    "How heads are joined, or one head's number from 0.",
)

several_graphs_options: Callable[[F], F] = _graph_options(
    "What a layer's edges weigh; several with commas between. 'flowgraph models' lists the kinds.",
    HEADS_OR_EACH,
    "How heads are joined, one head's number from 0, or each of them apart.",
)

flow_options: Callable[[F], F] = _stack(
    click.option(
        "--solver",
        default="auto",
        show_default=True,
        metavar="NAME",
        help="Maximum-flow solver, for attention flow.",
    ),
    click.option(
        "--time-limit", type=float, metavar="SECONDS", help="Give up a pair's flow after this long."
    ),
    click.option(
        "--progress/--no-progress",
        default=None,
        help="A progress bar.  [default: where a person is watching]",
    ),
)


def format_option(*names: str) -> Callable[[F], F]:
    """``--format``; the first name is the default."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(names),
        default=names[0],
        show_default=True,
        help="Form of the result.",
    )


def read_text(text: str, pair: str | None) -> str | tuple[str, str]:
    """The text given, standard input for ``-``, and the pair where there are two."""
    if text == "-":
        text = sys.stdin.read().strip()
    return text if pair is None else (text, pair)


def model_or_embedded(model: str | None) -> str:
    """The model named, or the embedded one's folder."""
    if model is None:
        from flowgraph.embedded import embedded_model

        model = str(embedded_model())
    if os.path.isdir(model):
        # reading a folder takes a moment; a download, which takes minutes, keeps its bar
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    return model


graph_or_text_argument: Callable[[F], F] = _stack(
    click.argument("text", required=False),
    click.option("--pair", metavar="TEXT", help="A second text, as for 'flowgraph attribute'."),
    click.option(
        "--graph",
        "graph_file",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE.graphml",
        help="In place of TEXT: a graph that 'flowgraph export' wrote.",
    ),
)


def graphs_of(
    text: str | None, pair: str | None, graph_file: str | None, model: str | None, **options: Any
) -> list[LayeredGraph]:
    """The graph in a file, or the graphs of a text: whichever the user named."""
    if text is not None and graph_file is not None:
        raise click.UsageError("TEXT and --graph are both given; leave one of them out.")
    if text is None and graph_file is None:
        raise click.UsageError("Name a TEXT, or a graph by --graph FILE.graphml.")
    if graph_file is None:
        assert text is not None
        return trace_graphs(model_or_embedded(model), read_text(text, pair), **options)
    _refuse_options_of_a_text({"pair", "model", *options})
    return [read_graph(graph_file)]


def read_graph(path: str) -> LayeredGraph:
    """The graph in a file that ``--graph`` names."""
    from flowgraph.graph import LayeredGraph

    try:
        return LayeredGraph.read_graphml(path)
    except FlowgraphError as error:  # the library's argument is the path, which it may name again
        option = "--graph" if repr(path) in str(error) else f"--graph {path}"
        raise FlowgraphError(re.sub("^path(?=: )", lambda _: option, str(error))) from error


def given_options(*names: str) -> list[str]:
    """Which of these parameters stand on the command line, as options: ``--text-column``."""
    context = click.get_current_context()
    return [
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    ]


def refuse_together(*names: str) -> None:
    """An error where more than one of these parameters was given."""
    given = given_options(*names)
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other; leave one out")


def _refuse_options_of_a_text(names: set[str]) -> None:
    """An error for options on the command line that a graph which is made already cannot heed."""
    wrong = given_options(*names)
    if wrong:
        raise click.UsageError(f"{', '.join(wrong)}: for a TEXT; the graph of --graph is made already.")


def watched(progress: bool | None) -> bool:
    """Whether to show a bar: as told, else where standard error is a terminal."""
    return sys.stderr.isatty() if progress is None else progress


def parse_target(value: str) -> int | str:
    """An integer is a position, anything else a token or word."""
    try:
        return int(value)
    except ValueError:
        return value


def parse_targets(values: Sequence[str]) -> Any:
    """``targets`` of an attribution from the ``--target`` options; None means all."""
    parsed = [parse_target(value) for value in values]
    if parsed == ["all"]:
        return None
    if "all" in parsed:
        raise click.BadParameter("'all' stands alone; leave out the others, or it", param_hint="'--target'")
    return parsed[0] if len(parsed) == 1 else parsed


def trace_graphs(
    model: str, text: str | tuple[str, str], *, edges: Sequence[str], **options: Any
) -> list[LayeredGraph]:
    """The graphs of one text, from the options of ``graph_options``: one for each edge kind and head asked for."""
    from flowgraph.capture.run import trace
    from flowgraph.graph import LayeredGraph

    traced = trace(
        model,
        None,
        text,
        edges=edges,
        heads=options["heads"],
        generate=options["generate"],
        truncate=options["truncate"],
        device=options["device"],
        max_memory=options["max_memory"],
        hybrid=options["hybrid"],
    )
    assert not isinstance(traced, list)  # one text, one trace
    heads = range(traced.meta["num_heads"]) if options["heads"] == "each" else (None,)
    return [
        LayeredGraph.from_trace(
            traced, edges=kind, head=head, residual=options["residual"], negative=options["negative"]
        )
        for kind in traced.kinds
        for head in heads
    ]


def check_picture(path: str | None, option: str = "--plot") -> None:
    """A picture that cannot be made is found before the work."""
    if path is None:
        return
    from flowgraph.export.figure import FORMATS, new_figure

    new_figure(1, 1)
    if not path.lower().endswith(tuple(f".{form}" for form in FORMATS)):
        raise click.BadParameter(f"{path!r} does not end in .{', .'.join(FORMATS)}", param_hint=f"'{option}'")
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise click.BadParameter(f"the folder of {path!r} does not exist", param_hint=f"'{option}'")
