"""Values and records as the text formats spell them."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowgraph.export.escape import escape


def literal(value: float | bool) -> str:
    """As XML Schema and every reader spell it: ``true``, ``3``, ``0.1``."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def interleave(fields: list[Any], count: int) -> str:
    """Text of ``count`` records, each the fields in order; a field is one text for all or a list of texts."""
    width = len(fields)
    pieces = [""] * (width * count)
    for k, field in enumerate(fields):
        pieces[k::width] = [field] * count if isinstance(field, str) else field
    return "".join(pieces)


def doubles(values: np.ndarray) -> list[str] | str:
    """``repr`` of each; one text where all are 0, which most residuals are."""
    return list(map(float.__repr__, values.tolist())) if values.any() else "0.0"


def booleans(values: np.ndarray) -> list[str]:
    """As XML Schema and JSON spell them."""
    return ["true" if value else "false" for value in values.tolist()]


def markup(text: str) -> str:
    """``text`` escaped, as it stands between tags, ASCII alone."""
    from lxml import etree

    element = etree.Element("t")
    element.text = escape(text)
    return etree.tostring(element)[3:-4].decode("ascii") if text else ""
