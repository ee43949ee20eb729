"""Bytes of an input file as lines, one at a time."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import IO, NamedTuple

LONGEST = 16 * 1024 * 1024
"""Bytes of the longest line that is read; a file without line ends must not fill the memory."""


class Line(NamedTuple):
    number: int
    """From 1."""
    data: bytes
    """Without its line end."""
    whole: bool
    """False where it is longer than ``LONGEST`` and cut."""


def read_lines(file: IO[bytes]) -> Iterator[Line]:
    """Lines that end in ``\\n`` or ``\\r\\n``; a byte order mark at the start of the file is no part of the first."""
    number = 0
    while data := file.readline(LONGEST + 1):
        number += 1
        whole = len(data) <= LONGEST or data.endswith(b"\n")
        if not whole:
            _skip_line(file)
        if number == 1:
            data = data.removeprefix(codecs.BOM_UTF8)
        yield Line(number, data.removesuffix(b"\n").removesuffix(b"\r"), whole)


def _skip_line(file: IO[bytes]) -> None:
    while (rest := file.readline(LONGEST)) and not rest.endswith(b"\n"):
        pass
