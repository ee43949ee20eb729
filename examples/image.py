"""An image: which patches does the class token hold?

A small vision transformer is made here and taught, in seconds, to name the colour of a square that lies anywhere on
grey noise. What its class token holds of each patch is drawn over the picture; any vision transformer goes the same
way, with the pixel values of its own image processor::

    python examples/image.py patches.png
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from rich.console import Console
from transformers import ViTConfig, ViTForImageClassification

import flowgraph as fg
from flowgraph.export.plot import patches

COLOURS = ("red", "green", "blue")
SIDE, PATCH = 32, 8


def draw_pictures(draw: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pictures ``(count, SIDE, SIDE, 3)`` from 0 to 1, the squares' colours ``(count,)`` and patches ``(count, 2)``."""
    pictures = np.repeat(draw.uniform(0.2, 0.6, (count, SIDE, SIDE, 1)), 3, axis=-1)
    colours, places = draw.integers(len(COLOURS), size=count), draw.integers(SIDE // PATCH, size=(count, 2))
    for picture, colour, (row, column) in zip(pictures, colours, places * PATCH, strict=True):
        picture[row : row + PATCH, column : column + PATCH] = 0.1
        picture[row : row + PATCH, column : column + PATCH, colour] = 0.9
    return pictures, colours, places


def as_inputs(pictures: np.ndarray) -> dict[str, torch.Tensor]:
    """``pixel_values`` (count, 3, SIDE, SIDE), from -1 to 1."""
    return {"pixel_values": torch.tensor(2 * pictures.transpose(0, 3, 1, 2) - 1, dtype=torch.float32)}


def train(steps: int = 80) -> ViTForImageClassification:
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
    model = ViTForImageClassification(
        ViTConfig(**sizes, image_size=SIDE, patch_size=PATCH, num_labels=len(COLOURS))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        pictures, colours, _ = draw_pictures(draw, 32)
        loss = model(**as_inputs(pictures), labels=torch.tensor(colours)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def explain(model: ViTForImageClassification, picture: np.ndarray) -> fg.Attribution:
    """What the class token holds of each patch."""
    inputs = as_inputs(picture[None])
    return fg.attribute(model, None, inputs, method="flow", edges="alti", level=2, targets=[0])


def main(path: str = "image.png") -> None:
    model = train()
    pictures, colours, places = draw_pictures(np.random.default_rng(1), 1)
    with torch.no_grad():
        said = COLOURS[int(model(**as_inputs(pictures)).logits[0].argmax())]
    found = explain(model, pictures[0])
    patches(found, pictures[0], path)
    console = Console()
    row, column = places[0].tolist()
    console.print(f"a {COLOURS[colours[0]]} square on patch {row},{column}; the model says {said}")
    for score in found.top(3):
        console.print(f"  {score.score:.3f}  {score.token}", markup=False)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
