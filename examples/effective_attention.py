"""Where effective and plain attention part: in texts of more tokens than a head is wide.

A head of width d reads its T keys through d numbers, so for T > d many weights give the very same output. Effective
attention (Brunner et al. 2020, arXiv:1908.04211) is the part of the weights that changes it. For T <= d all of them
do, unless value vectors lie on each other; beyond, the two part::

    python examples/effective_attention.py effective.png
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import flowgraph as fg
from flowgraph.embedded import embedded_model

SENTENCES = (
    "When the river rose, the old bridge gave way.",
    "Nobody in the village, not even the miller, had seen it coming.",
    "Yet by noon, with ropes and planks, they had built another, and the first cart crossed before dark.",
    "It still stands, they say, although the road it served has long since been moved to the other bank.",
)
HEAD_WIDTH = 32
"""Of the embedded model: 384 numbers in 12 heads."""


def traces() -> list[fg.Trace]:
    """One, two, ... sentences."""
    texts = [" ".join(SENTENCES[: n + 1]) for n in range(len(SENTENCES))]
    model = str(embedded_model())
    return fg.trace(model, None, texts, edges=("attention", "effective"), heads="each")


def distance(trace: fg.Trace) -> np.ndarray:
    """(L,): how much of the weights changes nothing, ``|A - A_eff| / |A|`` over heads, queries and keys."""
    plain, effective = trace["attention"], trace["effective"]
    axes = (1, 2, 3)
    return np.sqrt(((plain - effective) ** 2).sum(axes) / (plain**2).sum(axes))


def negative(trace: fg.Trace) -> float:
    """Share of the entries of effective attention that are negative."""
    return float((trace["effective"] < -1e-12).mean())


def table_of(found: list[fg.Trace]) -> Table:
    table = Table(title=f"effective against plain attention, heads {HEAD_WIDTH} wide", title_justify="left")
    for column in ("tokens", "first layer", "middle layer", "last layer", "negative entries"):
        table.add_column(column, justify="right")
    for trace in found:
        apart = distance(trace)
        chosen = (apart[0], apart[len(apart) // 2], apart[-1])
        table.add_row(str(len(trace.tokens)), *(f"{d:.3f}" for d in chosen), f"{negative(trace):.1%}")
    return table


def draw(trace: fg.Trace, path: Path) -> None:
    """Both matrices of the head where they differ most."""
    from matplotlib.figure import Figure

    plain, effective = trace["attention"], trace["effective"]
    gaps = ((plain - effective) ** 2).sum((2, 3))
    layer, head = (int(k) for k in np.unravel_index(gaps.argmax(), gaps.shape))
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    shown = {"attention": plain[layer, head], "effective attention": effective[layer, head]}
    limit = max(np.abs(m).max() for m in shown.values())
    panels = figure.subplots(1, 2)
    for axes, (name, matrix) in zip(panels, shown.items(), strict=True):
        image = axes.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.set(title=f"{name}, layer {layer + 1}, head {head}", xlabel="key", ylabel="query")
    figure.colorbar(image, ax=panels)
    figure.savefig(path, dpi=150)


def main(path: str = "effective_attention.png") -> None:
    found = traces()
    console = Console()
    console.print(table_of(found))
    draw(found[-1], Path(path))
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
