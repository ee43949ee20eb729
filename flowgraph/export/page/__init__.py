"""One self-contained interactive page: the layered graph beside the heat map, drawn by Bokeh.

Why Bokeh: its library is 1.3 MB, where Plotly's is 4.8, and ships inside the Python package; it draws on a
canvas, which holds ten thousand edges with ease; and a page works on its models (sources, figures, ranges)
through :class:`bokeh.models.CustomJS`, so what is added here is no chart code: only what is to be shown
(``arrays.js``, ``drawing.js``, ``words.js``, ``controls.js``) and the maximum flow of a pair that is clicked
(``maxflow.js``).

The page loads nothing, and its Content-Security-Policy forbids it to. Tokens reach it as JSON and are written
by ``textContent`` or on a canvas, so nothing a text contains can run or become markup.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

from flowgraph.errors import FlowgraphError
from flowgraph.export.files import replacing
from flowgraph.export.page.budget import within_budget
from flowgraph.export.page.variants import add_scores, first_choice, read_subject


def page(
    subject: Any,
    path: str | PathLike[str] | None = None,
    *,
    max_mb: float = 5.0,
    title: str | None = None,
    all_flows: bool | None = None,
) -> str:
    """The page as HTML; with ``path`` it is written there too.

    Parameters
    ----------
    subject
        A :class:`LayeredGraph`, an :class:`~flowgraph.attribution.Attribution` with its graph, or a list of
        them over the same tokens: edge kinds and heads become choosers on the page.
    max_mb
        Megabytes the page may have besides Bokeh's library. What is too big is left out, smallest capacities
        first, and the page says what.
    all_flows
        Compute attention flow of all pairs of the top level; default: where there are at most 32 tokens.
        Attributions bring their own. Any other pair's flow is computed in the page when it is clicked.
    """
    if not isinstance(max_mb, (int, float)) or not max_mb > 0:
        raise FlowgraphError(f"max_mb: {max_mb!r} is not a size; pass megabytes above 0")
    variants = read_subject(subject)
    add_scores(variants, all_flows)
    html = within_budget(variants, max_mb, first_choice(subject, variants), title)
    if path is not None:
        with replacing(path) as file:
            file.write(html.encode("utf-8"))
    return html
