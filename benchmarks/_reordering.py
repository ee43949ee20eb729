"""A translation task whose true alignment is known: word by word, with reordering; generated, seeded.

Source sentences are adjectives (``a..``), nouns (``n..``) and verbs (``v..``). Each word has one translation (``A..``,
``N..``, ``V..``, by a fixed permutation). In the target an adjective stands behind the noun it stands before in the
source, and the verbs stand at the end, in the source's order.

With ``nulls`` there are words without a counterpart: half of the source's words have a particle (``f..``) behind them
that is not translated, and each word of the target is followed by ``E0``, which nothing in the source stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

WORDS = {"a": 10, "n": 20, "v": 10, "f": 4, "e": 1}
"""Class of words -> how many there are."""
FRAME = ("<pad>", "<s>", "</s>", "<unk>")


@dataclass(frozen=True)
class Sentence:
    source: str
    target: str
    links: frozenset[tuple[int, int]]
    """(source word, target word), from 0."""


def sentences(count: int, seed: int, nulls: bool = False) -> list[Sentence]:
    """``count`` sentences of 4 to 10 words, ``nulls`` apart."""
    draw = np.random.default_rng(seed)
    return [_with_nulls(_sentence(draw), draw) if nulls else _sentence(draw) for _ in range(count)]


def _with_nulls(sentence: Sentence, draw: np.random.Generator) -> Sentence:
    """The same with particles in the source and ``E0`` behind each word of the target."""
    source: list[str] = []
    places: list[int] = []
    for word in sentence.source.split():
        places.append(len(source))
        source.append(word)
        if draw.random() < 0.5:
            source.append(f"f{draw.integers(WORDS['f'])}")
    return Sentence(
        source=" ".join(source),
        target=" ".join(f"{word} E0" for word in sentence.target.split()),
        links=frozenset((places[place], 2 * position) for place, position in sentence.links),
    )


def _sentence(draw: np.random.Generator) -> Sentence:
    kinds = [
        str(kind) for kind in draw.choice(["a", "n", "v"], int(draw.integers(4, 11)), p=[0.35, 0.45, 0.2])
    ]
    words = [(kind, int(draw.integers(WORDS[kind]))) for kind in kinds]
    order = target_order(kinds)
    return Sentence(
        source=" ".join(f"{kind}{number}" for kind, number in words),
        target=" ".join(translation(*words[place]) for place in order),
        links=frozenset((place, position) for position, place in enumerate(order)),
    )


def translation(kind: str, number: int) -> str:
    """Class by class a fixed permutation of the numbers."""
    return f"{kind.upper()}{(7 * number + 3) % WORDS[kind]}"


def target_order(kinds: list[str]) -> list[int]:
    """Source places in the order of the target: ``a n`` swapped, verbs last."""
    order: list[int] = []
    place = 0
    while place < len(kinds):
        if kinds[place : place + 2] == ["a", "n"]:
            order += [place + 1, place]
            place += 2
        else:
            order.append(place)
            place += 1
    return [p for p in order if kinds[p] != "v"] + [p for p in order if kinds[p] == "v"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, ``</s>`` behind a sentence."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = [f"{kind}{k}" for kind, count in WORDS.items() for k in range(count)]
    vocabulary = {word: i for i, word in enumerate([*FRAME, *words, *(word.upper() for word in words)])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", vocabulary["</s>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def make_model(vocabulary: int, *, layers: int = 2, heads: int = 4, width: int = 64) -> Any:
    """BART's code (post-norm blocks), small; dropout 0.1 on blocks and on attention."""
    config = BartConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_position_embeddings=32,
        dropout=0.1,
        attention_dropout=0.1,
        init_std=0.08,  # of a width of 64; the default is meant for 1024
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
    )
    return BartForConditionalGeneration(config)


def train(
    model: Any,
    tokenizer: Any,
    *,
    steps: int,
    seed: int,
    nulls: bool,
    batch: int = 64,
    rate: float = 2e-3,
    decay: float = 0.5,
) -> float:
    """Teacher forcing on fresh sentences at every step; the last 20 steps' mean loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    losses: list[float] = []
    model.train()
    for step in range(steps):
        inputs = encoded(tokenizer, sentences(batch, 1_000_000 * (seed + 1) + step, nulls))
        loss = model(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    return float(np.mean(losses[-20:]))


def encoded(tokenizer: Any, batch: list[Sentence]) -> dict[str, Any]:
    """Source ids and mask, and labels with pads left out of the loss; the model shifts labels itself."""
    source = tokenizer([s.source for s in batch], padding=True, return_tensors="pt")
    labels = tokenizer([s.target for s in batch], padding=True, return_tensors="pt")["input_ids"]
    return {
        "input_ids": source["input_ids"],
        "attention_mask": source["attention_mask"],
        "labels": labels.masked_fill(labels == tokenizer.pad_token_id, -100),
    }


def accuracy(model: Any, tokenizer: Any, batch: list[Sentence]) -> float:
    """Share of target words (and ends) that the model writes right, given those before."""
    inputs = encoded(tokenizer, batch)
    with torch.no_grad():
        right = model(**inputs).logits.argmax(-1) == inputs["labels"]
    return float(right[inputs["labels"] != -100].float().mean())
