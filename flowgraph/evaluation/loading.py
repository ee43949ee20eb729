"""A model with the head it was saved with, by name or folder."""

from __future__ import annotations

from os import PathLike
from typing import Any

_HEADS = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
}
"""Ending of a model's class -> the class of transformers that loads it."""


def load_with_head(name: str | PathLike[str]) -> tuple[Any, Any]:
    """Model and tokenizer as :func:`flowgraph.capture.loading.load` gives them, with the classifier or language head
    that the configuration's ``architectures`` names; without one the model has none."""
    from flowgraph.capture.loading import load

    return load(name, auto=auto_class)


def auto_class(config: Any) -> str:
    """The auto class for a configuration."""
    named = [str(name) for name in getattr(config, "architectures", None) or ()]
    return next((auto for name in named for end, auto in _HEADS.items() if name.endswith(end)), "AutoModel")
