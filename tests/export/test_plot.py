"""Pictures: what is drawn is the array, and no two labels touch."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flowgraph.attribution import attribute_graph
from flowgraph.capacity import normalise_rows
from flowgraph.errors import FlowgraphError, FlowgraphWarning
from flowgraph.export import plot
from flowgraph.export.figure import to_bytes
from flowgraph.export.labels import visible
from flowgraph.graph import LayeredGraph
from tests.export.graphs import NASTY, encoder_decoder, stack

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

WORDS = ["a", "water", "engineers", "incomprehensibilities", "</s>", "##lt"]


def words(count: int) -> list[str]:
    return [WORDS[k % len(WORDS)] for k in range(count)]


def labels(figure: Any) -> list[list[tuple[str, Any]]]:
    """For each axis: text and box on the page of every tick label that is drawn."""
    found = []
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [t for t in axis.get_major_ticks() if low - 1e-9 <= t.get_loc() <= high + 1e-9]
            drawn = [t.label1 for t in ticks if t.label1.get_visible() and t.label1.get_text()]
            found.append([(text.get_text(), text.get_window_extent()) for text in drawn])
    return found


def faults(figure: Any) -> list[str]:
    """Neighbouring labels that share more than a pixel, and labels cut off by the edge of the page."""
    figure.draw_without_rendering()
    page, found = figure.bbox, []
    for axis in labels(figure):
        for (a, first), (b, second) in pairwise(axis):
            width = min(first.x1, second.x1) - max(first.x0, second.x0)
            height = min(first.y1, second.y1) - max(first.y0, second.y0)
            if width > 1 and height > 1:
                found.append(f"{a} over {b}")
        found += [f"{a} cut" for a, box in axis if box.x0 < -1 or box.y0 < -1 or box.x1 > page.x1 + 1]
    return found


def pictures(count: int) -> dict[str, Any]:
    graph = stack(count, layers=3, tokens=words(count))
    top = attribute_graph(graph, method="rollout")
    every = attribute_graph(graph, method="rollout", level="all")
    return {
        "heatmap": plot.heatmap(top),
        "levels": plot.levels(every),
        "bars": plot.bars(top, target=1),
        "graph": plot.layered(graph),
        "methods": plot.layered(graph, methods={"rollout": every, "again": every.scores}),
    }


@pytest.mark.parametrize("count", [10, 100])
def test_labels_never_overlap_and_are_never_cut(count: int) -> None:
    for name, figure in pictures(count).items():
        assert faults(figure) == [], name
        assert sum(map(len, labels(figure))) > 10, name


def test_every_token_is_labelled_at_100_and_every_second_of_300() -> None:
    for count, step in ((100, 1), (300, 2)):
        figure = plot.heatmap(np.eye(count), tokens=words(count))
        shown = [t.get_text() for t in figure.axes[0].get_yticklabels()]
        assert shown == [visible(token) for token in words(count)][::step]


def test_the_heat_map_holds_the_scores_from_the_top() -> None:
    scores = np.random.default_rng(0).random((3, 4))
    axes = plot.heatmap(scores, tokens=list("abcd"), target_tokens=list("xyz")).axes[0]
    assert (np.asarray(axes.images[0].get_array()) == scores).all()
    assert axes.yaxis_inverted()
    assert [t.get_text() for t in axes.get_xticklabels()] == list("abcd")
    assert [t.get_text() for t in axes.get_yticklabels()] == list("xyz")


def test_levels_share_one_colour_scale() -> None:
    scores = np.stack([np.full((2, 2), 0.1), np.full((2, 2), 0.9)])
    figure = plot.heatmap(scores)
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert {image.norm.vmax for image in images} == {0.9}
    assert [float(image.get_array()[0, 0]) for image in images] == [0.1, 0.9]


def test_small_scores_beside_a_large_one_are_told_apart() -> None:
    scores = np.full((20, 20), 0.001)
    scores[0, 0] = 1.0
    norm = plot.heatmap(scores).axes[0].images[0].norm
    assert norm(0.25) == pytest.approx(0.5)
    assert plot.heatmap(scores, scale="linear").axes[0].images[0].norm(0.25) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("values", "start"), [([[0.0, 1.0]], 0.0), ([[0.25, 1.0]], 0.0), ([[0.5, 1.0]], 0.5), ([[0.5, 0.5]], 0.0)]
)
def test_where_all_scores_are_large_the_scale_starts_at_the_least(values: Any, start: float) -> None:
    axes = plot.heatmap(np.array(values)).axes[0]
    assert axes.images[0].norm.vmin == start
    assert plot.heatmap(np.array(values), scale="linear").axes[0].images[0].norm.vmin == 0.0


def test_signed_scores_have_white_at_zero() -> None:
    norm = plot.heatmap(np.array([[-1.0, 0.5]])).axes[0].images[0].norm
    assert norm(0.0) == pytest.approx(0.5)


def test_bars_are_the_target_s_scores_in_the_order_of_the_text() -> None:
    scores = np.array([[0.1, 0.5, 0.2], [0.3, 0.0, 0.7]])
    axes = plot.bars(scores, target=1, tokens=list("abc")).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [0.3, 0.0, 0.7]
    best = plot.bars(scores, target="y", tokens=list("abc"), target_tokens=list("xy"), top=2).axes[0]
    assert [bar.get_width() for bar in best.patches] == [0.3, 0.7]
    assert [t.get_text() for t in best.get_yticklabels()] == ["a", "c"]


def test_widths_of_edges_are_capacities() -> None:
    graph = LayeredGraph.from_matrices([[[0.25, 0.75], [1.0, 0.0]]], residual=None)
    lines = plot.layered(graph).axes[0].collections[0]
    widths = {
        tuple(map(tuple, segment)): width
        for segment, width in zip(lines.get_segments(), lines.get_linewidths(), strict=True)
    }
    assert len(widths) == 3  # the edge of no capacity is not drawn
    one, three_quarters = widths[(1.0, 1.0), (0.0, 0.0)], widths[(1.0, 0.0), (0.0, 1.0)]
    quarter = widths[(1.0, 0.0), (0.0, 0.0)]
    assert (one - three_quarters) == pytest.approx((three_quarters - quarter) / 2)


def test_an_encoder_decoder_graph_is_drawn_with_both_texts() -> None:
    figure = plot.layered(encoder_decoder())
    left = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    right = [t.get_text() for t in figure.axes[0].child_axes[0].get_yticklabels()]
    assert (left, right) == (["Das", "</s>"], ["<s>", "That", "is"])
    assert faults(figure) == []


def test_patches_stand_where_they_are_in_the_image() -> None:
    values = np.zeros((1, 7))
    values[0, 0], values[0, 1 + 2 * 1 + 1] = 0.3, 0.9  # a class token; row 1, column 1 of 3 × 2 patches
    tokens = ["[CLS]", *(f"patch {r},{c}" for r in range(3) for c in range(2))]
    image = np.zeros((30, 20, 3), np.uint8)
    figure = plot.patches(values, image, grid=(3, 2))
    drawn = figure.axes[1].images[1]
    assert np.asarray(drawn.get_array()).tolist() == [[0, 0], [0, 0.9], [0, 0]]
    assert drawn.get_extent() == [-0.5, 19.5, 29.5, -0.5]
    assert "0.3" in figure.axes[1].get_xlabel()
    made = attribute_graph(stack(7, tokens=tokens), method="rollout", targets=[0])
    with pytest.raises(FlowgraphError, match="does not say how many patches"):
        plot.patches(made, image)


@pytest.mark.parametrize(("count", "drawn"), [(10, 100), (60, 300), (80, 400)])
def test_of_many_edges_the_largest_are_drawn_and_the_picture_says_so(count: int, drawn: int) -> None:
    scores = 0.5 + np.random.default_rng(0).random((3, count, count))
    scores[1] *= 5  # each level has its own largest
    graph = LayeredGraph.from_matrices(scores, tokens=words(count))
    figure = plot.layered(graph, methods={"all alike": scores}, least=0.0)
    lines = [c for c in figure.axes[0].collections if type(c).__name__ == "LineCollection"]
    shares = normalise_rows(scores) / normalise_rows(scores).max()
    for made, level in zip(lines, shares, strict=True):
        largest = np.sort(level.ravel())[-drawn:]
        assert np.sort(made.get_linewidths()) == pytest.approx(0.2 + 2.3 * largest)
    assert ("all but the 5 largest a node" in figure.get_supxlabel()) == (count > 10)


def test_lines_that_would_cover_the_picture_are_fainter() -> None:
    def faintest(count: int) -> float:
        graph = LayeredGraph.from_matrices(np.ones((1, count, count)), residual=None)
        (lines,) = [
            c for c in plot.layered(graph).axes[0].collections if type(c).__name__ == "LineCollection"
        ]
        return float(lines.get_colors()[:, 3].min())

    assert faintest(3) == 1.0
    assert faintest(60) < 0.9


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    attribute_graph(stack(3), method="rollout").plot(path)
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    first = path.read_bytes()
    assert first.startswith(start)
    attribute_graph(stack(3), method="rollout").plot(path)
    assert path.read_bytes() == first  # the same picture is the same file


@pytest.mark.filterwarnings("ignore:no font here has:flowgraph.FlowgraphWarning")
def test_any_token_can_be_drawn(tmp_path: Path) -> None:
    tokens = [*NASTY, "$x$", "$\\frac{1}$", "中文", "हिन्दी", "עברית"]
    for ending in ("png", "svg"):
        plot.bars(np.eye(len(tokens)), tmp_path / f"a.{ending}", target=0, tokens=tokens)


# --- fonts: of matplotlib's own, since those of a machine differ --------------------------------------------

SCRIPT_A = "\U0001d49c"  # a mathematical letter, which STIX has and DejaVu Sans has not
NOBODYS = "\U00012000\U00012001"  # cuneiform


@pytest.fixture
def own_fonts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only the fonts that matplotlib brings."""
    import matplotlib
    from matplotlib import font_manager

    from flowgraph.export import fonts

    folder = str(Path(matplotlib.get_data_path()))
    brought = [entry for entry in font_manager.fontManager.ttflist if entry.fname.startswith(folder)]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", brought)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [])
    fonts._families.cache_clear()
    yield
    fonts._families.cache_clear()


@pytest.mark.usefixtures("own_fonts")
def test_a_character_the_default_font_lacks_is_taken_from_another(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plot.heatmap(np.eye(2), tmp_path / "a.png", tokens=["a", SCRIPT_A])
    plain, other = figure.axes[0].get_yticklabels()
    assert "STIXGeneral" in other.get_fontfamily()
    assert "STIXGeneral" not in plain.get_fontfamily()


@pytest.mark.usefixtures("own_fonts")
@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_characters_no_font_has_are_one_warning(ending: str, tmp_path: Path) -> None:
    tokens = ["中文", "हिन्दी", "한국", "💩\ufe0f", "a\u200db"]
    with pytest.warns(FlowgraphWarning) as caught:
        plot.heatmap(np.eye(5), tmp_path / f"a.{ending}", tokens=tokens, title="𐌰")
    (warning,) = caught
    said = str(warning.message)
    assert "12 characters of the tokens" in said
    for words_ in (
        "CJK 中 文",
        "Devanagari",
        "Hangul",
        "emoji and signs 💩",
        "Gothic 𐌰",
        "such as Noto",
        ".svg",
    ):
        assert words_ in said


@pytest.mark.usefixtures("own_fonts")
def test_an_svg_leaves_them_to_the_fonts_of_its_reader(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot.heatmap(np.eye(2), tmp_path / "a.svg", tokens=["a", NOBODYS])
        plot.heatmap(np.eye(2), tmp_path / "b.svg", tokens=["a", "b"])
    assert f">{NOBODYS}</text>" in (tmp_path / "a.svg").read_text("utf-8")
    assert "<text" not in (tmp_path / "b.svg").read_text("utf-8")


@pytest.mark.usefixtures("own_fonts")
def test_a_picture_saved_by_hand_warns_likewise(tmp_path: Path) -> None:
    figure = plot.bars(np.eye(2), target=0, tokens=["a", NOBODYS])
    with pytest.warns(FlowgraphWarning, match="2 characters of the tokens") as caught:
        figure.savefig(tmp_path / "a.png")
    assert len(caught) == 1


def test_plain_words_ask_for_no_font(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowgraph.export import fonts

    monkeypatch.setattr(fonts, "_families", lambda wanted: pytest.fail(f"looked for fonts for {wanted}"))
    to_bytes(plot.heatmap(np.eye(3), tokens=["cat", "é", "…"]))


def test_a_font_installed_after_matplotlib_listed_them_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import font_manager

    from flowgraph.export import fonts

    manager = font_manager.fontManager
    known, later = list(manager.ttflist), font_manager.findfont("STIXGeneral")
    monkeypatch.setattr(manager, "ttflist", [e for e in known if e.name in ("DejaVu Sans", "cmr10")])
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [later])
    fonts._families.cache_clear()
    assert fonts._families(frozenset(SCRIPT_A)) == (("STIXGeneral", frozenset(SCRIPT_A)),)
    fonts._families.cache_clear()


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("word", "word"), ("", "∅"), (" ", "␣"), ("\n", "\\n"), ("a\tb", "a\\tb"), ("\x00", "\\x00"),
        ("\u2028", "\\u2028"), ("\u202e", "\\u202e"), ("\ud83d", "\\ud83d"), ("Seán", "Seán"), ("💩", "💩"),
        ("👩\u200d🔬", "👩\u200d🔬"), ("\U000e0001", "\\U000e0001"), ("x" * 30, "x" * 17 + "…"),
    ],
)  # fmt: skip
def test_labels(token: str, shown: str) -> None:
    assert visible(token) == shown


@pytest.mark.parametrize(
    ("call", "words_"),
    [
        (lambda p: plot.heatmap(np.eye(2), p / "a.gif"), "does not end in .png, .svg, .pdf"),
        (lambda p: plot.heatmap(np.eye(2), p / "no" / "a.png"), "does not exist"),
        (lambda p: plot.heatmap(np.eye(2), tokens=["a"]), "tokens: 1 given for 2 positions"),
        (lambda p: plot.heatmap(np.eye(2), tokens="ab"), "tokens: 2 given for 2 positions; pass a list"),
        (lambda p: plot.heatmap(np.full((2, 2), np.nan)), "pass an Attribution or finite scores"),
        (lambda p: plot.heatmap(np.zeros((0, 2))), "none of them empty"),
        (lambda p: plot.heatmap(np.eye(2), scale="log"), "scale: unknown scale 'log'"),
        (lambda p: plot.levels(np.eye(2)), "make it with level='all'"),
        (lambda p: plot.bars(np.eye(2)), "target: this picture shows one of the 2; pass 0 to 1 or a token"),
        (lambda p: plot.bars(np.eye(2), target=5), "target: 5 is not one of 2 targets"),
        (lambda p: plot.bars(np.eye(2), target="a", tokens=["a", "a"]), "target: 'a' stands at 0, 1"),
        (lambda p: plot.bars(np.eye(2), target="z"), "target: 'z' is not among them"),
        (lambda p: plot.layered(np.eye(2)), "graph: ndarray is not a LayeredGraph"),
        (lambda p: plot.layered(stack(3), methods={"flow": np.eye(3)}), "'flow' has scores of shape (3, 3)"),
        (lambda p: plot.layered(encoder_decoder(), methods={"a": np.eye(3)}), "need a plain stack"),
        (
            lambda p: plot.patches(np.eye(4), np.zeros((2, 2)), target=0, grid=(3, 3)),
            "3 × 3 patches for 4 inputs",
        ),
        (lambda p: plot.patches(np.eye(4), np.zeros(4), target=0, grid=(2, 2)), "image: shape (4,)"),
    ],
)
def test_errors(call: Any, words_: str, tmp_path: Path) -> None:
    with pytest.raises(FlowgraphError, match=re.escape(words_)):
        call(tmp_path)
