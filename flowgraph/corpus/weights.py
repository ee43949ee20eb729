"""The files of a model, and hashes that tell whether two models are the same."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from flowgraph.errors import FlowgraphError

_SUFFIXES = (".json", ".safetensors", ".txt", ".model", ".jinja", ".tiktoken")
"""Weights, configuration, and what tokenizers are made of."""


def model_folder(model: str) -> Path:
    """The folder of a model: as it is, or where the hub's files lie, fetched if need be."""
    if not model.strip():
        raise FlowgraphError("model: the name is empty; pass a model's name or folder")
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists() or model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise FlowgraphError(
            f"model: {model} is not a folder; pass the folder that holds config.json and model.safetensors"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=[f"*{suffix}" for suffix in _SUFFIXES]))
    except Exception as error:  # the hub's library raises many kinds; all mean that there is no model
        reason = str(error).strip().split("\n")[0][:200]
        raise FlowgraphError(
            f"model: {model} cannot be fetched ({reason}); check the name and the network, or pass a folder that holds "
            "the model"
        ) from None


def hash_of_model(folder: Path) -> str:
    """SHA-256 over the names and contents of the files that make the model; where they lie plays no part."""
    files = sorted(f for f in folder.iterdir() if f.suffix in _SUFFIXES and f.is_file())
    if not any(f.suffix == ".safetensors" for f in files):
        raise FlowgraphError(
            f"model: folder {os.fspath(folder)} has no .safetensors file; save the model with save_pretrained first"
        )
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            whole.update(f"{file.name}\0{hashlib.file_digest(opened, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


_NAMES = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""What saving and loading change in a configuration."""


def hash_of_loaded(model: Any, tokenizer: Any) -> str:
    """SHA-256 over class, configuration and weights of a model in memory, and over its tokenizer."""
    import torch

    config = {k: v for k, v in model.config.to_dict().items() if k not in _NAMES}
    whole = hashlib.sha256(type(model).__name__.encode())
    whole.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, weights in sorted(model.state_dict().items()):
        whole.update(f"\0{name} {weights.dtype} {tuple(weights.shape)}\0".encode())
        whole.update(weights.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy())
    whole.update(_tokenizer_text(tokenizer).encode())
    return whole.hexdigest()


def _tokenizer_text(tokenizer: Any) -> str:
    """All that it does, where it can say so; else its vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return str(backend.to_str())
    return json.dumps(tokenizer.get_vocab(), sort_keys=True)
