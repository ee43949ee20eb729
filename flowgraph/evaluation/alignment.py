"""Word alignment: from cross-attention, from files, and how much of a gold standard it gets wrong.

An alignment of a sentence pair is a set of links ``(source word, target word)``, counted from 0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from operator import index
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flowgraph.errors import FlowgraphError, check_trace
from flowgraph.evaluation.plan import is_whole

Link = tuple[int, int]
SETTINGS = ("output", "input")
_LINK = re.compile(r"(\d+)([-p?])(\d+)(?::.*)?")
_NUMBERED = re.compile(r"(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?(?:\s+[\d.]+)?")


# --- the error rate ---------------------------------------------------------------------------------------


def alignment_error_rate(
    predicted: Sequence[Collection[Link]],
    sure: Sequence[Collection[Link]],
    possible: Sequence[Collection[Link]],
) -> float:
    """AER of a whole test set, from 0 to 1: ``1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)``, links of all sentences together.

    ``predicted`` A, ``sure`` S and ``possible`` P: one set of ``(source, target)`` links a sentence; P holds S (sure
    links missing from it are counted as possible). Och & Ney 2003 (10.1162/089120103321337421). Raises
    :class:`FlowgraphError` for lists of unequal length, and where there is no link at all.
    """
    for argument, value in (("predicted", predicted), ("sure", sure), ("possible", possible)):
        if not hasattr(value, "__len__") or isinstance(value, (str, bytes, Mapping, Set)):
            raise FlowgraphError(f"{argument}: {value!r} is no list; pass one with a set of links a sentence")
    if not len(predicted) == len(sure) == len(possible):
        raise FlowgraphError(
            f"predicted: {len(predicted)} sentences, with {len(sure)} sure and {len(possible)} possible alignments; "
            "pass one set a sentence in each"
        )
    hits = links = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        found, certain = _links(a, "predicted"), _links(s, "sure")
        allowed = certain | _links(p, "possible")
        hits += len(found & certain) + len(found & allowed)
        links += len(found) + len(certain)
    if links == 0:
        raise FlowgraphError(
            "predicted: no sentence has a predicted or a sure link, so there is no error rate"
        )
    return 1 - hits / links


def _links(links: Collection[Link], argument: str) -> set[Link]:
    try:
        found = {(index(source), index(target)) for source, target in links}
    except (TypeError, ValueError):
        found = {(-1, -1)}
    if any(word < 0 for link in found for word in link):
        raise FlowgraphError(
            f"{argument}: {links!r} is no set of (source, target) pairs; pass words' numbers from 0"
        )
    return found


# --- files ------------------------------------------------------------------------------------------------


class Gold(NamedTuple):
    """Alignments of the sentences of a file, links counted from 0."""

    sure: list[set[Link]]
    possible: list[set[Link]]
    """Holds the sure links too."""


def read_alignments(
    path: str | PathLike[str], *, first: int = 0, reverse: bool = False, sentences: int | None = None
) -> Gold:
    """Alignments from a file in one of the two usual forms.

    - One line a sentence, ``i-j`` a sure link, ``ipj`` (or ``i?j``) a possible one; what stands after a colon is passed
      over. Systems' outputs too: all links sure.
    - One line a link, ``sentence source target [S|P] [confidence]``, sentences from 1 (NAACL 2003 shared task).

    Parameters
    ----------
    first
        What the file calls the first word: 0 or 1. (The second form counts from 1 by its definition.)
    reverse
        The file has the target word first.
    sentences
        Number of sentences, for the second form, whose last sentences may have no link.

    Raises
    ------
    FlowgraphError
        For a file that cannot be read, with the line and what is wrong in it.
    """
    if first not in (0, 1) or isinstance(first, bool):
        raise FlowgraphError(f"first: {first!r}; a file counts words from 0 or from 1")
    if sentences is not None and (not is_whole(sentences) or sentences < 0):
        raise FlowgraphError(f"sentences: {sentences!r} is no number of sentences; pass 0 or more")
    lines = _lines(path)
    numbered = next((line for line in lines if line.strip()), "")
    read = _read_numbered if _NUMBERED.fullmatch(numbered.strip()) else _read_lines
    try:
        gold = read(lines, first, sentences)
    except _BadLinkError as error:
        raise FlowgraphError(f"path: {fspath(path)!r}, line {error.line}: {error.problem}") from None
    return _reversed(gold) if reverse else gold


def _lines(path: str | PathLike[str]) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8-sig").splitlines()
    except TypeError:
        raise FlowgraphError(f"path: {path!r} is no path; pass a file's") from None
    except UnicodeDecodeError as error:
        raise FlowgraphError(f"path: {fspath(path)!r} is not UTF-8 at byte {error.start}") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise FlowgraphError(f"path: {fspath(path)!r} cannot be read: {reason}") from None


class _BadLinkError(Exception):
    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line, self.problem = line, problem


def _read_lines(lines: Sequence[str], first: int, sentences: int | None) -> Gold:
    gold = Gold([], [])
    for number, line in enumerate(lines, 1):
        sure, possible = set(), set()
        for word in line.split():
            match = _LINK.fullmatch(word)
            if match is None:
                raise _BadLinkError(
                    number, f"{word!r} is no link; links are written i-j, or ipj where only possible"
                )
            link = _counted_from_0(int(match[1]), int(match[3]), first, number)
            possible.add(link)
            if match[2] == "-":
                sure.add(link)
        gold.sure.append(sure)
        gold.possible.append(possible)
    if sentences is not None and sentences != len(lines):
        raise _BadLinkError(
            len(lines), f"the file ends after {len(lines)} sentences, {sentences} were expected"
        )
    return gold


def _read_numbered(lines: Sequence[str], first: int, sentences: int | None) -> Gold:
    found: list[tuple[int, Link, bool]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _NUMBERED.fullmatch(line.strip())
        if match is None or int(match[1]) < 1:
            raise _BadLinkError(number, f"{line!r} is not 'sentence source target [S|P]'")
        link = (int(match[2]) - 1, int(match[3]) - 1)
        if min(link) < 0:
            raise _BadLinkError(number, f"{line!r}: words count from 1 here; leave links to no word (0) out")
        found.append((int(match[1]) - 1, link, match[4] != "P"))
    count = max([number for number, _, _ in found], default=-1) + 1 if sentences is None else sentences
    gold = Gold([set() for _ in range(count)], [set() for _ in range(count)])
    for sentence, link, certain in found:
        if sentence >= count:
            raise _BadLinkError(
                len(lines), f"a link of sentence {sentence + 1}, but there are {count} sentences"
            )
        gold.possible[sentence].add(link)
        if certain:
            gold.sure[sentence].add(link)
    return gold


def _counted_from_0(source: int, target: int, first: int, line: int) -> Link:
    if source < first or target < first:
        raise _BadLinkError(line, f"word 0 in {source}-{target}; does the file count from 0? Pass first=0")
    return source - first, target - first


def _reversed(gold: Gold) -> Gold:
    turned = [[{(b, a) for a, b in links} for links in side] for side in gold]
    return Gold(turned[0], turned[1])


# --- from cross-attention ---------------------------------------------------------------------------------


def align(
    trace: Any,
    *,
    edges: str | None = None,
    setting: str = "output",
    layer: int | str = -1,
    head: int | str = "mean",
    words: bool = True,
    special: bool = False,
) -> set[Link]:
    """The alignment that cross-attention makes: each target token with the source token it weighs most.

    Parameters
    ----------
    trace
        A trace of a pair ``(source, target)``, of :func:`flowgraph.trace`.
    edges
        Edge kind; None where one was traced.
    setting
        ``"output"``: a target token is read in the row of the step that writes it (AWO); ``"input"``: in the row of
        the step that takes it as input, one later (AWI). Kobayashi et al. 2020, section 5
        (10.18653/v1/2020.emnlp-main.574).
    layer
        Decoder layer from 1, negative from the top, or ``"mean"``.
    head
        A head from 0 of a trace that keeps its heads, or ``"mean"``.
    words
        Links of words (a word pair is linked where any of its pieces are), else of tokens without special ones.
    special
        Whether special source tokens may win; a target token that one wins stays unaligned.

    Returns
    -------
    Links ``(source, target)``, counted from 0.
    """
    if setting not in SETTINGS:
        raise FlowgraphError(f"setting: unknown {setting!r}; choose 'output' (AWO) or 'input' (AWI)")
    weights = _cross_weights(trace, edges, layer, head)  # (Tt, Ts)
    if words and (trace.word_ids is None or trace.target_word_ids is None):
        raise FlowgraphError(
            "words: not known for these tokens (a slow tokenizer, or none); pass words=False for links of tokens"
        )
    source = _numbers(trace.special, trace.word_ids if words else None, len(trace.tokens))
    target = _numbers(
        trace.target_special, trace.target_word_ids if words else None, len(trace.target_tokens)
    )
    best = heaviest(weights, allowed=None if special else [number is not None for number in source])
    # row t reads target token t and writes token t + 1
    row_of = {p: p - 1 if setting == "output" else p for p, number in enumerate(target) if number is not None}
    links = {(source[best[row]], target[p]) for p, row in row_of.items() if row >= 0}
    return {(s, t) for s, t in links if s is not None and t is not None}


def heaviest(weights: np.ndarray, allowed: Sequence[bool] | None = None) -> np.ndarray:
    """``(Tt,)``: the column with the largest entry of each row of ``weights`` (Tt, Ts), among the ``allowed`` columns;
    of equal ones the first."""
    weights = np.asarray(weights, dtype=np.float64)
    if allowed is not None:
        if not any(allowed):
            raise FlowgraphError(
                "trace: the source has no token but special ones, so nothing can be aligned to it"
            )
        weights = np.where(np.asarray(allowed, dtype=bool), weights, -np.inf)
    return weights.argmax(-1)


def _cross_weights(trace: Any, edges: str | None, layer: int | str, head: int | str) -> np.ndarray:
    check_trace(trace)
    if edges is None and len(trace.kinds) > 1:
        raise FlowgraphError(f"edges: the trace holds {', '.join(trace.kinds)}; say which one is to align")
    arrays = trace[trace.kinds[0] if edges is None else edges]
    if not isinstance(arrays, Mapping) or trace.target_tokens is None:
        raise FlowgraphError("trace: it has no cross-attention; trace a pair with an encoder-decoder model")
    cross = np.asarray(arrays["cross"], dtype=np.float64)
    cross = _one(cross, layer, "layer", axis=0, first=1)
    if cross.ndim == 2:
        if head != "mean":
            raise FlowgraphError(f"head: {head!r} asked for, but heads were joined; trace with heads='each'")
        return cross
    return _one(cross, head, "head", axis=0, first=0)


def _one(array: np.ndarray, which: int | str, name: str, axis: int, first: int) -> np.ndarray:
    """One layer or head, or their mean."""
    if which == "mean":
        return array.mean(axis)
    count = array.shape[axis]
    known = isinstance(which, (int, np.integer)) and not isinstance(which, bool)
    allowed = [*range(first, count + first), *(range(-count, 0) if first else ())]
    if not known or which not in allowed:
        raise FlowgraphError(
            f"{name}: there is no {name} {which!r}; pass one of {first} to {count + first - 1}, or 'mean'"
        )
    return array.take(int(which) - first if int(which) >= 0 else int(which), axis)


def _numbers(
    special: Sequence[bool] | None, word_ids: Sequence[int | None] | None, count: int
) -> list[int | None]:
    """Number of each token's word, or without ``word_ids`` of the token, special ones not counted; None: special."""
    flags = [False] * count if special is None else list(special)
    if word_ids is not None:
        return [None if flag else word for flag, word in zip(flags, word_ids, strict=True)]
    running: Iterator[int] = iter(range(count))
    return [None if flag else next(running) for flag in flags]
