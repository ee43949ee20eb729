"""Who takes part: ``auto``, every registered solver, and the installed peers."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from flowgraph import solvers
from flowgraph._registry import normalise
from flowgraph.bench.auto import AutoSolver
from flowgraph.bench.peers import PEERS
from flowgraph.errors import FlowgraphError, missing_dependency


def known_names() -> list[str]:
    """``auto``, then registered solvers, then peers, installed or not."""
    registered = solvers.names()
    return [AutoSolver.name, *registered, *(name for name in PEERS if name not in registered)]


def missing_peers() -> list[str]:
    """Peers whose library is not installed."""
    return [name for name, peer in PEERS.items() if not peer.installed]


def choose(names: Iterable[str] | None = None) -> dict[str, Any]:
    """Name -> solver, in the order of ``names``; None is everyone whose library is installed."""
    if names is None:
        absent = missing_peers()
        names = [name for name in known_names() if name not in absent]
    chosen = {normalise(name): _find(normalise(name)) for name in names}
    if not chosen:
        raise FlowgraphError(f"solvers: none named; choose from {', '.join(known_names())}")
    return chosen


def _find(name: str) -> Any:
    if name == AutoSolver.name:
        return AutoSolver()
    if name in solvers.names():
        return solvers.get(name)
    if name not in PEERS:
        raise FlowgraphError(
            f"solvers: unknown solver {name!r}; choose from {', '.join(known_names())}, or register your own "
            "(on the command line: --load FILE.py)"
        )
    peer = PEERS[name]
    if not peer.installed:
        raise missing_dependency(peer.module, "bench", f"the solver {name!r}")
    return peer


def require_libraries() -> None:
    """What a comparison itself needs, of the extra ``bench``."""
    for library in ("cloudpickle", "psutil", "threadpoolctl"):
        if find_spec(library) is None:
            raise missing_dependency(library, "bench", "comparing solvers")
