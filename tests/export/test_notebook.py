"""What a notebook shows: small, without scripts, and with styles that stay where they are."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from lxml import html

from flowgraph.attribution import attribute_graph
from flowgraph.export.labels import visible
from flowgraph.graph import LayeredGraph
from tests.export.graphs import NASTY, encoder_decoder, stack


def shown(subject: Any) -> Any:
    text = subject._repr_html_()
    assert len(text) < 300_000
    return html.fragment_fromstring(text)


def test_a_graph_shows_its_picture_and_its_levels() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    graph = encoder_decoder()
    div = shown(graph)
    assert div.find(".//img").get("src").startswith("data:image/png;base64,iVBOR")
    rows = [[cell.text for cell in row] for row in div.findall(".//tr")]
    assert rows[2] == ["encoder 1", "2", "4", "Das </s>"]
    assert len(rows) == 1 + len(graph.levels)


def test_a_large_or_signed_graph_shows_its_table_alone() -> None:
    signed = LayeredGraph.from_matrices([[[1.5, -0.5], [0.0, 1.0]]], negative="keep", normalize=False)
    for graph in (stack(100), signed):
        assert shown(graph).find(".//img") is None


def test_without_matplotlib_the_table_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for subject in (stack(4), attribute_graph(stack(4), method="rollout")):
        div = shown(subject)
        assert div.find(".//img") is None
        assert len(div.findall(".//tr")) == 5


@pytest.mark.parametrize("make", [lambda g: g, lambda g: attribute_graph(g, method="rollout")])
def test_no_token_becomes_markup(make: Any) -> None:
    tokens = ["<script>alert(1)</script>", *NASTY]
    div = shown(make(stack(len(tokens), layers=1, tokens=tokens)))
    assert div.findall(".//script") == div.findall(".//style") == []
    assert visible(tokens[0]) in div.text_content()


def test_a_token_written_from_right_to_left_does_not_move_its_number():
    attribution = attribute_graph(LayeredGraph.from_matrices(np.full((1, 2, 2), 0.5), tokens=["שלום", "cat"]))
    cells = shown(attribution).findall(".//td")
    assert [[child.tag for child in cell] for cell in cells] == [["bdi"]] * 4
    assert {cell.text_content() for cell in cells} == {"שלום 0.750", "שלום 0.250", "cat 0.750", "cat 0.250"}
