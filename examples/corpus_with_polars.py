"""A corpus run, read back with polars: which words do sentences keep at the classifying token?

Runs rollout over ALTI on a few sentences with the embedded model, as ``flowgraph run`` does on millions, and asks the
shards with polars for the words that hold the most on average. Prints the table and writes it as CSV::

    python examples/corpus_with_polars.py words.csv
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import polars as pl

from flowgraph.corpus.run import run_corpus
from flowgraph.corpus.settings import Settings
from flowgraph.embedded import embedded_model

TEXTS = (
    "The keys on the table are missing.",
    "The key to the cabinets is on the table.",
    "Nobody found the keys under the old table.",
    "The river floods the fields every spring.",
    "The farmers who own the fields never leave.",
    "In spring the river is cold.",
)


def run(folder: Path) -> Path:
    """The folder of a finished run."""
    source = folder / "texts.jsonl"
    source.write_text("".join(json.dumps({"id": k, "text": text}) + "\n" for k, text in enumerate(TEXTS)))
    settings = Settings(methods=("rollout",), edges=("alti",), targets=("cls",))
    run_corpus(source, folder / "run", embedded_model(), settings=settings, workers=0)
    return folder / "run"


def words(run: Path) -> pl.DataFrame:
    """Tokens that stand in two texts or more, with their mean share of what the classifying token holds."""
    rows = pl.scan_parquet(run / "data" / "*.parquet")
    return (
        rows.select("id", "tokens", "scores")
        .explode("tokens", "scores")
        .filter(~pl.col("tokens").is_in(["[CLS]", "[SEP]"]))
        .group_by(token="tokens")
        .agg(texts=pl.col("id").n_unique(), mean_score=pl.col("scores").mean())
        .filter(pl.col("texts") >= 2)
        .sort("mean_score", "token", descending=[True, False])
        .collect()
    )


def main(path: str = "corpus_with_polars.csv") -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = words(run(Path(folder)))
    print(table)
    table.write_csv(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
