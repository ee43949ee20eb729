"""A process of its own for each solver: it can be stopped, may crash, and has its memory to itself.

The parent sends ``(method, arguments)`` and gets ``(status, answer)``, pickled, over the child's standard streams. The
child is a fresh interpreter and does not run the caller's script again.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import IO, Any

from flowgraph.bench.runner import NotOfferedError, Runner
from flowgraph.errors import FlowgraphError, TimeLimitError

_POOLS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "BLIS")
_STARTING = 120.0
"""Seconds a child may take to start and to read its graph; no figure of the report depends on it."""


_PATIENCE = 10.0
_ASLEEP, _NAP = 0.01, 10.0
"""A child that uses less than this share of a core for its whole limit, and for so many seconds, waits for nothing."""
_TICK = 0.02
"""Seconds between two looks at a child's clock, at least."""


class ChildDiedError(FlowgraphError):
    """The solver ended its process: a crash in C, or no memory left."""


class SolverRaisedError(FlowgraphError):
    """The solver raised; the message is its own."""


class Child:
    """The parent's end. After :class:`TimeLimitError` or :class:`ChildDiedError` the child is gone."""

    def __init__(self, threads: int, clock: str = "wall") -> None:
        self._threads, self._clock = threads, clock
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from flowgraph.bench.child import serve; serve({threads:d})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(threads),
        )
        self._pool = ThreadPoolExecutor(1)

    def load(self, *arguments: Any) -> None:
        """Make the child's :class:`Runner`."""
        self.call("load", *arguments, limit=_STARTING)

    def call(self, method: str, *arguments: Any, limit: float) -> Any:
        """The answer of the child's method; :class:`TimeLimitError` after ``limit`` seconds of the clock.

        Of the child's own seconds (clock ``cpu``) a child that waits uses none: it is ended after ``_PATIENCE`` times
        as many on the wall.
        """
        future: Future[Any] = self._pool.submit(self._exchange, method, arguments)
        try:
            status, answer = self._wait(future, limit)
        except TimeoutError:
            self.close()
            raise TimeLimitError(f"longer than {limit:g} s") from None
        except (EOFError, OSError, pickle.UnpicklingError):
            self.close()
            raise ChildDiedError(_how_it_ended(self._process.returncode)) from None
        if status == "not offered":
            raise NotOfferedError
        if status == "raised":
            raise SolverRaisedError(answer)
        return answer

    def _wait(self, future: Future[Any], limit: float) -> Any:
        """The future's result, or TimeoutError."""
        if self._clock == "wall":
            return future.result(timeout=limit)
        start, last = self._cpu_seconds(), time.monotonic() + _PATIENCE * limit
        awake, then = start, time.monotonic()
        while True:
            used, now = self._cpu_seconds(), time.monotonic()
            if used - awake > _ASLEEP * (now - then):
                awake, then = used, now
            left = limit - (used - start)
            if left <= 0 or now > last or now - then > max(limit, _NAP):
                raise TimeoutError
            # its threads cannot use up what is left any sooner
            wait([future], timeout=min(max(left / self._threads, _TICK), _NAP))
            if future.done():
                return future.result()

    def _cpu_seconds(self) -> float:
        import psutil

        with suppress(psutil.Error):
            times = psutil.Process(self._process.pid).cpu_times()
            return float(times.user + times.system)
        return 0.0

    def close(self) -> None:
        """End the child and wait for it."""
        self._process.kill()
        self._process.wait()
        self._pool.shutdown(wait=True)
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()

    def _exchange(self, method: str, arguments: tuple[Any, ...]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        pickle.dump((method, arguments), stdin)
        stdin.flush()
        return pickle.load(stdout)


def _environment(threads: int) -> Mapping[str, str]:
    """The parent's search path, so that a solver's modules are found; thread pools made small from the start."""
    pools = {f"{pool}_NUM_THREADS": str(threads) for pool in _POOLS}
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | pools | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}


def _how_it_ended(code: int) -> str:
    with suppress(ValueError):
        name = signal.Signals(-code).name
        if name == "SIGKILL":
            return "its process was killed; on Linux that is most often a lack of memory"
        return f"its process crashed with {name}"
    return f"its process ended with exit code {code}"


def serve(threads: int) -> None:
    """The child's end: answer calls until the parent closes the stream."""
    requests, replies = _private_streams()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    runner: Any = None
    while True:
        try:
            method, arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            if method == "load":
                runner, answer = Runner(*arguments), None
            else:
                answer = getattr(runner, method)(*arguments)
            if method in ("load", "warm_up"):
                _pin(threads)  # the libraries that are loaded by now; the environment tells the others
            reply = ("ok", answer)
        except NotOfferedError:
            reply = ("not offered", None)
        except BaseException as error:
            reply = ("raised", _one_line(error))
        pickle.dump(reply, replies)
        replies.flush()


def _private_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Standard streams for the conversation alone: what a solver prints goes to standard error."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, replies


def _pin(threads: int) -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
