"""Models by name or folder: safetensors only, never code from the hub."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from flowgraph.errors import FlowgraphError

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def load(
    name: str | os.PathLike[str], *, generate: bool = False, auto: Callable[[Any], str] | None = None
) -> tuple[Any, Any]:
    """Model (with its language head if it is to generate) and tokenizer (None for a model that reads no
    text). ``auto`` chooses the auto class of transformers for a configuration instead, by name."""
    place = _place(name)
    local = Path(place).is_dir() or not _hub_answers()
    config = _attempt(place, "configuration", _load_config, place, local)
    chosen = _auto_class(config, generate) if auto is None else auto(config)
    model = _attempt(place, "weights", _load_model, place, config, chosen, local)
    return model.eval(), _load_tokenizer(place, local)


def move(model: Any, device: Any, dtype: Any = None) -> None:
    """Move a model, or ``FlowgraphError`` for a device that cannot be used; the model then stays where it was."""
    import torch

    places = {p.device for p in model.parameters()}
    if len(places) > 1:
        raise FlowgraphError(f"device: the model lies on {len(places)} devices already; leave device out")
    try:
        wanted = torch.device(device)
        if wanted.type == "meta":
            raise FlowgraphError(
                "device: 'meta' holds no numbers, so nothing can run on it; pass for example 'cpu'"
            )
        model.to(device=wanted, dtype=dtype)
    except (RuntimeError, TypeError, AssertionError) as error:
        for place in places:
            model.to(place)
        raise FlowgraphError(f"device: {device!r} cannot be used ({str(error).splitlines()[0]})") from None


def _hub_answers(timeout: float = 5.0) -> bool:
    """Whether the model hub can be reached at all: without it, only what was fetched before is looked for.

    Asked once and with a limit of its own, since the hub's client goes on trying for a minute a file.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    address = urlsplit(constants.ENDPOINT)
    if address.scheme in getproxies():
        return True  # the proxy decides; only a real request could tell
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), timeout=timeout).close()
    except OSError:
        return False
    return True


def _place(name: str | os.PathLike[str]) -> str:
    """The name, or the folder once it is known to hold a model."""
    text = os.fspath(name)
    if not text.strip():
        raise FlowgraphError("model: the name is empty; pass a model's name or folder")
    folder = Path(text).expanduser()
    looks_like_path = folder.exists() or text.startswith((".", "/", "~")) or text.count("/") > 1
    if not looks_like_path:
        return text
    if not folder.is_dir():
        raise FlowgraphError(
            f"model: {text} is not a folder; pass the folder that holds config.json and model.safetensors"
        )
    if not (folder / "config.json").is_file():
        raise FlowgraphError(
            f"model: folder {text} has no config.json, so it holds no model; pass a folder saved by "
            "save_pretrained"
        )
    if not any((folder / file).is_file() for file in _WEIGHTS):
        raise FlowgraphError(
            f"model: folder {text} has no model.safetensors; other weight formats run code when they are "
            "read, so load such a model yourself and save it with save_pretrained"
        )
    return str(folder)


def _attempt(place: str, what: str, function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except FlowgraphError:
        raise
    except Exception as error:  # transformers and the hub raise many kinds; all mean that there is no model
        raise FlowgraphError(_explain(place, what, error)) from None


def _explain(place: str, what: str, error: Exception) -> str:
    text = " ".join(str(error).split())
    if "trust_remote_code" in text or "contains custom code" in text:
        return (
            f"model: {place} needs code from the hub, which flowgraph does not run; load it yourself with "
            "trust_remote_code=True and pass the loaded model"
        )
    first = text.split(". ")[0][:200]
    if Path(place).is_dir():
        return f"model: the {what} in {place} cannot be loaded: {first}"
    return (
        f"model: {place} cannot be fetched ({first}); check the name and the network, or pass a folder that "
        "holds the model"
    )


def _load_config(place: str, local: bool) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(place, trust_remote_code=False, local_files_only=local)


def _auto_class(config: Any, generate: bool) -> str:
    if not generate:
        return "AutoModel"
    if not config.is_encoder_decoder and _is_encoder(config):
        raise FlowgraphError(
            f"generate: a {config.model_type} model that is no decoder writes nothing; leave it out, or choose a model "
            "that writes"
        )
    return "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM"


def _is_encoder(config: Any) -> bool:
    """Of a family that fills masks, and not made a decoder of."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    return config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)


def _load_model(place: str, config: Any, auto: str, local: bool) -> Any:
    import transformers

    loader = getattr(transformers, auto)
    model, found = loader.from_pretrained(
        place,
        config=config,
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=local,
        output_loading_info=True,
    )
    _check_complete(place, found["missing_keys"])
    return model


def _check_complete(place: str, missing: Iterable[str]) -> None:
    """What the files lack is random in the model. A pooler may be: nothing that is traced comes after it."""
    lacking = sorted(key for key in missing if "pooler" not in key.split("."))
    if lacking:
        some = ", ".join(lacking[:3]) + (", ..." if len(lacking) > 3 else "")
        raise FlowgraphError(
            f"model: the weights of {place} lack {len(lacking)} of the tensors that its config.json asks for ({some}), "
            "which would be random; pass a model whose weights are complete"
        )


def _load_tokenizer(place: str, local: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, local_files_only=local)
    except Exception:  # a vision model has none; a text without tokenizer is refused where it is needed
        return None
    return tokenizer if _knows_words(tokenizer) else None


def _knows_words(tokenizer: Any) -> bool:
    """False for what transformers makes up where there are no tokenizer files: special tokens, at most a bare
    ``▁`` beside them."""
    special = set(tokenizer.all_special_ids)
    return any(i not in special and piece != "▁" for piece, i in tokenizer.get_vocab().items())
