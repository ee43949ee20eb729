"""The tokens along the sides of an attribution, and which of them a user means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flowgraph.errors import FlowgraphError
from flowgraph.graph import LayeredGraph, Node
from flowgraph.selection import numbered, resolve_levels, resolve_positions

_CLASSIFYING = ("[CLS]", "<s>", "<cls>", "CLS")


@dataclass(frozen=True)
class Axis:
    """The tokens along one side of an attribution, and what is known of them."""

    tokens: tuple[str, ...]
    raw_tokens: tuple[str, ...] | None
    special: tuple[bool, ...] | None
    words: tuple[int | None, ...] | None

    @classmethod
    def of_level(cls, graph: LayeredGraph, k: int) -> Axis:
        level = graph.levels[k]
        return cls(level.tokens, level.raw_tokens, level.special, level.words)

    @classmethod
    def of_inputs(cls, graph: LayeredGraph) -> Axis:
        """All input levels one after the other; words of a later text get numbers of their own."""
        parts = [cls.of_level(graph, k) for k in graph.inputs]
        if len(parts) == 1:
            return parts[0]
        words: list[int | None] = []
        for part in parts:
            first = 1 + max((w for w in words if w is not None), default=-1)
            words += [None if w is None else first + w for w in part.words or (None,) * len(part.tokens)]
        return cls(
            tuple(t for part in parts for t in part.tokens),
            tuple(t for part in parts for t in part.raw_tokens or part.tokens),
            tuple(s for part in parts for s in part.special or (False,) * len(part.tokens))
            if _any_special(parts)
            else None,
            tuple(words) if any(part.words is not None for part in parts) else None,
        )

    def resolve(self, selection: Any, argument: str) -> np.ndarray:
        """Positions of an int, slice, list, mask, token or word."""
        return resolve_positions(
            selection,
            len(self.tokens),
            argument,
            tokens=self.tokens,
            raw_tokens=self.raw_tokens,
            words=self.words,
        )

    def resolve_inputs(self, selection: Any) -> np.ndarray:
        """Positions of ``inputs``: as :meth:`resolve`, and ``"cls"`` and ``"last"``."""
        keyword = selection.strip().lower() if isinstance(selection, str) else None
        if keyword == "last":
            return np.array([len(self.tokens) - 1])
        if keyword != "cls":
            return self.resolve(selection, "inputs")
        classifying = self.classifying()
        if classifying is None:
            raise FlowgraphError(
                f"inputs: 'cls': this text has no classifying token; pass one of {numbered(self.tokens)}"
            )
        return np.array([classifying])

    def classifying(self) -> int | None:
        """Position of the classifying token, if there is one."""
        names = self.raw_tokens or self.tokens
        return next((p for p, token in enumerate(names) if token in _CLASSIFYING), None)

    def picked(self, positions: np.ndarray, prefix: str) -> dict[str, Any]:
        """The fields of an :class:`Attribution` for these positions."""
        return {
            f"{prefix}positions": tuple(int(p) for p in positions),
            f"{prefix}tokens": _pick(self.tokens, positions),
            f"{prefix}special": _pick(self.special, positions),
            f"{prefix}word_ids": _pick(self.words, positions),
        }


class Targets(NamedTuple):
    """The rows of an attribution."""

    positions: np.ndarray
    named: np.ndarray
    """Positions of the tokens that the rows are named after."""
    average: bool = False
    """True where the rows are to be averaged into one."""


def find_targets(selection: Any, axis: Axis, graph: LayeredGraph) -> Targets:
    """The targets, with the words that ``targets`` understands beside positions and tokens."""
    keyword = selection.strip().lower() if isinstance(selection, str) else None
    written = graph.meta.get("generated")
    if keyword == "auto" and written is not None:
        # a token that the model wrote was chosen at the position before it, whose row explains it
        named = np.arange(*written)
        return Targets(named - 1, named)
    positions = _target_positions(keyword, selection, axis, graph)
    return Targets(positions, positions, average=keyword == "mean")


def _target_positions(keyword: str | None, selection: Any, axis: Axis, graph: LayeredGraph) -> np.ndarray:
    last = len(axis.tokens) - 1
    # the first token of a decoder has read nothing but itself, so it classifies nothing
    decodes = bool(graph.meta.get("causal", False)) or len(graph.inputs) > 1
    classifying = None if decodes else axis.classifying()
    if keyword == "mean":
        return np.arange(last + 1)
    if keyword == "auto":
        return np.array([last if classifying is None else classifying])
    if keyword == "last":
        return np.array([last])
    if keyword != "cls":
        return axis.resolve(selection, "targets")
    if classifying is None:
        why = "a decoder has no classifying token" if decodes else "this text has no classifying token"
        raise FlowgraphError(f"targets: 'cls': {why}; pass 'last', 'mean', or one of {numbered(axis.tokens)}")
    return np.array([classifying])


def pair_of_nodes(
    graph: LayeredGraph, target: int | str, source: int | str, *, level: int | str = -1
) -> tuple[Node, Node]:
    """The nodes of one target at ``level`` and one input, each a position or a token that stands once.

    Fit for :func:`flowgraph.max_flow`: ``((level index, position), (level index, position))``.
    """
    levels, single = resolve_levels(graph, level)
    if not single:
        raise FlowgraphError("level: one pair's flow starts at one level; pass a layer number, not 'all'")
    rows = find_targets(target, Axis.of_level(graph, levels[0]), graph).positions
    columns = Axis.of_inputs(graph).resolve_inputs(source)
    for argument, found, given in (("targets", rows, target), ("inputs", columns, source)):
        if len(found) != 1:
            raise FlowgraphError(
                f"{argument}: {given!r} is {len(found)} tokens, at positions "
                f"{', '.join(str(p) for p in found)}; one pair's flow needs one of them"
            )
    nodes = [(k, p) for k in graph.inputs for p in range(graph.levels[k].size)]
    return (levels[0], int(rows[0])), nodes[int(columns[0])]


def _any_special(parts: Sequence[Axis]) -> bool:
    return any(part.special is not None for part in parts)


def _pick(values: Sequence[Any] | None, positions: np.ndarray) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values[p] for p in positions)
