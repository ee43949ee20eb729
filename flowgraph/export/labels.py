"""Tokens as a picture or a page can show them."""

from __future__ import annotations

import unicodedata

MAX_LENGTH = 18
"""Characters from which on a label is cut; the page shows the whole token beside the pointer."""

# among them format characters that would turn or hide what follows (bidirectional controls, zero width)
_SPELT_OUT = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(token: str, *, max_length: int = MAX_LENGTH) -> str:
    """``token`` with what is invisible spelt out (``\\n``, ``\\u2028``, ``␣`` for a space); cut if long."""
    if not token.strip():
        token = token.replace(" ", "␣") or "∅"
    text = "".join(_spell(character) for character in token)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _spell(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if unicodedata.category(character) not in _SPELT_OUT or character == "\u200d":
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
