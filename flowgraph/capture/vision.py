"""Images: patches as tokens, and the tokens a model puts before them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from flowgraph.capture.tokens import Tokens, named_tokens
from flowgraph.errors import FlowgraphError

_WITH_CLS = (
    "altclip_vision_model",
    "chinese_clip_vision_model",
    "clip_vision_model",
    "dinov2",
    "metaclip_2_vision_model",
    "vit",
    "vit_msn",
)


def prefix_tokens(config: Any) -> tuple[str, ...]:
    """Names of the tokens before the patches."""
    kind = config.model_type
    if kind == "deit":
        return ("[CLS]", "[DIST]")
    if kind in ("dinov2_with_registers", "dinov3_vit"):
        return ("[CLS]", *(f"[REG {k}]" for k in range(config.num_register_tokens)))
    if kind in _WITH_CLS:
        return ("[CLS]",)
    if kind in ("siglip_vision_model", "ijepa"):
        return ()
    raise FlowgraphError(f"model: flowgraph does not know which tokens {kind!r} puts before its patches")


INTERPOLATE = "interpolate_pos_encoding"
"""transformers' name for stretching learned positions to an image of another size."""


def check_pixels(config: Any, pixels: Tensor, *, any_size: bool = False) -> None:
    """Raise ``FlowgraphError`` unless ``pixels`` (batch, channels, height, width) is what the model reads.

    ``any_size``: its positions are stretched to the image.
    """
    if pixels.ndim != 4:
        raise FlowgraphError(
            f"text: pixel_values has shape {tuple(pixels.shape)}; pass (batch, channels, height, width)"
        )
    channels = getattr(config, "num_channels", None)
    if channels is not None and pixels.shape[1] != channels:
        raise FlowgraphError(
            f"text: pixel_values has shape {tuple(pixels.shape)}, but the model reads {channels} channels; "
            "pass (batch, channels, height, width)"
        )
    size, wanted = tuple(pixels.shape[2:]), _sides(getattr(config, "image_size", None))
    if any_size or config.model_type.startswith("dinov"):  # which stretches them always
        patch = _sides(config.patch_size)
        if size[0] < patch[0] or size[1] < patch[1]:
            raise FlowgraphError(
                f"text: pixel_values of {_times(size)} are smaller than a patch of {_times(patch)}; pass "
                "a larger image"
            )
    elif wanted and size != wanted:
        raise FlowgraphError(
            f"text: pixel_values of {_times(size)}, but the model reads {_times(wanted)}; resize the image, for "
            f"example by the model's image processor, or add {INTERPOLATE}=True to the inputs where the model takes it"
        )


def of_another_size(config: Any, pixels: Tensor) -> bool:
    """Whether an image is not as large as the model's table of positions is made for."""
    return tuple(pixels.shape[2:]) != _sides(getattr(config, "image_size", None))


def _sides(size: Any) -> tuple[int, ...]:
    """Height and width of what a configuration may give as one number; () for nothing."""
    if size is None:
        return ()
    return (size, size) if isinstance(size, int) else tuple(size)


def _times(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))


def image_tokens(config: Any, pixels: Tensor) -> tuple[Tokens, dict[str, Any]]:
    """Tokens ``[CLS]``, ..., ``patch row,column`` of one image (1, C, height, width), and what goes into
    ``meta``."""
    height, width = _sides(config.patch_size)
    rows, columns = pixels.shape[2] // height, pixels.shape[3] // width
    prefix = prefix_tokens(config)
    names = [*prefix, *(f"patch {r},{c}" for r in range(rows) for c in range(columns))]
    special = [True] * len(prefix) + [False] * (rows * columns)
    facts = {"image": {"rows": rows, "columns": columns, "prefix": len(prefix), "patch": [height, width]}}
    return named_tokens(names, special), facts
