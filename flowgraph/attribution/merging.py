"""Attributions of whole words, and attributions without the tokens that the tokenizer added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.selection import clean, join_pieces, word_groups

if TYPE_CHECKING:
    from flowgraph.attribution.result import Attribution


def join_words(attribution: Attribution) -> Attribution:
    """See :meth:`Attribution.words`."""
    if attribution.word_ids is None:
        raise FlowgraphError(
            "word_ids: not known for these tokens (a slow tokenizer, or none); scores stay as they are"
        )
    columns = word_groups(attribution.word_ids)
    rows = (
        word_groups(attribution.target_word_ids)
        if attribution.target_word_ids is not None
        else _singles(attribution.target_tokens)
    )
    by_column = np.stack([attribution.scores[..., group].sum(-1) for group in columns], axis=-1)
    scores = np.stack([by_column[..., group, :].mean(-2) for group in rows], axis=-2)
    return replace(
        attribution,
        scores=scores,
        tokens=_spell(attribution.tokens, columns),
        target_tokens=_spell(attribution.target_tokens, rows),
        positions=_first_of(attribution.positions, columns),
        target_positions=_first_of(attribution.target_positions, rows),
        special=_first_of(attribution.special, columns),
        word_ids=_first_of(attribution.word_ids, columns),
        target_special=_first_of(attribution.target_special, rows),
        target_word_ids=_first_of(attribution.target_word_ids, rows),
        held_by=None,
        meta={**attribution.meta, "words": True},
    )


def drop_special(attribution: Attribution, *, targets: bool) -> Attribution:
    """See :meth:`Attribution.without_special`."""
    if attribution.special is None:
        raise FlowgraphError(
            "special: it is not known which of these tokens are special; scores stay as they are"
        )
    kept = np.flatnonzero(~np.array(attribution.special, dtype=bool))
    rows = np.arange(len(attribution.target_tokens))
    if targets and attribution.target_special is not None:
        rows = np.flatnonzero(~np.array(attribution.target_special, dtype=bool))
    if not len(kept) or not len(rows):
        raise FlowgraphError("special: every token is special, so nothing would be left")
    before = attribution.scores.sum(-1, keepdims=True)
    after = attribution.scores[..., kept]
    mass = after.sum(-1, keepdims=True)
    scores = np.divide(after * before, mass, out=np.zeros_like(after), where=mass != 0)
    return replace(
        attribution,
        scores=scores[..., rows, :],
        held_by=None if attribution.held_by is None else attribution.held_by[..., rows, :][..., kept],
        tokens=_pick_tokens(attribution.tokens, kept),
        positions=_pick(attribution.positions, kept),
        target_positions=_pick(attribution.target_positions, rows),
        special=_pick(attribution.special, kept),
        word_ids=_pick(attribution.word_ids, kept),
        target_tokens=_pick_tokens(attribution.target_tokens, rows),
        target_special=_pick(attribution.target_special, rows),
        target_word_ids=_pick(attribution.target_word_ids, rows),
        meta={**attribution.meta, "without_special": True},
    )


def _pick(values: Sequence[Any] | None, positions: np.ndarray) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values[p] for p in positions)


def _pick_tokens(tokens: Sequence[str], positions: np.ndarray) -> tuple[str, ...]:
    return tuple(tokens[p] for p in positions)


def _first_of(values: Sequence[Any] | None, groups: Sequence[Sequence[int]]) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values[group[0]] for group in groups)


def _spell(tokens: Sequence[str], groups: Sequence[Sequence[int]]) -> tuple[str, ...]:
    return tuple(
        join_pieces([tokens[p] for p in group]) if len(group) > 1 else clean(tokens[group[0]])
        for group in groups
    )


def _singles(tokens: Sequence[str]) -> list[list[int]]:
    return [[p] for p in range(len(tokens))]
