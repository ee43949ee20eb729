"""A reversible spelling of any Python string in the characters XML 1.0 can hold.

XML has no way to write most control characters, halves of surrogate pairs, U+FFFE and U+FFFF, not even as a
character reference. Each becomes ``_xHHHH_`` with its number in four upper-case hexadecimal digits, the
spelling that spreadsheet files use (ECMA-376 part 1, 22.9.2.19, ST_Xstring). An underscore that could be
taken for the start of such a spelling is itself written ``_x005F_``; everything else stays as it is.
"""

from __future__ import annotations

import re

RULE = (
    "characters that XML cannot hold are written _xHHHH_ with their number in upper-case hexadecimal, and an "
    "underscore before xHHHH likewise; to read them, replace each _xHHHH_ from left to right"
)

# XML 1.0, production [2] Char, leaves these out; an underscore is escaped before xHHHH whatever follows,
# since the escape of the next character starts with an underscore
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]|_(?=x[0-9A-F]{4})")
_ESCAPED = re.compile("_x([0-9A-F]{4})_")


def escape(text: str) -> str:
    """``text`` in characters that XML 1.0 can hold."""
    return _UNSAFE.sub(lambda match: f"_x{ord(match[0]):04X}_", text)


def unescape(text: str) -> str:
    """What :func:`escape` was given."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
