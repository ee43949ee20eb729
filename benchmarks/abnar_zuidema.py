"""Tables 1 and 2 of Abnar & Zuidema 2020, from scratch: train the encoder, blank out, take gradients, correlate.

    python -m benchmarks abnar_zuidema --seeds 0,1,2 --models DIR

For each seed the 6-layer, 8-head, width-128 encoder of ``benchmarks/_verb_number.py`` is trained on verb-number
agreement (or loaded from DIR where it was trained before), then 2,000 held-out items are evaluated: Spearman's
correlation of the CLS token's raw attention, rollout and flow, at every level, with blank-out and gradients, with and
without CLS. Printed beside the paper's figures (10.18653/v1/2020.acl-main.385).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._data import data_folder, numbers, positive
from benchmarks.ratio import Ratio

PAPER = {
    "blank-out": {
        "raw": (0.69, 0.10, -0.11, -0.09, 0.20, 0.29),
        "rollout": (0.32, 0.38, 0.51, 0.62, 0.70, 0.71),
        "flow": (0.32, 0.44, 0.70, 0.70, 0.71, 0.70),
    },
    "gradient": {
        "raw": (0.53, 0.16, -0.06, 0.00, 0.24, 0.46),
        "rollout": (0.22, 0.27, 0.39, 0.47, 0.53, 0.54),
        "flow": (0.22, 0.31, 0.54, 0.61, 0.60, 0.61),
    },
}
"""Mean Spearman by level, 1 to 6."""

DATA = "linzen_numpred"
METHODS = ("raw", "rollout", "flow")
AGAINST = ("blank-out", "gradient-input", "gradient-norm")
"""Without ``gradient``: every LayerNorm model's ``Σ_d g`` is 0."""
LONGEST = 1_000
LENGTHS = ((2, 3), (4, 6), (7, 10), (11, 15), (16, LONGEST))
"""Words of an item, both ends in."""
RULES = {"all": "CLS counted", "content": "without CLS"}


def trained(seed: int, data: Any, recipe: Any, folder: Path | None, **size: int) -> tuple[Any, Any]:
    """Model and tokenizer of one seed, trained now or read from ``folder``, where a trained one is left."""
    place = folder / f"seed{seed}" if folder is not None else None
    if place is None:
        return _train(seed, data, recipe, **size)
    if (place / "config.json").is_file():
        print(f"seed {seed}: read from {place.name}")
    else:
        for part in _train(seed, data, recipe, **size):
            part.save_pretrained(place)
    from transformers import AutoTokenizer

    from benchmarks import _verb_number as task

    # read back even when trained now, so that the model is the same whichever run evaluates it
    return task.VerbNumber.from_pretrained(place).eval(), AutoTokenizer.from_pretrained(place)


def _train(seed: int, data: Any, recipe: Any, **size: int) -> tuple[Any, Any]:
    import torch

    from benchmarks import _verb_number as task

    tokenizer = task.make_tokenizer(data.natural + data.attracted)
    torch.manual_seed(seed)
    model = task.make_model(len(tokenizer), recipe.dropout, **size)
    print(f"seed {seed}: training, {recipe}")
    task.train(model, tokenizer, data, recipe, seed)
    return model.eval(), tokenizer


def evaluate(model: Any, tokenizer: Any, items: Sequence[Any], edges: Sequence[str], out: Path | None) -> Any:
    """Correlations of one model, score: probability of the class it predicts."""
    import flowgraph as fg

    return fg.evaluate(
        model,
        tokenizer,
        [item.text for item in items],
        labels=[item.label for item in items],
        edges=edges,
        against=AGAINST,
        erasure=False,
        negative="clip",
        out=out,
    )


def run(
    folder: Path,
    seeds: Sequence[int],
    *,
    items: int,
    edges: Sequence[str],
    recipe: Any,
    models: Path | None = None,
    most: int | None = None,
    sample: int | None = None,
    **size: int,
) -> list[Any]:
    """Train and evaluate every seed; prints as it goes, then the tables of means over seeds."""
    from benchmarks import _verb_number as task

    data = task.split(folder, items, seed=0, most=most)
    print(
        f"training items: {len(data.natural)} natural, {len(data.attracted)} with attractors; "
        f"held out: {len(data.held_out)} natural, {len(data.held_out_attracted)} with attractors; "
        f"median of the natural: {np.median([len(item.text.split()) for item in data.held_out]):g} words"
    )
    evaluations = []
    for seed in seeds:
        start = time.perf_counter()
        model, tokenizer = trained(seed, data, recipe, models, **size)
        natural, attracted = (
            task.accuracy(model, tokenizer, part) for part in (data.held_out, data.held_out_attracted)
        )
        print(
            f"seed {seed}: accuracy {natural:.3f} on natural items, {attracted:.3f} with attractors",
            flush=True,
        )
        out = None if models is None else models / f"seed{seed}-{'-'.join(edges)}"
        evaluations.append(evaluate(model, tokenizer, data.held_out[:sample], edges, out))
        print(f"seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
    print_tables(evaluations, edges[0])
    print_verdicts(evaluations, edges[0])
    print_lengths(evaluations, edges[0])
    if len(edges) > 1:
        print_kinds(evaluations, edges)
    return evaluations


# --- tables -----------------------------------------------------------------------------------------------


def print_tables(evaluations: Sequence[Any], kind: str) -> None:
    """Mean over seeds of the means over items, by level; beside it the top level's spread over items, seed by seed."""
    for against in AGAINST:
        for rule, said in RULES.items():
            print(f"\n{kind} edges against {against}, {said}: mean Spearman at levels 1 to 6")
            for method in METHODS:
                print(f"  {method:<8} ours  {_by_level(evaluations, method, kind, against, rule)}")
                paper = PAPER["blank-out" if against == "blank-out" else "gradient"][method]
                if kind == "attention":
                    print(f"  {'':<8} paper " + "  ".join(f"{value:6.2f}" for value in paper))
            randoms = [e.find("random", against=against, tokens=rule)[0].mean for e in evaluations]
            print(f"  random         {np.mean(randoms):6.2f}")


def _by_level(evaluations: Sequence[Any], method: str, kind: str, against: str, rule: str) -> str:
    found = [e.find(method, edges=kind, against=against, tokens=rule) for e in evaluations]
    means = np.mean([[s.mean for s in summaries] for summaries in found], axis=0)
    tops = ", ".join(f"{s[-1].mean:.2f} ± {s[-1].sd:.2f} [{s[-1].low:.2f}, {s[-1].high:.2f}]" for s in found)
    return "  ".join(f"{mean:6.2f}" for mean in means) + f"   top by seed: {tops}"


def print_verdicts(evaluations: Sequence[Any], kind: str) -> None:
    """Does each seed's top level have rollout and flow above raw; and flow against rollout, as it comes."""
    print(f"\ntop level, {kind} edges, by seed: method minus raw, flow minus rollout")
    for against in AGAINST:
        for rule, said in RULES.items():
            tops = [
                {m: e.find(m, edges=kind, against=against, tokens=rule)[-1].mean for m in METHODS}
                for e in evaluations
            ]
            above = all(top[m] > top["raw"] for top in tops for m in ("rollout", "flow"))
            figures = "   ".join(_differences(top) for top in tops)
            print(
                f"  {against:<14} {said:<12} {figures}   {'both above raw' if above else 'NOT both above raw'}"
            )


def print_lengths(evaluations: Sequence[Any], kind: str) -> None:
    """The top level of ``kind``, the first one traced, by the items' number of words: mean over items of all seeds."""
    results = [result for evaluation in evaluations for result in evaluation.results]
    words = np.array([result.facts["content"] for result in results])
    tops = np.stack([result.correlations[0, :, -1, :, 1] for result in results])  # (items, methods, against)
    print(f"\ntop level, {kind} edges, without CLS, by length of the item: " + ", ".join(METHODS))
    print(f"  {'words':<10}{'items':>8}" + "".join(f"{against:>22}" for against in AGAINST))
    for first, last in LENGTHS:
        chosen = (first <= words) & (words <= last)
        cells = (
            "  ".join(f"{_mean(tops[chosen, m, a]):5.2f}" for m in range(len(METHODS)))
            for a in range(len(AGAINST))
        )
        name = f"{first} to {last}" if last < LONGEST else f"{first} and more"
        print(f"  {name:<10}{chosen.sum():>8}" + "".join(f"{cell:>22}" for cell in cells))


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def print_kinds(evaluations: Sequence[Any], edges: Sequence[str]) -> None:
    """The top level of every edge kind and method, mean over seeds."""
    print("\ntop level of every edge kind: mean Spearman, CLS counted | without CLS")
    print(f"  {'':<28}" + "".join(f"{against:>18}" for against in AGAINST))
    for kind in edges:
        for method in METHODS:
            cells = (
                " | ".join(_top(evaluations, method, kind, against, rule) for rule in RULES)
                for against in AGAINST
            )
            print(f"  {kind:<18}{method:<10}" + "".join(f"{cell:>18}" for cell in cells))


def _top(evaluations: Sequence[Any], method: str, kind: str, against: str, rule: str) -> str:
    found = [e.find(method, edges=kind, against=against, tokens=rule)[-1].mean for e in evaluations]
    return f"{np.mean(found):.2f}"


def _differences(top: dict[str, float]) -> str:
    over_raw = " ".join(f"{method} {top[method] - top['raw']:+.2f}" for method in ("rollout", "flow"))
    return f"{over_raw} | {top['flow'] - top['rollout']:+.2f}"


# --- entry points -----------------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> None:
    import torch

    from benchmarks._verb_number import Recipe

    parser = argparse.ArgumentParser(prog="python -m benchmarks abnar_zuidema", description=__doc__)
    parser.add_argument("--data", help=f"folder that holds {DATA}; default: FLOWGRAPH_DATA")
    parser.add_argument(
        "--models", type=Path, help="folder for trained models and finished items, read where there"
    )
    parser.add_argument("--seeds", type=numbers, default="0,1,2")
    parser.add_argument("--items", type=positive, default=2000, help="held-out items")
    parser.add_argument("--sample", type=positive, help="evaluate the first so many of them; default: all")
    parser.add_argument(
        "--edges",
        default="attention",
        help="kinds with commas between; the first in full, all at the top level",
    )
    parser.add_argument("--epochs", type=int, default=Recipe.epochs, help="on all items")
    parser.add_argument(
        "--copies", type=int, default=Recipe.natural_copies, help="of each natural item in such an epoch"
    )
    parser.add_argument(
        "--attracted", type=int, default=Recipe.attracted, help="attractor items drawn for such an epoch"
    )
    parser.add_argument(
        "--last-epochs", type=int, default=Recipe.last_epochs, help="on natural items alone, at the end"
    )
    parser.add_argument("--threads", type=positive, default=1)
    options = parser.parse_args(argv)
    folder = data_folder(options.data, DATA)
    if folder is None:
        parser.exit(2)
    torch.set_num_threads(options.threads)
    run(
        folder,
        options.seeds,
        items=options.items,
        edges=options.edges.split(","),
        recipe=Recipe(
            epochs=options.epochs,
            natural_copies=options.copies,
            attracted=options.attracted,
            last_epochs=options.last_epochs,
        ),
        models=options.models,
        sample=options.sample,
    )


def smoke() -> Iterable[Ratio]:
    """A 6-layer encoder of width 16 on a sliver of the items: everything runs, nothing is learnt."""
    folder = data_folder(None, DATA)
    if folder is None:
        return []
    from benchmarks._verb_number import Recipe

    recipe = Recipe(epochs=1, attracted=100, last_epochs=1)
    run(folder, [0], items=40, edges=["attention"], recipe=recipe, most=300, heads=2, width=16)
    return []
