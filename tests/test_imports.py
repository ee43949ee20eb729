"""Who imports whom, what an import brings with it, and how long it takes."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import flowgraph as fg

PACKAGE = Path(fg.__file__).parent

MODEL_SIDE = ("capture", "mixing")
GRAPH_SIDE = (
    "arrays",
    "stack_graph",
    "axes",
    "capacity",
    "cuts",
    "export",
    "flow",
    "graph",
    "receptive_field",
    "rollout",
    "selection",
    "shares",
    "solvers",
    "trace_graph",
)
SHARED = ("_registry", "embedded", "errors", "progress")
JOINT = ("__init__", "attribution")
LAST = ("bench", "cli", "corpus", "evaluation")

HEAVY = (
    "bokeh",
    "igraph",
    "lxml",
    "matplotlib",
    "networkx",
    "pandas",
    "pyarrow",
    "rich",
    "scipy",
    "torch",
    "transformers",
)


def room(module: str) -> str:
    """``flowgraph.solvers.base`` -> ``solvers``; the package itself is ``__init__``."""
    return module.split(".")[1] if "." in module else "__init__"


def module_files() -> dict[str, Path]:
    names = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = [PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts]
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imported(path: Path, module: str) -> set[str]:
    """Every module of flowgraph, or library, that a file imports anywhere, inside functions too.

    Imports for type checkers alone do not run, and are left out.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively; write the full name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def arrows() -> list[tuple[str, str]]:
    """(importing module, imported name) within flowgraph."""
    return [
        (module, name)
        for module, path in module_files().items()
        for name in imported(path, module)
        if name.split(".")[0] == "flowgraph"
    ]


def test_every_room_has_its_place():
    known = {*MODEL_SIDE, *GRAPH_SIDE, *SHARED, *JOINT, *LAST}
    assert {room(module) for module in module_files()} <= known


@pytest.mark.parametrize(
    ("from_rooms", "to_rooms"),
    [
        (MODEL_SIDE, (*GRAPH_SIDE, *JOINT, *LAST)),
        (GRAPH_SIDE, (*MODEL_SIDE, *JOINT, *LAST)),
        (SHARED, (*MODEL_SIDE, *GRAPH_SIDE, *JOINT, *LAST)),
        (JOINT, LAST),
    ],
    ids=["model side", "graph side", "shared", "joint"],
)
def test_no_arrow_points_the_wrong_way(from_rooms, to_rooms):
    wrong = [
        f"{module} -> {name}"
        for module, name in arrows()
        if room(module) in from_rooms and room(name) in to_rooms
    ]
    assert wrong == []


def test_the_graph_side_knows_no_model_library():
    wrong = [
        f"{module} -> {name}"
        for module, path in module_files().items()
        if room(module) in GRAPH_SIDE
        for name in imported(path, module)
        if name.split(".")[0] in ("torch", "transformers")
    ]
    assert wrong == []


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )


def loaded_after(code: str) -> set[str]:
    """Libraries that are imported once ``code`` has run in a fresh interpreter."""
    report = "import json, sys; print(); print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    script = f"{code}\n{report}"
    return set(json.loads(run(script).stdout.splitlines()[-1]))


HELP = "from flowgraph.cli import execute; execute({arguments!r})"


@pytest.mark.parametrize(
    "code",
    [
        "import flowgraph",
        "import flowgraph; dir(flowgraph)",
        "import flowgraph; flowgraph.LayeredGraph, flowgraph.rollout, flowgraph.FlowgraphError",
        "import flowgraph; flowgraph.mixing.names(), flowgraph.solvers.names(), flowgraph.Trace",
        HELP.format(arguments=["--help"]),
        HELP.format(arguments=["--version"]),
    ],
)
def test_nothing_heavy_is_imported_early(code):
    assert loaded_after(code).isdisjoint(HEAVY)


def test_a_heavy_library_would_be_seen():
    assert "networkx" in loaded_after("import flowgraph, networkx")


def cpu_seconds(code: str, repeats: int = 5) -> float:
    """Least processor time of a fresh interpreter running ``code``: a busy machine stretches it little."""
    times = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(code)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


@pytest.mark.parametrize(
    ("code", "limit"),
    [("import flowgraph", 0.3), (HELP.format(arguments=["--help"]), 0.5)],
    ids=["import", "help"],
)
def test_starting_is_quick(code, limit):
    assert cpu_seconds(code) < limit


def test_every_public_name_is_there():
    for name in fg.__all__:
        assert getattr(fg, name) is not None, name
    assert set(fg.__all__) <= set(dir(fg))
    assert set(fg._HOME) | set(fg._ROOMS) | {"__version__"} == set(fg.__all__)


def test_public_names_are_what_the_modules_define():
    from flowgraph.graph import LayeredGraph
    from flowgraph.rollout import rollout

    assert fg.LayeredGraph is LayeredGraph
    assert fg.rollout is rollout


@pytest.mark.parametrize("before", ["flowgraph.flow, flowgraph.rollout", "flowgraph.shares", "numpy"])
def test_the_module_of_a_function_does_not_hide_it(before):
    code = f"import {before}, flowgraph as fg; print(callable(fg.rollout), fg.rollout.__module__)"
    assert run(code).stdout.strip() == "True flowgraph.rollout"


@pytest.mark.parametrize("library", ["pickle", "cloudpickle", "copy"])
def test_the_package_is_pickled_by_its_name(library):
    """Solvers and functions that hold it are sent to other processes."""
    if library == "copy":
        assert copy.deepcopy(fg) is fg
    else:
        assert pickle.loads(pytest.importorskip(library).dumps(fg)) is fg


@pytest.mark.parametrize(
    "code", ["import flowgraph; dir(flowgraph)", "import flowgraph.cli", HELP.format(arguments=["--help"])]
)
def test_numpy_comes_with_what_needs_it(code):
    """Ctrl-C while it is imported is then inside the command line, which answers in one line."""
    assert "numpy" not in loaded_after(code)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'flowgraph' has no attribute 'rolout'"):
        _ = fg.rolout
