"""Maximum-flow solvers by name: prepare a graph once, answer many pairs.

``networkx`` and ``igraph`` wrap those libraries, ``push-relabel`` is flowgraph's own, in NumPy alone. A solver of
your own is a function ``(edges, source, sink) -> flow on each edge`` (see :mod:`flowgraph.solvers.function`), or, to
convert a graph once for many pairs, any object with ``prepare(graph)``; what that returns needs ``solve(source, sink,
*, time_limit=None) -> FlowResult`` (see :mod:`flowgraph.solvers.base`).
"""

from __future__ import annotations

from typing import cast

from flowgraph._registry import Registry, normalise
from flowgraph.errors import FlowgraphError
from flowgraph.solvers.base import FlowResult, PreparedSolver, Solver, check_flow, check_pair, cut_value
from flowgraph.solvers.function import EdgeFunction, FunctionSolver
from flowgraph.solvers.igraph_solver import IgraphSolver
from flowgraph.solvers.networkx_solver import NetworkxSolver
from flowgraph.solvers.push_relabel import PushRelabelSolver

__all__ = [
    "FlowResult",
    "PreparedSolver",
    "Solver",
    "check_flow",
    "check_pair",
    "cut_value",
    "get",
    "names",
    "register",
    "unregister",
]

_SOLVERS: Registry[Solver] = Registry("solver", "solver")
_RESERVED = ("auto",)


def register(name: str, solver: Solver | EdgeFunction, *, overwrite: bool = False) -> Solver:
    """Add ``solver`` under ``name``; from then on it can be asked for by name everywhere.

    ``solver``: an object with ``prepare(graph)``, or a function ``(edges, source, sink)`` that returns the flow on
    each edge: ``edges`` is what ``graph.edges()`` returns, ``source`` and ``sink`` are node numbers in it. Returns the
    solver as registered.
    """
    if isinstance(name, str) and name.strip().lower() in _RESERVED:
        raise FlowgraphError(f"name: {name!r} is the name of the automatic choice; choose another")
    if isinstance(solver, type):
        raise FlowgraphError(f"solver: {solver.__name__} is a class; pass {solver.__name__}(...), one of it")
    if not callable(getattr(solver, "prepare", None)):
        if not callable(solver):
            raise FlowgraphError(
                f"solver: {solver!r} has no method prepare(graph) and is no function (edges, source, sink); see "
                "flowgraph.solvers.register"
            )
        solver = FunctionSolver(normalise(str(name)), solver)
    return _SOLVERS.register(name, cast(Solver, solver), overwrite=overwrite)


def get(name: str) -> Solver:
    """The solver called ``name``; an unknown name's error lists the known ones."""
    return _SOLVERS.get(name)


def names() -> list[str]:
    """All registered solvers, sorted."""
    return _SOLVERS.names()


def unregister(name: str) -> None:
    """Forget a solver that was registered (for tests and notebooks)."""
    _SOLVERS.unregister(name)


for _solver in (NetworkxSolver(), IgraphSolver(), PushRelabelSolver()):
    register(_solver.name, _solver)
