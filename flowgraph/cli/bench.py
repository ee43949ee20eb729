"""``flowgraph bench``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from flowgraph.cli._options import (
    check_picture,
    debug_option,
    format_option,
    given_options,
    model_or_embedded,
    read_graph,
    several_graphs_options,
    trace_graphs,
    watched,
)
from flowgraph.cli._output import print_json, print_table, say
from flowgraph.errors import FlowgraphError

if TYPE_CHECKING:
    from flowgraph.graph import LayeredGraph

_LONGER = (
    "The keys that the old man left on the kitchen table are still missing, although his neighbours say that "
    "he put them where he always did."
)


def _names(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]


def _sizes(_: click.Context, __: click.Parameter, value: str | None) -> list[tuple[int, int]] | None:
    """``6x32,12x128`` -> ``[(6, 32), (12, 128)]``"""
    if value is None:
        return None
    found = [re.fullmatch(r"\s*([1-9]\d*)\s*[x×]\s*([1-9]\d*)\s*", part) for part in value.split(",")]
    if not all(found):
        raise click.BadParameter(f"{value!r} is not sizes such as 6x32,12x128 (layers x tokens)")
    return list(dict.fromkeys((int(m[1]), int(m[2])) for m in found if m))


@click.command(
    "bench",
    epilog="Example: flowgraph bench --sizes 6x16,6x32,6x64 --kind causal --plot growth.png",
)
@click.option("--text", "texts", multiple=True, metavar="TEXT", help="Graphs of a text; may be given again.")
@click.option(
    "--input",
    "data",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Graphs of the texts of a file: .jsonl, .csv, .tsv, or one a line.",
)
@click.option(
    "--text-column", default="text", show_default=True, metavar="NAME", help="Where the text stands."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Texts of the file that are taken.",
)
@click.option(
    "--graph",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A graph in GraphML, as 'flowgraph export' writes it; may be given again.",
)
@click.option(
    "--sizes",
    callback=_sizes,
    metavar="LxT,...",
    help="Generated graphs of these layers x tokens: 6x32,12x128.",
)
@click.option(
    "--kind",
    "shape",
    type=click.Choice(["softmax", "causal", "window", "peaky"]),
    default="softmax",
    show_default=True,
    help="What generated graphs are like.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of generated graphs and of the pairs drawn.",
)
@click.option(
    "--solver",
    "solvers",
    callback=_names,
    metavar="NAME,...",
    help="Solvers with commas between.  [default: auto, all registered ones, and the installed peers]",
)
@click.option(
    "--load",
    "scripts",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.py",
    help="Run a Python file first, one that registers a solver of your own.",
)
@click.option(
    "--tasks",
    callback=_names,
    default="value,flow,matrix",
    show_default=True,
    metavar="NAME,...",
    help="What is timed, beside building: one pair's value, one pair's flow and cut, the whole matrix.",
)
@click.option(
    "--pairs", type=click.IntRange(min=1), default=5, show_default=True, help="Pairs solved one by one."
)
@click.option(
    "--certified",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Pairs that are certified first, for the others to be compared with.",
)
@click.option(
    "--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Times each is timed."
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Of the clock, for one run of a task and for all its repeats together.",
)
@click.option(
    "--clock",
    type=click.Choice(["cpu", "wall"]),
    default="cpu",
    show_default=True,
    help="Seconds of the solver's process, or of the clock on the wall.",
)
@click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of each solver."
)
@several_graphs_options
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Also draw time against size, log-log."
)
@click.option(
    "--progress/--no-progress", default=None, help="A progress bar.  [default: where a person is watching]"
)
@format_option("table", "json")
@debug_option
def command(
    scripts: tuple[str, ...],
    solvers: list[str] | None,
    plot: str | None,
    form: str,
    progress: bool | None,
    **options: Any,
) -> None:
    """Maximum-flow solvers side by side: which is right, and fastest, on your graphs.

    Graphs are those of the embedded model on two built-in texts, or of --text or --input with any model, or read from
    GraphML files, or generated. Every solver runs in a process of its own with pinned threads: it is warmed up,
    checked against certified values, then timed in turns with the others. One that is wrong, raises, crashes or takes
    too long is shown as that, and the run goes on.
    """
    from flowgraph.bench import compare
    from flowgraph.bench.contestants import choose, require_libraries
    from flowgraph.bench.scripts import load_script
    from flowgraph.bench.tables import report_lines, report_tables

    require_libraries()
    for script in scripts:
        load_script(script)
    choose(solvers)  # a wrong name is found before a model is loaded
    check_picture(plot)
    graphs, families = _graphs(options)
    names = ("tasks", "pairs", "certified", "repeats", "time_limit", "clock", "threads", "seed")
    settings = {name: options[name] for name in names}
    settings["tasks"] = tuple(settings["tasks"])
    report = compare(graphs, solvers=solvers, families=families, progress=watched(progress), **settings)
    if plot is not None:
        report.plot(plot)
        say(f"wrote {plot}")
    if form == "json":
        print_json(report.to_dict())
    else:
        for table in report_tables(report):
            print_table(table)
        for line in report_lines(report):
            say(line)


# --- graphs -----------------------------------------------------------------------------------------------


def _graphs(options: dict[str, Any]) -> tuple[dict[str, LayeredGraph], dict[str, str]]:
    """Graphs by name, and what each is one of, from the one source that was named."""
    sources = {name: options[name] for name in ("texts", "data", "files", "sizes") if options[name]}
    if len(sources) > 1:
        raise click.UsageError(
            f"{' and '.join(_SOURCES[s] for s in sources)} exclude each other; name one source"
        )
    source = next(iter(sources), "texts")
    _refuse_unheeded(source)
    if source == "sizes":
        return _generated(options)
    if source == "files":
        return _read(options["files"])
    return _traced(options)


_SOURCES = {"texts": "--text", "data": "--input", "files": "--graph", "sizes": "--sizes"}
_OF_TRACES = (
    "model", "edges", "heads", "residual", "negative", "generate", "truncate", "device", "max_memory", "hybrid"
)  # fmt: skip
_HEEDED = {"shape": ("sizes",), "text_column": ("data",), "limit": ("data",)} | dict.fromkeys(
    _OF_TRACES, ("texts", "data")
)
"""Option -> the sources that heed it."""


def _refuse_unheeded(source: str) -> None:
    for name, sources in _HEEDED.items():
        if source not in sources and (given := given_options(name)):
            heeding = " or ".join(_SOURCES[s] for s in sources)
            raise click.UsageError(f"{given[0]}: only for graphs of {heeding}; leave it out")


def _generated(options: dict[str, Any]) -> tuple[dict[str, LayeredGraph], dict[str, str]]:
    from flowgraph.bench.generate import generate

    _check_memory(options["sizes"])
    shape = options["shape"]
    graphs = {
        f"{layers}x{tokens} {shape}": generate(layers, tokens, shape, seed=options["seed"])
        for layers, tokens in options["sizes"]
    }
    return graphs, dict.fromkeys(graphs, shape)


def _check_memory(sizes: list[tuple[int, int]]) -> None:
    """Refuse sizes whose matrices this machine has no room for, before it tries."""
    import psutil

    graphs = [8 * layers * tokens**2 for layers, tokens in sizes]  # bytes
    needed = sum(graphs) + 3 * max(graphs)  # copies while one is made
    free = psutil.virtual_memory().available
    if needed > free:
        raise click.BadParameter(
            f"these graphs take {needed / 1e9:.3g} GB to generate, and {free / 1e9:.3g} GB are free; pass smaller ones",
            param_hint="'--sizes'",
        )


def _read(files: tuple[str, ...]) -> tuple[dict[str, LayeredGraph], dict[str, str]]:
    graphs = {path: read_graph(path) for path in files}
    return graphs, dict.fromkeys(graphs, "files")


def _traced(options: dict[str, Any]) -> tuple[dict[str, LayeredGraph], dict[str, str]]:
    model = model_or_embedded(options["model"])
    kinds = [part.strip() for part in options["edges"].split(",") if part.strip()]
    names = [name for name in _OF_TRACES if name not in ("model", "edges")]
    graphs: dict[str, LayeredGraph] = {}
    families: dict[str, str] = {}
    for number, text in enumerate(_texts(options), 1):
        found = trace_graphs(model, text, edges=kinds, **{name: options[name] for name in names})
        for k, graph in enumerate(found):
            head = f" head {k % (len(found) // len(kinds))}" if len(found) > len(kinds) else ""
            family = f"{graph.meta['edges']}{head}"
            name = f"text {number}, {family}"
            graphs[name], families[name] = graph, family
    return graphs, families


def _texts(options: dict[str, Any]) -> list[Any]:
    if options["texts"]:
        return list(options["texts"])
    if options["data"]:
        from flowgraph.evaluation.data import Columns, read_data

        items = read_data(options["data"], Columns(text=options["text_column"]), limit=options["limit"])
        for item in items:
            if item.problem is not None:
                raise FlowgraphError(f"input: line {item.line} of {options['data']!r}: {item.problem}")
        return [item.text for item in items]
    from flowgraph.embedded import SENTENCE

    return [SENTENCE, _LONGER]
