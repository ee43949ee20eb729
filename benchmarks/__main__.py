"""``python -m benchmarks``: all benchmarks at small size, or one in full."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks.ratio import Ratio


def names() -> list[str]:
    """Every benchmark: the files of this folder that have both ``main`` and ``smoke``."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [f.stem for f in files if not f.stem.startswith("_") and _is_benchmark(_module(f.stem))]


def main(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in ("-h", "--help"):
        print(f"usage: python -m benchmarks [NAME [OPTIONS]]\n\nbenchmarks: {', '.join(names())}")
        return 0
    if arguments:
        known = names()
        if arguments[0] not in known:
            print(f"unknown benchmark {arguments[0]!r}; choose one of {', '.join(known)}", file=sys.stderr)
            return 2
        _module(arguments[0]).main(list(arguments[1:]))
        return 0
    return smoke_all(names())


def smoke_all(benchmarks: Iterable[str]) -> int:
    """Run each at small size; 1 where a ratio is below its bound or a benchmark raises."""
    ratios: list[Ratio] = []
    broken: list[str] = []
    for name in benchmarks:
        start = time.perf_counter()
        print(f"--- {name}", flush=True)
        try:
            ratios += _module(name).smoke()
        except Exception:
            traceback.print_exc()
            broken.append(name)
        print(f"    {time.perf_counter() - start:.1f} s", flush=True)
    print("\nsummary")
    for line in (*ratios, *(f"{name}: RAISED AN ERROR" for name in broken)):
        print(line)
    return 0 if not broken and all(ratio.holds for ratio in ratios) else 1


def _module(name: str) -> ModuleType:
    return import_module(f"benchmarks.{name}")


def _is_benchmark(module: ModuleType) -> bool:
    return callable(getattr(module, "main", None)) and callable(getattr(module, "smoke", None))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
