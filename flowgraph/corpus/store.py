"""A folder at any address: a local path, or what fsspec or ``pyarrow.fs`` can open (``s3://…``, ``memory://…``).

A file is written beside its place and renamed into it, so that a reader finds it whole or not at all.
"""

from __future__ import annotations

import os
import posixpath
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, NamedTuple, TypeVar

from flowgraph.errors import FlowgraphError, missing_dependency

_PART = ".part"
T = TypeVar("T")


class Place(NamedTuple):
    """A file system and a path in it."""

    fs: Any
    """An ``fsspec`` file system."""
    path: str
    local: bool


def find_place(address: str | os.PathLike[str], argument: str) -> Place:
    """The file system of an address: fsspec's own, else ``pyarrow.fs`` (which reads ``s3://`` by itself)."""
    try:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem
    except ImportError:
        raise missing_dependency("fsspec", "corpus", "a corpus") from None
    text = os.fspath(address)
    if not text.strip():
        raise FlowgraphError(f"{argument}: the address is empty; pass a path, or a URL such as s3://…")
    try:
        fs, path = fsspec.core.url_to_fs(os.path.expanduser(text))
    except (ImportError, ValueError) as error:
        return _arrow_place(text, argument, error)
    except OSError as error:  # of a chain such as zip://a::b.zip
        raise FlowgraphError(
            f"{argument}: {text!r} cannot be opened: {error.strerror or error}; check the address"
        ) from None
    return Place(fs, path, isinstance(fs, LocalFileSystem))


def _arrow_place(address: str, argument: str, reason: Exception) -> Place:
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

    try:
        fs, path = FileSystem.from_uri(address)
    except (ArrowException, OSError, ValueError, ImportError):
        raise FlowgraphError(
            f"{argument}: {address!r} is at no address that can be opened ({reason}); pass a path, or install the "
            "fsspec library for it (s3fs for s3://, gcsfs for gs://)"
        ) from None
    return Place(ArrowFSWrapper(fs), path, False)


class Store:
    """The folder a run writes to. Paths are relative to it, with ``/``."""

    def __init__(self, address: str | os.PathLike[str]) -> None:
        self.address = os.fspath(address)
        self.fs, self.root, self.local = find_place(self.address, "out")

    def at(self, path: str) -> str:
        """``path`` as the file system knows it."""
        return posixpath.join(self.root, path)

    def make(self, *folders: str) -> None:
        """Make the folder and these folders in it."""
        for folder in ("", *folders):
            try:
                self._attempt(
                    "made",
                    folder,
                    partial(self.fs.makedirs, self.at(folder), exist_ok=True),
                    (FileExistsError,),
                )
            except FileExistsError:
                where = posixpath.join(self.address, folder) if folder else self.address
                raise FlowgraphError(
                    f"out: {where!r} is a file; a run writes to a folder, so pass another path"
                ) from None

    def names(self, folder: str) -> list[str]:
        """Names of the finished files in ``folder``, sorted; none where there is no such folder."""
        return [name for name in self._all_names(folder) if not name.startswith(".")]

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None where there is none."""
        try:
            return self.fs.cat_file(self.at(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._trouble("read", path, error) from error

    def open(self, path: str) -> IO[bytes]:
        return self._attempt("read", path, lambda: self.fs.open(self.at(path), "rb"))

    def write(self, path: str, data: bytes) -> None:
        """The whole file, or the old one."""
        with self.replacing(path) as file:
            file.write(data)

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens where there is none."""
        with suppress(FileNotFoundError):
            self._attempt("removed", path, lambda: self.fs.rm_file(self.at(path)), (FileNotFoundError,))

    def sweep(self, *folders: str) -> None:
        """Remove what killed runs left half written."""
        for folder in folders:
            for name in self._all_names(folder):
                if name.startswith(".") and name.endswith(_PART):
                    self.remove(posixpath.join(folder, name))

    @contextmanager
    def replacing(self, path: str, before: Callable[[], None] | None = None) -> Iterator[IO[bytes]]:
        """A file that takes the place of ``path`` when the block ends, and not at all if it raises.

        ``before`` is called when the bytes are safe and the name is not yet given.
        """
        folder, name = posixpath.split(path)
        part = self.at(posixpath.join(folder, f".{name}.{secrets.token_hex(4)}{_PART}"))
        try:
            with self.fs.open(part, "wb") as file:
                yield file
                if self.local:
                    file.flush()
                    os.fsync(file.fileno())
            if before is not None:
                before()
            self._rename(part, self.at(path))
        except BaseException as error:
            with suppress(Exception):
                self.fs.rm_file(part)
            if isinstance(error, OSError):
                raise self._trouble("written", path, error) from error
            raise

    def _rename(self, part: str, path: str) -> None:
        if not self.local:
            self.fs.mv(part, path)
            return
        os.replace(part, path)
        _sync_folder(os.path.dirname(path))

    def _all_names(self, folder: str) -> list[str]:
        try:
            entries = self.fs.ls(self.at(folder), detail=False, refresh=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._trouble("listed", folder, error) from error
        return sorted(posixpath.basename(str(entry).replace(os.sep, "/").rstrip("/")) for entry in entries)

    def _attempt(
        self, done: str, path: str, action: Callable[[], T], passed: tuple[type[OSError], ...] = ()
    ) -> T:
        try:
            return action()
        except passed:
            raise
        except OSError as error:
            raise self._trouble(done, path, error) from error

    def _trouble(self, done: str, path: str, error: OSError) -> FlowgraphError:
        where = posixpath.join(self.address, path) if path else self.address
        reason = error.strerror or str(error) or type(error).__name__
        if done == "made":  # there may be no shards yet
            return FlowgraphError(
                f"out: {where!r} cannot be made: {reason}; pass a folder that can be written to"
            )
        return FlowgraphError(
            f"out: {where!r} cannot be {done}: {reason}; finished shards are intact: see to the cause and run the same "
            "command again"
        )


def _sync_folder(folder: str) -> None:
    """Make a renaming outlive a loss of power, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
