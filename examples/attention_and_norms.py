"""Much attention, small vectors: weights and norms of special tokens and punctuation in the embedded model.

Kobayashi et al. 2020 (10.18653/v1/2020.emnlp-main.574) found that BERT attends most to the tokens it reads least
from. What a head reads from token j is its weight times ``f(x_j)``; this prints, for each sort of token, the share
of the weights it gets, the length of ``f(x)``, and its share of what is really read, and draws the first two
against each other::

    python examples/attention_and_norms.py norms.png
"""

from __future__ import annotations

import string
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import flowgraph as fg
from flowgraph.embedded import embedded_model

TEXT = (
    "When the river rose, the old bridge gave way. Nobody in the village, not even the miller, had seen it "
    "coming; yet by noon, with ropes and planks, they had built another. It still stands, they say."
)
SORTS = ("special tokens", "punctuation", "words")


def trace_text(text: str = TEXT) -> fg.Trace:
    """Weights and norms of every head."""
    return fg.trace(str(embedded_model()), None, text, edges=("attention", "norm"), heads="each")


def sort_of_tokens(trace: fg.Trace) -> np.ndarray:
    """(T,): index into ``SORTS``."""
    marks = [all(c in string.punctuation for c in token) for token in trace.tokens]
    return np.array([0 if s else 1 if m else 2 for s, m in zip(trace.special, marks, strict=True)])


def figures(trace: fg.Trace) -> dict[str, np.ndarray]:
    """For each sort of token, the mean over its tokens, (3,): weight and norm received as multiples of an even
    share, and the length of ``f(x)`` as a multiple of the mean."""
    sorts = sort_of_tokens(trace)
    lengths = fg.norms(trace)  # (L, H, T)
    received = {
        "weight": _share(trace["attention"]),
        "length of f(x)": lengths / lengths.mean(-1, keepdims=True),
        "weight x length": _share(trace["norm"]),
    }
    return {
        name: np.array([values[..., sorts == k].mean() for k in range(len(SORTS))])
        for name, values in received.items()
    }


def _share(mixing: np.ndarray) -> np.ndarray:
    """(L, H, T, T) -> (L, H, T): what each key gets over all queries, 1 being an even share."""
    got = mixing.sum(2)
    return got / got.mean(-1, keepdims=True)


def table_of(trace: fg.Trace) -> Table:
    table = Table(title="all layers and heads; 1 = an even share, or the mean length", title_justify="left")
    table.add_column("tokens")
    found = figures(trace)
    for name in found:
        table.add_column(name, justify="right")
    for k, sort in enumerate(SORTS):
        table.add_row(sort, *(f"{values[k]:.2f}" for values in found.values()))
    return table


def variation_table(trace: fg.Trace) -> Table:
    """Where lengths vary little, a head's weights tell nearly all."""
    spread = fg.mixing.coefficient_of_variation(trace)  # (L, H)
    table = Table(title="coefficient of variation of the length of f(x)", title_justify="left")
    for column in ("layer", "mean over heads", "least", "greatest"):
        table.add_column(column, justify="right")
    for layer, row in enumerate(spread, start=1):
        table.add_row(str(layer), f"{row.mean():.2f}", f"{row.min():.2f}", f"{row.max():.2f}")
    return table


def draw(trace: fg.Trace, path: Path) -> None:
    """Weight received against length, one point a layer, head and token."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.subplots()
    sorts, weights, lengths = sort_of_tokens(trace), trace["attention"].mean(2), fg.norms(trace)
    for k in (2, 1, 0):
        chosen = sorts == k
        axes.scatter(weights[..., chosen], lengths[..., chosen], s=6, alpha=0.5, label=SORTS[k])
    axes.set(xscale="log", yscale="log", xlabel="mean weight received", ylabel="length of f(x)")
    axes.legend()
    figure.savefig(path, dpi=150)


def main(path: str = "attention_and_norms.png") -> None:
    trace = trace_text()
    console = Console()
    console.print(table_of(trace))
    console.print(variation_table(trace))
    draw(trace, Path(path))
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
