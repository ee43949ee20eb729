"""Upper and lower bounds on the maximum flows of all pairs of a stack of levels at once.

``M[1], ..., M[L]`` are the capacities, ``M[l][i, k]`` from node ``(l, i)`` to node ``(l - 1, k)``; ``F_l(i, j)`` is
the maximum flow from ``(l, i)`` to the input ``(0, j)``. Arrays are float64, first axis the upper node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def min_sum(upper: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """``(R, T), (T, C) -> (R, C)``: ``sum over k of min(upper[i, k], lower[k, j])``.

    If ``upper[i, k]`` bounds what node ``i`` can send to node ``k`` of a level in between and ``lower[k, j]``
    what ``k`` can send to ``j``, then this bounds the flow from ``i`` to ``j``: it crosses that level in some
    vertex flow ``x`` with ``x_k <= min(upper[i, k], lower[k, j])``. It is the flow itself where both are single
    edges, since then the paths share nothing.
    """
    columns = np.ascontiguousarray(lower.T)
    scratch = np.empty_like(columns)
    result = np.empty((len(upper), len(columns)))
    for i, row in enumerate(upper):
        np.minimum(row, columns, out=scratch)
        scratch.sum(1, out=result[i])
    return result


def from_targets(matrices: Sequence[np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
    """``C[m]`` (R, T) for m = 0 .. L-1: bounds on the flow from each of ``rows`` at the top to each node of level m.

    ``matrices[l - 1]`` is ``M[l]``. Held by the step before (:func:`min_sum`), by what can enter the node from
    nodes that the target reaches at all, and by what can leave the target.
    """
    top = matrices[-1][rows]
    leaving = top.sum(1, keepdims=True)
    bounds = [top]
    for matrix in reversed(matrices[:-1]):
        above = bounds[-1]
        entering = (above > 0).astype(np.float64) @ matrix
        bounds.append(np.minimum(np.minimum(min_sum(above, matrix), entering), leaving))
    return bounds[::-1]


def to_inputs(matrices: Sequence[np.ndarray], columns: np.ndarray) -> list[np.ndarray]:
    """``B[m - 1]`` (T, C) for m = 1 .. L: bounds on the flow from each node of level m to each input of ``columns``.

    Held by the step before, by what can leave the node towards nodes that reach the input, and by what can
    enter the input.
    """
    bottom = matrices[0][:, columns]
    entering = bottom.sum(0)
    bounds = [bottom]
    for matrix in matrices[1:]:
        bounds.append(next_to_inputs(matrix, bounds[-1], entering))
    return bounds


def next_to_inputs(matrix: np.ndarray, below: np.ndarray, entering: np.ndarray) -> np.ndarray:
    """One step of :func:`to_inputs`: from bounds (T, C) of a level to those of the level above."""
    leaving = matrix @ (below > 0)
    return np.minimum(np.minimum(min_sum(matrix, below), leaving), entering)


def meet(from_above: Sequence[np.ndarray], from_below: Sequence[np.ndarray]) -> np.ndarray:
    """(R, C): the least of the bounds through every level: ``C[0]`` at ``columns`` is the caller's to add.

    ``from_above[m]`` and ``from_below[m - 1]`` speak of level m = 1 .. L - 1.
    """
    best = np.full((from_above[0].shape[0], from_below[0].shape[1]), np.inf)
    for m in range(1, len(from_above)):
        np.minimum(best, min_sum(from_above[m], from_below[m - 1]), out=best)
    return best


def climb(matrix: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Lower bounds ``F_l >= G`` (R, C) from exact flows ``below = F_{l-1}`` (T, C) and rows ``matrix`` of ``M[l]``.

    ``F_l(i, j) = min over sets S of nodes below of [ M_l[i, not S] + rho(S) ]`` with rho(S) the flow from S
    together into j (max-flow min-cut, the nodes of S on the source side). Adding sources never lessens a flow,
    so ``rho(S) >= max over k in S of F_{l-1}(k, j)``; with that in its place the minimum is attained by
    the sets ``{k : F_{l-1}(k, j) <= f}``, one for each value f: sort, and take running sums.
    """
    result = np.empty((len(matrix), below.shape[1]))
    for j in range(below.shape[1]):
        order = np.argsort(below[:, j], kind="stable")
        rows = matrix[:, order]
        # beyond[r] = capacity towards nodes ranked after r; S = {} keeps all of the row's capacity
        total = rows.sum(1, keepdims=True)
        beyond = np.maximum(total - np.cumsum(rows, axis=1), 0.0)
        result[:, j] = np.minimum((beyond + below[order, j]).min(1), total[:, 0])
    return result


def climb_two(
    matrices: Sequence[np.ndarray], rows: np.ndarray, below: np.ndarray, pairs: np.ndarray
) -> np.ndarray:
    """Lower bounds of single pairs from the exact flows ``below = F_{l-2}`` (T, C), two levels down.

    ``pairs`` (R, C) bool chooses them; others get 0. ``matrices[-1][rows]`` are rows of ``M[l]``. With
    ``rho_{l-2}(S) >= max over q in S of F_{l-2}(q, j)`` as in :func:`climb`, the flow from a set S of nodes of
    level l - 1 is ``rho_{l-1}(S) >= min over r of [ f_r + c_r(S) ]``: f_r the r-th least flow below, ``c_r(k)`` the
    capacity from node k to nodes with a larger one. Each c_r adds up over S, so that
    ``F_l(i, j) >= min over r of [ f_r + sum over k of min(M_l[i, k], c_r(k)) ]``. It sees what single flows of
    level l - 1 do not: nodes that are held by their own rows, and together pass on more than any one of them.
    """
    top, middle = matrices[-1][rows], matrices[-2]
    result = np.zeros(pairs.shape)
    for j in np.flatnonzero(pairs.any(0)):
        order = np.argsort(below[:, j], kind="stable")
        ranked = middle[:, order]
        # row r: capacity towards nodes ranked r or later; row T, with no node left, is 0
        beyond = np.zeros((len(order) + 1, len(middle)))
        beyond[:-1] = np.cumsum(ranked[:, ::-1], axis=1)[:, ::-1].T
        least = np.concatenate([[0.0], below[order, j]])
        for i in np.flatnonzero(pairs[:, j]):
            result[i, j] = (np.minimum(top[i], beyond).sum(1) + least).min()
    return result
