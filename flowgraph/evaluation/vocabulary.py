"""Single tokens of a model's vocabulary: candidate words, and the token that blanks others."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from flowgraph.errors import FlowgraphError


def one_token(tokenizer: Any, word: str, spaced: bool) -> int:
    """The id of ``word``, with ``spaced`` rather as it stands behind a space; FlowgraphError where it is no token."""
    for form in (f" {word}", word) if spaced else (word, f" {word}"):
        ids = tokenizer(form, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            return int(ids[0])
    raise FlowgraphError(
        f"candidates: {word!r} is not one token of this model's vocabulary; choose words that are, or leave the text "
        "out"
    )


def blank_token(tokenizer: Any, blank: str | int | None = None) -> int:
    """The id that replaces a token: the mask, else the unknown, else the padding token; or the one asked for."""
    if blank is not None:
        return _named_token(tokenizer, blank)
    for name in ("mask", "unk", "pad"):
        number = getattr(tokenizer, f"{name}_token_id", None)
        if number is not None:
            return int(number)
    raise FlowgraphError(
        "blank: the tokenizer has neither mask nor unknown nor padding token; pass the token to blank with"
    )


def _named_token(tokenizer: Any, token: Any) -> int:
    number = None
    if isinstance(token, str):
        number = tokenizer.convert_tokens_to_ids(token)
    elif isinstance(token, Integral) and not isinstance(token, bool):
        number = int(token)
    unknown = number == tokenizer.unk_token_id and token not in (tokenizer.unk_token, number)
    if number is None or unknown or not 0 <= number < len(tokenizer):
        raise FlowgraphError(
            f"blank: {token!r} is no token of this tokenizer; pass a token as its vocabulary spells it"
        )
    return int(number)
