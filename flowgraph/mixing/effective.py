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
    visible = record.visible.to(double(record.values[:0]).device)
    sets, owner = torch.unique(visible, dim=0, return_inverse=True)  # (S, Tk), (Tq,)
    group = record.num_heads // record.values.shape[0]
    result = torch.empty_like(record.weights, dtype=torch.float64, device=visible.device)
    for number, values in enumerate(double(record.values)):
        heads = slice(number * group, (number + 1) * group)
        result[heads] = project_rows(double(record.weights[heads]), values, sets, owner)
    return result


def project_rows(weights: Tensor, values: Tensor, sets: Tensor, owner: Tensor) -> Tensor:
    """``A P`` for the query heads that read one value head.

    ``weights`` (g, Tq, Tk), ``values`` (Tk, d), ``sets`` (S, Tk) bool: the sets of keys that occur, ``owner``
    (Tq,): which of them a query sees.
    """
    if len(sets) == 1:
        whole = sets[0].all()
        rows = values if whole else values[sets[0]]
        kept = weights if whole else weights[..., sets[0]]
        projected = torch.zeros_like(weights)
        projected[..., sets[0]] = _project_shared(kept, rows)
        return projected
    projected = torch.empty_like(weights)
    width = values.shape[1]
    for chunk in blocks(len(sets), 8 * width * (2 * len(values) + 4 * width), BYTES):
        inverse, proven = _inverse_grams(values, sets[chunk])
        queries = ((owner >= chunk.start) & (owner < chunk.stop)).nonzero()[:, 0]
        local = owner[queries] - chunk.start
        rows = weights[:, queries].transpose(0, 1)  # (queries, g, Tk)
        solved = rows @ values @ inverse[local] @ values.T
        few = sets[chunk].sum(1) <= width
        solved = torch.where(few[local][:, None, None], rows, solved * sets[chunk][local][:, None])
        projected[:, queries] = solved.transpose(0, 1)
        for s in (~proven).nonzero()[:, 0].tolist():
            keys, its = sets[chunk][s], queries[local == s]
            picked = projected.new_zeros(len(weights), len(its), len(values))
            picked[..., keys] = project_by_svd(weights[:, its][..., keys], values[keys])
            projected[:, its] = picked
    return projected


def _project_shared(weights: Tensor, values: Tensor) -> Tensor:
    """``A P`` where every query sees all keys: ``weights`` (g, Tq, n), ``values`` (n, d)."""
    inverse, proven = _inverse_grams(values, values.new_ones(1, len(values), dtype=torch.bool))
    if not proven:
        return project_by_svd(weights, values)
    if len(values) <= values.shape[1]:
        return weights
    return weights @ values @ inverse[0] @ values.T


def _inverse_grams(values: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
    """``(V^T V)^-1`` (S, d, d) for the rows of ``values`` (T, d) in each of ``sets`` (S, T), and (S,) bool:
    proven of full rank. For a set of at most ``d`` rows the rank alone is looked at and the inverse is of no
    use."""
    sizes = sets.sum(1)
    count, width = len(sets), values.shape[1]
    few = sizes <= width
    gram = values.new_empty(count, width, width)
    masked = sets[~few, :, None] * values  # (S', T, d)
    gram[~few] = masked.transpose(1, 2) @ masked
    gram[few] = _small_grams(values, sets[few])
    factor, failed = torch.linalg.cholesky_ex(gram)
    eye = torch.eye(width, dtype=gram.dtype, device=gram.device)
    factor = torch.where((failed > 0)[:, None, None], eye, factor)
    inverse_factor = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
    largest = (sets.to(values.dtype) @ values.square().sum(1)).sqrt()  # ||V||_F
    least = 1 / torch.linalg.matrix_norm(inverse_factor)
    tolerance = sizes.clamp(min=width) * EPS
    proven = (failed == 0) & (least > largest * tolerance.clamp(min=CERTAIN) * 1.01)
    return inverse_factor.transpose(1, 2) @ inverse_factor, proven | (sizes == 0)


def _small_grams(values: Tensor, sets: Tensor) -> Tensor:
    """``V V^T`` of sets of at most ``d`` rows, filled up to (d, d) by a diagonal as large as its largest
    entry."""
    width = values.shape[1]
    order = torch.argsort(sets.to(torch.uint8), dim=1, descending=True, stable=True)[
        :, :width
    ]  # rows in it first
    inside = torch.gather(sets, 1, order)  # (S, m)
    rows = values[order] * inside[..., None]  # (S, m, d)
    gram = values.new_zeros(len(sets), width, width)
    gram[:, : rows.shape[1], : rows.shape[1]] = rows @ rows.transpose(1, 2)
    size = inside.sum(1)
    filler = torch.arange(width, device=values.device) >= size[:, None]  # (S, d)
    largest = gram.diagonal(dim1=1, dim2=2).amax(1, keepdim=True)
    gram.diagonal(dim1=1, dim2=2).add_(filler * largest)
    return gram


def project_by_svd(weights: Tensor, values: Tensor) -> Tensor:
    """``A P`` for ``weights`` (..., n) and ``values`` (n, d), both float64, the rank read off singular
    values."""
    left, singular, _ = torch.linalg.svd(values, full_matrices=False)
    tolerance = singular.amax() * max(values.shape) * EPS if len(singular) else 0.0
    basis = left[:, singular > tolerance]
    return weights @ basis @ basis.T


KIND = EdgeKind("effective", per_head=effective, cross=True, needs=("values",))
