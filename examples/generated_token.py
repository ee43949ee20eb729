"""Where does a generated token come from?

A small GPT-2 is made here and taught, in seconds, to find the one capital letter in a line of letters and to write it
after the colon, in lower case. Asked where its answer came from, attention flow should point at that letter; the heat
map shows every token of the line, the written one last. Any causal language model goes the same way::

    python examples/generated_token.py written.png
    python examples/generated_token.py written.png MODEL "The capital of France is"
"""

from __future__ import annotations

import string
import sys
from typing import Any

import numpy as np
import torch
from rich.console import Console
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import flowgraph as fg

LETTERS = string.ascii_lowercase[:12]
PROMPT = "d a g k C b f a h e :"


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a letter."""
    vocabulary = {letter: k for k, letter in enumerate(["?", ":", *LETTERS, *LETTERS.upper()])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?", pad_token="?")


def batch_of_lines(draw: np.random.Generator, size: int, length: int = 10) -> torch.Tensor:
    """``(size, length + 2)`` ids: letters with one capital, the colon, the answer."""
    lines = draw.integers(2, 2 + len(LETTERS), (size, length + 2))
    places = draw.integers(length, size=size)
    rows = np.arange(size)
    lines[:, -1] = lines[rows, places]
    lines[rows, places] += len(LETTERS)
    lines[:, -2] = 1
    return torch.tensor(lines)


def train(steps: int = 150) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 32, "vocab_size": 2 + 2 * len(LETTERS)}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **ends, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        lines = batch_of_lines(draw, 64)
        logits = model(lines[:, :-1]).logits[:, -1]
        loss = torch.nn.functional.cross_entropy(logits, lines[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def explain(model: Any, tokenizer: Any, prompt: str) -> fg.Attribution:
    """One token written; what each token of the line holds of those before it."""
    return fg.attribute(
        model,
        tokenizer,
        prompt,
        method="flow",
        edges="alti",
        normalize="row",
        targets=slice(None),
        generate={"max_new_tokens": 1, "do_sample": False},
    )


def main(path: str = "generated_token.png", name: str | None = None, prompt: str = PROMPT) -> None:
    model, tokenizer = (name, None) if name else (train(), make_tokenizer())
    found = explain(model, tokenizer, prompt)
    found.plot(path)
    console = Console()
    console.print(f"{prompt} -> {found.tokens[-1]}", markup=False)
    # the last position before the written token is the one that decided it
    for score in found.top(3, target=len(found.target_tokens) - 2):
        console.print(f"  {score.score:.3f}  {score.token} ({score.position})", markup=False)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
