"""Readable tokens, words, and which tokens are special."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SPACES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", " ": "␣"}


@dataclass(frozen=True)
class Tokens:
    """The tokens of one sequence; all fields as in :class:`~flowgraph.capture.trace.Trace`."""

    readable: tuple[str, ...]
    raw: tuple[str, ...]
    ids: tuple[int, ...] | None
    word_ids: tuple[int | None, ...] | None
    special: tuple[bool, ...] | None

    def __len__(self) -> int:
        return len(self.readable)


def tokens_from_ids(
    ids: Sequence[int], tokenizer: Any, word_ids: Sequence[int | None] | None = None
) -> Tokens:
    """Tokens for ``ids``; the ids as text where there is no tokenizer."""
    ids = tuple(int(i) for i in ids)
    if tokenizer is None:
        text = tuple(str(i) for i in ids)
        return Tokens(text, text, ids, None, None)
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    # a model may have more ids than its tokenizer has pieces
    raw = tuple(str(i) if piece is None else str(piece) for i, piece in zip(ids, pieces, strict=True))
    special = special_ids(tokenizer)
    flags = tuple(i in special for i in ids)
    byte_level = is_byte_level(tokenizer)
    readable = tuple(t if s else readable_token(t, byte_level) for t, s in zip(raw, flags, strict=True))
    words = _words(raw, flags, word_ids)
    return Tokens(readable, raw, ids, words, flags)


def named_tokens(names: Sequence[str], special: Sequence[bool] | None = None) -> Tokens:
    """Tokens that are no text: patches, frames."""
    names = tuple(names)
    return Tokens(names, names, None, None, None if special is None else tuple(special))


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of tokens that frame a text. Unknown and mask tokens stand for a word, unless they double as a
    frame."""
    frame = {getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "cls", "sep", "pad")}
    words = {getattr(tokenizer, f"{name}_token_id", None) for name in ("unk", "mask")}
    return frozenset(set(tokenizer.all_special_ids) - (words - frame))


def readable_token(raw: str, byte_level: bool) -> str:
    """One vocabulary piece as a person would write it; never empty.

    A piece that is only some of a character's bytes is shown as those bytes (``\\xf0\\x9f``).
    """
    if _BYTE_PIECE.fullmatch(raw):
        return raw
    if byte_level:
        text = _from_byte_level(raw)
    else:
        text = raw.replace("▁", " ").removesuffix("</w>")
        if len(text) > 2 and text.startswith("##"):
            text = text[2:]
    stripped = text.strip()
    return stripped or "".join(_SPACES.get(c, c) for c in text) or raw


def is_byte_level(tokenizer: Any) -> bool:
    """True for byte-level BPE (GPT-2's alphabet of bytes), whose vocabulary has ``Ġ`` for a space."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return "ByteLevel" in str(getattr(backend, "decoder", "")) or "ByteLevel" in str(
            getattr(backend, "pre_tokenizer", "")
        )
    return hasattr(tokenizer, "byte_decoder")


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, int]:
    """Character -> byte of GPT-2's alphabet: printable bytes are themselves, the others count up from
    U+0100."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    alphabet = {chr(b): b for b in printable}
    others = [b for b in range(256) if b not in set(printable)]
    alphabet.update({chr(0x100 + k): b for k, b in enumerate(others)})
    return alphabet


def _from_byte_level(raw: str) -> str:
    alphabet = _byte_alphabet()
    if any(c not in alphabet for c in raw):
        return raw  # an added token, spelled as it is
    data = bytes(alphabet[c] for c in raw)
    return data.decode("utf-8", errors="backslashreplace")


def _words(
    raw: Sequence[str], special: Sequence[bool], word_ids: Sequence[int | None] | None
) -> tuple[int | None, ...]:
    """Word numbers: the tokenizer's own where they tell words apart, else from the marks in the pieces."""
    own = None if word_ids is None else {w for w, s in zip(word_ids, special, strict=True) if not s}
    marked = _words_from_marks(raw, special)
    # a tokenizer that does not split at spaces first calls the whole text one word
    one_word = own is not None and len(own) <= 1 and len({w for w in marked if w is not None}) > 1
    if word_ids is None or one_word:
        return marked
    return tuple(None if s else w for w, s in zip(word_ids, special, strict=True))


def _words_from_marks(raw: Sequence[str], special: Sequence[bool]) -> tuple[int | None, ...]:
    starts_marked = any(t[:1] in "▁Ġ" for t, s in zip(raw, special, strict=True) if t and not s)
    ends_marked = any(t.endswith("</w>") for t in raw)
    words: list[int | None] = []
    number, broken, last = -1, True, ""
    for token, is_special in zip(raw, special, strict=True):
        if is_special:
            words.append(None)
            broken = True
            continue
        if starts_marked:
            new = token[:1] in ("▁", "Ġ")
        elif ends_marked:
            new = last.endswith("</w>")
        else:
            new = not token.startswith("##")
        if new or broken:
            number += 1
        words.append(number)
        broken, last = False, token
    return tuple(words)
