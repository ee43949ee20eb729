"""Writing a file so that the old one survives a failure: beside it, then renamed over it."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO

from flowgraph.errors import FlowgraphError

_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


@contextmanager
def replacing(path: str | PathLike[str], *, expected_bytes: int = 0) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when the block ends, and not at all if it raises.

    The bytes go to a temporary file in the same folder, so that the renaming is one step of the file system.
    ``expected_bytes``: refuse at once where the disk has less room than that. A pipe or a device (``/dev/stdout``)
    is written into, never replaced.
    """
    if not isinstance(path, (str, os.PathLike)):  # a number would be taken for an open file
        raise FlowgraphError(f"path: {path!r} is a {type(path).__name__}; pass a file's name or a Path")
    if _is_special(path):
        with _straight_into(path) as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    _check_target(path, target, expected_bytes)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(name, _mode(target))
        os.replace(name, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from error
        raise


def _is_special(path: str | PathLike[str]) -> bool:
    """True for what exists and is neither a regular file nor a folder, and for a descriptor that is open on either:
    ``/dev/stdout`` may be a log that others append to."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return _descriptor(path) is not None or (not stat.S_ISREG(mode) and not stat.S_ISDIR(mode))


def _descriptor(path: str | PathLike[str]) -> int | None:
    """The number of ``/dev/stdout``, ``/dev/fd/1`` and the like; None for other paths."""
    name = os.path.abspath(os.fspath(path))
    if name in _STANDARD:
        return _STANDARD[name]
    number = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", name)
    return int(number[1]) if number else None


@contextmanager
def _straight_into(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    try:
        descriptor = _descriptor(path)
        with open(path if descriptor is None else os.dup(descriptor), "wb") as file:
            yield file
    except BrokenPipeError:
        raise  # the reader left, which is no fault
    except OSError as error:
        raise FlowgraphError(
            f"path: {os.fspath(path)!r} cannot be written: {error.strerror or error}"
        ) from error


def _check_target(path: str | PathLike[str], target: Path, expected_bytes: int) -> None:
    if target.is_dir():
        raise FlowgraphError(f"path: {os.fspath(path)!r} is a folder; name a file in it")
    if not target.parent.is_dir():
        raise FlowgraphError(f"path: the folder {str(target.parent)!r} does not exist; make it first")
    free = shutil.disk_usage(target.parent).free
    if expected_bytes > free:
        raise FlowgraphError(
            f"path: about {megabytes(expected_bytes)} are to be written to {str(target.parent)!r}, which has "
            f"{megabytes(free)} free; pass threshold= or top_k= to write fewer edges"
        )


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced, or those a new file gets."""
    with suppress(OSError):
        return target.stat().st_mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _cannot_write(path: str | PathLike[str], error: OSError) -> FlowgraphError:
    return FlowgraphError(
        f"path: {os.fspath(path)!r} cannot be written: {error.strerror or error}; what was there is unchanged"
    )


def megabytes(count: float) -> str:
    """``1234567 -> "1.2 MB"``."""
    return f"{count / 1e6:.1f} MB"
