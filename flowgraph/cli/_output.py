"""What commands print: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from flowgraph.export.labels import visible

if TYPE_CHECKING:
    from rich.table import Table

    from flowgraph.attribution import Attribution
    from flowgraph.capture.support import Support
    from flowgraph.errors import FlowgraphError

_MOST_COLUMNS = 8


def say(message: str) -> None:
    """A line for the person at the terminal, on standard error."""
    click.echo(message, err=True)


def note_on_ending(path: str, kind: str, *endings: str) -> None:
    """Say so, on standard error, where a file's name ends as if it held something else."""
    ending = os.path.splitext(path)[1].lower()
    if ending and ending not in endings:
        say(f"note: {path} holds {kind}, which programs may not look for in a {ending}; name it {endings[0]}")


def print_json(value: Any) -> None:
    """One JSON document on one line, in ASCII whatever the terminal's encoding, numbers exact."""
    click.echo(json.dumps(value, allow_nan=False))


def print_csv(attribution: Attribution) -> None:
    """One row a score: level, target, target_token, input, token, score; target and input are positions."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["level", "target", "target_token", "input", "token", "score"])
    targets, inputs = _numbered(attribution, "targets"), _numbered(attribution, "inputs")
    for level, scores in levels_of(attribution):
        for (i, j), score in np.ndenumerate(scores):
            writer.writerow([level, *targets[i], *inputs[j], repr(float(score))])


def print_table(table: Table) -> None:
    """A table on standard output: as wide as the terminal, or as it needs to be in a file or a pipe."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 400, highlight=False, soft_wrap=False).print(table)


def print_attribution(attribution: Attribution) -> None:
    """Inputs down, targets (of one target at all levels, levels) across; of many targets the best inputs."""
    if attribution.scores.ndim == 3 and len(attribution.target_tokens) == 1:
        columns = [f"level {level}" for level, _ in levels_of(attribution)]
        print_table(_scores_table(attribution, attribution.scores[:, 0], columns, title_of(attribution)))
        return
    for level, scores in levels_of(attribution):
        title = title_of(attribution, level)
        if len(scores) <= _MOST_COLUMNS:
            columns = [printable(token) for token in attribution.target_tokens]
            print_table(_scores_table(attribution, scores, columns, title))
        else:
            print_table(_best_table(attribution, scores, title))


def note_on_flows(attribution: Attribution) -> None:
    """Say, on standard error, where most flows do not depend on the target."""
    if attribution.held_by is None:
        return
    share = float((attribution.held_by == "input").mean())
    if share > 0.5:
        say(
            f"note: {share:.0%} of these flows are all that the input can pass on, so they would be the same for "
            "any target; rollout, a lower --level or other --edges may tell more"
        )


def bar_table(attribution: Attribution, columns: dict[str, np.ndarray], title: str) -> Table:
    """Inputs down, one column of numbers with bars for each of ``columns``, each scaled to its largest."""
    table = _new_table(title)
    for name in columns:
        table.add_column(name, justify="right")
        table.add_column("", justify="left", no_wrap=True)
    for j, (position, token) in enumerate(_numbered(attribution, "inputs")):
        cells: list[str] = []
        for values in columns.values():
            cells += [f"{values[j]:.4f}", bar(float(values[j]), float(values.max()))]
        table.add_row(position, *_texts(printable(token), *cells))
    return table


def support_table(support: Support, title: str) -> Table:
    """Edge kinds down; beside each whether it works, or which parts of the model it works for, and why not."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for heading in ("edge kind", "works", "why not"):
        table.add_column(heading)
    for kind, why in support.kinds.items():
        parts = ", ".join(support.working_parts(kind))
        table.add_row(*_texts(kind, "yes" if why is None else parts or "no", why or ""))
    return table


def families_table(families: Sequence[str], refused: Mapping[str, str]) -> Table:
    """Families of models that can be traced, then those that cannot, with the reason."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=f"{len(families)} families of models", box=SIMPLE_HEAD, title_justify="left", pad_edge=False
    )
    for heading in ("family", "known", "why not"):
        table.add_column(heading)
    for family in families:
        table.add_row(*_texts(family, "yes", ""))
    for family, why in sorted(refused.items()):
        table.add_row(*_texts(family, "no", why))
    return table


def levels_of(attribution: Attribution) -> list[tuple[int, np.ndarray]]:
    """(level, (targets, inputs)) for every level of an attribution."""
    if attribution.scores.ndim == 2:
        return [(int(attribution.level), attribution.scores)]
    return list(enumerate(attribution.scores, 1))


def _numbered(attribution: Attribution, side: str) -> list[tuple[str, str]]:
    """(position, token) of the ``"inputs"`` or ``"targets"``; no position for the mean of all."""
    positions, tokens = (
        (attribution.positions, attribution.tokens)
        if side == "inputs"
        else (attribution.target_positions, attribution.target_tokens)
    )
    return [("" if p is None else str(p), token) for p, token in zip(positions or (), tokens, strict=True)]


def title_of(attribution: Attribution, level: int | None = None) -> str:
    """``flow over attention, level 6``."""
    where = "all levels" if level is None else f"level {level}"
    return f"{attribution.method} over {attribution.edges}, {where}"


def bar(value: float, largest: float, width: int = 12) -> str:
    """A bar of eighths of a block, ``width`` blocks long for the largest value; of ``#`` where there are no blocks."""
    eighths = round(8 * width * max(value, 0.0) / largest) if largest > 0 else 0
    if not _has_blocks():
        return "#" * round(eighths / 8)
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]


def _has_blocks() -> bool:
    """True where standard output can hold the characters of a bar."""
    try:
        "█▏".encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def printable(token: str) -> str:
    """A token as a terminal can show it: control characters spelt out."""
    return visible(token, max_length=60)


def _scores_table(attribution: Attribution, scores: np.ndarray, columns: Sequence[str], title: str) -> Table:
    """``scores`` (columns, inputs), inputs down; a single column gets bars."""
    if len(columns) == 1:
        return bar_table(attribution, {columns[0]: scores[0]}, title)
    table = _new_table(title)
    for name in _texts(*columns):
        table.add_column(name, justify="right")
    for j, (position, token) in enumerate(_numbered(attribution, "inputs")):
        table.add_row(position, *_texts(printable(token), *(f"{value:.4f}" for value in scores[:, j])))
    return table


def _best_table(attribution: Attribution, scores: np.ndarray, title: str, count: int = 5) -> Table:
    """Targets down, the inputs with the largest scores beside each."""
    table = _new_table(title, "target")
    table.add_column("largest inputs")
    for i, (position, token) in enumerate(_numbered(attribution, "targets")):
        order = np.argsort(-scores[i], kind="stable")[:count]
        best = "  ".join(f"{printable(attribution.tokens[j])} {scores[i, j]:.4f}" for j in order)
        table.add_row(position, *_texts(printable(token), best))
    return table


def _new_table(title: str, what: str = "input") -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("#", justify="right", style="dim")
    table.add_column(what)
    return table


def _texts(*cells: str) -> list[Any]:
    """Cells that rich shows as they are: ``[CLS]`` is no markup."""
    from rich.text import Text

    return [Text(cell) for cell in cells]


def leave_if_stopped(error: FlowgraphError) -> None:
    """Exit as the signal would have it, where one ended a run."""
    number = getattr(error, "signal_number", None)
    if number is not None:
        say(str(error))
        raise click.exceptions.Exit(128 + number)
