"""Small corpora, and what runs leave of them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa

from flowgraph.corpus.dataset import open_run
from flowgraph.corpus.run import run_corpus
from flowgraph.corpus.settings import Settings

WORDS = [
    "the",
    "key",
    "keys",
    "to",
    "are",
    "is",
    "on",
    "table",
    "a",
    "cat",
    "cats",
    "sat",
    "mat",
    "dog",
    "it",
    "sleeps",
]
SETTINGS = Settings(methods=("rollout", "flow"), edges=("attention", "norm"), window=8, batch=4)


def texts(count: int, seed: int = 0) -> list[str]:
    """Sentences of 2 to 9 words, so that batches of several lengths form."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(count)]


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def write_jsonl(path: Path, items: list[tuple[object, object]]) -> Path:
    """``(id, text)`` a line; an id of None is left out."""
    return write_lines(
        path, [json.dumps({"text": text} | ({} if name is None else {"id": name})) for name, text in items]
    )


def run(source, out, model, **options):
    """One run in this process."""
    return run_corpus(source, out, model, **{"workers": 0, "settings": SETTINGS} | options)


def rows(out) -> list[dict]:
    """All rows, ``seconds`` aside, in an order of their own."""
    table = open_run(out).to_table()
    return _sorted(table.drop_columns(["seconds"]))


def errors(out) -> list[dict]:
    return _sorted(open_run(out, "errors").to_table())


def shards(out) -> dict[str, pa.Table]:
    """File -> its table, ``seconds`` aside."""
    from pyarrow import parquet

    return {
        f.name: parquet.read_table(f).drop_columns(["seconds"]) for f in sorted(Path(out, "data").iterdir())
    }


def _sorted(table: pa.Table) -> list[dict]:
    names = [n for n in ("record", "method", "edges", "level", "target") if n in table.column_names]
    return sorted(table.to_pylist(), key=lambda row: [str(row[name]) for name in names])
