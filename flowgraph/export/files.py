"""Files by name: what can be no name, reading one, and writing one so that the old one survives a failure.

What is written goes to a file beside the old one, which is then renamed over it.
"""

from __future__ import annotations

import errno
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

_REMEDIES = {
    errno.ENAMETOOLONG: "; pass a shorter name",
    errno.EISDIR: "; name a file in it",
    errno.ENOENT: "; pass the name of a file that exists",
    errno.EACCES: "; ask its owner for leave to read it",
}


def file_name(path: str | PathLike[str]) -> str:
    """``path`` as text; an error for what no file can be named."""
    try:
        name = os.fspath(path)
    except TypeError:  # a number, which open() would take for an open file
        kind = type(path).__name__
        raise FlowgraphError(f"path: {path!r} is a {kind}; pass a file's name or a Path") from None
    if not isinstance(name, str):
        raise FlowgraphError(f"path: {path!r} is a name in bytes; pass text: os.fsdecode(path)")
    if not name:
        raise FlowgraphError("path: '' names no file; pass a file's name or a Path")
    if "\0" in name:
        raise FlowgraphError(f"path: {name!r} holds a NUL character, which no file's name can; leave it out")
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        wrong = name[error.start : error.end]
        raise FlowgraphError(
            f"path: {name!r} holds {wrong!r}, which file names cannot hold here; leave it out"
        ) from error
    return name


@contextmanager
def reading(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """The file ``path``, open to be read as bytes; what the system refuses is a :class:`FlowgraphError`."""
    name = file_name(path)
    try:
        with open(name, "rb") as file:
            yield file
    except OSError as error:
        reason = f"{error.strerror or error}{_REMEDIES.get(error.errno or 0, '')}"
        raise FlowgraphError(f"path: {_short(name)} cannot be read: {reason}") from error


@contextmanager
def replacing(path: str | PathLike[str], *, expected_bytes: int = 0) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when the block ends, and not at all if it raises.

    The bytes go to a temporary file in the same folder, so that the renaming is one step of the file system.
    ``expected_bytes``: refuse at once where the disk has less room than that. A pipe or a device (``/dev/stdout``)
    is written into, never replaced.
    """
    path = file_name(path)
    if _is_special(path):
        with _straight_into(path) as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    try:
        _check_target(path, target, expected_bytes)
        # of the name only a part, since with what is added it may be longer than a name can be
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
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


def _is_special(path: str) -> bool:
    """True for what exists and is neither a regular file nor a folder, and for a descriptor that is open on either:
    ``/dev/stdout`` may be a log that others append to."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return _descriptor(path) is not None or (not stat.S_ISREG(mode) and not stat.S_ISDIR(mode))


def _descriptor(path: str) -> int | None:
    """The number of ``/dev/stdout``, ``/dev/fd/1`` and the like; None for other paths."""
    name = os.path.abspath(path)
    if name in _STANDARD:
        return _STANDARD[name]
    number = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", name)
    return int(number[1]) if number else None


@contextmanager
def _straight_into(path: str) -> Iterator[IO[bytes]]:
    try:
        descriptor = _descriptor(path)
        with open(path if descriptor is None else os.dup(descriptor), "wb") as file:
            yield file
    except BrokenPipeError:
        raise  # the reader left, which is no fault
    except OSError as error:
        raise FlowgraphError(f"path: {path!r} cannot be written: {error.strerror or error}") from error


def _check_target(path: str, target: Path, expected_bytes: int) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        target.stat()  # raises for a name that is too long, where is_dir may say no
    if target.is_dir():
        raise FlowgraphError(f"path: {path!r} is a folder; name a file in it")
    if target.exists() and _is_protected(target):
        raise FlowgraphError(
            f"path: {path!r} is write-protected; make it writable (chmod u+w), or name another file"
        )
    if not target.parent.is_dir():
        raise FlowgraphError(f"path: the folder {str(target.parent)!r} does not exist; make it first")
    free = shutil.disk_usage(target.parent).free
    if expected_bytes > free:
        raise FlowgraphError(
            f"path: about {megabytes(expected_bytes)} are to be written to {str(target.parent)!r}, which has "
            f"{megabytes(free)} free; pass threshold= or top_k= to write fewer edges"
        )


def _is_protected(target: Path) -> bool:
    """True where this user may not write the file, or nobody may: root, too, means something by that."""
    return not os.access(target, os.W_OK) or not target.stat().st_mode & 0o222


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced, or those a new file gets."""
    with suppress(OSError):
        return target.stat().st_mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _cannot_write(path: str, error: OSError) -> FlowgraphError:
    remedy = _REMEDIES.get(error.errno or 0) if error.errno == errno.ENAMETOOLONG else None
    return FlowgraphError(
        f"path: {_short(path)} cannot be written: {error.strerror or error}"
        f"{remedy or '; what was there is unchanged'}"
    )


def _short(name: str) -> str:
    """The name in quotes; of a very long one its ends, so that the message stays one line."""
    return repr(name) if len(name) <= 200 else f"{name[:60]!r}…{name[-20:]!r} ({len(name)} characters)"


def megabytes(count: float) -> str:
    """``1234567 -> "1.2 MB"``."""
    return f"{count / 1e6:.1f} MB"
