"""What benchmarks on data share: where data sets are (a folder named by an option, or by ``FLOWGRAPH_DATA``), and
options that are numbers."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path


def data_folder(given: str | None, name: str) -> Path | None:
    """The folder of data set ``name``; None where there is none, which is said."""
    root = given or os.environ.get("FLOWGRAPH_DATA")
    folder = Path(root) / name if root else None
    if folder is None or not folder.is_dir():
        print(f"    no folder {name} below --data or FLOWGRAPH_DATA; nothing to do")
        return None
    return folder


def positive(text: str) -> int:
    """A number from 1, as an option's type."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def numbers(text: str) -> list[int]:
    """Numbers from 0 with commas between, as an option's type."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ArgumentTypeError(f"{text!r} is no list of numbers such as 0,1,2")
    return [int(part) for part in parts]
