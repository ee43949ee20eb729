"""One text of a corpus, and what it is known by from run to run."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Text = str | tuple[str, str]


@dataclass(frozen=True)
class Record:
    """One record of the input, usable or not."""

    line: int
    """Line number (of its first line) or row number, from 1."""
    name: str | None
    """What the input calls it; None where it has no id."""
    text: Text | None
    """The text or pair; None where the record is bad."""
    content: str
    """SHA-256 of the text in UTF-8 (of the JSON list of a pair; of the bytes as they stand for a bad record)."""
    problem: str | None = None
    """Why it cannot be used."""

    @property
    def id(self) -> str:
        """The input's own id, else the line number."""
        return str(self.line) if self.name is None else self.name

    @property
    def identity(self) -> bytes:
        """16 bytes of id and content. A line number is no part of them: a line that moved is the same record."""
        return _digest(json.dumps([self.name, self.content]).encode())


def key_of(record: Record, occurrence: int) -> str:
    """32 hexadecimal digits: the record's identity and, of records that are equal in it, which one (from 0)."""
    return _digest(record.identity + occurrence.to_bytes(8, "big")).hex()


def keys_of(records: Iterable[Record]) -> Iterator[str]:
    """The key of each, in their order, as a run over all of them gives it."""
    met: Counter[bytes] = Counter()
    for record in records:
        yield key_of(record, met[record.identity])
        met[record.identity] += 1


def content_of(text: Text) -> str:
    """SHA-256 of a text, or of a pair as a JSON list. UnicodeEncodeError for half of a surrogate pair."""
    if isinstance(text, str):
        return content_of_bytes(text.encode())
    first, second = text
    first.encode(), second.encode()
    return content_of_bytes(json.dumps([first, second]).encode())


def content_of_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
