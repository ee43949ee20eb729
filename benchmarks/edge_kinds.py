"""What edge kinds cost on the embedded model: against their formulas written out, the forward pass, and
memory.

Every comparison runs its contenders in turn, in one process on one thread, and takes medians of its processor
time, which other processes on the machine disturb least. Memory is the peak of the resident set above what
was resident before, each in a process of its own (Linux: the peak is set back by ``/proc/self/clear_refs``;
``tracemalloc`` does not see torch).

The naive versions are the oracles of the tests, in the model's own single precision: ``(H, T, T, D)`` vectors
made and summed. ``summed`` is the mildest of them, which lets a matrix product sum the heads and holds (T, T,
D).
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any, TypeVar, cast

from rich.console import Console
from rich.table import Table

from benchmarks.ratio import Ratio

NORM_KINDS = ("norm", "norm-residual", "norm-residual-ln", "globenc")
CHEAP_KINDS = ("attention", "effective", *NORM_KINDS, "alti")
TEXT = (
    "The keys that the old man left on the kitchen table are still missing, so nobody who lives there could lock "
    "the door behind them when they went out to look for him in the town. "
) * 20

Contenders = dict[str, Callable[[], Any]]
F = TypeVar("F", bound=Callable[..., Any])


def without_gradients(function: F) -> F:
    """Run ``function`` under ``torch.no_grad``, and leave the mode as it was for whatever runs next."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        import torch

        with torch.no_grad():
            return function(*arguments, **options)

    return cast(F, run)


def seconds(contenders: Contenders, repeats: int) -> dict[str, float]:
    """Median seconds of processor time of each, run in turn after one round that is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(repeats + 1):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            if round_:
                taken[name].append(time.process_time() - start)
    return {name: median(values) for name, values in taken.items()}


class Embedded:
    """The embedded model with eager attention, inputs of ``tokens`` tokens, and one layer's record."""

    def __init__(self, tokens: int) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        from flowgraph.embedded import embedded_model

        torch.set_num_threads(1)
        folder = embedded_model()
        self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self.inputs = dict(tokenizer(TEXT, return_tensors="pt", truncation=True, max_length=tokens))
        assert self.inputs["input_ids"].shape[1] == tokens

    def forward(self) -> None:
        self.model(**self.inputs)

    def trace(self, kinds: Sequence[str]) -> None:
        import flowgraph as fg

        fg.trace(self.model, None, self.inputs, edges=kinds)

    def layer(self, number: int = 1) -> tuple[Any, Any]:
        """The record of one layer and the call of its block."""
        from tests.mixing.traced import collect

        return collect(self.model, None, self.inputs).own[number - 1]


# --- the questions ----------------------------------------------------------------------------------------


@without_gradients
def against_naive(tokens: int, repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of each norm kind on one layer: ours, naive, and naive with heads summed by a matrix
    product."""
    import torch

    from flowgraph import mixing
    from tests import naive

    record, _ = Embedded(tokens).layer()

    def summed() -> None:
        vectors = naive.attended_vectors(record, torch.float32)
        torch.einsum("hij,hjd->ijd", record.weights, vectors).norm(dim=-1)

    contenders: Contenders = {"summed": summed}
    for kind in NORM_KINDS:
        contenders[f"{kind} ours"] = lambda kind=kind: mixing.get(kind).compute(record)
        contenders[f"{kind} naive"] = lambda kind=kind: naive.KINDS[kind](record, torch.float32)
    found = seconds(contenders, repeats)
    return {
        kind: {"ours": found[f"{kind} ours"], "naive": found[f"{kind} naive"], "summed": found["summed"]}
        for kind in NORM_KINDS
    }


@without_gradients
def value_zeroing(tokens: int, repeats: int) -> dict[str, float]:
    """Seconds on one layer: ours, ``tokens`` feed-forward passes, and zeroing and running the layer again."""
    from flowgraph import mixing
    from tests.mixing.traced import run_block
    from tests.naive import unit_distance

    record, call = Embedded(tokens).layer()
    kind = mixing.get("value-zeroing")
    hidden = record.attention_norm_output[None]
    block = call.module

    def feed_forward() -> None:
        for _ in range(tokens):
            block.output.dense(block.intermediate(hidden))

    def run_again() -> None:
        for token in range(tokens):
            unit_distance(record.block_output, run_block(call, token))

    return seconds(
        {"ours": lambda: kind.compute(record), "feed-forward": feed_forward, "run again": run_again}, repeats
    )


@without_gradients
def together(tokens: int, repeats: int, *, apart: bool = True) -> dict[str, float]:
    """Seconds of one plain forward pass, and of a trace of all kinds but value zeroing together (and each)."""
    embedded = Embedded(tokens)
    return seconds(
        {
            "forward": embedded.forward,
            "trace of attention": lambda: embedded.trace(("attention",)),
            "trace of all kinds": lambda: embedded.trace(CHEAP_KINDS),
            **{
                f"trace of {kind}": lambda kind=kind: embedded.trace((kind,))
                for kind in CHEAP_KINDS[1:]
                if apart
            },
        },
        repeats,
    )


@without_gradients
def projectors(tokens: int, repeats: int) -> dict[str, float]:
    """Seconds of effective attention on one layer: by factorised Gram matrices, and by decompositions
    alone."""
    import torch

    from flowgraph import mixing
    from flowgraph.mixing.effective import project_by_svd

    record, _ = Embedded(tokens).layer()

    def by_svd() -> None:
        torch.stack(
            [
                project_by_svd(w, v)
                for w, v in zip(record.weights.double(), record.values.double(), strict=True)
            ]
        )

    return seconds(
        {"ours": lambda: mixing.get("effective").compute(record), "decompositions": by_svd}, repeats
    )


def peak_bytes(job: str, tokens: int) -> int:
    """Peak of the resident set above what was resident, of ``job`` in a process of its own."""
    code = f"from benchmarks.edge_kinds import run_job; run_job({job!r}, {tokens})"
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


@without_gradients
def run_job(job: str, tokens: int) -> None:
    """In the child: ``"ours KIND"`` and ``"naive KIND"`` on one layer, ``"trace KIND"`` on the model."""
    import torch

    from flowgraph import mixing
    from tests import naive

    how, kind = job.split()
    embedded = Embedded(tokens)
    if how == "trace":
        # libraries load and warm up first
        Embedded(8).trace((kind,))
        print(_peak_of(lambda: embedded.trace((kind,))))
        return
    record, _ = embedded.layer()
    small, _ = Embedded(8).layer()
    run = mixing.get(kind).compute if how == "ours" else lambda r: naive.KINDS[kind](r, torch.float32)
    run(small)
    print(_peak_of(lambda: run(record)))


def _peak_of(run: Callable[[], Any]) -> int:
    ctypes.CDLL(None).malloc_trim(0)  # memory freed but kept would hide what is asked for next
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


# --- running them -----------------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks edge_kinds", description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=256, help="for the comparison with the naive versions")
    parser.add_argument("--memory-tokens", type=int, default=512, help="for the peak of a whole trace")
    parser.add_argument(
        "--only",
        choices=("naive", "memory", "value-zeroing", "together", "effective"),
        help="one question alone",
    )
    options = parser.parse_args(argv)
    questions: dict[str, Callable[[], Iterable[Table]]] = {
        "naive": lambda: [_naive_table(options.tokens, options.repeats)],
        "memory": lambda: [_layer_memory_table(options.tokens), _trace_memory_table(options.memory_tokens)],
        "value-zeroing": lambda: [_zeroing_table(128, max(3, options.repeats // 2))],
        "together": lambda: [_together_table(128, options.repeats)],
        "effective": lambda: [_projector_table(128, options.repeats)],
    }
    console = Console(width=110)
    for name, tables in questions.items():
        if options.only in (None, name):
            for table in tables():
                console.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    return table


def _naive_table(tokens: int, repeats: int) -> Table:
    table = _table(
        f"one layer, {tokens} tokens: milliseconds",
        "kind",
        "ours",
        "naive",
        "summed",
        "naive / ours",
        "summed / ours",
    )
    for kind, found in against_naive(tokens, repeats).items():
        ours, naive, summed = (1e3 * found[k] for k in ("ours", "naive", "summed"))
        table.add_row(
            kind,
            f"{ours:.1f}",
            f"{naive:.1f}",
            f"{summed:.1f}",
            f"{naive / ours:.1f}",
            f"{summed / ours:.1f}",
        )
    return table


def _layer_memory_table(tokens: int) -> Table:
    table = _table(f"one layer, {tokens} tokens: peak MiB", "kind", "ours", "naive", "naive / ours")
    for kind in NORM_KINDS:
        ours, naive = (peak_bytes(f"{how} {kind}", tokens) / 2**20 for how in ("ours", "naive"))
        table.add_row(kind, f"{ours:.1f}", f"{naive:.1f}", f"{naive / max(ours, 0.1):.0f}")
    return table


def _trace_memory_table(tokens: int) -> Table:
    table = _table(f"a trace of {tokens} tokens: peak MiB above the model", "kind", "MiB")
    for kind in CHEAP_KINDS:
        table.add_row(kind, f"{peak_bytes(f'trace {kind}', tokens) / 2**20:.0f}")
    table.add_row("value-zeroing (one layer)", f"{peak_bytes('ours value-zeroing', tokens) / 2**20:.0f}")
    return table


def _zeroing_table(tokens: int, repeats: int) -> Table:
    table = _table(f"value zeroing, one layer, {tokens} tokens", "what", "seconds", "to ours")
    found = value_zeroing(tokens, repeats)
    for name, value in found.items():
        table.add_row(name, f"{value:.2f}", f"{value / found['ours']:.2f}")
    return table


def _together_table(tokens: int, repeats: int) -> Table:
    table = _table(f"{tokens} tokens, all layers", "what", "milliseconds", "to forward")
    found = together(tokens, repeats)
    for name, value in found.items():
        table.add_row(name, f"{1e3 * value:.0f}", f"{value / found['forward']:.2f}")
    return table


def _projector_table(tokens: int, repeats: int) -> Table:
    table = _table(f"effective attention, one layer, {tokens} tokens", "what", "milliseconds")
    for name, value in projectors(tokens, repeats).items():
        table.add_row(name, f"{1e3 * value:.1f}")
    return table


def smoke() -> list[Ratio]:
    """Bounds below what was measured, for noisy machines."""
    ratios = [
        Ratio(f"{kind}: naive / ours, 128 tokens", found["naive"] / found["ours"], at_least=5.0)
        for kind, found in against_naive(128, 3).items()
    ]
    zeroing = value_zeroing(48, 2)
    ratios.append(
        Ratio("value zeroing: running layers again / ours", zeroing["run again"] / zeroing["ours"], 1.2)
    )
    ratios.append(
        Ratio("value zeroing: feed-forward passes / ours", zeroing["feed-forward"] / zeroing["ours"], 0.6)
    )
    found = together(128, 3, apart=False)
    ratios.append(
        Ratio(
            "5 forward passes / trace of all kinds", 5 * found["forward"] / found["trace of all kinds"], 0.7
        )
    )
    return ratios
