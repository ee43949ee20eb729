"""What limits the verb-number encoder: its accuracy on natural items against how many of them it learns from.

    python -m benchmarks natural_data

The recipe of ``benchmarks/_verb_number.py`` with its natural items cut to a share: first attractor items alone (the
same start for all shares), then so many natural items, each share for the same number of steps. Accuracy is on the
2,000 held out, which nothing is chosen by.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._data import data_folder
from benchmarks.abnar_zuidema import DATA
from benchmarks.ratio import Ratio

SHARES = (0.0, 0.125, 0.25, 0.5, 1.0)


def run(
    folder: Path, seed: int, *, items: int, recipe: Any, most: int | None = None, **size: int
) -> dict[int, float]:
    """Number of natural items -> accuracy on the held-out ones; prints them."""
    import torch

    from benchmarks import _verb_number as task

    data = task.split(folder, items, seed=0, most=most)
    tokenizer = task.make_tokenizer(data.natural + data.attracted)
    torch.manual_seed(seed)
    start = task.make_model(len(tokenizer), recipe.dropout, **size)
    print(f"seed {seed}: {recipe}")
    task.train(start, tokenizer, data, replace(recipe, natural_copies=0, last_epochs=0), seed)
    found = {}
    for share in SHARES:
        count = round(share * len(data.natural))
        model = deepcopy(start)
        if count:
            longer = math.ceil(recipe.last_epochs / share)
            part = replace(data, natural=data.natural[:count])
            task.train(model, tokenizer, part, replace(recipe, epochs=0, last_epochs=longer), seed)
        found[count] = task.accuracy(model, tokenizer, data.held_out)
    print(f"natural items   accuracy on {len(data.held_out)} held out")
    for count, right in found.items():
        print(f"{count:>13}   {right:.3f}", flush=True)
    return found


def main(argv: Sequence[str]) -> None:
    import torch

    from benchmarks._verb_number import Recipe

    parser = argparse.ArgumentParser(prog="python -m benchmarks natural_data", description=__doc__)
    parser.add_argument("--data", help=f"folder that holds {DATA}; default: FLOWGRAPH_DATA")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=1, help="on attractor items, at the start")
    parser.add_argument("--last-epochs", type=int, default=3, help="on all natural items; on fewer more")
    options = parser.parse_args(argv)
    folder = data_folder(options.data, DATA)
    if folder is None:
        parser.exit(2)
    torch.set_num_threads(1)
    recipe = Recipe(epochs=options.epochs, last_epochs=options.last_epochs)
    run(folder, options.seed, items=2000, recipe=recipe)


def smoke() -> Iterable[Ratio]:
    """Width 16 on a sliver of the items: everything runs, nothing is learnt."""
    folder = data_folder(None, DATA)
    if folder is not None:
        from benchmarks._verb_number import Recipe

        recipe = Recipe(epochs=1, attracted=100, last_epochs=1)
        run(folder, 0, items=40, recipe=recipe, most=160, heads=2, width=16)
    return []
