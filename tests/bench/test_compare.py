"""A comparison tells right from wrong solvers, whatever they do, and goes on."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest

import flowgraph as fg
from flowgraph.bench import compare, generate
from flowgraph.bench.comparison import Settings, _Contest
from flowgraph.bench.contestants import choose, known_names
from flowgraph.bench.reference import certify, difference
from tests.helpers import encoder_decoder, exact_value

pytestmark = pytest.mark.timeout(900)  # many processes, each a fresh interpreter

SMALL = 8  # nodes; on the warm-up's graph every solver below behaves


class Altered:
    """push-relabel, with what ``alter`` makes of its answers."""

    def __init__(self, alter):
        self.alter = alter

    def prepare(self, graph):
        prepared = fg.solvers.get("push-relabel").prepare(graph)
        if graph.num_nodes < SMALL:
            return prepared
        return SimpleNamespace(solve=lambda source, sink, **_: self.alter(prepared.solve(source, sink)))


def too_large(result):
    return replace(result, value=1.01 * result.value)


def leaky(result):
    flow = [array.copy() for array in result.edge_flow]
    flow[0][flow[0] > 0] *= 0.5
    return replace(result, edge_flow=tuple(flow))


def of_another_pair(result):
    level, position = result.sink
    return replace(result, sink=(level, (position + 1) % 3))


def raises(_):
    raise ZeroDivisionError("no way\nat all")


def hangs(_):
    time.sleep(600)


def crashes(_):
    os.kill(os.getpid(), signal.SIGSEGV)


def leaves(_):
    sys.exit(3)


def talks(result):
    print("a solver's chatter")
    os.write(1, b"in C too")
    assert sys.stdin.read() == ""
    return result


class ValuesOnly:
    """Rounds to eight places."""

    def prepare(self, graph):
        prepared = fg.solvers.get("push-relabel").prepare(graph)
        return SimpleNamespace(values=lambda *args, **kw: np.round(prepared.values(*args, **kw), 8))


class Greedy:
    """Holds 32 MB while it solves."""

    def prepare(self, graph):
        prepared = fg.solvers.get("push-relabel").prepare(graph)

        def solve(source, sink, **_):
            return (np.ones(2**22), prepared.solve(source, sink))[1]

        return SimpleNamespace(solve=solve)


class Unbuildable:
    def prepare(self, graph):
        raise RuntimeError("no such graph")


class OfWrongShape:
    def prepare(self, graph):
        return SimpleNamespace(values=lambda sources, sinks, **_: np.zeros((1, 1)))


class Nothing:
    def prepare(self, graph):
        return None


class Locked:
    """Cannot be sent to another process."""

    def __init__(self):
        self.lock = threading.Lock()

    def prepare(self, graph):
        return fg.solvers.get("push-relabel").prepare(graph)


OWN = {
    "too-large": Altered(too_large),
    "leaky": Altered(leaky),
    "of-another-pair": Altered(of_another_pair),
    "raises": Altered(raises),
    "hangs": Altered(hangs),
    "crashes": Altered(crashes),
    "leaves": Altered(leaves),
    "talks": Altered(talks),
    "values-only": ValuesOnly(),
    "greedy": Greedy(),
    "unbuildable": Unbuildable(),
    "of-wrong-shape": OfWrongShape(),
    "nothing": Nothing(),
    "locked": Locked(),
}


@pytest.fixture(scope="module", autouse=True)
def own_solvers():
    """Registered for this file alone."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    for name, solver in OWN.items():
        fg.solvers.register(name, solver)
    yield
    for name in OWN:
        fg.solvers.unregister(name)
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def report(own_solvers):
    """All of them on one graph of 3 x 3 nodes."""
    names = ["auto", "igraph", *OWN]
    return compare({"2x3": generate(2, 3)}, solvers=names, pairs=2, repeats=2, time_limit=4.0, clock="wall")


@pytest.fixture
def entry(report):
    return lambda name: report.graphs[0].entries[name]


# --- verdicts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["auto", "igraph", "talks", "greedy"])
def test_a_right_solver_is_right(entry, name):
    found = entry(name)
    assert (found.verdict, found.certificate, found.messages) == ("right", "held", [])
    assert found.difference < 1e-12
    assert list(found.tasks) == ["build", "value", "flow", "matrix"]
    for measured in found.tasks.values():
        assert measured.status == "ok"
        assert len(measured.wall_seconds) == len(measured.cpu_seconds) == 2
        assert measured.quartiles[0] <= measured.median <= measured.quartiles[1]
        assert min(measured.wall_seconds) > 0


def test_a_wrong_value_is_wrong(entry):
    found = entry("too-large")
    assert (found.verdict, found.certificate) == ("wrong", "failed")
    assert 0.001 < found.difference < 0.02
    assert "flow: edge_flow: not conserved" in found.messages[0]


def test_a_right_value_with_a_wrong_flow_is_wrong(entry):
    found = entry("leaky")
    assert (found.verdict, found.certificate) == ("wrong", "failed")
    assert found.difference < 1e-12


def test_the_answer_must_be_for_the_pair_that_was_asked_for(entry):
    assert entry("of-another-pair").certificate == "failed"
    assert "asked for" in entry("of-another-pair").messages[0]


def test_values_without_flows_have_no_certificate(entry):
    found = entry("values-only")
    assert (found.verdict, found.certificate) == ("inexact", "none")
    assert 1e-9 < found.difference <= 1e-8
    assert found.tasks["flow"].status == "not offered"
    assert found.tasks["flow"].median is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "value, flow, matrix: ZeroDivisionError: no way at all"),
        ("leaves", "value, flow, matrix: SystemExit: 3"),
        ("unbuildable", "build, value, flow, matrix: RuntimeError: no such graph"),
        ("nothing", "AttributeError"),
        ("locked", "locked cannot be sent to a process of its own: TypeError"),
    ],
)
def test_what_a_solver_raised_is_shown(entry, name, message):
    found = entry(name)
    assert found.verdict == "raised"
    assert message in " ".join(found.messages)
    assert "\n" not in "".join(found.messages)


def test_a_matrix_of_the_wrong_shape_is_wrong(entry):
    assert entry("of-wrong-shape").tasks["matrix"].difference == float("inf")
    assert entry("of-wrong-shape").verdict == "wrong"


def test_a_timeout_is_no_number(entry):
    found = entry("hangs")
    assert (found.verdict, found.certificate, found.difference) == ("timeout", "unknown", None)
    assert found.tasks["build"].median > 0
    for task in ("value", "flow", "matrix"):
        assert found.tasks[task].status == "timeout"
        assert found.tasks[task].message == "longer than 4 s"
        assert found.tasks[task].median is None


def test_a_crash_is_told(entry):
    assert entry("crashes").verdict == "died"
    assert "value, flow, matrix: its process crashed with SIGSEGV" in entry("crashes").messages


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process reset its peak")
def test_peak_memory_is_counted(entry):
    assert 0.95 * 2**25 <= entry("greedy").peak_bytes < 2**26
    assert entry("igraph").peak_bytes < 2**24


def test_json_holds_no_number_that_is_none(report):
    text = json.dumps(report.to_dict(), allow_nan=False)
    values = json.loads(text)
    assert values["format"] == "flowgraph bench 1"
    assert values["settings"] | {"time_limit": 4.0, "pairs": 2, "clock": "wall"} == values["settings"]
    assert {"numpy", "igraph", "python"} <= values["versions"].keys()
    assert values["machine"]["memory_bytes"] > 2**28
    (graph,) = values["graphs"]
    assert (graph["layers"], graph["tokens"], graph["edges"], graph["certified"]) == (2, 3, 18, 9)
    by_name = {solver["solver"]: solver for solver in graph["solvers"]}
    assert by_name["hangs"]["tasks"]["matrix"]["median"] is None
    assert by_name["hangs"]["tasks"]["matrix"]["status"] == "timeout"
    assert by_name["of-wrong-shape"]["difference"] == "infinite"
    assert by_name["igraph"]["tasks"]["matrix"]["median"] > 0


def test_the_parent_prints_nothing(report, capfd):
    """What a solver prints goes to standard error, and not between the lines of a result."""
    compare({"g": generate(2, 3)}, solvers=["talks"], tasks=("value",), pairs=1, repeats=1)
    out, err = capfd.readouterr()
    assert out == ""
    assert "a solver's chatter" in err


# --- the way it is run ------------------------------------------------------------------------------------


def test_every_turn_begins_with_another_solver(monkeypatch):
    settings = Settings(tasks=("build", "matrix"), repeats=3)
    contest = _Contest("g", generate(2, 3), {"a": b"", "b": b"", "c": b""}, settings, lambda _: None)
    order = []
    for name, lane in contest._lanes.items():
        monkeypatch.setattr(lane, "sample", lambda task, name=name: order.append(task[0] + name))
    for turn in range(3):
        contest._turn(turn)
    assert " ".join(order) == "ba bb bc ma mb mc bb bc ba mb mc ma bc ba bb mc ma mb"


def test_repeats_end_when_their_time_is_used_up():
    class Slow:
        def prepare(self, graph):
            values = fg.solvers.get("push-relabel").prepare(graph).values
            return SimpleNamespace(values=lambda *args, **kw: (time.sleep(0.4), values(*args, **kw))[1])

    fg.solvers.register("slow", Slow())
    try:
        report = compare(
            {"g": generate(2, 3)},
            solvers=["slow"],
            tasks=("matrix",),
            repeats=50,
            time_limit=2.0,
            clock="wall",
        )
    finally:
        fg.solvers.unregister("slow")
    measured = report.graphs[0].entries["slow"].tasks["matrix"]
    assert measured.status == "ok"
    assert 3 <= len(measured.wall_seconds) <= 5
    assert measured.median >= 0.4
    assert max(measured.cpu_seconds) < 0.2


def busy():
    end = time.process_time() + 30
    while time.process_time() < end:
        pass


@pytest.mark.parametrize(
    ("clock", "work", "least", "most"),
    [("cpu", busy, 0.5, None), ("cpu", lambda: time.sleep(30), 5.0, 15.0), ("wall", busy, 0.5, 5.0)],
)
def test_a_limit_is_of_the_clock(clock, work, least, most):
    """A busy child gets its seconds whatever else runs; one that waits is ended after ten times as many."""
    from flowgraph.bench.child import Child
    from flowgraph.bench.runner import GraphParts

    class Solver:
        def prepare(self, graph):
            work()

    child = Child(1, clock)
    try:
        child.load(cloudpickle.dumps(Solver()), GraphParts.of(generate(2, 3)), [], [], [])
        start, used = time.monotonic(), child._cpu_seconds()
        with pytest.raises(fg.TimeLimitError, match=r"longer than 0\.5 s"):
            child.call("first", "build", limit=0.5)
        seconds = time.monotonic() - start
    finally:
        child.close()
    assert used > 0
    assert seconds >= least
    assert most is None or seconds < most


def test_threads_are_pinned(monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    from flowgraph.bench.child import Child
    from flowgraph.bench.runner import GraphParts

    child = Child(1)
    try:
        solver = cloudpickle.dumps(fg.solvers.get("push-relabel"))
        child.load(solver, GraphParts.of(generate(2, 3)), [((2, 0), (0, 0))], [(2, 0)], [(0, 0)])
        child.call("warm_up", limit=60)
        pools = child.call("threads", limit=60)
    finally:
        child.close()
    assert {pool["threads"] for pool in pools} == {1}
    assert child._process.poll() is not None


def test_encoder_decoders_are_compared_too():
    graph = encoder_decoder(0)
    report = compare({"ed": graph}, solvers=["auto", "push-relabel"], repeats=1, time_limit=60.0)
    assert {e.verdict for e in report.graphs[0].entries.values()} == {"right"}
    assert report.graphs[0].certified == report.graphs[0].matrix_pairs == 2 * 3


def test_everyone_takes_part_by_default():
    assert set(choose()) >= {"auto", "too-large", *fg.solvers.names()}
    assert known_names()[0] == "auto"
    assert list(choose(["Push_Relabel", "auto"])) == ["push-relabel", "auto"]


def test_a_peer_that_is_not_installed_says_what_to_install(monkeypatch):
    from flowgraph.bench import PEERS

    monkeypatch.setattr(PEERS["or-tools"], "module", "no_such_library")
    assert "or-tools" not in choose()
    with pytest.raises(fg.MissingDependencyError, match=r"attention-flowgraph\[bench\]"):
        choose(["or-tools"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repeats": 0}, "repeats: 0 is not a whole number from 1 to 1000000"),
        ({"repeats": 10**20}, "repeats: 100000000000000000000 is not a whole number from 1 to 1000000"),
        ({"threads": 10**13}, "threads: 10000000000000 is not a whole number from 1 to 4096"),
        ({"seed": -1}, "seed: -1 is not a whole number from 0"),
        ({"pairs": 2.5}, "pairs: 2.5 is not"),
        ({"time_limit": 0}, "time_limit: 0 is not a number of seconds above 0"),
        ({"clock": "sun"}, "clock: unknown clock 'sun'"),
        ({"tasks": ("values",)}, "tasks: 'values'; choose from build, value, flow, matrix"),
        ({"repeat": 3}, "settings: unknown repeat"),
        ({"solvers": ["nobody"]}, "unknown solver 'nobody'; choose from auto, "),
        ({"solvers": []}, "solvers: none named"),
    ],
)
def test_bad_settings_are_named(arguments, message):
    with pytest.raises(fg.FlowgraphError, match=message.split(";")[0]) as caught:
        compare({"g": generate(2, 2)}, **arguments)
    assert message in str(caught.value)


def test_no_graph_is_an_error():
    with pytest.raises(fg.FlowgraphError, match="graphs: none given"):
        compare({})


# --- the right answers ------------------------------------------------------------------------------------


def test_certified_values_are_the_maximum_flows():
    graph = generate(3, 4, "peaky", seed=3)
    reference = certify(graph, 9, seed=1)
    assert len({tuple(place) for place in reference.places.tolist()}) == 9
    for (source, sink), value in zip(reference.pairs(9), reference.values, strict=True):
        assert value == pytest.approx(float(exact_value(graph, source, sink)), rel=1e-12)


def test_a_liar_is_not_believed(monkeypatch):
    """With igraph giving wrong answers, another solver proves the right ones."""
    honest = fg.solvers.get("igraph")

    class Liar:
        def prepare(self, graph):
            prepared = honest.prepare(graph)
            return SimpleNamespace(solve=lambda source, sink: too_large(prepared.solve(source, sink)))

    graph = generate(3, 4)
    expected = certify(graph, 5, seed=0).values
    fg.solvers.register("igraph", Liar(), overwrite=True)
    try:
        found = certify(graph, 5, seed=0).values
    finally:
        fg.solvers.register("igraph", honest, overwrite=True)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_difference_is_relative_above_one():
    assert difference(np.array([0.1 + 1e-6]), np.array([0.1])) == pytest.approx(1e-6)
    assert difference(np.array([101.0]), np.array([100.0])) == pytest.approx(0.01)
    assert difference(np.array([np.nan]), np.array([1.0])) == float("inf")
    assert difference(np.zeros(2), np.zeros(3)) == float("inf")
