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


def check_pixels(pixels: Tensor) -> None:
    if pixels.ndim != 4:
        raise FlowgraphError(
            f"text: pixel_values has shape {tuple(pixels.shape)}; pass (batch, channels, height, width)"
        )


def image_tokens(config: Any, pixels: Tensor) -> tuple[Tokens, dict[str, Any]]:
    """Tokens ``[CLS]``, ..., ``patch row,column`` of one image (1, C, height, width), and what goes into
    ``meta``."""
    patch = config.patch_size
    height, width = (patch, patch) if isinstance(patch, int) else patch
    rows, columns = pixels.shape[2] // height, pixels.shape[3] // width
    prefix = prefix_tokens(config)
    names = [*prefix, *(f"patch {r},{c}" for r in range(rows) for c in range(columns))]
    special = [True] * len(prefix) + [False] * (rows * columns)
    facts = {"image": {"rows": rows, "columns": columns, "prefix": len(prefix), "patch": [height, width]}}
    return named_tokens(names, special), facts
