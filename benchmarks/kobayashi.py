"""Kobayashi et al. 2020: attention is not only a weight; the vectors' norms matter.

    python -m benchmarks kobayashi [--model NAME_OR_FOLDER]

First, on an encoder: how much ``‖f(x)‖`` varies (coefficient of variation of each head over all tokens), and weight
against norm for special tokens, punctuation and words. The paper finds for BERT-base 0.22 on average over heads, from
0.12 to 0.37, and that special tokens get much attention and have small norms.

Second, on a small encoder-decoder trained on a translation with known alignment (``benchmarks/_reordering.py``):
alignment error rate by attention weights and by norms, each head apart and joined, in the rows of the steps that write
a word (AWO) and that read it (AWI), with ``</s>`` barred as a source word and allowed (a word that it wins stays
without link). The paper finds norms below weights (10.18653/v1/2020.emnlp-main.574). Two tasks: every word has a
translation, and half of the words have no counterpart.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks import _reordering as task
from benchmarks._data import data_folder, numbers, positive
from benchmarks.ratio import Ratio
from benchmarks.sun_marasovic import DATA, GROUPS, groups_of, read_texts

PAPER_VARIATION = "paper, BERT-base: mean 0.22, 0.12 to 0.37"
SETTINGS = {"output": "AWO", "input": "AWI"}
KINDS = {"attention": "weights", "norm": "norms"}
SPECIAL = {False: "</s> barred", True: "</s> allowed"}
TASKS = {False: "every word has a translation", True: "half of the words have no counterpart"}


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


def alignment(nulls: bool, seed: int, *, steps: int, tests: int, layers: int = 2) -> dict[Any, np.ndarray]:
    """Train, align held-out sentences, print AER; see :func:`errors`."""
    import torch

    import flowgraph as fg

    torch.manual_seed(seed)
    tokenizer = task.make_tokenizer()
    model = task.make_model(len(tokenizer), layers=layers)
    loss = task.train(model, tokenizer, steps=steps, seed=seed, nulls=nulls)
    held_out = task.sentences(tests, 12_345, nulls)
    right = task.accuracy(model, tokenizer, held_out)
    print(
        f"\n{TASKS[nulls]}, seed {seed}: {steps} steps, loss {loss:.4f}, {right:.3f} of {tests} held-out sentences' "
        "words right"
    )
    pairs = [(sentence.source, sentence.target) for sentence in held_out]
    each = fg.trace(model, tokenizer, pairs, edges=tuple(KINDS), heads="each")
    joined = fg.trace(model, tokenizer, pairs, edges="norm")
    print_shares(each)
    found = errors(each, joined, [set(sentence.links) for sentence in held_out])
    print_errors(found)
    return found


def print_shares(traces: Sequence[Any]) -> None:
    """Where weight and norm lie at the steps that write a word, by layer: mean over heads; and each group's norm."""
    import flowgraph as fg

    groups = ("words", "particles", "</s>")
    sums: dict[str, Any] = {"weight": 0.0, "||alpha f(x)||": 0.0, "||f(x)||": 0.0}
    for trace in traces:
        number = np.array([2 if t == "</s>" else 1 if t.startswith("f") else 0 for t in trace.tokens])
        member = np.stack([number == g for g in range(3)], axis=-1).astype(float)  # (Ts, groups)
        weights, products = (np.asarray(trace[kind]["cross"], np.float64)[..., :-1, :] for kind in KINDS)
        lengths = fg.norms(trace)["cross"]  # (L, H, Ts)
        per_token = lengths @ member / np.maximum(member.sum(0), 1)
        sums["weight"] += (weights @ member).mean((1, 2))
        sums["||alpha f(x)||"] += (products / products.sum(-1, keepdims=True) @ member).mean((1, 2))
        sums["||f(x)||"] += (per_token / per_token[..., :1]).mean(1)
    print(f"  {'':<24}" + "".join(f"{group:>11}" for group in groups))
    for name, values in sums.items():
        said = "of a token, words: 1" if name == "||f(x)||" else "share"
        for layer, row in enumerate(values / len(traces), 1):
            print(f"  layer {layer} {name:<15} " + "".join(f"{value:>11.3f}" for value in row) + f"   {said}")


def errors(
    each: Sequence[Any], joined: Sequence[Any], gold: Sequence[Any]
) -> dict[tuple[str, bool, int, str], np.ndarray]:
    """AER in per cent by setting, ``</s>`` allowed, layer and kind: of each head, of the heads' mean, and for ``norm``
    of the heads' sum as vectors."""
    import flowgraph as fg

    def error(traces: Sequence[Any], **options: Any) -> float:
        return 100 * fg.alignment_error_rate([fg.align(trace, **options) for trace in traces], gold, gold)

    found = {}
    for setting in SETTINGS:
        for special in SPECIAL:
            for layer in range(1, each[0].meta["layers"]["cross"] + 1):
                for kind in KINDS:
                    shared = {"setting": setting, "special": special, "layer": layer, "edges": kind}
                    heads = [*range(each[0].meta["num_heads"]["cross"]), "mean"]
                    row = [error(each, head=head, **shared) for head in heads]
                    row += [error(joined, **shared)] if kind == "norm" else []
                    found[setting, special, layer, kind] = np.array(row)
    return found


def print_errors(found: dict[Any, np.ndarray]) -> None:
    heads = min(map(len, found.values())) - 1
    print(
        f"  {'AER, %':<35}"
        + "".join(f"{name:>8}" for name in [*map("head {}".format, range(heads)), "mean", "sum"])
    )
    for (setting, special, layer, kind), row in found.items():
        name = f"{SETTINGS[setting]} layer {layer}, {SPECIAL[special]}"
        print(f"  {name:<27}{KINDS[kind]:<8}" + "".join(f"{value:>8.1f}" for value in row))


def print_gains(runs: Sequence[dict[Any, np.ndarray]], nulls: bool) -> None:
    """AER of norms minus AER of weights: mean over heads and seeds, in how many heads it falls, of the heads' mean."""
    print(
        f"\n{TASKS[nulls]}, {len(runs)} seeds: AER of norms minus AER of weights, in points (below 0: norms are better)"
    )
    print(f"  {'':<28}{'each head':>10}{'heads where below':>20}{'heads joined':>14}")
    for setting, special, layer, kind in runs[0]:
        if kind == "norm":
            place = (setting, special, layer)
            pairs = [(run[(*place, "norm")], run[(*place, "attention")]) for run in runs]
            single = np.array([norms[: len(weights) - 1] - weights[:-1] for norms, weights in pairs])
            together = np.mean([norms[-2] - weights[-1] for norms, weights in pairs])
            below = f"{(single < 0).sum()} of {single.size}"
            name = f"{SETTINGS[setting]} layer {layer}, {SPECIAL[special]}"
            print(f"  {name:<28}{single.mean():>+10.2f}{below:>20}{together:>+14.2f}")


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
    parser.add_argument("--texts", type=positive, default=400)
    parser.add_argument("--steps", type=positive, default=1000)
    parser.add_argument("--tests", type=positive, default=300)
    parser.add_argument("--seeds", type=numbers, default="0,1,2")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    folder = data_folder(options.data, DATA)
    if folder is not None:
        norms(options.model, folder, options.texts)
    for nulls in TASKS:
        runs = [alignment(nulls, seed, steps=options.steps, tests=options.tests) for seed in options.seeds]
        print_gains(runs, nulls)


def smoke() -> Iterable[Ratio]:
    folder = data_folder(None, DATA)
    if folder is not None:
        norms(None, folder, 10)
    for nulls in TASKS:
        print_gains([alignment(nulls, 0, steps=20, tests=10, layers=1)], nulls)
    return []
