"""Workers without a model, for what engines do with them; in a module that spawned processes can import."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from flowgraph.corpus.records import Record
from flowgraph.corpus.settings import Settings
from flowgraph.corpus.windows import Member, Task
from flowgraph.corpus.worker import Report
from flowgraph.errors import FlowgraphError


@dataclass(frozen=True)
class FakeSpec:
    """Its worker notes every call in a file of ``folder``, and dies or fails where it is told to."""

    folder: str
    die_once_at: tuple[int, ...] = ()
    die_always_at: tuple[int, ...] = ()
    fail_at: int = -1
    seconds: float = 0.0
    loading: float = 0.0
    """Seconds until the worker is there."""
    settings: Settings = field(default_factory=Settings)

    def make(self) -> FakeWorker:
        time.sleep(self.loading)
        return FakeWorker(self)


class FakeWorker:
    def __init__(self, spec: FakeSpec) -> None:
        self._spec = spec

    def __call__(self, task: Task) -> Report:
        spec, number = self._spec, task.number
        log = Path(spec.folder, f"{number}.{os.getpid()}.{time.monotonic_ns()}")
        log.touch()
        first = len(list(Path(spec.folder).glob(f"{number}.*"))) == 1
        time.sleep(spec.seconds)
        if number in spec.die_always_at or (number in spec.die_once_at and first):
            os.kill(os.getpid(), signal.SIGKILL)
        if number == spec.fail_at:
            raise FlowgraphError("level: 9 is not a layer")
        return Report(number, texts=1)


def fake_tasks(count: int) -> list[Task]:
    record = Record(1, None, "a", "0")
    return [Task(k, (Member(record, f"{k:032x}", 0, True, 1),)) for k in range(count)]
