"""Which solver: one pair or all of them, one shape of graph or another, the answer differs.

Three sizes of graphs as causal models make them; every solver in a process of its own, checked, then timed in turns.
Prints a table a size and the growth, and draws time against size::

    python examples/which_solver.py solvers.png
"""

from __future__ import annotations

import sys

from flowgraph.bench import Report, compare, generate

SIZES = (8, 16, 32)
SOLVERS = ("auto", "igraph", "push-relabel", "or-tools")


def report(sizes: tuple[int, ...] = SIZES) -> Report:
    graphs = {f"6x{tokens}": generate(6, tokens, "causal") for tokens in sizes}
    return compare(graphs, solvers=SOLVERS, time_limit=20.0)


def main(path: str = "which_solver.png") -> None:
    found = report()
    found.show()
    found.plot(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
