"""Sun & Marasović 2021: how much of plain and of effective attention goes to special tokens.

    python -m benchmarks sun_marasovic [--model NAME_OR_FOLDER]

Attention's part in the null space of the values changes no output; effective attention is what is left (Brunner et al.
2020). Where a text has no more tokens than a head's values have dimensions the two are the same; beyond, the paper
finds that effective attention looks less at separators (10.18653/v1/2021.findings-acl.379). Measured: the share of
each row's attention, in absolute value, that goes to [CLS], [SEP], punctuation and words, averaged over rows, heads and
texts.
"""

from __future__ import annotations

import argparse
import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._data import data_folder, positive
from benchmarks.ratio import Ratio

DATA = "sst2"
GROUPS = ("first special", "last special", "punctuation", "words")


def read_texts(folder: Path) -> list[str]:
    lines = (folder / "dev.tsv").read_text(encoding="utf-8").splitlines()
    return [line.rsplit("\t", 1)[0] for line in lines if line.strip()]


def passages(texts: Sequence[str], tokenizer: Any, least: int, most: int, count: int) -> list[str]:
    """Runs of sentences of at least ``least`` and at most ``most`` tokens."""
    found, run = [], ""
    for text in texts:
        run = f"{run} . {text}" if run else text
        length = len(tokenizer(run)["input_ids"])
        if length >= least:
            if length <= most:
                found.append(run)
            run = ""
        if len(found) == count:
            break
    return found


def groups_of(trace: Any) -> np.ndarray:
    """(T,): index into ``GROUPS`` of each token."""
    last = len(trace.tokens) - 1
    return np.array(
        [
            (1 if place == last else 0)
            if special
            else (2 if all(c in string.punctuation for c in token) else 3)
            for place, (token, special) in enumerate(zip(trace.tokens, trace.special, strict=True))
        ]
    )


def shares(traces: Sequence[Any], kind: str) -> np.ndarray:
    """(L, groups): share of a row's ``kind`` in absolute value, mean over rows, heads and texts."""
    found = []
    for trace in traces:
        weights = np.abs(np.asarray(trace[kind], dtype=np.float64))  # (L, H, T, T)
        weights /= weights.sum(-1, keepdims=True)
        groups = groups_of(trace)
        found.append(
            np.stack([weights[..., groups == g].sum(-1).mean((1, 2)) for g in range(len(GROUPS))], -1)
        )
    return np.mean(found, axis=0)


def difference(traces: Sequence[Any]) -> float:
    """Largest difference between effective and plain attention."""
    return max(float(np.abs(trace["effective"] - trace["attention"]).max()) for trace in traces)


def compare(
    model: Any, tokenizer: Any, texts: Sequence[str], *, count: int, lengths: tuple[int, int]
) -> dict[str, Any]:
    """Traces of short texts and of long ones, and the shares of both kinds on the long."""
    import flowgraph as fg

    config = model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    long = passages(texts, tokenizer, lengths[0], lengths[1], count)
    short = [text for text in texts if 4 <= len(tokenizer(text)["input_ids"]) <= width // 2][:count]
    kinds = ("attention", "effective")
    parts = {"long": long, "short": short}
    traced = {
        name: fg.trace(model, tokenizer, part, edges=kinds, heads="each") for name, part in parts.items()
    }
    return {"width": width, **traced, **{kind: shares(traced["long"], kind) for kind in kinds}}


def report(found: dict[str, Any]) -> None:
    sizes = [len(trace.tokens) for trace in found["long"]]
    print(f"head width {found['width']}; {len(sizes)} texts of {min(sizes)} to {max(sizes)} tokens")
    short = found["short"]
    print(
        f"largest difference on {len(short)} texts of up to {found['width'] // 2} tokens: {difference(short):.2e}"
    )
    print(f"largest difference on the long texts: {difference(found['long']):.2e}")
    print(f"{'share of attention on':<24}" + "".join(f"{group:>26}" for group in GROUPS))
    print(f"{'':<24}" + "".join(f"{'plain':>13}{'effective':>13}" for _ in GROUPS))
    plain, effective = found["attention"], found["effective"]
    rows = [(f"layer {k}", plain[k - 1], effective[k - 1]) for k in range(1, len(plain) + 1)]
    for name, a, b in [*rows, ("all layers", plain.mean(0), effective.mean(0))]:
        print(f"{name:<24}" + "".join(f"{x:>13.3f}{y:>13.3f}" for x, y in zip(a, b, strict=True)))


def run(name: str | None, folder: Path, *, count: int, lengths: tuple[int, int]) -> dict[str, Any]:
    from flowgraph.capture.loading import load
    from flowgraph.embedded import embedded_model

    model, tokenizer = load(embedded_model() if name is None else name)
    found = compare(model, tokenizer, read_texts(folder), count=count, lengths=lengths)
    report(found)
    return found


def main(argv: Sequence[str]) -> None:
    import torch

    parser = argparse.ArgumentParser(prog="python -m benchmarks sun_marasovic", description=__doc__)
    parser.add_argument("--data", help=f"folder that holds {DATA}; default: FLOWGRAPH_DATA")
    parser.add_argument("--model", help="an encoder; default: the embedded model")
    parser.add_argument("--texts", type=positive, default=50)
    parser.add_argument("--tokens", type=positive, nargs=2, default=(96, 160), metavar=("LEAST", "MOST"))
    options = parser.parse_args(argv)
    folder = data_folder(options.data, DATA)
    if folder is None:
        parser.exit(2)
    if options.tokens[0] > options.tokens[1]:
        parser.error(f"--tokens: {options.tokens[0]} at least and {options.tokens[1]} at most leave no text")
    torch.set_num_threads(1)
    run(options.model, folder, count=options.texts, lengths=tuple(options.tokens))


def smoke() -> Iterable[Ratio]:
    folder = data_folder(None, DATA)
    if folder is None:
        return []
    found = run(None, folder, count=4, lengths=(64, 100))
    ratio = difference(found["long"]) / max(difference(found["short"]), 1e-9)
    return [Ratio("effective - plain attention: long texts / short ones", ratio, at_least=100)]
