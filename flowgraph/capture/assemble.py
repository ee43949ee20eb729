"""From what the layers left to a :class:`~flowgraph.capture.trace.Trace`: stacked arrays, tokens, facts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from flowgraph.capture.forward import Job, Layers, dtype_of
from flowgraph.capture.inputs import Example
from flowgraph.capture.tokens import Tokens, named_tokens
from flowgraph.capture.trace import Arrays, Trace
from flowgraph.capture.verify import row_tolerance
from flowgraph.embedded import name_of_folder
from flowgraph.errors import FlowgraphError


def make_trace(job: Job, example: Example, stacks: Mapping[str, Layers]) -> Trace:
    """One example's trace from what its layers left."""
    plain = len(stacks) == 1
    main = stacks["encoder"] if "encoder" in stacks else next(iter(stacks.values()))
    if not plain:
        stacks = {name: stacks[name] for name in ("encoder", "decoder", "cross") if name in stacks}
    tokens = _named(example.tokens, main.queries, example)
    fields: dict[str, Any] = {}
    if "encoder" in stacks and not plain:
        target = _named(example.target, stacks["decoder"].queries, example)
        fields = {
            "target_tokens": target.readable,
            "target_raw_tokens": target.raw,
            "target_token_ids": target.ids,
            "target_word_ids": target.word_ids,
            "target_special": target.special,
        }
    return Trace(
        arrays=_stacked(stacks, "arrays"),
        extras=_stacked(stacks, "extras"),
        tokens=tokens.readable,
        raw_tokens=tokens.raw,
        token_ids=tokens.ids,
        word_ids=tokens.word_ids,
        special=tokens.special,
        meta=_meta(job, example, stacks),
        **fields,
    )


def _named(tokens: Tokens | None, count: int, example: Example) -> Tokens:
    if tokens is None:
        frames = "input_features" in example.inputs
        tokens = named_tokens([f"frame {k}" if frames else str(k) for k in range(count)])
    if len(tokens) != count:
        raise FlowgraphError(
            f"model: it made {count} positions of {len(tokens)} tokens, so flowgraph cannot name them"
        )
    return tokens


def _stacked(stacks: Mapping[str, Layers], name: str) -> dict[str, Arrays]:
    """Kind -> array, or kind -> stack -> array where there is more than one stack."""
    if len(stacks) == 1:
        (layers,) = stacks.values()
        return {kind: np.stack(matrices) for kind, matrices in getattr(layers, name).items()}
    kinds = dict.fromkeys(kind for layers in stacks.values() for kind in getattr(layers, name))
    return {
        kind: {
            stack: np.stack(getattr(layers, name)[kind])
            for stack, layers in stacks.items()
            if kind in getattr(layers, name)
        }
        for kind in kinds
    }


def _by_stack(stacks: Mapping[str, Layers], value: Callable[[Layers], Any]) -> Any:
    if len(stacks) == 1:
        return value(next(iter(stacks.values())))
    return {name: value(layers) for name, layers in stacks.items()}


def _meta(job: Job, example: Example, stacks: Mapping[str, Layers]) -> dict[str, Any]:
    causal = stacks.get("decoder") or next(iter(stacks.values()))
    dtype = dtype_of(job.model)
    meta: dict[str, Any] = {
        "model": _model_name(job.model),
        "model_type": job.model.config.model_type,
        "dtype": str(dtype).removeprefix("torch."),
        "heads": job.heads,
        "num_heads": _by_stack(stacks, lambda layers: layers.heads),
        "layers": _by_stack(stacks, lambda layers: len(layers.numbers)),
        "layer_numbers": _by_stack(stacks, lambda layers: list(layers.numbers)),
        "causal": causal.causal and causal.queries > 1,
        "kinds": {
            kind.name: {"holds_residual": kind.holds_residual, "rows_sum_to_one": kind.rows_sum_to_one}
            | ({"absent": job.absent[kind.name]} if kind.name in job.absent else {})
            for kind in job.kinds
        },
        "versions": _versions(),
    }
    if any(np.abs(np.stack(layers.mass) - 1).max() > row_tolerance(dtype) for layers in stacks.values()):
        meta["row_mass"] = _by_stack(stacks, lambda layers: np.stack(layers.mass).tolist())
    if job.survey.skipped:
        meta["skipped_layers"] = list(job.survey.skipped)
    return meta | example.facts


def _model_name(model: Any) -> str:
    name = getattr(model, "name_or_path", "") or getattr(model.config, "_name_or_path", "")
    return name_of_folder(name) if os.path.isabs(name) else name or type(model).__name__


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    import transformers

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    try:
        versions["flowgraph"] = version("attention-flowgraph")
    except PackageNotFoundError:
        versions["flowgraph"] = "uninstalled"
    return versions
