"""The Ray engine: the same workers as actors of Ray Data, on one machine or a cluster.

Limits: every machine must reach the model and the folder at the addresses given (a shared disk, an object store, a name
on the hub). Tasks go to Ray Data in rounds of a bounded number of windows, so that neither the driver nor the
object store grows with the corpus; the actors load the model once a round.
"""

from __future__ import annotations

import logging
import pickle
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flowgraph.corpus.windows import Task
from flowgraph.errors import FlowgraphError, missing_dependency

if TYPE_CHECKING:
    import numpy as np

    from flowgraph.corpus.worker import Report, WorkerSpec

ROUND = 64
"""Windows a worker in one round."""


def run_on_ray(
    spec: WorkerSpec,
    tasks: Iterable[Task],
    workers: int,
    stop: threading.Event,
    address: str | None,
) -> Iterator[Report]:
    """A pool of ``workers`` actors that hold the model. Ray starts a worker that died again, and its window with it."""
    try:
        import ray.data
    except ImportError:
        raise missing_dependency("ray", "ray", "engine 'ray'") from None
    waiting = iter(tasks)
    with _connected(ray, address, workers * spec.settings.threads):
        while not stop.is_set() and (some := list(islice(waiting, ROUND * workers))):
            for report in _one_round(ray.data, spec, some, min(workers, len(some))):
                yield report
                if stop.is_set():
                    break


def _one_round(data: Any, spec: WorkerSpec, tasks: list[Task], workers: int) -> Iterator[Report]:
    items = [{"task": pickle.dumps(task)} for task in tasks]
    reports = data.from_items(items, override_num_blocks=len(items)).map_batches(
        RayWorker,
        fn_constructor_args=(spec,),
        compute=data.ActorPoolStrategy(size=workers),
        num_cpus=spec.settings.threads,
        num_gpus=1 if spec.settings.device.startswith("cuda") else 0,
        batch_size=1,
    )
    for row in reports.iter_rows():
        result = pickle.loads(row["report"])
        if isinstance(result, Exception):
            raise result
        yield result


class RayWorker:
    """A worker as Ray Data calls it: a batch of pickled tasks in, pickled reports out."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._worker: Any = None

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[bytes]]:
        return {"report": [pickle.dumps(self._answer(task)) for task in batch["task"]]}

    def _answer(self, pickled: bytes) -> Any:
        """A report, or the error that ends the run: Ray would wrap an error that is raised in its own."""
        try:
            self._worker = self._worker or self._spec.make()
            return self._worker(pickle.loads(pickled))
        except FlowgraphError as error:
            return error


@contextmanager
def _connected(ray: Any, address: str | None, cpus: int) -> Iterator[None]:
    """A cluster that is there, or a Ray of our own that ends with the block."""
    if ray.is_initialized():
        yield
        return
    _check_answers(address)
    options: dict[str, Any] = (
        {"address": address} if address else {"num_cpus": cpus, "include_dashboard": False}
    )
    ray.init(log_to_driver=False, logging_level="ERROR", **options)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str | None, timeout: float = 5.0) -> None:
    """Refuse a ``host:port`` where nothing listens, which Ray itself would go on asking for minutes."""
    if not address or ":" not in address:
        return
    place = urlsplit(address if "://" in address else f"//{address}")
    try:
        socket.create_connection((place.hostname or "", place.port or 0), timeout=timeout).close()
    except (OSError, ValueError) as error:  # no such port
        raise FlowgraphError(
            f"ray_address: {address!r} does not answer ({error}); check the address, or leave it out for a Ray on this "
            "machine alone"
        ) from None
