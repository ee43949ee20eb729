"""How two runs on a folder are told apart: what they compute, weights, versions; the manifest keeps it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from flowgraph.corpus.schema import DATA, ERRORS, Column
from flowgraph.corpus.store import Store
from flowgraph.errors import FlowgraphError

MANIFEST = "manifest.json"
_VERSIONS = {
    "flowgraph": "attention-flowgraph",
    "torch": "torch",
    "transformers": "transformers",
    "tokenizers": "tokenizers",
    "numpy": "numpy",
    "igraph": "igraph",
}


class Kind(NamedTuple):
    """What the shards of a folder hold."""

    format: str
    """Name and number, in the manifest."""
    data: tuple[Column, ...]
    """Columns of ``data/``; among them ``id`` and ``record``."""


CORPUS = Kind("flowgraph corpus 1", DATA)


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


def open_manifest(store: Store, kind: Kind, identity: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The folder's manifest, made where the folder is new. Other settings are refused, the differences named, once
    there is a shard of them: a run that ended before (a column misspelt) leaves nothing that could not be mixed."""
    manifest = read_manifest(store, kind)
    differences = [] if manifest is None else _differences(manifest, identity)
    if differences and any(store.names(folder) for folder in ("data", "errors", "removed")):
        raise FlowgraphError(
            f"out: {store.address!r} was begun with other settings: {'; '.join(differences)}; use the same settings, "
            "or another folder"
        )
    if manifest is None or differences:
        if store.names("data"):
            raise FlowgraphError(
                f"out: {store.address!r} holds shards but no {MANIFEST}, so what they are is unknown; choose another "
                "folder"
            )
        manifest = {
            "format": kind.format,
            "fingerprint": fingerprint(identity),
            "model_name": model,
            **identity,
            "schema": {
                "data": [column._asdict() for column in kind.data],
                "errors": [column._asdict() for column in ERRORS],
            },
            "complete": False,
        }
        write_manifest(store, manifest)
    return manifest


def read_manifest(store: Store, kind: Kind = CORPUS) -> dict[str, Any] | None:
    """None where there is none; FlowgraphError for a folder of another kind."""
    data = store.read(MANIFEST)
    if data is None:
        return None
    try:
        manifest = json.loads(data)
        if manifest["format"] != kind.format:
            raise FlowgraphError(
                f"out: {store.address!r} was written as {manifest['format']!r}, not as {kind.format!r}; choose "
                "another folder"
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
