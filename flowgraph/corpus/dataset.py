"""``fg.open_run``: what a run wrote, as an Arrow data set."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flowgraph.corpus.manifest import MANIFEST, read_manifest
from flowgraph.corpus.schema import DATA, ERRORS, arrow_schema
from flowgraph.corpus.store import Store
from flowgraph.errors import FlowgraphError, missing_dependency

if TYPE_CHECKING:
    from pyarrow.dataset import FileSystemDataset

_PARTS = {"data": DATA, "errors": ERRORS}


def open_run(out: str | os.PathLike[str], part: str = "data") -> FileSystemDataset:
    """The rows of a run as an Arrow data set, also while the run goes on; nothing is read yet.

    Parameters
    ----------
    out
        The folder given to ``flowgraph run --out``, at any address.
    part
        ``"data"`` (one row a text, method, edge kind, level and target) or ``"errors"``.

    ``open_run(out).to_table(filter=…, columns=…)`` reads; ``to_batches`` streams.
    """
    try:
        import pyarrow.dataset as ds
    except ImportError:
        raise missing_dependency("pyarrow", "corpus", "open_run") from None
    if part not in _PARTS:
        raise FlowgraphError(f"part: unknown {part!r}; choose one of {', '.join(_PARTS)}")
    store = Store(out)
    if read_manifest(store) is None:
        raise FlowgraphError(
            f"out: {store.address!r} has no {MANIFEST}; pass the folder of 'flowgraph run --out'"
        )
    files = [store.at(f"{part}/{name}") for name in store.names(part)]
    schema = arrow_schema(_PARTS[part])
    return ds.dataset(files, schema=schema, format="parquet", filesystem=store.fs)
