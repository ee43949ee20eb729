"""Kobayashi et al. 2020: attention is not only a weight; the vectors' norms matter.

    python -m benchmarks kobayashi [--model NAME_OR_FOLDER]

First, on an encoder: how much ``‖f(x)‖`` varies (coefficient of variation of each head over all tokens), and weight
against norm for special tokens, punctuation and words. The paper finds for BERT-base 0.22 on average over heads, from
0.12 to 0.37, and that special tokens get much attention and have small norms.

Second, on a small encoder-decoder trained on a translation with known alignment (``benchmarks/_reordering.py``):
alignment error rate by attention weights and by norms, each head apart and joined, in the rows of the steps that write
a word (AWO) and that read it (AWI). The paper finds norms below weights (10.18653/v1/2020.emnlp-main.574).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks import _reordering as task
from benchmarks._data import data_folder
from benchmarks.ratio import Ratio
from benchmarks.sun_marasovic import DATA, GROUPS, groups_of, read_texts

PAPER_VARIATION = "paper, BERT-base: mean 0.22, 0.12 to 0.37"
SETTINGS = {"output": "AWO", "input": "AWI"}


# --- norms ------------------------------------------------------------------------------------------------


def variation_and_norms(model: Any, tokenizer: Any, texts: Sequence[str]) -> None:
    """Print the variation of ``‖f(x)‖`` by head, and weight, norm and their product by group of tokens."""
    import flowgraph as fg
    from flowgraph.mixing import coefficient_of_variation

    traces = fg.trace(model, tokenizer, list(texts), edges=("attention", "norm"), heads="each")
    spread = coefficient_of_variation(traces)  # (L, H)
    print(f"coefficient of variation of ||f(x)|| over {sum(len(t.tokens) for t in traces)} tokens, by head")
    for layer, row in enumerate(spread, 1):
        print(f"  layer {layer:<3} mean {row.mean():.3f}   " + " ".join(f"{value:.2f}" for value in row))
    print(
        f"  all heads mean {spread.mean():.3f}, {spread.min():.2f} to {spread.max():.2f}   ({PAPER_VARIATION})"
    )
    print(f"{'mean over heads and texts':<28}" + "".join(f"{group:>15}" for group in GROUPS))
    for name, values in _by_group(traces).items():
        print(f"  {name:<26}" + "".join(f"{value:>15.4f}" for value in values))


def _by_group(traces: Sequence[Any]) -> dict[str, np.ndarray]:
    """Means by group of tokens: attention one token receives, ``‖f(x)‖`` over its mean, and ``‖α f(x)‖`` over its."""
    import flowgraph as fg

    sums, counts = np.zeros((3, len(GROUPS))), np.zeros(len(GROUPS))
    for trace in traces:
        lengths = fg.norms(trace)  # (L, H, T)
        received = np.asarray(trace["attention"], np.float64).mean(2)  # (L, H, T)
        moved = np.asarray(trace["norm"], np.float64).mean(2)
        relative = [
            received,
            lengths / lengths.mean(-1, keepdims=True),
            moved / moved.mean(-1, keepdims=True),
        ]
        groups = groups_of(trace)
        for g in range(len(GROUPS)):
            counts[g] += (groups == g).sum()
            sums[:, g] += [values[..., groups == g].mean((0, 1)).sum() for values in relative]
    names = ("attention received", "||f(x)|| / mean", "||alpha f(x)|| / mean")
    return {name: row / counts for name, row in zip(names, sums, strict=True)}


# --- word alignment ---------------------------------------------------------------------------------------


def alignment(seed: int, *, steps: int, tests: int, layers: int = 2) -> dict[str, float]:
    """Train, align held-out sentences, print AER; the best of each measure."""
    import torch

    torch.manual_seed(seed)
    tokenizer = task.make_tokenizer()
    model = task.make_model(len(tokenizer), layers=layers)
    loss = task.train(model, tokenizer, steps=steps, seed=seed)
    held_out = task.sentences(tests, seed=12_345)
    right = task.accuracy(model, tokenizer, held_out)
    print(
        f"seed {seed}: {steps} steps, loss {loss:.4f}, {right:.3f} of {tests} held-out sentences' words right"
    )
    return print_errors(model, tokenizer, held_out)


def print_errors(model: Any, tokenizer: Any, held_out: Sequence[task.Sentence]) -> dict[str, float]:
    """AER in per cent, a line a setting, layer and measure; the least of each measure and setting."""
    import flowgraph as fg

    kinds = ("attention", "norm")
    pairs = [(sentence.source, sentence.target) for sentence in held_out]
    each = fg.trace(model, tokenizer, pairs, edges=kinds, heads="each")
    joined = fg.trace(model, tokenizer, pairs, edges="norm")
    gold = [set(sentence.links) for sentence in held_out]
    heads = each[0].meta["num_heads"]["cross"]

    def error(traces: Sequence[Any], **options: Any) -> float:
        return 100 * fg.alignment_error_rate([fg.align(trace, **options) for trace in traces], gold, gold)

    print(
        f"  AER, %          {'':<8}"
        + "".join(f"{f'head {h}':>8}" for h in range(heads))
        + f"{'mean':>8}{'sum':>8}"
    )
    least: dict[str, float] = {}
    for setting, name in SETTINGS.items():
        for layer in range(1, each[0].meta["layers"]["cross"] + 1):
            for kind, measure in zip(kinds, ("weights", "norms"), strict=True):
                shared = {"setting": setting, "layer": layer, "edges": kind}
                row = [error(each, head=head, **shared) for head in [*range(heads), "mean"]]
                row += [error(joined, **shared)] if kind == "norm" else []
                print(f"  {name} layer {layer}     {measure:<8}" + "".join(f"{value:>8.1f}" for value in row))
                key = f"{name} {measure}"
                least[key] = min(least.get(key, 100.0), *row)
    print("  best: " + ", ".join(f"{key} {value:.1f}" for key, value in least.items()))
    return least


# --- entry points -----------------------------------------------------------------------------------------


def norms(name: str | None, folder: Any, count: int) -> None:
    from flowgraph.capture.loading import load
    from flowgraph.embedded import embedded_model

    model, tokenizer = load(embedded_model() if name is None else name)
    variation_and_norms(model, tokenizer, read_texts(folder)[:count])


def main(argv: Sequence[str]) -> None:
    import torch

    parser = argparse.ArgumentParser(prog="python -m benchmarks kobayashi", description=__doc__)
    parser.add_argument("--data", help=f"folder that holds {DATA}; default: FLOWGRAPH_DATA")
    parser.add_argument("--model", help="an encoder; default: the embedded model")
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--tests", type=int, default=300)
    parser.add_argument("--seeds", default="0,1,2")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    folder = data_folder(options.data, DATA)
    if folder is not None:
        norms(options.model, folder, options.texts)
    for seed in options.seeds.split(","):
        alignment(int(seed), steps=options.steps, tests=options.tests)


def smoke() -> Iterable[Ratio]:
    folder = data_folder(None, DATA)
    if folder is not None:
        norms(None, folder, 10)
    alignment(0, steps=20, tests=10, layers=1)
    return []
