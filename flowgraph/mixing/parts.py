"""The parts of a layer's output, one a key, without a (T, T, D) array of them.

What key ``j`` adds at query ``i`` is linear in the attended vectors once the divisors of the norms are known:

    ``t[i, j] = M(sum_h A[h, i, j] v[h, j] W_O[h]) / s[i]  (+ the stream's own part, where i = j)``

with one map ``M`` of model vectors (gains, centring, scales) for all queries and one divisor ``s[i]`` a
query. ``M`` is applied to the rows of ``W_O``; norms of parts then are quadratic forms in the weights with
the Gram matrix of the ``H`` vectors of a key. Everything here is float64: with heads that cancel, a float32
Gram matrix is off by per cents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from flowgraph.capture.record import FrozenNorm, LayerRecord

BLOCK_BYTES = 6 * 2**20
"""Working memory of one block of keys: small enough to stay in cache."""

Stage = Literal["projection", "stream", "attention-norm", "output-norm"]
"""How far the parts are followed: as the output projection gives them; as they are added to the stream;
through a post-norm block's norm after attention; through its second norm. The last two add nothing in other
blocks."""


@dataclass(frozen=True)
class Route:
    """Norms and scales that vectors pass, their statistics frozen: ``v -> M(v) / s[i]``, and biases."""

    steps: tuple[FrozenNorm | Tensor, ...]

    def linear(self, vectors: Tensor) -> Tensor:
        """``(..., D) -> (..., D)`` float64: ``M``, without divisors and biases."""
        for step in self.steps:
            if isinstance(step, FrozenNorm):
                centred = vectors - vectors.mean(-1, keepdim=True) if step.centred else vectors
                vectors = centred * double(step.gain)
            else:
                vectors = vectors * double(step)
        return vectors

    def divisor(self) -> Tensor | None:
        """(T,) float64: ``s``; None where it is 1."""
        product: Tensor | None = None
        for step in self.steps:
            if isinstance(step, FrozenNorm):
                product = double(step.sigma) if product is None else product * double(step.sigma)
        return product

    def parts(self, vectors: Tensor) -> Tensor:
        """``(T, D) -> (T, D)``: the share of row ``i`` in what leaves position ``i``; no biases."""
        divisor = self.divisor()
        mapped = self.linear(vectors)
        return mapped if divisor is None else mapped / divisor[:, None]

    def whole(self, vectors: Tensor) -> Tensor:
        """``(T, D) -> (T, D)``: what leaves when ``vectors`` is all that enters, biases in."""
        for step in self.steps:
            vectors = Route((step,)).parts(vectors)
            if isinstance(step, FrozenNorm) and step.bias is not None:
                vectors = vectors + double(step.bias)
        return vectors


def branch_route(record: LayerRecord) -> Route:
    """Between the output projection and the addition to the stream."""
    return Route(tuple(step for step in (record.branch_norm, record.branch_scale) if step is not None))


def stream_route(record: LayerRecord, stage: Stage) -> Route:
    """After the addition to the stream: norms on the stream itself, which only post-norm blocks have."""
    norms = {
        "attention-norm": (record.attention_norm,),
        "output-norm": (record.attention_norm, record.output_norm),
    }.get(stage, ())
    return Route(tuple(norm for norm in norms if norm is not None))


@dataclass(frozen=True)
class Parts:
    """``t[i, j]`` of one layer; see the module's docstring. ``Tq = Tk = T`` where ``own`` is given."""

    weights: Tensor
    """(H, Tq, Tk)"""
    values: Tensor
    """(H_kv, Tk, d)"""
    output: Tensor
    """(H, d, D) float64: the output projection, mapped by ``M``."""
    divisor: Tensor | None
    """(Tq,) float64, or None for 1."""
    own: Tensor | None
    """(T, D) float64: what the stream itself adds at ``i = j``; None where it is left out."""
    key: tuple[int, ...] = ()
    """Names record and map: parts with equal keys differ by ``own`` alone."""

    def head_vectors(self, keys: slice, dtype: torch.dtype = torch.float64) -> Tensor:
        """(keys, H, D): ``M(v[h, j] W_O[h])``."""
        values = self.values[:, keys].to(self.output.device).to(dtype)
        return (_each_head(values, self.output.shape[0]) @ self.output.to(dtype)).transpose(0, 1)

    def norms(self) -> Tensor:
        """(Tq, Tk) float64: Euclidean norms of all parts."""
        norms = self._sweep().norms.T
        norms = norms.clone() if self.divisor is None else norms / self.divisor[:, None]
        if self.own is not None:
            norms.diagonal().copy_(torch.linalg.vector_norm(self.diagonal(), dim=-1))
        return norms

    def head_norms(self) -> Tensor:
        """(H, Tk) float64: ``||M(f[h, j])||``."""
        return self._sweep().head_norms.T

    def diagonal(self) -> Tensor:
        """(T, D) float64: the parts ``t[i, i]``."""
        return self._leave(self._sweep().diagonal)

    def _sweep(self) -> _Sweep:
        return _once(self.key, lambda: _sweep(self))

    def along(self, directions: Tensor) -> Tensor:
        """(Tq, D) float64 -> (Tq, Tk): dot products ``directions[i] . t[i, j]``, the stream's own part left
        out."""
        values = self._by_head()
        products = self.output.new_zeros(self.weights.shape[1:])
        for head, weights in enumerate(self.weights):
            products += double(weights) * (directions @ self.output[head].T @ values[head].T)
        return products if self.divisor is None else products / self.divisor[:, None]

    def total(self) -> Tensor:
        """(Tq, D) float64: ``sum_j t[i, j]``."""
        mixed = double(self.weights) @ self._by_head()  # (H, Tq, d)
        return self._leave(mixed.transpose(0, 1).flatten(1) @ self.output.flatten(0, 1))

    def _by_head(self) -> Tensor:
        """(H, Tk, d) float64 values, one a query head."""
        return _each_head(double(self.values), self.weights.shape[0])

    def _leave(self, vectors: Tensor) -> Tensor:
        vectors = vectors if self.divisor is None else vectors / self.divisor[:, None]
        return vectors if self.own is None else vectors + self.own


@dataclass(frozen=True)
class _Sweep:
    """What one pass over the keys finds, divisors and the stream's own part left out; float64."""

    norms: Tensor
    """(Tk, Tq): ``||M(sum_h A[h, i, j] f[h, j])||``."""
    head_norms: Tensor
    """(Tk, H): ``||M(f[h, j])||``."""
    diagonal: Tensor
    """(min(Tq, Tk), D): ``M(sum_h A[h, j, j] f[h, j])``."""


def _sweep(parts: Parts) -> _Sweep:
    """The Gram matrices of all keys, a block of keys at a time, and the forms in them."""
    heads, queries, num_keys = parts.weights.shape
    width = parts.output.shape[-1]
    forms, own = parts.output.new_empty(num_keys, queries), parts.output.new_empty(num_keys, heads)
    itself = double(parts.weights.diagonal(dim1=1, dim2=2).T.contiguous())  # (min(Tq, Tk), H)
    diagonal = parts.output.new_empty(len(itself), width)
    for keys in blocks(num_keys, 8 * heads * (2 * queries + 2 * width)):
        vectors = parts.head_vectors(keys)  # (keys, H, D)
        gram = vectors @ vectors.transpose(1, 2)  # (keys, H, H)
        weights = double(parts.weights[:, :, keys].permute(2, 0, 1).contiguous())  # (keys, H, Tq)
        forms[keys] = (gram @ weights).mul_(weights).sum(1)
        own[keys] = gram.diagonal(dim1=1, dim2=2)
        few = itself[keys]
        diagonal[keys] = (few[:, None] @ vectors[: len(few)])[:, 0]
    return _Sweep(forms.clamp_(min=0).sqrt_(), own.clamp_(min=0).sqrt_(), diagonal)


def parts_of(record: LayerRecord, stage: Stage) -> Parts:
    """The parts followed to ``stage``; the stream's own from ``"stream"`` on."""
    assert record.values is not None
    projection = record.output_weight
    assert projection is not None
    branch, after = branch_route(record), stream_route(record, stage)
    route = Route(() if stage == "projection" else branch.steps + after.steps)
    return Parts(
        weights=record.weights,
        values=record.values,
        output=route.linear(_once((id(projection),), lambda: double(projection))),
        divisor=route.divisor(),
        own=None if stage == "projection" else after.parts(double(_stream(record))),
        key=(id(record), *map(id, route.steps)),
    )


def _each_head(values: Tensor, heads: int) -> Tensor:
    """(H_kv, T, d) -> (H, T, d): value heads repeated for the query heads that read them."""
    return values if len(values) == heads else values.repeat_interleave(heads // len(values), 0)


_shared: ContextVar[dict[tuple[int, ...], Any] | None] = ContextVar("shared", default=None)

Made = TypeVar("Made")


def _once(key: tuple[int, ...], make: Callable[[], Made]) -> Made:
    """What ``make`` gives; kept under ``key`` inside :func:`sharing`."""
    shared = _shared.get()
    if shared is None:
        return make()
    if key not in shared:
        shared[key] = make()
    return shared[key]


@contextmanager
def sharing() -> Iterator[None]:
    """Inside, kinds that need the same products of one record share them.

    Keys are the identities of records, weights and norms, so these must outlive the block.
    """
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


def whole_of(record: LayerRecord, stage: Stage) -> Tensor:
    """(T, D) float64: ``sum_j t[i, j]``, from the module's own attention output where the record has it."""
    if record.attention_output is None:
        return parts_of(record, stage).total()
    attended = double(record.attention_output)
    if record.output_bias is not None:
        attended = attended - double(record.output_bias)
    after = stream_route(record, stage)
    route = Route(branch_route(record).steps + after.steps)
    return route.parts(attended) + after.parts(double(_stream(record)))


def stream_after_attention(record: LayerRecord) -> Tensor:
    """(T, D) float64: stream plus attention output, biases in, as the block's actual vectors give it.

    In parallel blocks the model never forms it.
    """
    assert record.attention_output is not None
    return double(_stream(record)) + branch_route(record).whole(double(record.attention_output))


def _stream(record: LayerRecord) -> Tensor:
    assert record.stream is not None
    return record.stream


def double(tensor: Tensor) -> Tensor:
    """Float64; on the CPU where the device has none."""
    if tensor.device.type == "mps":
        tensor = tensor.cpu()
    return tensor.double()


def working_dtype(tensor: Tensor) -> torch.dtype:
    """The tensor's own dtype, half precision widened to float32."""
    return tensor.dtype if tensor.dtype in (torch.float32, torch.float64) else torch.float32


def blocks(count: int, bytes_each: int, budget: int = BLOCK_BYTES) -> Iterator[slice]:
    """Slices covering ``range(count)``, each of at most ``budget`` bytes (but at least one long)."""
    step = max(1, budget // max(1, bytes_each))
    for start in range(0, count, step):
        yield slice(start, min(count, start + step))
