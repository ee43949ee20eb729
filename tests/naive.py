"""Edge kinds straight from their formulas: everything materialised, every layer re-run. Slow oracles.

All take a :class:`~flowgraph.capture.record.LayerRecord` and return float64 (or ``dtype``) tensors before
rows are normalised. They share no code with the package.
"""

from __future__ import annotations

import torch


def attended_vectors(record, dtype=torch.float64):
    """f: (H, Tk, D)."""
    group = record.weights.shape[0] // record.values.shape[0]
    heads = range(record.weights.shape[0])
    return torch.stack(
        [record.values[h // group].to(dtype) @ record.output_weight[h].to(dtype) for h in heads]
    )


def weighted_vectors(record, dtype=torch.float64):
    """A f: (H, Tq, Tk, D)."""
    return record.weights.to(dtype)[..., None] * attended_vectors(record, dtype)[:, None]


def frozen_norm(norm, part, position):
    """One part (D,) through a norm frozen at ``position``, bias left out."""
    dtype = part.dtype
    centred = part - part.mean() if norm.centred else part
    return centred / norm.sigma[position].to(dtype) * norm.gain.to(dtype)


def frozen_norm_all(norm, parts):
    """Parts (Tq, Tk, D) through a norm frozen at each query."""
    dtype = parts.dtype
    centred = parts - parts.mean(-1, keepdim=True) if norm.centred else parts
    return centred / norm.sigma.to(dtype)[:, None, None] * norm.gain.to(dtype)


def added_parts(record, dtype=torch.float64):
    """p: (T, T, D), what is added to the stream."""
    parts = weighted_vectors(record, dtype).sum(0)
    if record.branch_norm is not None:
        parts = frozen_norm_all(record.branch_norm, parts)
    if record.branch_scale is not None:
        parts = parts * record.branch_scale.to(dtype)
    return parts


def stream_parts(record, dtype=torch.float64):
    """p + d x: (T, T, D)."""
    parts = added_parts(record, dtype)
    for i in range(len(parts)):
        parts[i, i] += record.stream[i].to(dtype)
    return parts


def first_norm_parts(record, dtype=torch.float64):
    parts = stream_parts(record, dtype)
    return frozen_norm_all(record.attention_norm, parts) if record.block == "post-norm" else parts


def second_norm_parts(record, dtype=torch.float64):
    parts = first_norm_parts(record, dtype)
    return frozen_norm_all(record.output_norm, parts) if record.block == "post-norm" else parts


def norm_per_head(record, dtype=torch.float64):
    return weighted_vectors(record, dtype).norm(dim=-1)


def norm(record, dtype=torch.float64):
    return weighted_vectors(record, dtype).sum(0).norm(dim=-1)


def norm_residual(record, dtype=torch.float64):
    return stream_parts(record, dtype).norm(dim=-1)


def norm_residual_ln(record, dtype=torch.float64):
    return first_norm_parts(record, dtype).norm(dim=-1)


def globenc(record, dtype=torch.float64):
    return second_norm_parts(record, dtype).norm(dim=-1)


def alti_output(record, dtype=torch.float64):
    if record.block == "post-norm":
        return record.attention_norm_output.to(dtype)
    added = record.attention_output.to(dtype)
    if record.branch_norm is not None:
        added = torch.stack([frozen_norm(record.branch_norm, row, i) for i, row in enumerate(added)])
        if record.branch_norm.bias is not None:
            added = added + record.branch_norm.bias.to(dtype)
    if record.branch_scale is not None:
        added = added * record.branch_scale.to(dtype)
    return record.stream.to(dtype) + added


def alti(record, dtype=torch.float64):
    output = alti_output(record, dtype)
    parts = first_norm_parts(record, dtype)
    left = (output[:, None] - parts).abs().sum(-1)
    return (output.abs().sum(-1)[:, None] - left).clamp(min=0)


def mixing_ratio(record):
    parts = first_norm_parts(record)
    ratios = []
    for i in range(len(parts)):
        own = parts[i, i].norm()
        others = (parts[i].sum(0) - parts[i, i]).norm()
        ratios.append(others / (others + own))
    return torch.stack(ratios)


def effective(record):
    """(H, Tq, Tk): each query and head its own projector, by singular value decomposition."""
    result = torch.zeros_like(record.weights, dtype=torch.float64)
    group = record.weights.shape[0] // record.values.shape[0]
    for h in range(len(result)):
        for i, seen in enumerate(record.visible):
            values = record.values[h // group][seen].double()
            if not len(values):
                continue
            left, singular, _ = torch.linalg.svd(values, full_matrices=False)
            tolerance = singular.max() * max(values.shape) * torch.finfo(torch.float32).eps
            left = left[:, singular > tolerance]
            result[h, i, seen] = left @ (left.T @ record.weights[h, i, seen].double())
    return result


def unit_distance(a, b):
    """Half the squared distance of unit vectors, last axis; float64."""
    a, b = a.double(), b.double()
    a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
    return (a - b).square().sum(-1) / 2


def value_zeroing(run, values, visible):
    """``run(values) -> (T, D)``: the block's output with these values (H_kv, T, d) in place of its own."""
    actual = run(values)
    columns = []
    for j in range(values.shape[1]):
        changed = values.clone()
        changed[:, j] = 0
        columns.append(unit_distance(actual, run(changed)))
    return torch.stack(columns, dim=1) * visible


KINDS = {
    "norm": norm,
    "norm-residual": norm_residual,
    "norm-residual-ln": norm_residual_ln,
    "globenc": globenc,
    "alti": alti,
}
"""Kinds of one matrix for all heads that need the record alone."""


# --- comparing ------------------------------------------------------------------------------------------


def assert_same(product, oracle, tolerance=1e-5):
    """Equal to ``tolerance`` of the largest entry, before and after rows are divided by their mass."""
    product, oracle = product.double(), oracle.double()
    assert product.shape == oracle.shape
    assert (product - oracle).abs().max() <= tolerance * oracle.abs().max()
    product, oracle = rows(product), rows(oracle)
    assert (product - oracle).abs().max() <= tolerance * oracle.abs().max()


def rows(matrix):
    mass = matrix.abs().sum(-1, keepdim=True)
    return matrix / torch.where(mass > 0, mass, 1.0)
