"""Explaining a classifier's decision: which words make the embedded model, taught sentiment, say "positive"?

Only a head is trained, on sentences of SST-2 where FLOWGRAPH_DATA names the folder that has ``sst2/train.tsv``, else
on the sentences below; that takes seconds. For each decision, the words that the classifying token holds (rollout over
ALTI) stand beside those that change the log-odds most when they are blanked out::

    python examples/classifier_decision.py decision.png
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer, BertForSequenceClassification

import flowgraph as fg
from flowgraph.embedded import embedded_model
from flowgraph.export.plot import bars

SENTENCES = {
    "a warm , funny and moving film": 1,
    "one of the best films of the year": 1,
    "beautifully acted and a joy to watch": 1,
    "a clever and gripping story": 1,
    "i loved every minute of it": 1,
    "a triumph of charm and wit": 1,
    "a dull , lifeless and tedious film": 0,
    "one of the worst films of the year": 0,
    "badly acted and a pain to watch": 0,
    "a stupid and boring story": 0,
    "i hated every minute of it": 0,
    "a failure without charm or wit": 0,
}
QUESTIONS = (
    "a charming and wonderfully funny story",
    "not a boring film at all , but a moving one",
    "the actors are great , but the film is dull",
)


def examples(count: int) -> dict[str, int]:
    """Sentences and their classes: 0 negative, 1 positive."""
    folder = os.environ.get("FLOWGRAPH_DATA")
    file = Path(folder or "", "sst2", "train.tsv")
    if not folder or not file.exists():
        return SENTENCES
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[:count]
    return {text: int(label) for text, label in rows}


def train(count: int = 400, steps: int = 200) -> tuple[Any, Any]:
    """The embedded model with a classifying head, and its tokenizer; the encoder stays as it is."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(embedded_model())
    model = BertForSequenceClassification.from_pretrained(
        embedded_model(), num_labels=2, id2label={0: "negative", 1: "positive"}
    ).eval()
    data = examples(count)
    texts, labels = list(data), torch.tensor(list(data.values()))
    with torch.no_grad():
        hidden = torch.cat(
            [_first_token(model, tokenizer, texts[k : k + 32]) for k in range(0, len(texts), 32)]
        )
    head = [*model.bert.pooler.parameters(), *model.classifier.parameters()]
    optimizer = torch.optim.AdamW(head, lr=1e-3, weight_decay=0.01)
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(_logits(model, hidden), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, tokenizer


def _first_token(model: Any, tokenizer: Any, texts: list[str]) -> torch.Tensor:
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    return model.bert(**batch).last_hidden_state[:, :1]  # (texts, 1, width)


def _logits(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    return model.classifier(model.bert.pooler(hidden))


@torch.no_grad()
def log_odds(model: Any, tokenizer: Any, text: str) -> float:
    """Of "positive" against "negative"."""
    logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
    return float(logits[1] - logits[0])


def effects(model: Any, tokenizer: Any, text: str) -> list[tuple[str, float]]:
    """Each word, and how much the log-odds fall when it is replaced by the mask."""
    words, whole = text.split(), log_odds(model, tokenizer, text)
    blanked = [" ".join([*words[:k], tokenizer.mask_token, *words[k + 1 :]]) for k in range(len(words))]
    return [(word, whole - log_odds(model, tokenizer, b)) for word, b in zip(words, blanked, strict=True)]


def main(path: str = "classifier_decision.png") -> None:
    model, tokenizer = train()
    table = Table(title="decisions, and the words that they come from", title_justify="left")
    for column in (
        "text",
        "log-odds of positive",
        "held by the classifying token",
        "blanking out changes most",
    ):
        table.add_column(column)
    for text in QUESTIONS:
        found = fg.attribute(model, tokenizer, text, method="rollout", edges="alti", targets="cls")
        found = found.words().without_special()
        held = "  ".join(f"{score.token} {score.score:.2f}" for score in found.top(3))
        strongest = sorted(effects(model, tokenizer, text), key=lambda effect: -abs(effect[1]))[:3]
        changed = "  ".join(f"{word} {effect:+.1f}" for word, effect in strongest)
        table.add_row(text, f"{log_odds(model, tokenizer, text):+.1f}", held, changed)
    bars(found, path)
    console = Console()
    console.print(table, markup=False)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
