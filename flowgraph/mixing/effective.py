"""Effective attention: the part of the attention weights that changes what is read.

    ``A P``, ``P`` the orthogonal projector onto the column space of the head's values ``V`` (T, d)

so that ``A_eff V = A V``; a row restricted to the keys its query sees, ``V`` to their rows. Entries may be
negative and rows need not sum to 1: a graph wants ``negative="clip"`` or ``"abs"``. Singular values up to
``s_max * max(T, d) * eps`` count as zero, ``eps`` that of float32. Where the keys are no more than the head
width and ``V`` has full rank, nothing changes.

Limits: in causal and windowed models every query has its own projector, so work grows as ``T * T * d * d``.
Brunner et al. 2020 (ICLR, arXiv:1908.04211); Sun & Marasović 2021 (10.18653/v1/2021.findings-acl.401).

How: a factorisation of the smaller of ``V^T V`` and ``V V^T``, many queries at once. It is used only where it
proves ``V`` to be of full rank and far enough from losing it: ``1 / ||L^-1||_F <= s_min`` and ``s_max <=
||V||_F``. Then ``P = V (V^T V)^-1 V^T`` (or the identity) is exact to far below float32's rounding. Where it
does not, a singular value decomposition decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flowgraph.mixing import EdgeKind
from flowgraph.mixing.parts import blocks, double

if TYPE_CHECKING:
    from torch import Tensor

    from flowgraph.capture.record import LayerRecord

EPS = torch.finfo(torch.float32).eps
CERTAIN = 1e-5
"""Least proven ``s_min / s_max`` for the normal equations: squared, it is 1e6 times float64's rounding."""
BYTES = 32 * 2**20


def effective(record: LayerRecord) -> Tensor:
    """(H, Tq, Tk) float64."""
    assert record.values is not None
    values = double(record.values)
    heads, queries, keys = record.weights.shape
    weights = double(record.weights).reshape(len(values), -1, queries, keys)  # (H_kv, g, Tq, Tk)
    visible = record.visible.to(values.device)
    same = bool((visible == visible[:1]).all())
    if same and bool(visible[0].all()):
        projected = _project_all(weights, values)
    else:
        sets, owner = torch.unique(visible, dim=0, return_inverse=True)  # (S, Tk), (Tq,)
        projected = torch.stack(
            [_project_rows(w, v, sets, owner) for w, v in zip(weights, values, strict=True)]
        )
    return projected.reshape(heads, queries, keys)


def _project_all(weights: Tensor, values: Tensor) -> Tensor:
    """``A P`` where every query sees every key: ``weights`` (H_kv, g, Tq, Tk), ``values`` (H_kv, Tk, d)."""
    few = values.shape[1] <= values.shape[2]
    grams = values @ values.transpose(1, 2) if few else values.transpose(1, 2) @ values
    sizes = torch.full((len(values),), values.shape[1], device=values.device)
    inverse, proven = _inverse(grams, values.square().sum((1, 2)).sqrt(), sizes, values.shape[2])
    if few:
        projected = weights.clone()
    else:
        by_head = weights.flatten(1, 2)  # (H_kv, g Tq, Tk)
        projected = (by_head @ values @ inverse @ values.transpose(1, 2)).reshape(weights.shape)
    for head in (~proven).nonzero()[:, 0].tolist():
        projected[head] = project_by_svd(weights[head], values[head])
    return projected


def _project_rows(weights: Tensor, values: Tensor, sets: Tensor, owner: Tensor) -> Tensor:
    """``A P`` for the query heads that read one value head, queries seeing different keys.

    ``weights`` (g, Tq, Tk), ``values`` (Tk, d), ``sets`` (S, Tk) bool: the sets of keys that occur, ``owner``
    (Tq,): which of them a query sees.
    """
    projected = torch.empty_like(weights)
    count, width = values.shape
    for chunk in blocks(len(sets), 8 * width * (2 * count + 4 * width), BYTES):
        seen = sets[chunk]
        sizes = seen.sum(1)
        largest = (seen.to(values.dtype) @ values.square().sum(1)).sqrt()  # ||V||_F
        inverse, proven = _inverse(_grams(values, seen), largest, sizes, width)
        queries = ((owner >= chunk.start) & (owner < chunk.stop)).nonzero()[:, 0]
        its = owner[queries] - chunk.start
        rows = weights[:, queries].transpose(0, 1)  # (queries, g, Tk)
        solved = rows @ values @ inverse[its] @ values.T
        solved = torch.where((sizes <= width)[its][:, None, None], rows, solved)
        projected[:, queries] = solved.transpose(0, 1)
        for s in (~proven).nonzero()[:, 0].tolist():
            asking, keys = queries[its == s], seen[s].nonzero()[:, 0]
            picked = torch.zeros_like(weights[:, asking])
            picked[..., keys] = project_by_svd(weights[:, asking][..., keys], values[keys])
            projected[:, asking] = picked
    return projected


def _inverse(grams: Tensor, largest: Tensor, sizes: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Inverses of Gram matrices (S, m, m), and (S,) bool: values proven of full rank, well enough for them.

    ``largest`` (S,): a bound on the greatest singular value; ``sizes`` (S,): how many rows of values there
    are.
    """
    factor, failed = torch.linalg.cholesky_ex(grams)
    eye = torch.eye(grams.shape[-1], dtype=grams.dtype, device=grams.device)
    factor = torch.where((failed > 0)[:, None, None], eye, factor)
    inverse_factor = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
    least = 1 / torch.linalg.matrix_norm(inverse_factor)
    tolerance = (sizes.clamp(min=width) * EPS).clamp(min=CERTAIN) * 1.01
    proven = (failed == 0) & (least > largest * tolerance)
    return inverse_factor.transpose(1, 2) @ inverse_factor, proven | (sizes == 0)


def _grams(values: Tensor, sets: Tensor) -> Tensor:
    """(S, d, d) of the rows of ``values`` (T, d) in each of ``sets`` (S, T): ``V^T V`` where there are more
    rows than ``d``, else ``V V^T`` filled up by a diagonal as large as its largest entry, which hides no
    small singular value."""
    width = values.shape[1]
    sizes = sets.sum(1)
    few = sizes <= width
    grams = values.new_zeros(len(sets), width, width)
    masked = sets[~few, :, None] * values  # (S', T, d)
    grams[~few] = masked.transpose(1, 2) @ masked
    order = torch.argsort(sets[few].to(torch.uint8), dim=1, descending=True, stable=True)[:, :width]
    inside = torch.gather(sets[few], 1, order)  # (S'', m): rows in the set come first
    rows = values[order] * inside[..., None]  # (S'', m, d)
    small = values.new_zeros(len(rows), width, width)
    small[:, : rows.shape[1], : rows.shape[1]] = rows @ rows.transpose(1, 2)
    diagonal = small.diagonal(dim1=1, dim2=2)
    filler = torch.arange(width, device=values.device) >= sizes[few, None]  # (S'', d)
    diagonal.add_(filler * diagonal.amax(1, keepdim=True))
    grams[few] = small
    return grams


def project_by_svd(weights: Tensor, values: Tensor) -> Tensor:
    """``A P`` for ``weights`` (..., n) and ``values`` (n, d), both float64, the rank read off singular
    values. NaN where ``values`` are not finite, which have no projector."""
    if not bool(torch.isfinite(values).all()):
        return torch.full_like(weights, torch.nan)
    left, singular, _ = torch.linalg.svd(values, full_matrices=False)
    tolerance = singular.amax() * max(values.shape) * EPS if len(singular) else 0.0
    basis = left[:, singular > tolerance]
    return weights @ basis @ basis.T


KIND = EdgeKind("effective", per_head=effective, cross=True, needs=("values",))
