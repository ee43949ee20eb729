"""Fonts for every character of a picture: of those on this machine, what the default font lacks.

matplotlib takes each character from the first of a text's fonts that has it, but looks no further than the fonts
it is told of. A character that no font here has would be drawn as a box.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontEntry

_LAST_RESORT = "Last Resort"  # comes with matplotlib and draws boxes, for all of Unicode
_SHOWN = 12  # characters that a message names


def fit_fonts(figure: Figure) -> str:
    """Give the texts of ``figure`` the fonts they need; the characters that none here has, in order."""
    from matplotlib.text import Text

    lacking = {text: _lacking(text) for text in figure.findobj(Text)}
    wanted = frozenset().union(*lacking.values())
    families = _families(wanted) if wanted else ()
    for text, characters in lacking.items():
        if characters:
            text.set_fontfamily(list(dict.fromkeys([*text.get_fontfamily(), *(f for f, _ in families)])))
    return "".join(sorted(wanted.difference(*(covered for _, covered in families))))


def explain(characters: str) -> str:
    """What to do about characters without a font."""
    scripts: dict[str, list[str]] = {}
    for character in characters:
        scripts.setdefault(_script(character), []).append(character)
    # a few of each script before more of one
    share = max(1, _SHOWN // len(scripts))
    named = "; ".join(
        f"{script} {' '.join(found[:share])}{' …' if len(found) > share else ''}"
        for script, found in scripts.items()
    )
    return (
        f"no font here has {_counted(characters)} of the tokens, drawn as boxes in this picture ({named}): install a "
        "font that has them, such as Noto (for emoji one without colours, such as Symbola), or write .svg or the "
        "page (to_html), drawn with the fonts of whoever looks at it"
    )


def _counted(characters: str) -> str:
    return f"{len(characters)} characters" if len(characters) > 1 else "one character"


def _lacking(text: Any) -> frozenset[str]:
    """Characters of a text that its first font does not have."""
    from matplotlib.font_manager import findfont

    shown = text.get_text()
    if shown.isascii():
        return frozenset()
    return frozenset(_seen(shown)) - _covered(findfont(text.get_fontproperties()), frozenset(_seen(shown)))


def _seen(text: str) -> Iterable[str]:
    """Characters that leave a mark: no spaces, no joiners, no selectors of a variant."""
    return (c for c in text if unicodedata.category(c) not in ("Cf", "Zs") and not "\ufe00" <= c <= "\ufe0f")


@lru_cache(maxsize=64)
def _families(wanted: frozenset[str]) -> Sequence[tuple[str, frozenset[str]]]:
    """Names of fonts with what each adds; those that add most first, until no font adds anything."""
    covered = {entry.name: _covered(entry.fname, wanted) for entry in _regular_fonts()}
    chosen: list[tuple[str, frozenset[str]]] = []
    while wanted and covered:
        # of equals, plain text fonts before those of a style, then by name
        best = min(covered, key=lambda name: (-len(covered[name] & wanted), "Sans" not in name, name))
        if not covered[best] & wanted:
            break
        chosen.append((best, covered.pop(best) & wanted))
        wanted -= chosen[-1][1]
    return tuple(chosen)


def _regular_fonts() -> Iterable[FontEntry]:
    """One upright font of normal weight a family, those included that were installed after matplotlib listed them."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    listed = {entry.fname for entry in fontManager.ttflist}
    for path in sorted(set(findSystemFonts()) - listed):
        with suppress(
            OSError, RuntimeError, NotImplementedError
        ):  # one it cannot use, as of coloured bitmaps
            fontManager.addfont(path)
    families: dict[str, FontEntry] = {}
    for entry in fontManager.ttflist:
        upright = entry.style == "normal" and entry.weight in (400, "normal", "regular")
        if upright and entry.size == "scalable" and not entry.name.startswith(_LAST_RESORT):
            families.setdefault(entry.name, entry)
    return families.values()


@lru_cache(maxsize=1024)
def _covered(path: str, characters: frozenset[str]) -> frozenset[str]:
    """Those of ``characters`` that the font file has."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(c for c in characters if font.get_char_index(ord(c)))


def _script(character: str) -> str:
    """The script that the character's name in Unicode begins with: ``CJK``, ``Devanagari``."""
    if not character.isalpha() and unicodedata.category(character)[0] != "M":
        return "emoji and signs"
    word = unicodedata.name(character, "other").split()[0]
    return word if word == "CJK" else word.title()
