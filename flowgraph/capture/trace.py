"""What a forward pass left behind, reduced to mixing matrices: plain arrays, tokens and facts; saved and
loaded.

Needs neither torch nor transformers.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from flowgraph._registry import normalise
from flowgraph.errors import FlowgraphError

Arrays = np.ndarray | Mapping[str, np.ndarray]

FORMAT = 1
"""Version of the file format."""

_HEADER = "flowgraph"
_TOKEN_FIELDS = (
    "tokens",
    "raw_tokens",
    "token_ids",
    "word_ids",
    "special",
    "target_tokens",
    "target_raw_tokens",
    "target_token_ids",
    "target_word_ids",
    "target_special",
)


class _Parts(dict[str, np.ndarray]):
    """Part of an encoder-decoder model -> its array; a part that is absent is an error with the reason."""

    def __init__(self, arrays: Mapping[str, np.ndarray], absent: Mapping[str, str]) -> None:
        super().__init__(arrays)
        self._absent = absent

    def __missing__(self, part: str) -> np.ndarray:
        raise FlowgraphError(
            f"edges: {self._absent[part]}"
            if part in self._absent
            else f"trace: there is no part {part!r} here; its parts are {', '.join(self)}"
        )


@dataclass(frozen=True, eq=False)
class Trace(Mapping[str, Arrays]):
    """Mixing matrices of one text (or image), by edge kind.

    **One stack of layers** (an encoder, a decoder, a vision tower): ``trace[kind]`` is ``(L, T, T)``, or
    ``(L, H, T, T)`` where heads were kept (``heads="each"``); row = query. ``tokens`` name the T positions
    and every ``target_...`` field is None.

    **Encoder-decoder**: ``trace[kind]`` is a mapping with ``encoder`` (Le, Ts, Ts), ``decoder`` (Ld, Tt, Tt)
    and ``cross`` (Ld, Tt, Ts), each with an axis H after the first where heads were kept. ``tokens`` (and
    ``raw_tokens``, ``token_ids``, ``word_ids``, ``special``) are the source's, Ts long; ``target_tokens``
    (and ``target_...``) the decoder's *inputs*, Tt long, the start token first: position t reads target
    token t and gives the scores of token t + 1. ``meta["layers"]``, ``meta["layer_numbers"]`` and
    ``meta["row_mass"]`` are then mappings with the same three keys, ``meta["causal"]`` speaks of the
    decoder, and ``extras`` hold mappings too. Kinds that hold the residual stream have no ``cross``, and no
    ``decoder`` where they read what lies behind cross-attention; asking for such a part is an error with the
    reason, which also stands in ``meta["kinds"][kind]["absent"]``.

    **A decoder with cross-attention whose encoder is not in the model**: as before with ``decoder`` and
    ``cross`` alone; ``tokens`` are the decoder's own, ``target_tokens`` is None, and the columns of
    ``cross`` have no names.

    Arrays keep the precision the kind was computed in (float32 for attention, at least) and are read-only.
    """

    arrays: Mapping[str, Arrays]
    tokens: tuple[str, ...]
    """Readable tokens: decoded where the piece is whole characters, no mark of word starts or
    continuations."""
    raw_tokens: tuple[str, ...]
    """Tokens as the vocabulary spells them; equal to ``tokens`` where there is no tokenizer."""
    meta: Mapping[str, Any]
    """Plain values: ``model``, ``model_type``, ``text``, ``dtype``, ``heads``, ``num_heads``, ``layers``,
    ``layer_numbers`` (the model's own, from 1), ``causal``, ``kinds`` (name -> ``holds_residual``,
    ``rows_sum_to_one``, and ``absent`` as above), ``versions``; where they apply ``row_mass`` (L, T, mean over
    heads, of attention rows that miss some), ``truncated``, ``generated`` (first and last + 1 position of what
    the model wrote), ``image`` (``rows``, ``columns``, ``prefix`` tokens before them, ``patch`` size),
    ``skipped_layers``."""
    token_ids: tuple[int, ...] | None = None
    word_ids: tuple[int | None, ...] | None = None
    """Number of the word a token belongs to, None for special tokens; a second sentence counts on."""
    special: tuple[bool, ...] | None = None
    target_tokens: tuple[str, ...] | None = None
    target_raw_tokens: tuple[str, ...] | None = None
    target_token_ids: tuple[int, ...] | None = None
    target_word_ids: tuple[int | None, ...] | None = None
    target_special: tuple[bool, ...] | None = None
    extras: Mapping[str, Arrays] = field(default_factory=dict)
    """What ``fg.norms`` and ``fg.mixing_ratio`` read, stacked over layers."""

    def __post_init__(self) -> None:
        for arrays in (self.arrays, self.extras):
            for value in arrays.values():
                for array in value.values() if isinstance(value, Mapping) else (value,):
                    array.flags.writeable = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The edge kinds traced, in the order asked for."""
        return tuple(self.arrays)

    def __getitem__(self, kind: str) -> Arrays:
        try:
            arrays = self.arrays[normalise(kind)]
        except (KeyError, AttributeError):
            raise FlowgraphError(
                f"edges: {kind!r} was not traced; the trace holds {', '.join(self.kinds)}; trace again with "
                f"edges={kind!r} among them"
            ) from None
        if not isinstance(arrays, Mapping):
            return arrays
        return _Parts(arrays, self.meta.get("kinds", {}).get(normalise(kind), {}).get("absent", {}))

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, str) and normalise(kind) in self.arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __repr__(self) -> str:
        layers = self.meta.get("layers")
        target = "" if self.target_tokens is None else f" -> {len(self.target_tokens)}"
        return (
            f"<Trace {', '.join(self.kinds)}: {self.meta.get('model')}, {layers} layers, "
            f"{len(self.tokens)}{target} tokens>"
        )

    # --- on disk ------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file: arrays as they are, the rest as JSON in its header. No pickle.

        Written beside ``path`` and renamed, so an old file survives a failure. Raises ``FlowgraphError``
        where the file cannot be written.
        """
        from safetensors.numpy import save

        header = {name: getattr(self, name) for name in _TOKEN_FIELDS} | {
            "format": FORMAT,
            "meta": self.meta,
            "kinds": list(self.arrays),
        }
        tensors = {**_flat("edges", self.arrays), **_flat("extras", self.extras)}
        try:
            text = json.dumps(header, default=_refuse_json)
        except TypeError as error:
            raise FlowgraphError(
                f"trace: {error}; meta may hold text, numbers, booleans, lists and dictionaries"
            ) from None
        _write_beside(Path(path), save(tensors, metadata={_HEADER: text}))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Trace:
        """The trace that :meth:`save` wrote, bit for bit. Raises ``FlowgraphError`` for anything else."""
        path = Path(path)
        header, tensors = _read(path)
        try:
            if header["format"] != FORMAT:
                raise FlowgraphError(
                    f"path: {path} has trace format {header['format']}, this flowgraph reads {FORMAT}; "
                    "update flowgraph"
                )
            edges = _nested("edges", tensors)
            known = {f.name for f in fields(cls)}
            sequences = {
                name: None if header[name] is None else tuple(header[name])
                for name in _TOKEN_FIELDS
                if name in known
            }
            return cls(
                arrays={kind: edges[kind] for kind in header["kinds"]},
                extras=_nested("extras", tensors),
                meta=header["meta"],
                **sequences,  # type: ignore[arg-type]
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise FlowgraphError(
                f"path: {path} is not a whole flowgraph trace ({error!r}); trace and save it again"
            ) from None


def _flat(prefix: str, arrays: Mapping[str, Arrays]) -> dict[str, np.ndarray]:
    """Arrays by ``prefix/kind`` or ``prefix/kind/part``; no kind's name holds a slash that matters, since it
    comes between."""
    flat = {}
    for kind, value in arrays.items():
        if isinstance(value, Mapping):
            flat.update(
                {f"{prefix}/{kind}//{part}": np.ascontiguousarray(array) for part, array in value.items()}
            )
        else:
            flat[f"{prefix}/{kind}"] = np.ascontiguousarray(value)
    return flat


def _nested(prefix: str, tensors: Mapping[str, np.ndarray]) -> dict[str, Arrays]:
    nested: dict[str, Any] = {}
    for name, array in tensors.items():
        if not name.startswith(f"{prefix}/"):
            continue
        kind, _, part = name.removeprefix(f"{prefix}/").partition("//")
        if part:
            nested.setdefault(kind, {})[part] = array
        else:
            nested[kind] = array
    return nested


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FlowgraphError(f"path: {path} is not a file; pass what Trace.save wrote")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise FlowgraphError(
            f"path: {path} cannot be read as a trace ({error}); it is damaged or another kind of file"
        ) from None
    if _HEADER not in metadata:
        raise FlowgraphError(
            f"path: {path} is a safetensors file, but not a flowgraph trace; pass what Trace.save wrote"
        )
    try:
        return json.loads(metadata[_HEADER]), tensors
    except json.JSONDecodeError as error:
        raise FlowgraphError(
            f"path: the header of {path} is damaged ({error}); trace and save it again"
        ) from None


def _write_beside(path: Path, data: bytes) -> None:
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise FlowgraphError(
            f"path: {path} cannot be written ({error.strerror or error}); choose another place"
        ) from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _refuse_json(value: object) -> Any:
    raise TypeError(f"meta holds {value!r}, a {type(value).__name__}, which a file cannot keep")
