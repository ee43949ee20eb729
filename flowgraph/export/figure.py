"""What every picture by matplotlib shares: its figure, labels that do not touch, colours, and the file it becomes.

The colour scale is cividis (Nuñez, Anderton, Renslow 2018, 10.1371/journal.pone.0199239), made to look alike with
and without colour vision deficiency.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from flowgraph.errors import FlowgraphError, FlowgraphWarning, missing_dependency
from flowgraph.export.files import file_name, replacing
from flowgraph.export.fonts import explain, fit_fonts
from flowgraph.export.labels import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
SCALE = "cividis"
SIGNED_SCALE = "PuOr"
FONT = 7.0  # points
PITCH = 0.135  # inches from label to label that the font needs
LARGEST = 26.0  # inches


def new_figure(width: float, height: float) -> Figure:
    """A figure outside pyplot's global list, which shows itself in a notebook."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_dependency("matplotlib", "plot", "a picture") from None

    class Picture(Figure):
        def savefig(self, fname: Any, *, format: str | None = None, **options: Any) -> None:
            """As matplotlib's, each character in a font that has it; those without one are named in a warning.

            As SVG a picture with such characters keeps its words as text: who looks at it may have the fonts.
            """
            characters = fit_fonts(self)
            as_text = bool(characters) and (format or os.path.splitext(str(fname))[1].lower()) in (
                "svg",
                ".svg",
            )
            if characters and not as_text:
                warnings.warn(explain(characters), FlowgraphWarning, stacklevel=2)
            with rc_context({"svg.fonttype": "none"} if as_text else {}), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Glyph .* missing from font")
                super().savefig(fname, format=format, **options)

        def _repr_png_(self) -> bytes:
            return to_bytes(self, "png", dpi=100)

    return Picture(figsize=(width, height), layout="constrained")


def side(count: int) -> float:
    """Inches of a side with ``count`` cells."""
    return max(1.6, min(LARGEST, count * (0.3 if count <= 30 else 1.1 * PITCH)))


def colours(values: np.ndarray, vmax: float | None, scale: str) -> dict[str, Any]:
    """Colour map and norm of a heat map; the norm is shared by all levels of a stack."""
    from matplotlib.colors import Normalize, PowerNorm

    if scale not in ("auto", "linear", "sqrt"):
        raise FlowgraphError(f"scale: unknown scale {scale!r}; choose 'auto', 'linear' or 'sqrt'")
    top = (float(np.abs(values).max()) if vmax is None else float(vmax)) or 1.0
    if (values < 0).any():
        return {"cmap": SIGNED_SCALE, "norm": Normalize(-top, top)}
    if scale == "sqrt" or (scale == "auto" and mostly_small(values)):
        return {"cmap": SCALE, "norm": PowerNorm(0.5, 0.0, top)}
    start = start_of_scale(values) if scale == "auto" and vmax is None else 0.0
    return {"cmap": SCALE, "norm": Normalize(start, top)}


def mostly_small(values: np.ndarray) -> bool:
    """True where nine of ten scores are under a fifth of the largest: on a linear scale they look alike."""
    return bool(np.quantile(values, 0.9) < 0.2 * values.max())


def start_of_scale(values: np.ndarray) -> float:
    """0; where all scores are above a quarter of the largest, the least of them: from 0 they would look alike."""
    least, top = float(values.min()), float(values.max())
    return least if top / 4 < least < top else 0.0


def label_axis(axis: Any, labels: Sequence[str], pitch: float) -> None:
    """Every k-th label, k the least at which neighbours, ``pitch`` inches apart each, do not touch."""
    step = max(1, math.ceil(PITCH / pitch - 1e-9))
    shown = range(0, len(labels), step)
    axis.set_ticks(list(shown), labels=[visible(labels[k]) for k in shown], fontsize=FONT)
    for text in axis.get_ticklabels():
        text.set_parse_math(False)
        if axis.axis_name == "x":
            text.set_rotation(90)
    axis.set_tick_params(length=1.5, pad=2)


def colour_bar(figure: Figure, image: Any, axes: Any, height: float) -> None:
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, shrink=min(1.0, 4.0 / height), aspect=25)
    bar.ax.tick_params(labelsize=FONT)
    root = type(image.norm).__name__ == "PowerNorm"
    bar.set_label("score (square-root scale)" if root else "score", fontsize=FONT)
    bar.outline.set_visible(False)


def finish(figure: Figure, path: str | PathLike[str] | None) -> Figure:
    """The figure, written to ``path`` where one is given."""
    if path is not None:
        kind = _format_of(path)
        data = to_bytes(figure, kind)
        with replacing(path) as file:
            file.write(data)
    return figure


def _format_of(path: str | PathLike[str]) -> str:
    name = file_name(path)
    ending = os.path.splitext(name)[1].lower().lstrip(".")
    if ending not in FORMATS:
        raise FlowgraphError(f"path: {name!r} does not end in .{', .'.join(FORMATS)}")
    return ending


def to_bytes(figure: Figure, kind: str = "png", *, dpi: int = 150) -> bytes:
    """The figure as PNG, SVG or PDF; the same bytes for the same picture."""
    import io

    import matplotlib

    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "flowgraph"}):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
    return buffer.getvalue()
