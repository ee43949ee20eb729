"""Sound: mel spectrograms as a model reads them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from flowgraph.errors import FlowgraphError

_STRIDES = 2
"""Frames of the spectrogram that the convolutions before the encoder join into one position."""


def check_mels(config: Any, mels: Tensor) -> None:
    """Raise ``FlowgraphError`` unless ``mels`` (batch, mel bins, frames) is what the model reads."""
    bins, frames = getattr(config, "num_mel_bins", None), getattr(config, "max_source_positions", None)
    if bins is None or frames is None:
        return
    wanted = (bins, _STRIDES * frames)
    if tuple(mels.shape[1:]) != wanted:
        raise FlowgraphError(
            f"text: input_features has shape {tuple(mels.shape)}, but the model reads (batch, {wanted[0]}, "
            f"{wanted[1]}), mel bins by frames; pad or cut the sound, as the model's feature extractor does"
        )
