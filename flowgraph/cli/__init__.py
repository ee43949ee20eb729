"""The command line: ``flowgraph COMMAND``.

One command a file, each with a ``command``; ``COMMANDS`` names them. A command's module is imported when the
command is used, and heavy libraries inside its function, so that ``flowgraph --help`` answers at once.

Results go to standard output, everything else to standard error. Exit codes: 0; 1 for a fault of flowgraph's
own; 2 for bad input, with one line that says what to do; 130 after Ctrl-C; 141 where the reader of the output
has gone. ``--debug`` adds the traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from flowgraph.cli._options import debug_option, with_options
from flowgraph.errors import FlowgraphError, FlowgraphWarning

COMMANDS = {
    "demo": "The whole job on a built-in sentence, in one go.",
    "attribute": "How much of each input token a later token holds.",
    "export": "Write the graph of one text as GraphML.",
    "view": "Write one interactive page about one text.",
    "evaluate": "How faithful attributions are to what the model does.",
    "run": "Attribute a whole corpus, resumable, in Parquet shards.",
    "bench": "Maximum-flow solvers side by side on your graphs.",
    "models": "Which edge kinds work for a model, and why others do not.",
}
"""Command -> what ``flowgraph --help`` says of it; the command is ``command`` in the module of its name."""


class _LazyGroup(click.Group):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with:  flowgraph demo",
)
@click.version_option(package_name="attention-flowgraph", prog_name="flowgraph")
@debug_option
def group() -> None:
    """Attention flow and attention rollout for transformers.

    Where did the content of a token come from? flowgraph turns a model's attention into a layered graph and
    answers by maximum flow (attention flow), by products of matrices (rollout), or layer by layer (raw).
    """


def main() -> NoReturn:
    """The entry point of ``flowgraph``."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its advice is for those who call it themselves
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; never raises for bad input."""
    state: dict[str, Any] = {"debug": False}
    context: click.Context | None = None
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a token the encoding lacks is no reason to fail
                stream.reconfigure(errors="backslashreplace")
        with warnings.catch_warnings():
            warnings.simplefilter("always", FlowgraphWarning)
            warnings.showwarning = _show_warning
            with group.make_context("flowgraph", list(arguments), obj=state) as context:
                group.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", 130, state)
    except BrokenPipeError:
        # what is left in the buffer must not raise again when the interpreter flushes it at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        return _fail(f"error: {error.format_message()}{_hint(error)}", 2, state)
    except FlowgraphError as error:
        return _fail(f"error: {with_options(str(error), _invoked(context))}", 2, state)
    except OSError as error:
        return _fail(f"error: {error}", 2, state)
    except Exception as error:
        where = "" if state["debug"] else "; --debug shows where"
        return _fail(f"error: {type(error).__name__}: {error} (a fault of flowgraph's own{where})", 1, state)
    return 0


def _invoked(context: click.Context | None) -> click.Command | None:
    """The command that was run, if it came to that."""
    name = context.invoked_subcommand if context is not None else None
    return None if context is None or name is None else group.get_command(context, name)


def _fail(message: str, code: int, state: dict[str, Any]) -> int:
    """One line on standard error, after the traceback where ``--debug`` was given."""
    if state["debug"]:
        traceback.print_exc()
    click.echo(" ".join(message.split("\n")), err=True)
    return code


def _hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f" (see '{context.command_path} --help')" if context is not None else ""


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """flowgraph's own warnings as one line; those of libraries concern their developers, not a user."""
    if issubclass(category, FlowgraphWarning):
        click.echo("warning: " + " ".join(str(message).split("\n")), err=True)
