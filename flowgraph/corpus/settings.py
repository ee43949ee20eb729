"""What is computed, and how two runs are told apart: settings, versions, fingerprint, manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from flowgraph import mixing, solvers
from flowgraph._registry import normalise
from flowgraph.attribution import METHODS
from flowgraph.capacity import SIGN_RULES, check_residual
from flowgraph.corpus.formats import InputOptions
from flowgraph.corpus.schema import DATA, ERRORS
from flowgraph.corpus.store import Store
from flowgraph.errors import FlowgraphError
from flowgraph.flow import NORMALIZATIONS

MANIFEST = "manifest.json"
_FORMAT = "flowgraph corpus 1"
_VERSIONS = {
    "flowgraph": "attention-flowgraph",
    "torch": "torch",
    "transformers": "transformers",
    "tokenizers": "tokenizers",
    "numpy": "numpy",
    "igraph": "igraph",
}
DTYPES = ("float32", "float64", "float16", "bfloat16")
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
        for name in ("threads", "window", "batch"):
            _check_count(name, getattr(self, name))
        check_residual(None if self.residual == "auto" else self.residual)
        _check_choice("negative", self.negative, SIGN_RULES)
        _check_choice("normalize", self.normalize, NORMALIZATIONS)
        _check_choice("hybrid", self.hybrid, ("error", "skip"))
        _check_choice("dtype", self.dtype, (None, *DTYPES))
        methods = _checked_names("method", self.methods, list(METHODS))
        if self.normalize is not None and "flow" not in methods:
            raise FlowgraphError(f"normalize: {self.normalize!r} is for method 'flow' alone; leave it out")
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


def _check_count(argument: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise FlowgraphError(f"{argument}: {value!r} is not a number from 1; pass for example 1")


# --- the manifest -------------------------------------------------------------------------------------------


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


def versions() -> dict[str, str | None]:
    """Versions of the libraries that have a say in the bits."""
    found: dict[str, str | None] = {}
    for name, distribution in _VERSIONS.items():
        try:
            found[name] = version(distribution)
        except PackageNotFoundError:
            found[name] = None
    return found


def fingerprint(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def open_manifest(store: Store, identity: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The folder's manifest, made where the folder is new. Other settings are refused, the differences named."""
    manifest = read_manifest(store)
    if manifest is None:
        if store.names("data"):
            raise FlowgraphError(
                f"out: {store.address!r} holds shards but no {MANIFEST}, so what they are is unknown; choose another "
                "folder"
            )
        manifest = {
            "format": _FORMAT,
            "fingerprint": fingerprint(identity),
            "model_name": model,
            **identity,
            "schema": {
                "data": [column._asdict() for column in DATA],
                "errors": [column._asdict() for column in ERRORS],
            },
            "complete": False,
        }
        write_manifest(store, manifest)
    elif differences := _differences(manifest, identity):
        raise FlowgraphError(
            f"out: {store.address!r} was begun with other settings: {'; '.join(differences)}; use the same settings, "
            "or another folder"
        )
    return manifest


def read_manifest(store: Store) -> dict[str, Any] | None:
    data = store.read(MANIFEST)
    if data is None:
        return None
    try:
        manifest = json.loads(data)
        if manifest["format"] != _FORMAT:
            raise FlowgraphError(
                f"out: {store.address!r} was written as {manifest['format']!r}, this flowgraph writes {_FORMAT!r}; "
                "choose another folder"
            )
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, FlowgraphError):
            raise
        raise FlowgraphError(
            f"out: {MANIFEST} in {store.address!r} is damaged ({error!r}); choose another folder"
        ) from None
    return manifest


def write_manifest(store: Store, manifest: Mapping[str, Any]) -> None:
    store.write(MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")


def _differences(manifest: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """``threads 1, now 2`` for everything that differs."""
    old, new = _flat({k: manifest.get(k) for k in identity}), _flat(identity)
    return [
        f"{key} {_short(old.get(key))}, now {_short(new.get(key))}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    names = {"model": "model weights", "columns": "column", "versions": "version of", "settings": ""}
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{names[key]} {inner}".strip(): v for inner, v in value.items()}
        else:
            flat[names[key]] = value
    return flat


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:12] if len(text) == 64 else text
