"""Edge kinds: how much each token enters each other token in one layer.

A kind turns one :class:`~flowgraph.capture.record.LayerRecord` into a mixing matrix. The built-in ones are
``attention``, ``effective``, ``norm``, ``norm-residual``, ``norm-residual-ln``, ``globenc``, ``alti`` and
``value-zeroing``, one module each, imported when first asked for, so that listing them needs no torch.

A kind of one's own is a function of the record::

    import flowgraph as fg

    def received_norm(record):
        \"\"\"Weight times the length of the value vector: (H, T, T).\"\"\"
        group = record.num_heads // record.values.shape[0]
        lengths = record.values.norm(dim=-1).repeat_interleave(group, dim=0)
        return record.weights * lengths[:, None, :]

    fg.mixing.register("received-norm", received_norm, needs=("values",))
    trace = fg.trace(model, tokenizer, "a text", edges="received-norm")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowgraph._registry import Registry, normalise
from flowgraph.errors import FlowgraphError

if TYPE_CHECKING:
    from torch import Tensor

    from flowgraph.capture.record import LayerRecord

Heads = str | int

HEAD_RULES = ("all", "mean", "max", "min", "each")
"""What ``heads`` may be beside the number of one head, from 0."""

__all__ = [
    "HEAD_RULES",
    "EdgeKind",
    "check_decomposition",
    "check_heads",
    "coefficient_of_variation",
    "get",
    "join_heads",
    "mixing_ratio",
    "names",
    "norms",
    "reduce_record",
    "register",
    "unregister",
]


@dataclass(frozen=True)
class EdgeKind:
    """One way to say how much key ``j`` enters query ``i``.

    At least one of ``per_head`` and ``all_heads`` is given.
    """

    name: str
    per_head: Callable[[LayerRecord], Tensor] | None = None
    """``(H, Tq, Tk)``; a user's kind may return ``(Tq, Tk)`` and then has one matrix for all heads."""
    all_heads: Callable[[LayerRecord], Tensor] | None = None
    """``(Tq, Tk)``: the kind's own way to join heads. None: the mean over heads."""
    holds_residual: bool = False
    """True where the residual stream is in the matrix, so that a graph adds no identity."""
    rows_sum_to_one: bool = False
    """True where a row not summing to 1 tells of something lost (a sink), not of the kind itself."""
    cross: bool = False
    """True where the kind makes sense for cross-attention."""
    needs: tuple[str, ...] = ()
    """Fields of the record that must not be None, whatever the block."""
    needs_in: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Kind of block (``"post-norm"``, ...) -> fields that must not be None there, beside ``needs``."""
    reads_all: bool = False
    """True for a user's kind registered without ``needs``: it gets every field that can be had."""
    extras: Callable[[LayerRecord], dict[str, Tensor]] | None = None
    """What :func:`norms` and :func:`mixing_ratio` need, by name; a trace stacks it over layers in its
    ``extras``. None: nothing."""

    @property
    def joins(self) -> str:
        """``"mean"`` or ``"own"``: what ``heads="all"`` does."""
        return "mean" if self.all_heads is None else "own"

    @property
    def keeps_heads(self) -> bool:
        """False where there is one matrix for all heads, and ``heads`` must be ``"all"``."""
        return self.per_head is not None

    def fields(self, block: str) -> tuple[str, ...]:
        """Fields of the record that must not be None in a ``post-norm``, ``pre-norm``, ... block."""
        return self.needs + self.needs_in.get(block, ())

    def refusal(self, record: LayerRecord) -> str | None:
        """Why this kind cannot be had from ``record``, in words fit for a user; None where it can."""
        if record.block == "cross" and not self.cross:
            return f"{self.name!r} is not defined for cross-attention: {self._why_not_cross()}"
        for name in self.fields(record.block):
            if getattr(record, name) is None:
                why = record.missing.get(name, "this model does not show it")
                return f"{self.name!r} needs the {name.replace('_', ' ')} of layer {record.layer}: {why}"
        return None

    def _why_not_cross(self) -> str:
        if self.holds_residual:
            return (
                "it holds the residual stream, which belongs to the decoder's own positions while the keys "
                "are the encoder's; use attention, effective or norm"
            )
        return "it was registered with cross=False; use attention, effective or norm"

    def compute(self, record: LayerRecord, heads: Heads = "all") -> Tensor:
        """Mixing ``(Tq, Tk)``, or ``(H, Tq, Tk)`` for ``heads="each"``, before rows are normalised.

        Exactly 0 where the key is masked. Float32 or float64, whatever the model computes in. Raises
        :class:`~flowgraph.errors.FlowgraphError` where the record lacks what the kind needs or ``heads``
        cannot be had.
        """
        check_heads([self], heads, record.num_heads)
        if (reason := self.refusal(record)) is not None:
            raise FlowgraphError(f"edges: {reason}")
        own = heads == "all" and self.all_heads is not None
        function = self.all_heads if own else self.per_head
        assert function is not None  # check_heads has refused what neither function answers
        with _own_precision(record):
            matrix = self._checked(function(record), record, heads)
        if matrix.ndim == 3:
            matrix = join_heads(matrix, heads)
        return matrix.masked_fill(~record.visible, 0)

    def _checked(self, matrix: Any, record: LayerRecord, heads: Heads) -> Tensor:
        """``matrix`` as a float tensor of one of the two shapes a kind may return."""
        shape = tuple(getattr(matrix, "shape", ()))
        full = tuple(record.weights.shape)
        if shape not in (full, full[1:]):
            raise FlowgraphError(
                f"edges: {self.name!r} returned {_described(matrix)}; it must return a matrix of shape "
                f"{full} (heads, queries, keys) or {full[1:]} (queries, keys)"
            )
        if len(shape) == 2 and heads != "all":
            raise FlowgraphError(_one_matrix([self.name], heads))
        import torch

        tensor = torch.as_tensor(matrix, device=record.visible.device)  # a user's kind may give NumPy
        self._check_finite(tensor, record)
        # half precision is widened before heads are joined, or their mean would round once more
        return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()

    def _check_finite(self, matrix: Tensor, record: LayerRecord) -> None:
        """Raise ``FlowgraphError`` for NaN or infinity where the query may look at the key."""
        import torch

        if bool(torch.isfinite(matrix.sum(dtype=torch.float64))):
            return  # one number out of all: no mask as large as the matrix in the usual case
        wrong = (~torch.isfinite(matrix) & record.visible).nonzero()
        if len(wrong):
            query, key = wrong[0].tolist()[-2:]
            raise FlowgraphError(
                f"edges: {self.name!r} returned NaN or infinity in layer {record.layer}, first for query "
                f"{query} and key {key}; a kind must return finite numbers"
            )


def reduce_record(
    record: LayerRecord, kinds: Iterable[EdgeKind], heads: Heads = "all"
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Matrices by kind and extras by name of one record; kinds that need the same products share them."""
    from flowgraph.mixing.parts import sharing

    extras: dict[str, Tensor] = {}
    matrices: dict[str, Tensor] = {}
    with sharing():
        for kind in kinds:
            matrices[kind.name] = kind.compute(record, heads)
            if kind.extras is not None:
                with _own_precision(record):
                    extras |= kind.extras(record)
    return matrices, extras


def _own_precision(record: LayerRecord) -> AbstractContextManager[Any]:
    """Inside, the dtypes of measuring hold whatever autocast the model is run under."""
    import torch

    return torch.autocast(record.weights.device.type, enabled=False)


def check_heads(kinds: Iterable[EdgeKind], heads: Heads, num_heads: int | None = None) -> None:
    """An error naming every kind among ``kinds`` that cannot give ``heads``; nothing where all can.

    ``num_heads``: the layer's query heads, where known, to check the number of one head against.
    """
    one_head = _is_int(heads)
    if not one_head and heads not in HEAD_RULES:
        raise FlowgraphError(
            f"heads: {heads!r} is no rule for heads; pass one of {', '.join(HEAD_RULES)}, "
            "or the number of one head, from 0"
        )
    if one_head and num_heads is not None and not 0 <= int(heads) < num_heads:
        raise FlowgraphError(
            f"heads: there is no head {heads}; the layer has {num_heads}, numbered 0 to {num_heads - 1}"
        )
    joined = sorted(kind.name for kind in kinds if not kind.keeps_heads)
    if joined and heads != "all":
        raise FlowgraphError(_one_matrix(joined, heads))


def join_heads(matrix: Tensor, heads: Heads) -> Tensor:
    """``(H, Tq, Tk)`` to ``(Tq, Tk)`` by ``"all"`` or ``"mean"``, ``"max"``, ``"min"`` or a head's number;
    unchanged by ``"each"``."""
    if heads == "each":
        return matrix
    if heads == "max":
        return matrix.amax(0)
    if heads == "min":
        return matrix.amin(0)
    return matrix.mean(0) if isinstance(heads, str) else matrix[int(heads)]


# --- the registry -----------------------------------------------------------------------------------------

_MODULES = {
    "attention": "attention",
    "effective": "effective",
    "norm": "norm",
    "norm-residual": "norm_residual",
    "norm-residual-ln": "norm_residual_ln",
    "globenc": "globenc",
    "alti": "alti",
    "value-zeroing": "value_zeroing",
}
"""Built-in kinds and the module of this package whose ``KIND`` each is."""


class _Kinds(Registry[EdgeKind]):
    """The registry, with built-in kinds imported when first asked for."""

    def get(self, name: str) -> EdgeKind:
        key = normalise(name) if isinstance(name, str) else name
        if isinstance(key, str) and key not in self._items and key in _MODULES:
            self._items[key] = import_module(f"flowgraph.mixing.{_MODULES[key]}").KIND
        return super().get(name)

    def register(self, name: str, item: EdgeKind, *, overwrite: bool = False) -> EdgeKind:
        if name in self:
            self.get(name)  # a built-in kind is there to be refused, or replaced, like any other
        return super().register(name, item, overwrite=overwrite)

    def names(self) -> list[str]:
        return sorted({*_MODULES, *self._items})

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and normalise(name) in _MODULES)


_kinds = _Kinds("edge kind", "edges")
names = _kinds.names
get = _kinds.get
unregister = _kinds.unregister


def register(
    name: str,
    function: Callable[[LayerRecord], Tensor],
    *,
    holds_residual: bool = False,
    rows_sum_to_one: bool = False,
    cross: bool = False,
    needs: Iterable[str] | None = None,
    overwrite: bool = False,
) -> EdgeKind:
    """Add an edge kind: ``function(record) -> (H, Tq, Tk)``, heads joined as asked (``"all"``: the mean), or
    ``-> (Tq, Tk)``, one matrix for all heads.

    The record is a :class:`~flowgraph.capture.record.LayerRecord`: weights, values, output projection,
    residual stream and norms of one layer and one text. ``needs`` names the fields that must not be None: the
    kind is then refused, with the reason, for a model that cannot give one. ``holds_residual``: the residual
    stream is in the matrix already, so a graph adds none. ``rows_sum_to_one``: a graph warns where a row does
    not. ``cross``: the function also works on cross-attention, whose keys are another sequence's tokens.
    """
    if not callable(function):
        raise FlowgraphError(f"function: {function!r} cannot be called; pass a function of a layer record")
    kind = EdgeKind(
        normalise(name) if isinstance(name, str) else name,
        per_head=function,
        holds_residual=holds_residual,
        rows_sum_to_one=rows_sum_to_one,
        cross=cross,
        needs=_known_fields(needs or ()),
        reads_all=needs is None,
    )
    return _kinds.register(name, kind, overwrite=overwrite)


def _known_fields(needs: Iterable[str]) -> tuple[str, ...]:
    from flowgraph.capture.record import LayerRecord

    known = LayerRecord.__dataclass_fields__
    wanted = tuple(needs)
    for name in wanted:
        if name not in known:
            raise FlowgraphError(
                f"needs: {name!r} is no field of a layer record; choose from {', '.join(known)}"
            )
    return wanted


def __getattr__(name: str) -> Any:
    if name == "check_decomposition":
        return import_module("flowgraph.mixing.decomposition").check_decomposition
    if name in ("norms", "mixing_ratio", "coefficient_of_variation"):
        return getattr(import_module("flowgraph.mixing.measures"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _is_int(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _one_matrix(kinds: list[str], heads: Heads) -> str:
    verb = "has" if len(kinds) == 1 else "have"
    return f"heads: {', '.join(kinds)} {verb} one matrix for all heads; pass heads='all', not {heads!r}"


def _described(matrix: Any) -> str:
    return f"shape {tuple(matrix.shape)}" if hasattr(matrix, "shape") else f"a {type(matrix).__name__}"
