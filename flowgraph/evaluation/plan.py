"""What an evaluation computes for every text: the arguments, checked, and their names in the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from flowgraph.errors import FlowgraphError
from flowgraph.evaluation.erasure import CURVE, FRACTIONS
from flowgraph.evaluation.vocabulary import blank_token

METHODS = ("raw", "rollout", "flow")
TOKENS = ("all", "content")
"""Which tokens a correlation is over: all inputs, or those that are not special tokens."""
EXPLAIN = ("predicted", "true")
TARGETS = ("auto", "mask", "max", "mean", "cls", "last")
"""Rows of an attribution by name; a position is one too."""


@dataclass(frozen=True)
class Plan:
    """Arguments of :func:`flowgraph.evaluate`, with the same meaning."""

    methods: tuple[str, ...]
    edges: tuple[str, ...]
    against: tuple[str, ...]
    explain: str
    target: str | int
    blank: int
    """Id of the token that replaces a blanked one."""
    residual: float | str | None
    negative: str
    erasure: bool
    seed: int

    def axes(self) -> dict[str, tuple[str, ...]]:
        """Names along the axes of a text's arrays; see :class:`~flowgraph.evaluation.report.TextResult`."""
        rankings = [f"{method} {kind}" for kind in self.edges for method in self.methods]
        return {
            "edges": self.edges,
            "methods": self.methods,
            "against": self.against,
            "tokens": TOKENS,
            "rankings": (*rankings, "random", *self.against) if self.erasure else (),
        }

    def describe(self, tokenizer: Any) -> dict[str, Any]:
        """The settings in plain values."""
        return {
            "methods": list(self.methods),
            "edges": list(self.edges),
            "against": list(self.against),
            "explain": self.explain,
            "target": self.target,
            "blank_token": str(tokenizer.convert_ids_to_tokens(self.blank)),
            "residual": self.residual,
            "negative": self.negative,
            "erasure": self.erasure,
            "fractions": list(FRACTIONS),
            "curve": list(CURVE),
            "seed": self.seed,
        }


def make_plan(
    tokenizer: Any,
    *,
    methods: Sequence[str],
    edges: str | Sequence[str],
    against: Sequence[str] | None,
    explain: str,
    target: str | int,
    blank: str | int | None,
    residual: float | str | None,
    negative: str,
    erasure: bool,
    seed: int,
) -> Plan:
    """The plan; FlowgraphError for an argument that cannot be used, with what to pass."""
    from flowgraph.capacity import SIGN_RULES, check_residual
    from flowgraph.evaluation.importance import AGAINST

    if not is_whole(seed) or seed < 0:
        raise FlowgraphError(f"seed: {seed!r} is no seed; pass a number from 0")
    if not isinstance(erasure, bool):
        raise FlowgraphError(f"erasure: {erasure!r}; pass True or False")
    return Plan(
        methods=_chosen("methods", methods, METHODS),
        edges=_kinds(edges),
        against=_chosen("against", AGAINST if against is None else against, AGAINST),
        explain=_chosen("explain", [explain], EXPLAIN)[0],
        target=_target(target),
        blank=blank_token(tokenizer, blank),
        residual=residual if isinstance(residual, str) and residual == "auto" else check_residual(residual),
        negative=_chosen("negative", [negative], SIGN_RULES)[0],
        erasure=erasure,
        seed=int(seed),
    )


def is_whole(value: Any) -> bool:
    """Python's or NumPy's integer; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _target(value: Any) -> str | int:
    if is_whole(value):
        return int(value)
    if isinstance(value, str) and value in TARGETS:
        return value
    raise FlowgraphError(f"target: unknown {value!r}; pass a position or one of {', '.join(TARGETS)}")


def _several(argument: str, values: Any) -> tuple[Any, ...]:
    """One name, or those of a collection."""
    if isinstance(values, str):
        return (values,)
    try:
        return tuple(values)
    except TypeError:
        raise FlowgraphError(f"{argument}: {values!r} is no name; pass one, or a list of them") from None


def _chosen(argument: str, values: Sequence[str] | str, known: Sequence[str]) -> tuple[str, ...]:
    values = _several(argument, values)
    for value in values:
        if value not in known:
            raise FlowgraphError(f"{argument}: unknown {value!r}; choose from {', '.join(known)}")
    if not values:
        raise FlowgraphError(f"{argument}: none given; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(values))


def _kinds(edges: str | Sequence[str]) -> tuple[str, ...]:
    from flowgraph import mixing

    names = _several("edges", edges)
    if not names:
        raise FlowgraphError(f"edges: none given; choose from {', '.join(mixing.names())}")
    return tuple(dict.fromkeys(mixing.get(name).name for name in names))


def name_of(model: Any) -> str:
    """What the model calls itself; of a folder its last part, of a model made in memory its class."""
    name = str(getattr(model, "name_or_path", "") or "").rstrip("/")
    return os.path.basename(name) or type(model).__name__
