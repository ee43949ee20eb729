"""From mixing matrices to edge capacities: sign rule, row normalisation, residual.

``capacity = (1 - r) * rows(M) + r * I`` with ``rows(M)`` the matrix whose rows sum to 1. With r = 0.5 this is
the paper's 0.5 W_att + 0.5 I (Abnar & Zuidema 2020, section 3; 10.18653/v1/2020.acl-main.385).
"""

from __future__ import annotations

import numpy as np

from flowgraph.errors import FlowgraphError

SIGN_RULES = ("error", "clip", "abs", "keep")


def check_residual(residual: object) -> float | None:
    """``residual`` as a share in [0, 1], or None."""
    if residual is None:
        return None
    if isinstance(residual, (bool, np.bool_)):
        raise FlowgraphError(
            f"residual: {residual} is not a share; pass 0.5 for the paper's, or None for none"
        )
    try:
        share = float(residual)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise FlowgraphError(
            f"residual: {residual!r} is not a number; pass a share between 0 and 1, or None"
        ) from None
    if not 0.0 <= share <= 1.0:
        raise FlowgraphError(
            f"residual: {share} is not a share between 0 and 1; 0.5 is the paper's, None adds none"
        )
    return share


def apply_sign_rule(mixing: np.ndarray, negative: str, what: str) -> np.ndarray:
    """Mixing ``(..., Tq, Tk)`` with negative entries refused, clipped, made positive, or kept."""
    if negative not in SIGN_RULES:
        raise FlowgraphError(f"negative: unknown rule {negative!r}; choose one of {', '.join(SIGN_RULES)}")
    if negative == "keep" or not (mixing < 0).any():
        return mixing
    if negative == "clip":
        return np.maximum(mixing, 0.0)
    if negative == "abs":
        return np.abs(mixing)
    where = tuple(int(k) for k in np.argwhere(mixing < 0)[0])
    raise FlowgraphError(
        f"{what}: {int((mixing < 0).sum())} negative entries, the first {mixing[where]:.6g} at {where}; a capacity "
        "cannot be negative: pass negative='clip' (set to 0) or negative='abs' (absolute values), "
        "or negative='keep' for raw and rollout alone"
    )


def row_mass(mixing: np.ndarray) -> np.ndarray:
    """``(..., Tq, Tk) -> (..., Tq)``: sum of absolute values of a row (its plain sum where nothing is negative)."""
    return np.abs(mixing).sum(-1)


def normalise_rows(mixing: np.ndarray) -> np.ndarray:
    """Rows divided by their mass; a row of zeros stays zero."""
    mass = row_mass(mixing)[..., None]
    # two steps, so that a row of subnormal numbers is scaled up before it is divided
    peak = np.abs(mixing).max(-1, keepdims=True, initial=0.0)
    safe = np.where(peak > 0, peak, 1.0)
    scaled = mixing / safe
    total = np.where(mass > 0, np.abs(scaled).sum(-1, keepdims=True), 1.0)
    return scaled / total


def add_residual(mixing: np.ndarray, residual: float | None) -> np.ndarray:
    """``(1 - r) M + r I`` for square ``(..., T, T)``; unchanged for None."""
    if residual is None:
        return mixing
    return (1.0 - residual) * mixing + residual * np.eye(mixing.shape[-1])


def capacities(mixing: np.ndarray, residual: float | None, normalize: bool) -> np.ndarray:
    """Capacities ``(..., T, T)`` of mixing matrices to which the sign rule has been applied."""
    return add_residual(normalise_rows(mixing) if normalize else mixing, residual)
