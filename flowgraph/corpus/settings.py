"""What a run over a corpus computes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from flowgraph import mixing, solvers
from flowgraph._registry import normalise
from flowgraph.attribution import METHODS
from flowgraph.capacity import SIGN_RULES, check_residual
from flowgraph.corpus.formats import InputOptions
from flowgraph.corpus.manifest import versions
from flowgraph.errors import FlowgraphError
from flowgraph.flow import NORMALIZATIONS

DTYPES = ("float32", "float64", "float16", "bfloat16")
_MOST = {"threads": 4096, "window": 1_000_000_000, "batch": 1_000_000_000}
"""Far more than is of use; the libraries that take these numbers fail at larger ones, each in its own way."""

TARGETS = ("auto", "cls", "last", "mean", "each")


@dataclass(frozen=True)
class Settings:
    """All that decides what the rows are, bit for bit; the input and the model's weights come on top."""

    methods: tuple[str, ...] = ("flow",)
    edges: tuple[str, ...] = ("attention",)
    level: int | str = -1
    targets: tuple[int | str, ...] = ("auto",)
    """``auto`` (CLS where the model classifies by it, else the last token), ``cls``, ``last``, ``mean``, ``each``, or
    positions."""
    heads: str | int = "all"
    residual: float | str | None = "auto"
    negative: str = "error"
    solver: str = "auto"
    normalize: str | None = None
    truncate: bool = False
    dtype: str | None = None
    """None: as the model's files have it."""
    device: str = "cpu"
    threads: int = 1
    """Threads of each worker; sums are formed in another order with another number, and so their last bits."""
    window: int = 512
    """Records in a window."""
    batch: int = 32
    """Texts in a forward pass, at most."""
    max_memory: str | int | None = None
    hybrid: str = "error"
    """``skip``: layers without attention are passed over."""

    def checked(self) -> Settings:
        """The same with names normalised; FlowgraphError for what cannot be."""
        for name, most in _MOST.items():
            _check_count(name, getattr(self, name), most)
        check_residual(None if self.residual == "auto" else self.residual)
        _check_choice("negative", self.negative, SIGN_RULES)
        _check_choice("normalize", self.normalize, NORMALIZATIONS)
        _check_choice("hybrid", self.hybrid, ("error", "skip"))
        _check_choice("dtype", self.dtype, (None, *DTYPES))
        if self.max_memory is not None:
            from flowgraph.capture.memory import read_max_memory

            read_max_memory(self.max_memory)
        methods = _checked_names("method", self.methods, list(METHODS))
        for name, unused in (("normalize", None), ("solver", "auto")):
            if getattr(self, name) != unused and "flow" not in methods:
                raise FlowgraphError(
                    f"{name}: {getattr(self, name)!r} is for method 'flow' alone; leave it out"
                )
        if self.solver != "auto":
            solvers.get(self.solver)
        return replace(
            self,
            methods=methods,
            edges=_checked_names("edges", self.edges, mixing.names()),
            targets=_checked_targets(self.targets),
            solver=normalise(self.solver),
        )


def _checked_names(argument: str, given: tuple[str, ...], known: list[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(normalise(name) for name in given))
    for name in names:
        _check_choice(argument, name, tuple(known))
    if not names:
        raise FlowgraphError(f"{argument}: none given; choose from {', '.join(known)}")
    return names


def _checked_targets(given: tuple[int | str, ...]) -> tuple[int | str, ...]:
    targets = tuple(dict.fromkeys(t if isinstance(t, int) else normalise(t) for t in given))
    for target in targets:
        if isinstance(target, str) and target not in TARGETS:
            raise FlowgraphError(
                f"target: {target!r} is no target of every text; pass {', '.join(TARGETS)} or a position"
            )
    if not targets:
        raise FlowgraphError(f"target: none given; pass {', '.join(TARGETS)} or a position")
    return targets


def _check_choice(argument: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        choices = ", ".join(str(k) for k in known if k is not None)
        raise FlowgraphError(f"{argument}: unknown {value!r}; choose one of {choices}")


def _check_count(argument: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise FlowgraphError(
            f"{argument}: {value!r} is not a whole number from 1 to {most}; pass for example 1"
        )


def identity_of_run(settings: Settings, columns: InputOptions, model_hash: str) -> dict[str, Any]:
    """All that must be equal for two runs to be one."""
    return {
        "settings": json.loads(json.dumps(asdict(settings))),
        "columns": {
            "text": list(columns.text_columns),
            "id": columns.id_name,
        },
        "model": model_hash,
        "versions": versions(),
    }
