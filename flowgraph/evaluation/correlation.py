"""Rank correlation with ties, and what a sample of correlations says: mean, deviation, bootstrap interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowgraph.errors import missing_dependency


def spearman(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Spearman's rho of the rows of ``a`` (..., n) and ``b`` (..., n), which broadcast; ties share their average rank.

    NaN where a row is constant, or n < 2: there is no order to compare.
    """
    ranks = (_centred_ranks(np.asarray(a, np.float64)), _centred_ranks(np.asarray(b, np.float64)))
    products = (ranks[0] * ranks[1]).sum(-1)
    sizes = np.sqrt((ranks[0] ** 2).sum(-1) * (ranks[1] ** 2).sum(-1))
    return np.divide(products, sizes, out=np.full(np.shape(products), np.nan), where=sizes > 0)


def _centred_ranks(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    if values.shape[-1] == 0:
        return values
    return rankdata(values, method="average", axis=-1) - (values.shape[-1] + 1) / 2


def tied(values: np.ndarray, apart: float) -> np.ndarray:
    """``values`` (..., n) with those of a row that are at most ``apart`` above the next lower one made equal to it."""
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, -1)
    steps = np.diff(ordered, axis=-1, prepend=-np.inf)
    heads = np.maximum.accumulate(np.where(steps > apart, np.arange(values.shape[-1]), 0), axis=-1)
    found = np.empty_like(values)
    np.put_along_axis(found, order, np.take_along_axis(ordered, heads, -1), -1)
    return found


@dataclass(frozen=True)
class Summary:
    """A sample's mean with its spread; NaN where the sample is too small to say."""

    mean: float
    sd: float
    """Standard deviation over texts, n - 1 in the denominator."""
    low: float
    high: float
    """Bootstrap interval of the mean."""
    count: int
    undefined: int
    """Texts left out since their correlation is not defined."""


def summarise(
    values: np.ndarray, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Summary:
    """Mean, standard deviation and percentile bootstrap interval of the defined ones among ``values`` (n,)."""
    values = np.asarray(values, np.float64)
    known = values[np.isfinite(values)]
    mean = float(known.mean()) if len(known) else float("nan")
    sd = float(known.std(ddof=1)) if len(known) > 1 else float("nan")
    low = high = float("nan")
    if len(known) > 1 and resamples:
        low, high = _interval(known, resamples, confidence, seed)
    return Summary(mean, sd, low, high, len(known), len(values) - len(known))


def _interval(values: np.ndarray, resamples: int, confidence: float, seed: int) -> tuple[float, float]:
    from scipy.stats import bootstrap

    found = bootstrap(
        (values,),
        np.mean,
        n_resamples=resamples,
        confidence_level=confidence,
        method="percentile",
        batch=max(1, 4_000_000 // len(values)),  # the resamples of one batch take 32 MB
        random_state=np.random.default_rng(seed),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def require_scipy() -> None:
    """An error that says what to install where SciPy is missing."""
    from importlib.util import find_spec

    if find_spec("scipy") is None:
        raise missing_dependency("scipy", "evaluation", "evaluation")
