"""What a corpus run gains: over a loop of ``fg.attribute``, and by a second worker. Start-up aside.

``batching``: the same sentences, rollout, one thread: a plain loop against ``run --workers 1``, alternating.
``workers``: the same texts by one worker and by two, one thread each, alternating.
``memory``: the most a worker held after each tenth of a long input; flat where the last is as the first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.ratio import Ratio

_WORDS = [
    "the",
    "film",
    "is",
    "a",
    "stirring",
    "story",
    "of",
    "an",
    "old",
    "man",
    "who",
    "lost",
    "his",
    "keys",
    "on",
    "it",
]


@dataclass(frozen=True)
class Measured:
    """One run."""

    texts: int
    seconds: float
    """From the first worker's first window to the end of the last: no start-up."""
    peak_bytes: tuple[int, ...]
    """Most memory a worker held, after each window done."""

    @property
    def rate(self) -> float:
        return self.texts / self.seconds


def sentences(count: int) -> list[str]:
    """SST-2 sentences where ``FLOWGRAPH_DATA`` is set, else made-up ones of like lengths; repeated where too few."""
    folder = os.environ.get("FLOWGRAPH_DATA")
    if folder is None:
        import random

        draw = random.Random(0)
        return [" ".join(draw.choices(_WORDS, k=draw.randint(4, 40))) for _ in range(count)]
    lines = (Path(folder) / "sst2" / "train.tsv").read_text(encoding="utf-8").splitlines()
    found = [line.split("\t")[0] for line in lines]
    return (found * (1 + count // len(found)))[:count]


def loop(texts: Sequence[str]) -> float:
    """Seconds of a plain loop of ``fg.attribute``, in a process of its own with one thread, the model loaded before."""
    code = (
        "import sys, time, torch\n"
        "from threadpoolctl import threadpool_limits\n"
        "torch.set_num_threads(1); threadpool_limits(1)\n"
        "import flowgraph as fg\n"
        "from flowgraph.capture.loading import load\n"
        "from flowgraph.embedded import embedded_model\n"
        "model, tokenizer = load(embedded_model())\n"
        "texts = sys.stdin.read().splitlines()\n"
        "fg.attribute(model, tokenizer, texts[0], method='rollout', targets='cls')\n"
        "start = time.perf_counter()\n"
        "for text in texts:\n"
        "    fg.attribute(model, tokenizer, text, method='rollout', targets='cls')\n"
        "print(time.perf_counter() - start)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="\n".join(texts), text=True, capture_output=True, check=True
    )
    return float(done.stdout)


def corpus_run(texts: Sequence[str], workers: int, **settings: Any) -> Measured:
    """One run over ``texts`` into a folder that is thrown away."""
    from flowgraph.corpus.run import run_corpus
    from flowgraph.corpus.settings import Settings
    from flowgraph.embedded import embedded_model

    peaks: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.txt")
        source.write_text("\n".join(texts) + "\n", encoding="utf-8")
        summary = run_corpus(
            source,
            Path(folder, "out"),
            embedded_model(),
            settings=Settings(**{"methods": ("rollout",)} | settings),
            workers=workers,
            observe=lambda summary, _: peaks.append(summary.peak_bytes),
        )
    return Measured(summary.computed, summary.computing_seconds, tuple(p for p in peaks if p))


def batching(count: int, repeats: int) -> float:
    """How many times faster ``run --workers 1`` is than the loop; the median over repeats."""
    texts = sentences(count)
    ratios = []
    for _ in range(repeats):
        by_loop, by_run = loop(texts), corpus_run(texts, 1)
        ratios.append(by_loop / by_run.seconds)
        print(
            f"{count} texts, rollout: loop {count / by_loop:7.1f} texts/s, run --workers 1 {by_run.rate:7.1f} texts/s, "
            f"{by_run.peak_bytes[-1] / 1e6:.0f} MB: {ratios[-1]:.2f} x",
            flush=True,
        )
    return median(ratios)


def scaling(count: int, repeats: int, window: int) -> float:
    """How many times faster two workers are than one; the median over repeats."""
    texts = sentences(count)
    ratios = []
    for _ in range(repeats):
        one, two = corpus_run(texts, 1, window=window), corpus_run(texts, 2, window=window)
        ratios.append(one.seconds / two.seconds)
        print(
            f"{count} texts, rollout: 1 worker {one.rate:7.1f} texts/s, 2 workers {two.rate:7.1f} texts/s, "
            f"{max(one.peak_bytes[-1], two.peak_bytes[-1]) / 1e6:.0f} MB a worker at most: {ratios[-1]:.2f} x",
            flush=True,
        )
    return median(ratios)


def memory(count: int) -> float:
    """Most memory of the worker at the end over that after the first tenth of the windows."""
    peaks = corpus_run(sentences(count), 1, window=max(1, count // 40)).peak_bytes
    tenths = [peaks[max(0, k * len(peaks) // 10 - 1)] for k in range(1, 11)]
    print(f"{count} texts, MB held at most after each tenth: {' '.join(f'{p / 1e6:.0f}' for p in tenths)}")
    return tenths[-1] / tenths[0]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks corpus", description=__doc__)
    parser.add_argument("--only", choices=["batching", "workers", "memory"])
    parser.add_argument("--loop-texts", type=int, default=500)
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--memory-texts", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args(argv)
    start = time.perf_counter()
    if given.only in (None, "batching"):
        print(
            f"run --workers 1 over a loop of fg.attribute: {batching(given.loop_texts, given.repeats):.2f} x\n"
        )
    if given.only in (None, "workers"):
        print(f"two workers over one: {scaling(given.texts, given.repeats, 128):.2f} x\n")
    if given.only in (None, "memory"):
        print(f"memory after all over after a tenth: {memory(given.memory_texts):.2f}\n")
    print(f"{time.perf_counter() - start:.0f} s")


def smoke() -> list[Ratio]:
    """Small enough for every day; bounds below the full run's, since a few hundred texts batch less well."""
    return [
        Ratio("corpus: run --workers 1 / loop of fg.attribute, 200 texts", batching(200, 2), at_least=1.1),
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
