"""Erasing the tokens an attribution ranks highest, or all others: comprehensiveness, sufficiency, deletion curve.

With ``s(x)`` the score of the text, ``x \\ k`` the text with the k highest tokens blanked and ``k`` the text with all
other tokens blanked: comprehensiveness ``s(x) - s(x \\ k)`` (high is good), sufficiency ``s(x) - s(k)`` (low is good),
each averaged over several k, the AOPC (DeYoung et al. 2020, 10.18653/v1/2020.acl-main.408; Samek et al. 2017).
Comprehensiveness as k grows to all tokens is the deletion curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares of the tokens over which comprehensiveness and sufficiency are averaged."""

CURVE = tuple(k / 10 for k in range(11))
"""Shares of the tokens at which curves are read."""


def erased(relevance: np.ndarray, erasable: np.ndarray, fractions: Sequence[float]) -> np.ndarray:
    """Which tokens to blank: ``(2, fractions, T)`` bool; first the highest blanked, then the highest kept.

    ``relevance`` (T,) ranks the ``erasable`` (T,) tokens, equal ones in the order of the text; the others are never
    blanked. Of n erasable tokens the ``ceil(fraction · n)`` highest are taken.
    """
    places = np.flatnonzero(erasable)
    order = places[np.argsort(-relevance[places], kind="stable")]
    removed = np.zeros((len(fractions), len(relevance)), dtype=bool)
    for row, fraction in enumerate(fractions):
        removed[row, order[: how_many(fraction, len(order))]] = True
    return np.stack([removed, ~removed & erasable])


def ranks(relevance: np.ndarray) -> bool:
    """False where no token is above another: there is one alone, or all are equal, as by gradients that sum to 0."""
    return len(relevance) > 1 and bool(np.ptp(relevance) > 0)


def how_many(fraction: float, tokens: int) -> int:
    """``ceil(fraction · tokens)``, not one more for a fraction whose product is a whole number but for rounding."""
    return min(tokens, math.ceil(fraction * tokens - 1e-9))


def aopc(curve: np.ndarray, at: Sequence[float], fractions: Sequence[float]) -> np.ndarray:
    """Average of ``curve`` (..., len(at)) over the ``fractions`` among ``at``."""
    columns = [k for k, fraction in enumerate(at) if any(abs(fraction - f) < 1e-9 for f in fractions)]
    return np.asarray(curve)[..., columns].mean(-1)
