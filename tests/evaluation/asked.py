"""Tiny models with heads, and texts to ask them about."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

from tests.models import DECODER, SMALL, perturb, tiny, word_tokenizer

TEXTS = [
    "the key to the cabinets is on the table .",
    "a cat sat on the mat",
    "the dog runs fast , and then it sleeps in the park .",
    "cats",
]
MASKED = ["the keys to the cabinet [MASK] on the table .", "a cat [MASK] on the mat", "the dogs [MASK]"]
PREFIXES = ["the keys to the cabinet", "a cat and the dogs", "the dog on the table"]


def classifier() -> tuple[Any, Any]:
    torch.manual_seed(0)
    config = BertConfig(**SMALL, num_labels=3, id2label={0: "no", 1: "yes", 2: "maybe"}, label2id={})
    return perturb(BertForSequenceClassification(config)).eval(), _tokenizer(types=True)


def one_output() -> tuple[Any, Any]:
    torch.manual_seed(3)
    config = BertConfig(**SMALL, num_labels=1)
    return perturb(BertForSequenceClassification(config)).eval(), _tokenizer(types=True)


def last_token_classifier(pad: int) -> tuple[Any, Any]:
    """GPT-2's, which reads the last token that is not ``pad``; its tokenizer has no mask."""
    torch.manual_seed(4)
    config = GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=1,
                        pad_token_id=pad)  # fmt: skip
    tokenizer = _tokenizer()
    tokenizer._tokenizer.post_processor = None
    tokenizer.mask_token = None
    return perturb(GPT2ForSequenceClassification(config)).eval(), tokenizer


def masked_model() -> tuple[Any, Any]:
    torch.manual_seed(1)
    return perturb(BertForMaskedLM(BertConfig(**SMALL))).eval(), _tokenizer(types=True)


def causal_model() -> tuple[Any, Any]:
    torch.manual_seed(2)
    config = LlamaConfig(**DECODER)  # its RMSNorm leaves the sum of a gradient something to show
    tokenizer = _tokenizer()
    tokenizer._tokenizer.post_processor = None  # a causal model's text has no frame
    return perturb(LlamaForCausalLM(config)).eval(), tokenizer


def _tokenizer(types: bool = False) -> Any:
    """A copy, since tests change it."""
    return deepcopy(word_tokenizer(types))


def headless() -> tuple[Any, Any]:
    return tiny("bert")


def asked_models() -> dict[str, tuple[Any, Any, list[str], dict[str, Any]]]:
    """Kind of score -> model, tokenizer, texts, further arguments of ``evaluate``."""
    return {
        "classifier": (*classifier(), TEXTS, {}),
        "masked": (*masked_model(), MASKED, {"candidates": ("are", "is")}),
        "causal": (*causal_model(), PREFIXES, {"candidates": ("are", "is")}),
        "embedding": (*headless(), TEXTS, {}),
    }


KINDS = ("classifier", "masked", "causal", "embedding")
