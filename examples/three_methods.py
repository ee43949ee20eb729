"""One sentence, three methods: raw attention, attention rollout and attention flow side by side.

The layered graph of the embedded model, drawn once for each method, as in figure 1 of Abnar & Zuidema (2020): the line
from a token at one level to a position below it is as wide as the score of that input. The README shows what this
wrote::

    python examples/three_methods.py examples/images/flow.png
"""

from __future__ import annotations

import io
import sys

from PIL import Image

import flowgraph as fg
from flowgraph.embedded import embedded_model
from flowgraph.export.figure import to_bytes
from flowgraph.export.plot import layered

TEXT = "The keys on the table are missing."
SIZE = (9.6, 3.1)  # inches
COLOURS = 16  # enough for lines of one colour


def scores() -> tuple[fg.LayeredGraph, dict[str, object]]:
    """The graph, and what each method says of every level."""
    trace = fg.trace(str(embedded_model()), None, TEXT)
    graph = fg.LayeredGraph.from_trace(trace)
    bare = fg.LayeredGraph.from_trace(trace, residual=None)
    return graph, {
        "raw attention": fg.raw(bare, level="all"),
        "attention rollout": fg.rollout(graph, level="all"),
        "attention flow": fg.attention_flow(graph, level="all"),
    }


def main(path: str = "three_methods.png") -> None:
    graph, methods = scores()
    figure = layered(graph, methods=methods, least=0.15, title="")
    figure.set_size_inches(*SIZE)
    drawn = Image.open(io.BytesIO(to_bytes(figure, "png", dpi=140))).convert("RGB")
    drawn.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
