"""One run at a time on a folder.

On a local disk the lock is the operating system's, which releases it when the process dies, however it dies. An object
store has no such locks: there a small file is renewed while the run lives, and one that has not been renewed
for a while belongs to nobody.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flowgraph.corpus.store import Store
from flowgraph.errors import FlowgraphError, missing_dependency

_NAME = ".lock"
_OWNER = ".owner"
RENEWED = 10.0
"""Seconds between renewals of a lease."""
SETTLE = 2.0
"""Seconds after which a file written at the same time by another run is to be seen."""
STALE = 60.0
"""Seconds without renewal after which a lease is nobody's."""


@contextmanager
def locked(store: Store) -> Iterator[None]:
    """Holds the folder while the block runs; FlowgraphError where another run has it."""
    with _os_lock(store) if store.local else _Lease(store).held():
        yield


@contextmanager
def _os_lock(store: Store) -> Iterator[None]:
    try:
        from filelock import FileLock, Timeout
    except ImportError:
        raise missing_dependency("filelock", "corpus", "a run on a folder") from None
    lock = FileLock(store.at(_NAME), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise _in_use(store, _read_owner(store)) from None
    except OSError as error:
        raise FlowgraphError(
            f"out: {store.address!r} cannot be locked: {error.strerror or error}; choose a folder you may write to"
        ) from None
    try:
        store.write(_OWNER, json.dumps(_owner()).encode())
        yield
    finally:
        lock.release()


class _Lease:
    """A lock as a file with a time in it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._token = secrets.token_hex(8)
        self._done = threading.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        self._take()
        thread = threading.Thread(target=self._renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()
            self._store.remove(_NAME)

    def _take(self) -> None:
        other = self._read()
        if other is not None and not _is_stale(other):
            raise _in_use(self._store, other)
        self._write()
        # of two runs that start at once the later writer has it; both wait until both have written
        time.sleep(SETTLE)
        now = self._read()
        if now is None or now.get("token") != self._token:
            raise _in_use(self._store, now or {})

    def _write(self) -> None:
        self._store.write(_NAME, json.dumps(_owner() | {"token": self._token, "time": time.time()}).encode())

    def _read(self) -> dict[str, Any] | None:
        return _parse(self._store.read(_NAME))

    def _renew(self) -> None:
        while not self._done.wait(RENEWED):
            try:
                self._write()
            except (
                FlowgraphError
            ):  # the store is out of reach for a moment; the shards will say so if it stays
                continue


def _owner() -> dict[str, Any]:
    return {"process": os.getpid(), "host": socket.gethostname()}


def _read_owner(store: Store) -> dict[str, Any]:
    return _parse(store.read(_OWNER)) or {}


def _parse(data: bytes | None) -> dict[str, Any] | None:
    try:
        owner = json.loads(data) if data else None
    except ValueError:
        return None
    return owner if isinstance(owner, dict) else None


def _is_stale(owner: dict[str, Any]) -> bool:
    if time.time() - float(owner.get("time", 0.0)) > STALE:
        return True
    return owner.get("host") == socket.gethostname() and not _is_alive(int(owner.get("process", 0)))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_use(store: Store, owner: dict[str, Any]) -> FlowgraphError:
    who = f" (process {owner['process']} on {owner['host']})" if {"process", "host"} <= owner.keys() else ""
    return FlowgraphError(
        f"out: {store.address!r} is in use by another run{who}; wait for it to end, or choose another folder"
    )
