"""The verb-number task of Linzen et al. 2016, and the encoder of Abnar & Zuidema 2020 trained on it.

The model is GPT-2's own code at 6 layers, 8 heads, width 128, with the causal mask lifted (``is_causal=False``):
pre-norm blocks, every token sees every other. A CLS token stands first; a linear layer reads the number of the coming
verb from it.

Data: ``numpred.val`` (natural items) and ``numpred.test.1`` to ``.5`` (items with 1 to 5 attractors), one item a line,
``VBZ|VBP <tab> words up to the verb``. The original training file is not part of it, so training takes what is not
held out.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model, GPT2PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import SequenceClassifierOutput

LABELS = ("VBZ", "VBP")
"""Singular, plural: class 0 and class 1."""


class Item(NamedTuple):
    text: str
    label: int
    attractors: int | None
    """Number of attractors; None for natural items, where it is not told."""


@dataclass(frozen=True)
class Split:
    """Texts of ``held_out`` and ``development`` stand in no other part."""

    natural: list[Item]
    attracted: list[Item]
    development: list[Item]
    """Natural items, to watch the training by."""
    held_out: list[Item]
    """Natural items, the test set."""
    held_out_attracted: list[Item]


@dataclass(frozen=True)
class Recipe:
    """How the model is trained; everything that was tuned. First on all items, then on natural ones alone: these have
    few attractors, and a model that learnt from many expects as many."""

    epochs: int = 3
    """On all items."""
    natural_copies: int = 1
    """Times each natural item is seen in such an epoch."""
    attracted: int = 60_000
    """Attractor items drawn for each of them."""
    batch: int = 128
    rate: float = 1e-3
    """Peak learning rate of AdamW; linear warm-up over the first tenth, then a cosine to 0."""
    last_epochs: int = 5
    """On natural items alone."""
    last_batch: int = 64
    last_rate: float = 3e-4
    decay: float = 0.05
    dropout: float = 0.1
    unknown: float = 0.1
    """Share of words replaced by [UNK] in training."""
    guess: float = 0.3
    """Weight of a second loss: guess the replaced words, by the (tied) input embeddings."""

    @property
    def phases(self) -> tuple[Phase, Phase]:
        return (
            Phase(self.epochs, self.natural_copies, self.attracted, self.batch, self.rate),
            Phase(self.last_epochs, 1, 0, self.last_batch, self.last_rate),
        )


class Phase(NamedTuple):
    """One run of the optimiser, with a schedule of its own."""

    epochs: int
    natural_copies: int
    attracted: int
    batch: int
    rate: float


# --- data -------------------------------------------------------------------------------------------------


def read_items(folder: Path) -> tuple[list[Item], list[Item]]:
    """Natural and attractor items, each text once."""
    natural = _read(folder / "numpred.val", None)
    seen = {item.text for item in natural}
    attracted: list[Item] = []
    for k in range(1, 6):
        attracted += [item for item in _read(folder / f"numpred.test.{k}", k) if item.text not in seen]
    return natural, list({item.text: item for item in attracted}.values())


def _read(path: Path, attractors: int | None) -> list[Item]:
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    items = [Item(text.strip(), LABELS.index(label), attractors) for label, text in lines]
    return list({item.text: item for item in items}.values())


def split(folder: Path, held_out: int, seed: int, most: int | None = None) -> Split:
    """``held_out`` natural test items, 600 to watch the training by, the rest (``most`` of each sort) to train on, all
    drawn by ``seed``."""
    natural, attracted = read_items(folder)
    draw = np.random.default_rng(seed)
    natural = [natural[i] for i in draw.permutation(len(natural))]
    attracted = [attracted[i] for i in draw.permutation(len(attracted))]
    watched = held_out + min(600, held_out)
    return Split(
        natural=natural[watched:][:most],
        attracted=attracted[held_out:][:most],
        development=natural[held_out:watched],
        held_out=natural[:held_out],
        held_out_attracted=attracted[:held_out],
    )


def make_tokenizer(items: Sequence[Item]) -> PreTrainedTokenizerFast:
    """One token a word; words seen once are [UNK]; [CLS] first."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    counts = Counter(word for item in items for word in item.text.split())
    words = ["[PAD]", "[UNK]", "[CLS]", *sorted(word for word, count in counts.items() if count > 1)]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", words.index("[CLS]"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", model_max_length=64
    )


# --- model ------------------------------------------------------------------------------------------------


class VerbNumber(GPT2PreTrainedModel):
    """GPT-2's blocks without the causal mask; the classes are read from the first token, CLS."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.transformer = GPT2Model(config)
        self.score = nn.Linear(config.n_embd, config.num_labels)
        for block in self.transformer.h:
            block.attn.is_causal = False  # some attention functions ask the module, not the mask
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        hidden = self.transformer(
            input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, use_cache=False
        ).last_hidden_state
        return SequenceClassifierOutput(logits=self.score(hidden[:, 0]), hidden_states=(hidden,))


def make_model(
    vocabulary: int, dropout: float = 0.1, *, layers: int = 6, heads: int = 8, width: int = 128
) -> VerbNumber:
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=64,
        n_layer=layers,
        n_head=heads,
        n_embd=width,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=0.0,
        num_labels=len(LABELS),
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=2,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own GELU, in one kernel
        is_causal=False,
        attn_implementation="eager",
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )
    return VerbNumber(config)


# --- training ---------------------------------------------------------------------------------------------


def train(model: VerbNumber, tokenizer: Any, data: Split, recipe: Recipe, seed: int) -> list[float]:
    """Train in place; prints a line of figures an epoch, and returns the mean loss of each. The seed decides the order,
    the drawing and the dropout."""
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    phases = (_train_phase(model, tokenizer, data, recipe, phase, draw) for phase in recipe.phases)
    return [loss for losses in phases for loss in losses]


def _train_phase(
    model: VerbNumber, tokenizer: Any, data: Split, recipe: Recipe, phase: Phase, draw: np.random.Generator
) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=phase.rate, weight_decay=recipe.decay, fused=True)
    natural, attracted = _encode(tokenizer, data.natural), _encode(tokenizer, data.attracted)
    per_epoch = phase.natural_copies * len(natural) + min(phase.attracted, len(attracted))
    steps = phase.epochs * math.ceil(per_epoch / phase.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    means: list[float] = []
    for epoch in range(1, phase.epochs + 1):
        start, losses, tokens = time.perf_counter(), [], 0
        chosen = draw.permutation(len(attracted))[: phase.attracted]
        pool = natural * phase.natural_copies + [attracted[i] for i in chosen]
        model.train()
        for ids, mask, labels in _batches(pool, phase.batch, draw):
            loss = _loss(model, ids, mask, labels, recipe, tokenizer)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            tokens += ids.numel()
        seconds = time.perf_counter() - start
        means.append(float(np.mean(losses)))
        watched = accuracy(model, tokenizer, data.development)
        print(
            f"epoch {epoch} of {phase.epochs}, {len(pool)} items: loss {means[-1]:.3f}, development accuracy "
            f"{watched:.3f}, {seconds:.0f} s, {1e6 * seconds / tokens:.0f} microseconds a token",
            flush=True,
        )
    return means


def _rate(step: int, steps: int) -> float:
    warm = max(1, steps // 10)
    return (
        step / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
    )


def _loss(
    model: VerbNumber, ids: Tensor, mask: Tensor, labels: Tensor, recipe: Recipe, tokenizer: Any
) -> Tensor:
    words = mask.bool() & (ids != tokenizer.cls_token_id) & (ids != tokenizer.unk_token_id)
    replaced = words & (torch.rand(ids.shape) < recipe.unknown)
    output = model(ids.masked_fill(replaced, tokenizer.unk_token_id), mask)
    loss = nn.functional.cross_entropy(output.logits, labels)
    if recipe.guess and replaced.any():
        guesses = output.hidden_states[0][replaced] @ model.transformer.wte.weight.T  # (replaced, vocabulary)
        loss = loss + recipe.guess * nn.functional.cross_entropy(guesses, ids[replaced])
    return loss


def _encode(tokenizer: Any, items: Sequence[Item]) -> list[tuple[list[int], int]]:
    rows = tokenizer([item.text for item in items])["input_ids"]
    return [(row, item.label) for row, item in zip(rows, items, strict=True)]


def _batches(
    pool: list[tuple[list[int], int]], size: int, draw: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Batches of like length (sorted within stretches of 50 batches), in random order."""
    order = draw.permutation(len(pool))
    batches = []
    for start in range(0, len(order), 50 * size):
        stretch = sorted(order[start : start + 50 * size], key=lambda i: len(pool[i][0]))
        batches += [stretch[k : k + size] for k in range(0, len(stretch), size)]
    for b in draw.permutation(len(batches)):
        yield _pad([pool[i] for i in batches[b]])


def _pad(rows: Sequence[tuple[list[int], int]]) -> tuple[Tensor, Tensor, Tensor]:
    """``(ids, mask, labels)``: (B, T), (B, T), (B,); pads on the right, id 0."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row, _ in rows])
    lengths = torch.tensor([len(row) for row, _ in rows])
    mask = (torch.arange(longest)[None] < lengths[:, None]).long()
    return ids, mask, torch.tensor([label for _, label in rows])


def accuracy(model: VerbNumber, tokenizer: Any, items: Sequence[Item]) -> float:
    """Share of items whose number the model says right."""
    model.eval()
    rows = sorted(_encode(tokenizer, items), key=lambda row: len(row[0]))
    right = 0
    with torch.no_grad():
        for start in range(0, len(rows), 256):
            ids, mask, labels = _pad(rows[start : start + 256])
            right += int((model(ids, mask).logits.argmax(-1) == labels).sum())
    return right / len(rows)
