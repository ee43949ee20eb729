"""What is documented is what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowgraph.corpus.schema import DATA, ERRORS, arrow_schema

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [DATA, ERRORS])
def test_the_readme_has_the_schema(columns):
    table = "".join(f"| `{c.name}` | {c.type} | {c.meaning} |\n" for c in columns)
    assert table in README


@pytest.mark.parametrize("columns", [DATA, ERRORS])
def test_every_type_is_one_of_arrows(columns):
    assert [
        str(field.type).replace("element: ", "").replace("item: ", "") for field in arrow_schema(columns)
    ] == [c.type for c in columns]
