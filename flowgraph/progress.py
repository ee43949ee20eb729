"""A progress bar for long work, on standard error; nothing where nobody asked or nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    enabled: bool | Callable[[int], None], label: str, total: int
) -> Iterator[Callable[[int], None] | None]:
    """Gives ``advance(count)`` inside the block, or None when not ``enabled``.

    ``enabled`` may be a function of the caller's own, which is then handed on as it is.
    """
    if callable(enabled):
        yield enabled
        return
    if not enabled:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
