"""Arrays as users hand them over, read and checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowgraph.errors import FlowgraphError


def to_numpy(array: Any) -> np.ndarray:
    """A NumPy array from an array or a torch tensor (half precision upcast; NumPy has no bfloat16)."""
    if hasattr(array, "detach"):
        array = array.detach()
        array = array.float() if array.dtype.is_floating_point and array.element_size() < 4 else array
        return array.cpu().numpy()
    return np.asarray(array)


def check_finite(array: np.ndarray, argument: str) -> None:
    """Refuse NaN and infinities, naming the first."""
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(k) for k in np.argwhere(bad)[0])
        raise FlowgraphError(
            f"{argument}: {int(bad.sum())} entries are not finite, the first {array[where]} at {where}; "
            "capacities must be finite numbers"
        )


def as_float(matrix: Any, argument: str, number: int) -> np.ndarray:
    """A float64 array of real numbers, or an error naming the layer."""
    try:
        array = np.asarray(matrix)
        if np.iscomplexobj(array):
            raise TypeError("complex")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise FlowgraphError(f"{argument}: layer {number} is not a matrix of real numbers") from None


def read_stack(mixing: Any, argument: str) -> np.ndarray:
    """``(L, T, T)`` float64 from an array or a list of matrices, checked."""
    if isinstance(mixing, np.ndarray):
        layers = list(mixing) if mixing.ndim >= 3 else [mixing]
        if mixing.ndim == 2:
            raise FlowgraphError(
                f"{argument}: shape {mixing.shape} is one matrix; pass (layers, T, T), e.g. matrix[None]"
            )
    else:
        try:
            layers = [to_numpy(m) for m in mixing]
        except TypeError:
            raise FlowgraphError(
                f"{argument}: {type(mixing).__name__} is not a stack of matrices; pass (layers, T, T)"
            ) from None
    if not layers:
        raise FlowgraphError(f"{argument}: no layers; pass at least one (T, T) matrix")
    arrays = [as_float(m, argument, number) for number, m in enumerate(layers, 1)]
    for number, m in enumerate(arrays, 1):
        if m.ndim == 3:
            raise FlowgraphError(
                f"{argument}: layer {number} has shape {m.shape}, heads kept; "
                "join or choose heads first: (layers, T, T)"
            )
        if m.ndim != 2 or m.shape[0] != m.shape[1]:
            raise FlowgraphError(
                f"{argument}: layer {number} has shape {m.shape}, which is not square; pass (T, T) matrices"
            )
        if m.shape != arrays[0].shape:
            raise FlowgraphError(
                f"{argument}: layer {number} has shape {m.shape}, layer 1 {arrays[0].shape}; all must have one size"
            )
    if arrays[0].shape[0] == 0:
        raise FlowgraphError(
            f"{argument}: matrices of no tokens, shape {arrays[0].shape}; pass at least one token"
        )
    stack = np.stack(arrays)
    check_finite(stack, argument)
    return stack


def read_attentions(attentions: Any) -> tuple[list[np.ndarray], str]:
    """Layers as ``(H, T, T)`` float64, and the name of the dtype they came in."""
    if attentions is None or len(attentions) == 0:
        raise FlowgraphError(
            "attentions: there are none; the model's attention implementation does not return weights "
            "(load it with attn_implementation='eager' and pass output_attentions=True), or use fg.trace"
        )
    dtype = str(getattr(attentions[0], "dtype", "float64")).removeprefix("torch.")
    layers: list[np.ndarray] = []
    for number, a in enumerate(attentions, 1):
        if a is None or isinstance(a, (tuple, list)):
            raise FlowgraphError(
                f"attentions: layer {number} is {'None' if a is None else 'a nested tuple, as generate() returns'}; "
                "pass the attentions of one forward pass, one (1, H, T, T) tensor a layer"
            )
        array = as_float(to_numpy(a), "attentions", number)
        if array.ndim == 4 and array.shape[0] != 1:
            raise FlowgraphError(
                f"attentions: layer {number} holds a batch of {array.shape[0]}; "
                "pass one example: [a[:1] for a in attentions]"
            )
        array = array[0] if array.ndim == 4 else array
        if array.ndim != 3 or array.shape[1] != array.shape[2] or array.shape[0] == 0:
            raise FlowgraphError(
                f"attentions: layer {number} has shape {tuple(np.shape(a))}; expected (1, heads, T, T)"
            )
        if layers and array.shape[1:] != layers[0].shape[1:]:
            raise FlowgraphError(
                f"attentions: layer {number} has {array.shape[-1]} tokens, layer 1 {layers[0].shape[-1]}; "
                "all must have one size"
            )
        check_finite(array, f"attentions, layer {number}")
        layers.append(array)
    return layers, dtype


def join_heads(attention: np.ndarray, heads: str | int) -> np.ndarray:
    """``(H, T, T) -> (T, T)``."""
    if isinstance(heads, str) and heads in ("all", "mean", "max", "min"):
        return getattr(attention, "mean" if heads == "all" else heads)(0)
    if isinstance(heads, (int, np.integer)) and not isinstance(heads, bool):
        if not 0 <= heads < len(attention):
            raise FlowgraphError(
                f"heads: {heads} is not a head of this model, which has 0 to {len(attention) - 1}"
            )
        return attention[heads]
    raise FlowgraphError(
        f"heads: unknown rule {heads!r}; choose 'mean', 'max', 'min' or the number of one head"
    )
