"""Mohebbi et al. 2023: value zeroing, and every other edge kind, against blank-out on agreement pairs.

    python -m benchmarks mohebbi [--model NAME_OR_FOLDER]

BLiMP's subject-verb agreement pairs give a prefix ("A niece of most senators") and the right and the wrong form of the
verb. A masked or causal language model chooses between the two words where both are in its vocabulary. The embedded
model has no language head; a logistic probe on its vector of a mask after the prefix is trained to tell singular from
plural on half of the pairs, and explained on the other half. Correlations are over the words of the prefix (no special
tokens, no mask), for each edge kind's own matrix at each level (``raw``), its rollout and its flow, in the row of the
mask (10.18653/v1/2023.eacl-main.245).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer
from transformers.modeling_outputs import SequenceClassifierOutput

from benchmarks._data import data_folder, positive
from benchmarks.ratio import Ratio

DATA = "blimp_agreement"
KINDS = ("attention", "norm", "norm-residual-ln", "globenc", "alti", "value-zeroing")
METHODS = ("raw", "rollout", "flow")
PLURAL_HELPERS = ("are", "were", "do", "have", "aren't", "weren't", "don't", "haven't")


class Pair(NamedTuple):
    prefix: str
    good: str
    bad: str

    @property
    def plural(self) -> bool:
        """Whether the right verb is the plural form: the one without -s."""
        if self.good in PLURAL_HELPERS or self.bad in PLURAL_HELPERS:
            return self.good in PLURAL_HELPERS
        return not self.good.endswith("s") or len(self.good) < len(self.bad)


def read_pairs(folder: Path, seed: int = 0) -> list[Pair]:
    """Every pair once, shuffled by ``seed``."""
    pairs = set()
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            item = json.loads(line)
            if "one_prefix_prefix" in item:
                names = ("one_prefix_prefix", "one_prefix_word_good", "one_prefix_word_bad")
                pairs.add(Pair(*(item[name] for name in names)))
    ordered = sorted(pairs)
    return [ordered[i] for i in np.random.default_rng(seed).permutation(len(ordered))]


# --- a probe for models without a language head -------------------------------------------------------------


class NumberProbe(nn.Module):
    """A frozen encoder and a logistic layer on its vector of the mask, which stands second to last."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.config = encoder.config
        self.encoder = encoder
        self.score = nn.Linear(encoder.config.hidden_size, 2)
        self.config.id2label = {0: "singular", 1: "plural"}

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def forward(
        self,
        input_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        inputs = {"input_ids": input_ids, "token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
        hidden = self.encoder(**inputs).last_hidden_state
        return SequenceClassifierOutput(logits=self.score(hidden[:, -2]))


def train_probe(encoder: Any, tokenizer: Any, pairs: Sequence[Pair]) -> NumberProbe:
    """L-BFGS from 0 on the mask's vectors, with a small weight decay; the encoder stays as it is."""
    probe = NumberProbe(encoder).eval()
    for parameter in probe.score.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        features = torch.cat([_mask_vector(encoder, tokenizer, pair) for pair in pairs])
    labels = torch.tensor([int(pair.plural) for pair in pairs])
    optimizer = torch.optim.LBFGS(probe.score.parameters(), max_iter=200)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(probe.score(features), labels)
        value = value + 1e-3 * probe.score.weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)  # type: ignore[arg-type]
    probe.zero_grad()
    return probe


def _mask_vector(encoder: Any, tokenizer: Any, pair: Pair) -> Tensor:
    """(1, D)"""
    return encoder(**tokenizer(question(pair, tokenizer), return_tensors="pt")).last_hidden_state[:, -2]


def question(pair: Pair, tokenizer: Any) -> str:
    return f"{pair.prefix} {tokenizer.mask_token}"


# --- evaluation ---------------------------------------------------------------------------------------------


def evaluate(
    name: str | None,
    folder: Path,
    *,
    items: int,
    kinds: Sequence[str],
    residual: float | str = "auto",
    seed: int = 0,
) -> Any:
    """Blank-out against every edge kind on ``items`` pairs."""
    import flowgraph as fg
    from flowgraph.evaluation.loading import load_with_head

    pairs = [pair for pair in read_pairs(folder, seed) if len(pair.prefix.split()) >= 3]
    shared = {
        "edges": kinds,
        "methods": METHODS,
        "against": ["blank-out"],
        "erasure": False,
        "blank": "[UNK]",
        "residual": residual,
    }
    if name is None:
        from flowgraph.embedded import embedded_model

        place = str(embedded_model())
        tokenizer = AutoTokenizer.from_pretrained(place)
        half = len(pairs) // 2
        probe = train_probe(AutoModel.from_pretrained(place).eval(), tokenizer, pairs[:half][: 4 * items])
        chosen = pairs[half:][:items]
        labels = [int(pair.plural) for pair in chosen]
        texts = [question(pair, tokenizer) for pair in chosen]
        return fg.evaluate(probe, tokenizer, texts, labels=labels, explain="true", target="mask", **shared)
    model, tokenizer = load_with_head(name)
    words = tokenizer.get_vocab()
    chosen = [pair for pair in pairs if {pair.good, pair.bad} <= set(words)][:items]
    masked = tokenizer.mask_token is not None
    texts = [f"{question(pair, tokenizer)} ." if masked else pair.prefix for pair in chosen]
    shared["blank"] = None if tokenizer.unk_token is None else tokenizer.unk_token
    return fg.evaluate(model, tokenizer, texts, candidates=[(p.good, p.bad) for p in chosen], **shared)


def report(evaluation: Any) -> None:
    """Mean Spearman with blank-out over the words, by level, and the top level's spread over texts."""
    meta = evaluation.meta
    print(
        f"{meta['model']}: {meta['texts']} pairs, accuracy {meta['accuracy']:.3f}, blanked with {meta['blank_token']}"
    )
    levels = "  ".join(f"{level:6d}" for level in range(1, evaluation.levels + 1))
    print(f"{'edge kind':<18}{'method':<9}{levels}   top level: sd, 95 % interval of the mean")
    for kind in evaluation.axes["edges"]:
        for method in METHODS:
            found = evaluation.find(method, edges=kind, against="blank-out", tokens="content")
            top = found[-1]
            means = "  ".join(f"{s.mean:6.3f}" for s in found)
            print(f"{kind:<18}{method:<9}{means}   {top.sd:.3f}, {top.low:.3f} to {top.high:.3f}")
    (random,) = evaluation.find("random", against="blank-out", tokens="content")
    print(f"{'random':<27}{random.mean:6.3f}   {random.low:.3f} to {random.high:.3f}")


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks mohebbi", description=__doc__)
    parser.add_argument("--data", help=f"folder that holds {DATA}; default: FLOWGRAPH_DATA")
    parser.add_argument(
        "--model", help="a masked or causal language model; default: the embedded model with a probe"
    )
    parser.add_argument("--items", type=positive, default=300)
    parser.add_argument("--edges", default=",".join(KINDS))
    parser.add_argument(
        "--residual",
        type=float,
        help="share of the identity; default: none for kinds that hold the residual, else 0.5",
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    folder = data_folder(options.data, DATA)
    if folder is None:
        parser.exit(2)
    torch.set_num_threads(1)
    kinds = options.edges.split(",")
    residual = "auto" if options.residual is None else options.residual
    found = evaluate(
        options.model, folder, items=options.items, kinds=kinds, residual=residual, seed=options.seed
    )
    report(found)


def smoke() -> Iterable[Ratio]:
    folder = data_folder(None, DATA)
    if folder is not None:
        report(evaluate(None, folder, items=15, kinds=("attention", "value-zeroing")))
    return []
