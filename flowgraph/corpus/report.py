"""What a person sees of a run: a bar on a terminal, plain lines in a log, a summary at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from flowgraph.corpus.run import Observer
from flowgraph.corpus.summary import Summary

_EVERY = 30.0
"""Seconds between lines in a log."""


@contextmanager
def watching(quiet: bool) -> Iterator[Observer | None]:
    """Something to tell how far the run is; None where nobody wants to know."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _Bar() as bar:
            yield bar
    else:
        yield _Log()


class _Bar:
    """Share of the input, records, rate, time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._progress = Progress(
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("loading the model", total=None)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, summary: Summary, fraction: float | None) -> None:
        done = _share_done(summary, fraction)
        if summary.windows:
            self._progress.update(
                self._task,
                description=describe(summary),
                total=None if done is None else 1.0,
                completed=0.0 if done is None else done,
            )


class _Log:
    """A line now and then."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()

    def __call__(self, summary: Summary, fraction: float | None) -> None:
        now = time.monotonic()
        if not summary.windows or now - self._last < _EVERY:
            return
        self._last = now
        done = _share_done(summary, fraction)
        rest = ""
        if done:
            left = (now - self._start) * (1 - done) / done
            rest = f", {100 * done:.0f}% of the input, about {_duration(left)} left"
        print(describe(summary) + rest, file=sys.stderr, flush=True)


def describe(summary: Summary) -> str:
    """``1,024 texts, 2 errors, 210.3 texts/s``."""
    errors = f", {summary.failed:,} errors" if summary.failed else ""
    return f"{summary.computed:,} texts{errors}, {summary.rate:.1f} texts/s"


def _share_done(summary: Summary, fraction: float | None) -> float | None:
    """Of what has been read some is still being computed."""
    if fraction is None or not summary.records:
        return None
    finished = summary.known + summary.known_errors + summary.computed + summary.failed
    return fraction * min(1.0, finished / summary.records)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def summary_lines(summary: Summary) -> list[str]:
    """The summary for a person."""
    lines = [
        f"{summary.computed:,} texts attributed, {summary.failed:,} failed, {summary.known:,} known before"
        + (
            f", {summary.known_errors:,} failed before (--retry-errors tries them again)"
            if summary.known_errors
            else ""
        ),
        f"{summary.rate:.1f} texts/s, {summary.tokens_per_second:.0f} tokens/s over "
        f"{summary.computing_seconds:.1f} s ({summary.seconds:.1f} s with start-up); "
        f"{summary.peak_bytes / 1e6:.0f} MB at most in a worker",
    ]
    if summary.settled_by_bounds is not None:
        lines.append(f"{100 * summary.settled_by_bounds:.1f}% of the flows settled by bounds")
    for count, text in (
        (summary.removed, "records are no longer in the input: their rows lie in removed/ now"),
        (summary.returned, "records came back into the input, and their rows with them"),
        (summary.moved, "lines moved: their ids are their present line numbers"),
        (len(summary.damaged), "shards were damaged and have been computed again"),
    ):
        if count:
            lines.append(f"{count:,} {text}")
    lines += [f"failed: {reason} ({count:,})" for reason, count in summary.reasons.most_common(5)]
    lines += [f"adjusted: {what} ({count:,} warnings)" for what, count in summary.warnings.items()]
    lines.append(f"rows in {summary.out}/data, errors in {summary.out}/errors")
    return lines
