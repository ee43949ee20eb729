"""What an attribution is: its scores, and all that is needed to read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from flowgraph.attribution import merging, serial
from flowgraph.errors import FlowgraphError, missing_dependency
from flowgraph.graph import LayeredGraph
from flowgraph.selection import resolve_positions

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")


class Score(NamedTuple):
    """One line of :meth:`Attribution.top`."""

    token: str
    position: int
    """Position in the text, as ``inputs`` takes it."""
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """Scores of input tokens for explained tokens, with all that is needed to read them.

    Immutable; made by :func:`attribute` or :func:`attribute_graph`.
    """

    scores: np.ndarray
    """``(targets, inputs)`` float64, or ``(L, targets, inputs)`` for ``level="all"``. Read-only."""
    tokens: tuple[str, ...]
    """Input tokens, one a column."""
    target_tokens: tuple[str, ...]
    """Explained tokens, one a row."""
    level: int | str
    """Layer number from 1, or ``"all"``."""
    method: str
    edges: str
    special: tuple[bool, ...] | None = None
    """True for input tokens that the tokenizer added; None where unknown."""
    word_ids: tuple[int | None, ...] | None = None
    """Number of the word of each input token; None for a token of no word, or where unknown."""
    target_special: tuple[bool, ...] | None = None
    target_word_ids: tuple[int | None, ...] | None = None
    held_by: np.ndarray | None = None
    """For flow values, shaped as ``scores``: what each is equal to. ``"input"``: all that can enter the input, so
    that the value says nothing of the target; ``"target"``: all that can leave the target; ``"between"``: a cut
    that depends on both. None for other methods and for normalised or merged values. Read-only."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """How it was made: model, text, heads, residual, solver, versions. Plain JSON values."""
    graph: LayeredGraph | None = None
    """The graph it was computed on; None after :meth:`from_json`."""
    positions: tuple[int, ...] | None = None
    """Position of each input token among all inputs, one a column; of a merged word its first token's. 0 to n - 1
    where not given."""
    target_positions: tuple[int | None, ...] | None = None
    """Position of each explained token among all of its level, one a row; None for the mean of all. 0 to n - 1
    where not given."""

    def __post_init__(self) -> None:
        scores = np.array(self.scores, dtype=np.float64)
        scores.setflags(write=False)
        object.__setattr__(self, "scores", scores)
        if self.held_by is not None:
            held = np.array(self.held_by, dtype="<U7")
            held.setflags(write=False)
            object.__setattr__(self, "held_by", held)
        for name in ("tokens", "target_tokens", "special", "word_ids", "target_special", "target_word_ids"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else tuple(value))
        for name, tokens in (("positions", self.tokens), ("target_positions", self.target_tokens)):
            value = getattr(self, name)
            object.__setattr__(self, name, tuple(range(len(tokens)) if value is None else value))
        object.__setattr__(self, "meta", MappingProxyType(dict(self.meta)))
        _check_shapes(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by its fields: the copy's arrays are read-only, too."""
        values = {one.name: getattr(self, one.name) for one in fields(self)} | {"meta": dict(self.meta)}
        return partial(type(self), **values), ()

    # --- reading it -------------------------------------------------------------------------------------

    def top(self, n: int = 5, *, target: int | str | None = None) -> list[Score]:
        """The ``n`` inputs with the largest scores, largest first; ties in the order of the text.

        ``target``: a row, or its token; by default the average over all rows. Of ``level="all"`` the top
        level is read.
        """
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise FlowgraphError(f"n: {n!r} is not a number of inputs; pass an integer from 1")
        rows = resolve_positions(
            target, len(self.target_tokens), "target", tokens=self.target_tokens, words=self.target_word_ids
        )
        values = self._top_level()[rows].mean(0)
        order = np.argsort(-values, kind="stable")[:n]
        return [Score(self.tokens[j], _known(self.positions)[j], float(values[j])) for j in order]

    def words(self) -> Attribution:
        """Scores of whole words: the pieces of an input word summed, those of a target word averaged.

        A special token stands alone. Mass is conserved: sums over all inputs stay as they are.
        """
        return merging.join_words(self)

    def without_special(self, *, targets: bool = False) -> Attribution:
        """Without the input tokens that the tokenizer added; each row rescaled to the sum it had.

        ``targets=True`` leaves out the special tokens among the targets too. A row that held nothing but
        special tokens becomes zero.
        """
        return merging.drop_special(self, targets=targets)

    # --- turning it into something else -----------------------------------------------------------------

    def plot(self, path: str | PathLike[str] | None = None, **options: Any) -> Any:
        """A heat map, targets × inputs; see :func:`flowgraph.export.plot.heatmap`."""
        from flowgraph.export.plot import heatmap

        return heatmap(self, path, **options)

    def to_html(self, path: str | PathLike[str] | None = None, **options: Any) -> str:
        """One self-contained interactive page as a string; with ``path`` it is written there too."""
        from flowgraph.export.page import page

        return page(self, path, **options)

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """Everything but the graph as JSON, numbers exact; with ``path`` it is written there too."""
        return serial.write_json(self.to_dict(), path)

    def to_dict(self) -> dict[str, Any]:
        """The plain values that :meth:`to_json` writes (the format is documented in the README)."""
        return serial.to_dict(self)

    @classmethod
    def from_json(cls, source: str | PathLike[str]) -> Attribution:
        """The attribution that :meth:`to_json` gave: ``source`` is its text, or the path of a file of it.

        Without ``positions`` and ``target_positions`` in it, tokens are counted from 0.
        """
        values = serial.read_json(source)
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise FlowgraphError(
                f"source: an incomplete attribution ({error}); pass what Attribution.to_json wrote"
            ) from None

    def to_pandas(self) -> pandas.DataFrame:
        """A ``DataFrame`` of the scores: columns (input, token), rows ([level,] target, token).

        ``input`` and ``target`` are positions in the text: a token may occur twice. ``frame.stack()`` gives long
        rows.
        """
        try:
            import pandas as pd
        except ImportError:
            raise missing_dependency("pandas", "pandas", "Attribution.to_pandas") from None

        columns = pd.MultiIndex.from_tuples(
            list(zip(_known(self.positions), self.tokens, strict=True)), names=["input", "token"]
        )
        rows = list(zip(_known(self.target_positions), self.target_tokens, strict=True))
        if self.scores.ndim == 2:
            index = pd.MultiIndex.from_tuples(rows, names=["target", "target_token"])
        else:
            layers = range(1, len(self.scores) + 1)
            index = pd.MultiIndex.from_tuples(
                [(layer, *row) for layer in layers for row in rows], names=["level", "target", "target_token"]
            )
        return pd.DataFrame(self.scores.reshape(-1, len(self.tokens)), index=index, columns=columns)

    def __repr__(self) -> str:
        rows, columns = self.scores.shape[-2:]
        head = (
            f"<Attribution: {self.method} over {self.edges}, level {self.level}, {rows} × {columns} tokens>"
        )
        lines = [
            f"  {token}: " + ", ".join(f"{s.token} {s.score:.3g}" for s in self.top(5, target=row))
            for row, token in enumerate(self.target_tokens[:5])
        ]
        more = [f"  ... and {rows - 5} more targets"] if rows > 5 else []
        return "\n".join([head, *lines, *more])

    def _repr_html_(self) -> str:
        from flowgraph.export.notebook import attribution_html

        return attribution_html(self)

    def _top_level(self) -> np.ndarray:
        """``(targets, inputs)``: the scores, of ``level="all"`` those of the top level."""
        return self.scores if self.scores.ndim == 2 else self.scores[-1]


def _check_shapes(attribution: Attribution) -> None:
    rows, columns = len(attribution.target_tokens), len(attribution.tokens)
    shape = attribution.scores.shape
    if len(shape) != (3 if attribution.level == "all" else 2) or shape[-2:] != (rows, columns):
        raise FlowgraphError(
            f"scores: shape {shape} for level {attribution.level!r}, {rows} target and {columns} input tokens"
        )
    if attribution.held_by is not None and attribution.held_by.shape != shape:
        raise FlowgraphError(f"held_by: shape {attribution.held_by.shape} for scores of shape {shape}")
    for name, count in (
        ("positions", columns),
        ("target_positions", rows),
        ("special", columns),
        ("word_ids", columns),
        ("target_special", rows),
        ("target_word_ids", rows),
    ):
        value = getattr(attribution, name)
        if value is not None and len(value) != count:
            raise FlowgraphError(f"{name}: {len(value)} given for {count} tokens; pass one a token")


def _known(positions: tuple[T, ...] | None) -> tuple[T, ...]:
    """Positions of an attribution that has been made, which are never None."""
    assert positions is not None
    return positions
