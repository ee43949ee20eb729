"""What ``level``, ``targets`` and ``inputs`` may be, turned into indices in one place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from flowgraph.errors import FlowgraphError

if TYPE_CHECKING:
    from flowgraph.graph import LayeredGraph

Selection = int | slice | str | Sequence[int] | Sequence[str] | np.ndarray | None
"""Positions: one, a slice, a list, a mask, a token or word (where tokens are known); ``None`` is all."""

_BYTES = re.compile(r"(?:\\x[89a-f][0-9a-f])+|(?:<0x[89A-F][0-9A-F]>)+")
"""Bytes of characters beyond ASCII, as pieces show them: byte-level BPE's, then SentencePiece's."""
_BYTE = re.compile("x([0-9A-Fa-f]{2})")


def resolve_levels(graph: LayeredGraph, level: Any) -> tuple[list[int], bool]:
    """Indices into ``graph.levels`` of the outputs of the layers asked for, and whether it was one alone.

    ``level``: a layer number from 1, negative from the top, or ``"all"``. The second value is True where the
    result has no level axis.
    """
    if isinstance(level, str):
        if level.strip().lower() != "all":
            raise FlowgraphError(
                f"level: {level!r} is not a layer number; pass an integer from 1, -1 for the top, or 'all'"
            )
        return list(graph.layers), False
    return [graph.level_index(level)], True


def resolve_positions(
    selection: Any,
    size: int,
    argument: str,
    *,
    tokens: Sequence[str] | None = None,
    raw_tokens: Sequence[str] | None = None,
    words: Sequence[int | None] | None = None,
) -> np.ndarray:
    """Positions ``(n,)`` in ``0 .. size - 1`` that ``selection`` names, in its order.

    ``selection``: ``None`` (all), an int (negative from the end), a slice, a list of ints, a boolean mask of
    ``size`` entries, or, where ``tokens`` are given, a token or word (or a list of them). ``raw_tokens``: the
    vocabulary's spellings, matched as well. ``words``: the number of the word of each token; a word of
    several pieces selects them all. ``argument`` names the selection in errors.
    """
    if selection is None:
        return np.arange(size)
    if isinstance(selection, slice):
        return _slice(selection, size, argument)
    if isinstance(selection, str):
        return find_token(selection, argument, tokens=tokens, raw_tokens=raw_tokens, words=words)
    if _is_int(selection):
        return np.array([_position(selection, size, argument)])
    items = _items(selection, size, argument)
    found = [
        find_token(item, argument, tokens=tokens, raw_tokens=raw_tokens, words=words)
        if isinstance(item, str)
        else np.array([_position(item, size, argument)])
        for item in items
    ]
    return np.concatenate(found)


def find_token(
    text: str,
    argument: str,
    *,
    tokens: Sequence[str] | None,
    raw_tokens: Sequence[str] | None = None,
    words: Sequence[int | None] | None = None,
) -> np.ndarray:
    """Positions of the word or token ``text``, which must stand once.

    Whole words come before pieces of words, the spelling as given before one of another case.
    """
    if tokens is None:
        raise FlowgraphError(
            f"{argument}: {text!r} is a string, and the tokens are not known here; pass positions"
        )
    wanted = text.strip()
    for same in (_same, _same_whatever_case):
        for names in (_word_names(tokens, words), _token_names(tokens, raw_tokens)):
            found = sorted({positions for name, positions in names if same(name, wanted)})
            if len(found) > 1:
                raise FlowgraphError(
                    f"{argument}: {text!r} stands {len(found)} times, at positions "
                    f"{', '.join(_span(p) for p in found)}; pass the position you mean"
                )
            if found:
                return np.array(found[0])
    raise FlowgraphError(
        f"{argument}: {text!r} is not a token of this text; its tokens are {numbered(tokens)}"
    )


def numbered(tokens: Sequence[str], limit: int = 40) -> str:
    """``0 [CLS], 1 the, ...``: tokens with their positions, cut after ``limit``."""
    shown = ", ".join(f"{p} {token}" for p, token in enumerate(tokens[:limit]))
    return shown if len(tokens) <= limit else f"{shown}, ... ({len(tokens)} in all)"


def word_groups(words: Sequence[int | None]) -> list[list[int]]:
    """Positions grouped by word, in order; a token of no word stands alone.

    Pieces of a word are neighbours: where a second text starts its numbering anew, its words are words of
    their own.
    """
    groups: list[list[int]] = []
    previous: int | None = None
    for position, word in enumerate(words):
        if word is not None and word == previous:
            groups[-1].append(position)
        else:
            groups.append([position])
        previous = word
    return groups


def join_pieces(pieces: Sequence[str]) -> str:
    """The word that ``pieces`` spell: continuation and word-start marks taken away, bytes decoded where they make
    whole characters together."""
    word = _BYTES.sub(_decoded, "".join(clean(piece) for piece in pieces))
    return word.lstrip("␣") or word  # a piece that is the space before the word


def _decoded(match: re.Match[str]) -> str:
    """The characters of ``\\xc3\\xa1`` or ``<0xC3><0xA1>``; bytes that are no UTF-8 stay as they are."""
    digits = "".join(_BYTE.findall(match[0]))
    try:
        return bytes.fromhex(digits).decode()
    except UnicodeDecodeError:
        return match[0]


def clean(piece: str) -> str:
    """A piece without the marks of WordPiece (``##``), byte-level BPE and SentencePiece."""
    bare = piece.strip()
    if len(bare) > 2 and bare.startswith("##"):
        return bare[2:]
    if len(bare) > 1 and bare[0] in "\u0120\u2581":
        return bare[1:]
    return bare


_Names = list[tuple[str, tuple[int, ...]]]
"""What a string may mean: (spelling, positions)."""


def _word_names(tokens: Sequence[str], words: Sequence[int | None] | None) -> _Names:
    if words is None:
        return []
    return [(join_pieces([tokens[p] for p in group]), tuple(group)) for group in word_groups(words)]


def _token_names(tokens: Sequence[str], raw_tokens: Sequence[str] | None) -> _Names:
    names: _Names = [(str(token).strip(), (p,)) for p, token in enumerate(tokens)]
    for p, token in enumerate(raw_tokens or ()):
        names += [(str(token), (p,)), (clean(str(token)), (p,))]
    return names


def _same(name: str, wanted: str) -> bool:
    return name == wanted


def _same_whatever_case(name: str, wanted: str) -> bool:
    return name.casefold() == wanted.casefold()


def _span(positions: Sequence[int]) -> str:
    return "-".join(str(p) for p in dict.fromkeys((positions[0], positions[-1])))


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))


def _position(value: Any, size: int, argument: str) -> int:
    if not _is_int(value):
        raise FlowgraphError(
            f"{argument}: {value!r} is not a position; pass an integer, a slice or a list of integers"
        )
    if not -size <= value < size:
        raise FlowgraphError(
            f"{argument}: position {int(value)} is not among {size} positions; pass 0 to {size - 1}, "
            f"or -1 to -{size} counted from the end"
        )
    return int(value) % size


def _slice(selection: slice, size: int, argument: str) -> np.ndarray:
    for end in (selection.start, selection.stop, selection.step):
        if end is not None and not isinstance(end, SupportsIndex):
            raise FlowgraphError(
                f"{argument}: {selection!r} is not a slice of positions; its ends must be integers"
            )
    if selection.step == 0:
        raise FlowgraphError(f"{argument}: {selection!r} has step 0; pass a step other than 0")
    chosen = np.arange(size)[selection]
    if chosen.size == 0:
        raise FlowgraphError(f"{argument}: {selection!r} selects none of {size} positions")
    return chosen


def _items(selection: Any, size: int, argument: str) -> list[Any]:
    """The entries of a list of positions or tokens, or the positions that a mask marks."""
    if isinstance(selection, np.ndarray) and selection.dtype == np.bool_:
        if selection.shape != (size,):
            raise FlowgraphError(
                f"{argument}: a mask of shape {selection.shape} for {size} positions; pass ({size},)"
            )
        items: list[Any] = np.flatnonzero(selection).tolist()
    else:
        try:
            items = list(selection)
        except TypeError:
            raise FlowgraphError(
                f"{argument}: {selection!r} is not a selection; pass an integer, a slice or a list"
            ) from None
    if not items:
        raise FlowgraphError(
            f"{argument}: an empty selection; pass at least one of {size} positions, or None for all"
        )
    return items
