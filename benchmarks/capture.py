"""What does a trace cost beside the model's own ``output_attentions``?

The embedded model on texts of several lengths: ``fg.trace`` (weights reduced to a layer's matrix inside its call), and
the model loaded with eager attention, asked for its attentions, their heads averaged. Both read the text and end in the
same arrays, which are compared; a plain forward pass (the default attention, nothing captured) stands beside them. In
turns, in one process with one thread; CPU seconds, medians. On Linux also the most memory each held.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from transformers import AutoModel, AutoTokenizer

import flowgraph as fg
from benchmarks.ratio import Ratio
from flowgraph.bench.memory import PeakMemory
from flowgraph.embedded import embedded_model

LENGTHS = (16, 64, 256)
WORDS = (
    "the",
    "old",
    "man",
    "left",
    "his",
    "keys",
    "on",
    "a",
    "kitchen",
    "table",
    "and",
    "went",
    "out",
    "to",
    "see",
)


class Sides:
    """The three ways of one model; each takes a text."""

    def __init__(self) -> None:
        folder = str(embedded_model())
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.eager = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    def text(self, tokens: int) -> str:
        """A text of so many tokens, CLS and SEP among them; its words are one token each."""
        words = [WORDS[k % len(WORDS)] for k in range(tokens - 2)]
        text = " ".join(words)
        assert len(self.tokenizer(text)["input_ids"]) == tokens
        return text

    def trace(self, text: str) -> np.ndarray:
        """(L, T, T)"""
        return fg.trace(self.model, self.tokenizer, text)["attention"]

    @torch.no_grad()
    def own(self, text: str) -> np.ndarray:
        """(L, T, T): what the model returns, heads averaged."""
        found = self.eager(**self.tokenizer(text, return_tensors="pt"), output_attentions=True).attentions
        return torch.stack([layer[0].mean(0) for layer in found]).numpy()

    @torch.no_grad()
    def plain(self, text: str) -> np.ndarray:
        """A forward pass and no attention."""
        return self.model(**self.tokenizer(text, return_tensors="pt")).last_hidden_state.numpy()

    def ways(self) -> dict[str, Callable[[str], np.ndarray]]:
        return {"trace": self.trace, "output_attentions": self.own, "forward pass": self.plain}


def compare(sides: Sides, tokens: int, repeats: int) -> dict[str, Any]:
    """Median seconds and peak bytes of each way, and how far the two captures are apart."""
    text = sides.text(tokens)
    off = float(np.abs(sides.trace(text) - sides.own(text)).max())
    if off > 1e-5:
        raise AssertionError(f"{tokens} tokens: trace and output_attentions differ by {off:.2e}")
    memory = {name: _peak(way, text) for name, way in sides.ways().items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides.ways()}
    for _ in range(repeats):
        for name, way in sides.ways().items():
            start = time.process_time()
            way(text)
            seconds[name].append(time.process_time() - start)
    return {"seconds": {n: median(v) for n, v in seconds.items()}, "memory": memory, "difference": off}


def _peak(way: Callable[[str], Any], text: str) -> int | None:
    with PeakMemory() as memory:
        way(text)
    return memory.peak_bytes


def report(sides: Sides, tokens: int, repeats: int) -> dict[str, float]:
    """Print one length; seconds of each way."""
    found = compare(sides, tokens, repeats)
    print(f"\n{tokens} tokens, largest difference {found['difference']:.1e}")
    for name, seconds in found["seconds"].items():
        peak = found["memory"][name]
        held = "" if peak is None else f"   {peak / 1e6:8.1f} MB"
        print(f"  {name:<18} {1e3 * seconds:9.2f} ms   {seconds / found['seconds']['trace']:6.2f} x{held}")
    return found["seconds"]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks capture", description=__doc__)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="tokens, with commas between")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args(argv)
    with one_thread():
        sides = Sides()
        for tokens in map(int, options.lengths.split(",")):
            report(sides, tokens, options.repeats)


def smoke() -> list[Ratio]:
    """A trace must not cost much more than what it replaces; bounds below what was measured, for noisy machines."""
    bounds = {64: 0.35, 256: 0.55}
    with one_thread():
        sides = Sides()
        found = {tokens: report(sides, tokens, 7) for tokens in bounds}
    return [
        Ratio(
            f"output_attentions / trace, {tokens} tokens",
            found[tokens]["output_attentions"] / found[tokens]["trace"],
            at_least,
        )
        for tokens, at_least in bounds.items()
    ]


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch and the libraries below it on one thread, for the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(threads)
