"""Where benchmarks find data sets: a folder named by an option, or by ``FLOWGRAPH_DATA``."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder(given: str | None, name: str) -> Path | None:
    """The folder of data set ``name``; None where there is none, which is said."""
    root = given or os.environ.get("FLOWGRAPH_DATA")
    folder = Path(root) / name if root else None
    if folder is None or not folder.is_dir():
        print(f"    no folder {name} below --data or FLOWGRAPH_DATA; nothing to do")
        return None
    return folder
