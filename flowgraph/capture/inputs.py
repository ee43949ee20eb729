"""One text (or image) as a model's inputs, and batches of equal shape.

Pads are taken out before the model runs and examples of one length run together. So a pad can be neither
node nor key, no absolute position is shifted, and a batch gives what its texts give one by one, whatever the
model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from flowgraph.capture.survey import stack_config
from flowgraph.capture.tokens import Tokens
from flowgraph.errors import FlowgraphError

IGNORED = frozenset(
    [
        "labels",
        "offset_mapping",
        "special_tokens_mask",
        "overflow_to_sample_mapping",
        "length",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "use_cache",
    ]
)
"""Entries of ready inputs that say nothing of what the model reads."""


@dataclass(frozen=True)
class Example:
    """One text (or image), pads removed."""

    inputs: dict[str, Tensor]
    """Keyword arguments of the model, batch axis of 1 first."""
    tokens: Tokens | None
    """The source's; None where they depend on the model's patches."""
    target: Tokens | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """What goes into ``meta``: ``text``, ``truncated``, ``generated``."""

    @property
    def longest(self) -> int:
        """Tokens of the longer side."""
        sides = [len(side) for side in (self.tokens, self.target) if side is not None]
        return max(sides, default=1)

    @property
    def shape_key(self) -> tuple:
        return tuple(sorted((name, tuple(t.shape[1:])) for name, t in self.inputs.items()))


def batches(examples: Sequence[Example], limits: Sequence[int]) -> Iterator[list[int]]:
    """Indices of examples of one shape, at most as many at a time as their ``limits`` say, in order of first
    appearance."""
    groups: dict[tuple, list[int]] = {}
    for index, example in enumerate(examples):
        groups.setdefault(example.shape_key, []).append(index)
    for group in groups.values():
        size = min(limits[index] for index in group)
        for start in range(0, len(group), size):
            yield group[start : start + size]


def stack(examples: Sequence[Example], device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """One batch; floating-point inputs in the model's precision."""
    names = examples[0].inputs
    joined = {name: torch.cat([e.inputs[name] for e in examples]).to(device) for name in names}
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in joined.items()}


def accepted(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that ``model.forward`` has a parameter for."""
    parameters = inspect.signature(model.forward).parameters
    return {name: value for name, value in inputs.items() if name in parameters}


# --- which numbers a model can look up ----------------------------------------------------------------------

INDICES = ("input_ids", "decoder_input_ids", "token_type_ids", "position_ids", "decoder_position_ids")
"""Inputs whose entries are rows of a table."""


def check_indices(model: Any, inputs: Mapping[str, Tensor]) -> None:
    """Raise ``FlowgraphError`` for an entry that is negative or past the end of its table."""
    for name in INDICES:
        if name not in inputs:
            continue
        lowest, highest = (int(end) for end in inputs[name].aminmax())
        what, size = _table(model, name)
        if lowest < 0:
            raise FlowgraphError(f"text: {name} holds {lowest}; {what}s count from 0")
        if size is not None and highest >= size:
            where = "vocabulary of" if name.endswith("input_ids") else f"{what}s, of which there are"
            own = "own tokenizer" if name.endswith("input_ids") else f"{what}s, or leave {name} out"
            raise FlowgraphError(
                f"text: {what} {highest} is outside the model's {where} {size}; pass the model's {own}"
            )


def _table(model: Any, name: str) -> tuple[str, int | None]:
    """What the entries of an input are called, and how many there are; None where nothing limits them."""
    config = stack_config(model)
    vocabulary = getattr(model.get_input_embeddings(), "num_embeddings", None)
    if name == "input_ids":
        return "token id", vocabulary
    if name == "decoder_input_ids":
        own = getattr(model.config, "decoder_vocab_size", None)  # Marian may have one for each side
        return "token id", own or getattr(config, "vocab_size", None) or vocabulary
    if name == "token_type_ids":
        # 0: the model ignores them; no such number: GPT-2 looks them up among its words
        return "sentence type", getattr(config, "type_vocab_size", vocabulary) or None
    return "position", _position_rows(model)


def _position_rows(model: Any) -> int | None:
    """Rows of a learned table of positions. Rotary and sinusoidal positions have no last one."""
    names = ("position_embeddings", "position_embedding", "embed_positions", "wpe")
    tables = (module for path, module in model.named_modules() if path.rpartition(".")[2] in names)
    if not any(isinstance(table, torch.nn.Embedding) for table in tables):
        return None
    return getattr(stack_config(model), "max_position_embeddings", None)


# --- how long a text may be ---------------------------------------------------------------------------------

_NO_LIMIT = 1_000_000
"""Tokenizers without a limit say a huge number."""


def max_tokens(model: Any, tokenizer: Any, *, target: bool = False) -> int | None:
    """The most tokens the model has positions for (and its tokenizer was made for); None without a limit."""
    limits = [position_limit(model, target=target)]
    if not target:
        limits.append(getattr(tokenizer, "model_max_length", None))
    known = [int(limit) for limit in limits if limit is not None and 0 < limit < _NO_LIMIT]
    return min(known, default=None)


def position_limit(model: Any, *, target: bool = False) -> int | None:
    """Positions of the model. RoBERTa's start after the pad id, which costs as many rows of its table."""
    config = stack_config(model)
    if target and getattr(config, "max_target_positions", None):
        return config.max_target_positions
    limit = getattr(config, "max_position_embeddings", None)
    if limit is None or limit < 0:
        return None
    return limit - _rows_before_first_position(model)


def _rows_before_first_position(model: Any) -> int:
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, torch.nn.Embedding):
            # offsets past a pad row of its own (RoBERTa and kin) are marked by that padding index
            return 0 if table.padding_idx is None else table.padding_idx + 1
    return 0
