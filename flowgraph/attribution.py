"""Attributions: how much of each input token a later token holds, by raw attention, rollout or flow.

This is where the model side (a trace) and the graph side (levels and capacities) meet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from flowgraph._registry import normalise
from flowgraph.arrays import to_numpy
from flowgraph.axes import Axis, find_targets
from flowgraph.errors import FlowgraphError, missing_dependency
from flowgraph.graph import LayeredGraph
from flowgraph.rollout import raw, rollout
from flowgraph.selection import clean, join_pieces, resolve_levels, resolve_positions, word_groups

if TYPE_CHECKING:
    import pandas

METHODS = ("raw", "rollout", "flow")
"""The attribution methods, by name."""

T = TypeVar("T")
_JSON_FORMAT = "flowgraph attribution 1"


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
        if self.word_ids is None:
            raise FlowgraphError(
                "word_ids: not known for these tokens (a slow tokenizer, or none); scores stay as they are"
            )
        columns = word_groups(self.word_ids)
        rows = (
            word_groups(self.target_word_ids)
            if self.target_word_ids is not None
            else _singles(self.target_tokens)
        )
        by_column = np.stack([self.scores[..., group].sum(-1) for group in columns], axis=-1)
        scores = np.stack([by_column[..., group, :].mean(-2) for group in rows], axis=-2)
        return replace(
            self,
            scores=scores,
            tokens=_spell(self.tokens, columns),
            target_tokens=_spell(self.target_tokens, rows),
            positions=_first_of(self.positions, columns),
            target_positions=_first_of(self.target_positions, rows),
            special=_first_of(self.special, columns),
            word_ids=_first_of(self.word_ids, columns),
            target_special=_first_of(self.target_special, rows),
            target_word_ids=_first_of(self.target_word_ids, rows),
            held_by=None,
            meta={**self.meta, "words": True},
        )

    def without_special(self, *, targets: bool = False) -> Attribution:
        """Without the input tokens that the tokenizer added; each row rescaled to the sum it had.

        ``targets=True`` leaves out the special tokens among the targets too. A row that held nothing but
        special tokens becomes zero.
        """
        if self.special is None:
            raise FlowgraphError(
                "special: it is not known which of these tokens are special; scores stay as they are"
            )
        kept = np.flatnonzero(~np.array(self.special, dtype=bool))
        rows = np.arange(len(self.target_tokens))
        if targets and self.target_special is not None:
            rows = np.flatnonzero(~np.array(self.target_special, dtype=bool))
        if not len(kept) or not len(rows):
            raise FlowgraphError("special: every token is special, so nothing would be left")
        before = self.scores.sum(-1, keepdims=True)
        after = self.scores[..., kept]
        mass = after.sum(-1, keepdims=True)
        scores = np.divide(after * before, mass, out=np.zeros_like(after), where=mass != 0)
        return replace(
            self,
            scores=scores[..., rows, :],
            held_by=None if self.held_by is None else self.held_by[..., rows, :][..., kept],
            tokens=_pick_tokens(self.tokens, kept),
            positions=_pick(self.positions, kept),
            target_positions=_pick(self.target_positions, rows),
            special=_pick(self.special, kept),
            word_ids=_pick(self.word_ids, kept),
            target_tokens=_pick_tokens(self.target_tokens, rows),
            target_special=_pick(self.target_special, rows),
            target_word_ids=_pick(self.target_word_ids, rows),
            meta={**self.meta, "without_special": True},
        )

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
        text = json.dumps(self.to_dict(), allow_nan=False)  # ASCII: half an emoji cannot be encoded otherwise
        if path is not None:
            from flowgraph.export.files import replacing

            with replacing(path) as file:
                file.write(text.encode())
        return text

    def to_dict(self) -> dict[str, Any]:
        """The plain values that :meth:`to_json` writes (the format is documented in the README)."""
        return {
            "format": _JSON_FORMAT,
            "method": self.method,
            "edges": self.edges,
            "level": self.level,
            "tokens": list(self.tokens),
            "target_tokens": list(self.target_tokens),
            "positions": _listed(self.positions),
            "target_positions": _listed(self.target_positions),
            "scores": self.scores.tolist(),
            "special": _listed(self.special),
            "word_ids": _listed(self.word_ids),
            "target_special": _listed(self.target_special),
            "target_word_ids": _listed(self.target_word_ids),
            "held_by": None if self.held_by is None else self.held_by.tolist(),
            "meta": dict(self.meta),
        }

    @classmethod
    def from_json(cls, source: str | PathLike[str]) -> Attribution:
        """The attribution that :meth:`to_json` gave: ``source`` is its text, or the path of a file of it.

        Without ``positions`` and ``target_positions`` in it, tokens are counted from 0.
        """
        text = source if isinstance(source, str) and source.lstrip().startswith("{") else _read(source)
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise FlowgraphError(f"source: not JSON ({error}); pass what Attribution.to_json wrote") from None
        if not isinstance(values, dict) or values.pop("format", None) != _JSON_FORMAT:
            raise FlowgraphError(f"source: not a {_JSON_FORMAT!r} file; pass what Attribution.to_json wrote")
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


def attribute(
    model: Any,
    tokenizer: Any,
    text: Any,
    *,
    method: str = "flow",
    edges: str = "attention",
    level: int | str = -1,
    targets: Any = None,
    inputs: Any = None,
    heads: str | int = "all",
    residual: float | str | None = "auto",
    normalize_rows: bool = True,
    negative: str = "error",
    solver: str = "auto",
    normalize: str | None = None,
    time_limit: float | None = None,
    progress: bool = False,
    verify: bool = False,
    generate: Mapping[str, Any] | None = None,
    truncate: bool = False,
    device: Any = None,
    max_memory: Any = None,
    hybrid: str = "error",
) -> Any:
    """How much of each input token the explained tokens of ``text`` hold.

    One forward pass, one graph, one attribution; :func:`flowgraph.trace`, :class:`LayeredGraph` and
    :func:`attribute_graph` are the steps for several methods or edge kinds at once.

    Parameters
    ----------
    model, tokenizer, text
        As for :func:`flowgraph.trace`: a loaded model or its name or folder; a text, a pair, a list of texts,
        or ready model inputs.
    method
        ``"raw"`` (one layer's own matrix; no residual unless told), ``"rollout"`` or ``"flow"``.
    edges
        One edge kind; ``flowgraph.mixing.names()`` lists them.
    level
        Layer number from 1, negative from the top, or ``"all"``.
    targets, inputs
        Positions (an int, a slice, a list, a mask), a token or a word; ``None``: all. Targets also ``"cls"``
        (the classifying token), ``"last"``, ``"mean"`` (the average row of all tokens) or ``"auto"`` (each
        token that the model wrote, by the row of the position that chose it, one before; without
        ``generate`` ``cls`` where there is one, else ``last``); these come before a word of the text that
        is spelt alike.
    heads
        As for :func:`flowgraph.trace`, but for ``"each"``: an attribution is of one graph.
    generate, truncate, device, max_memory, hybrid
        As for :func:`flowgraph.trace`.
    residual, negative, normalize_rows
        As for :meth:`LayeredGraph.from_trace`, where ``normalize_rows`` is called ``normalize``.
    solver, normalize, time_limit, progress
        As for :func:`flowgraph.attention_flow`; for ``method="flow"`` alone.
    verify
        Check the trace against the model's own output, and sampled flows by their certificates.

    Returns
    -------
    :class:`Attribution`, or a list of them for several texts.
    """
    _check_method(method)
    if not isinstance(edges, str):
        raise FlowgraphError(
            f"edges: an attribution has one edge kind, not {edges!r}; for several pass them to fg.trace"
        )
    if isinstance(heads, str) and normalise(heads) == "each":
        raise FlowgraphError(
            f"heads: an attribution is of one graph, not of {heads!r} head; pass one head, such as heads=3, or "
            "'mean', 'max' or 'min' to join them"
        )
    from flowgraph.capture.run import trace

    traced = trace(
        model,
        tokenizer,
        text,
        edges=edges,
        heads=heads,
        generate=generate,
        truncate=truncate,
        device=device,
        max_memory=max_memory,
        hybrid=hybrid,
        verify=verify,
    )
    if normalise(method) == "raw" and isinstance(residual, str):
        residual = None

    def explain(one: Any) -> Attribution:
        graph = LayeredGraph.from_trace(one, residual=residual, normalize=normalize_rows, negative=negative)
        return attribute_graph(
            graph,
            method=method,
            level=level,
            targets=targets,
            inputs=inputs,
            solver=solver,
            normalize=normalize,
            time_limit=time_limit,
            progress=progress,
            verify=verify,
        )

    return [explain(one) for one in traced] if isinstance(traced, list) else explain(traced)


def attribute_graph(
    graph: LayeredGraph,
    *,
    method: str = "flow",
    level: int | str = -1,
    targets: Any = None,
    inputs: Any = None,
    solver: str = "auto",
    normalize: str | None = None,
    time_limit: float | None = None,
    progress: bool = False,
    verify: bool = False,
) -> Attribution:
    """The attribution that :func:`attribute` makes, from a graph made before; parameters as there."""
    name = _check_method(method)
    flow_options: dict[str, Any] = {
        "solver": solver,
        "normalize": normalize,
        "time_limit": time_limit,
        "progress": progress,
        "verify": verify,
    }
    if name != "flow" and (solver != "auto" or normalize is not None):
        given = "solver" if solver != "auto" else "normalize"
        raise FlowgraphError(
            f"{given}: {flow_options[given]!r} is for method='flow' alone; leave it out with {name!r}"
        )
    levels, single = resolve_levels(graph, level)
    explained = Axis.of_level(graph, levels[-1])
    read = Axis.of_inputs(graph)
    rows = find_targets(targets, explained, graph)
    columns = read.resolve(inputs, "inputs")
    where = {"level": level, "targets": rows.positions, "inputs": columns}
    if name == "flow":
        scores, held_by, found = _flow_scores(graph, where | flow_options)
    else:
        scores, held_by, found = _ALGEBRA[name](graph, **where), None, {}
    if rows.average:
        scores, held_by = scores.mean(-2, keepdims=True), None
    return Attribution(
        scores=scores,
        held_by=held_by,
        level=graph.layers.index(levels[0]) + 1 if single else "all",
        method=name,
        edges=str(graph.meta.get("edges", "custom")),
        meta=_plain(dict(graph.meta) | found),
        graph=graph,
        **read.picked(columns, ""),
        **(_AVERAGE if rows.average else explained.picked(rows.named, "target_")),
    )


def _flow_scores(
    graph: LayeredGraph, options: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray | None, dict[str, Any]]:
    """Attention flow, what holds each value, and what the attribution's ``meta`` says of it."""
    from flowgraph.flow import flow_matrix

    result = flow_matrix(graph, **options)
    return result.values, result.held_by, {"flow": dict(result.stats) | {"normalize": options["normalize"]}}


_ALGEBRA: dict[str, Callable[..., np.ndarray]] = {"raw": raw, "rollout": rollout}
_AVERAGE: dict[str, Any] = {
    "target_tokens": ("mean",),
    "target_positions": (None,),
    "target_special": None,
    "target_word_ids": None,
}


def _check_method(method: Any) -> str:
    name = normalise(method) if isinstance(method, str) else method
    if name not in METHODS:
        raise FlowgraphError(f"method: unknown method {method!r}; choose one of {', '.join(METHODS)}")
    return name


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


def _listed(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _read(path: str | PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FlowgraphError(f"source: {str(path)!r} cannot be read: {error}") from None


def _plain(value: Any) -> Any:
    """``value`` as JSON can hold it: mappings, lists, numbers, strings."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "detach"):
        return to_numpy(value).tolist()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
