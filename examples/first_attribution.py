"""The first attribution: what a verb holds of the words before and after it, in the embedded model.

The same question put to raw attention, rollout and flow, each over plain attention and over ALTI, which measures what
attention moves. Prints the words with the largest scores, and draws rollout over ALTI::

    python examples/first_attribution.py first.png
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

import flowgraph as fg
from flowgraph.embedded import embedded_model
from flowgraph.export.plot import bars

TEXT = "The keys that the old man left on the table are still missing."
TARGET = "are"


def attributions() -> list[fg.Attribution]:
    """Of whole words, special tokens left out; one forward pass for all."""
    trace = fg.trace(str(embedded_model()), None, TEXT, edges=("attention", "alti"))
    graphs = [fg.LayeredGraph.from_trace(trace, edges=kind) for kind in trace.kinds]
    found = [
        fg.attribute_graph(graph, method=method, targets=TARGET)
        for graph in graphs
        for method in ("raw", "rollout", "flow")
    ]
    return [attribution.words().without_special() for attribution in found]


def main(path: str = "first_attribution.png") -> None:
    found = attributions()
    table = Table(title=f"what '{TARGET}' holds: {TEXT}", title_justify="left")
    for column in ("method", "edges", "largest scores"):
        table.add_column(column)
    for attribution in found:
        best = "  ".join(f"{score.token} {score.score:.3f}" for score in attribution.top(4))
        table.add_row(attribution.method, attribution.edges, best)
    console = Console()
    console.print(table)
    bars(found[-2], path)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
