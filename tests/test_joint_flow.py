"""Joint flow against its definition: all subsets of inputs, all exchanges between two inputs."""

import itertools

import igraph
import numpy as np
import pytest

import flowgraph as fg
from flowgraph.errors import FlowgraphError


def flow_to_set(graph, source, wanted):
    """Maximum flow from ``source`` to the inputs of ``wanted`` together, by igraph on a graph built here."""
    table = graph.edges()
    edges = np.column_stack([table["source"], table["target"]]).tolist()
    sink = graph.num_nodes
    capacity = table["capacity"].tolist()
    edges += [[j, sink] for j in wanted]
    capacity += [1e3] * len(wanted)
    native = igraph.Graph(n=sink + 1, edges=edges, directed=True)
    return native.maxflow_value(int(graph.offsets[source[0]] + source[1]), sink, capacity)


def random_mixing(seed, layers, size):
    draw = np.random.default_rng(seed)
    return draw.random((layers, size, size)) * (draw.random((layers, size, size)) < 0.7)


@pytest.mark.filterwarnings("ignore::flowgraph.errors.FlowgraphWarning")
@pytest.mark.parametrize("seed", range(30))
def test_shares_are_the_nearest_of_all_maximum_flows(seed):
    layers, size = 1 + seed % 3, 2 + seed % 4
    graph = fg.LayeredGraph.from_matrices(
        random_mixing(seed, layers, size), residual=None, normalize=False, negative="error"
    )
    source = (layers, seed % size)
    joint = fg.joint_flow(graph, source)
    subsets = [s for n in range(1, size + 1) for s in itertools.combinations(range(size), n)]
    rank = {s: flow_to_set(graph, source, s) for s in subsets}
    assert joint.value == pytest.approx(rank[tuple(range(size))], abs=1e-9)
    assert joint.shares.sum() == pytest.approx(joint.value, abs=1e-9)
    gap = {s: rank[s] - joint.shares[list(s)].sum() for s in subsets}
    assert min(gap.values()) > -1e-8, "more reaches a set of inputs than can"
    wish = fg.rollout(graph, targets=source[1])[0]
    if wish.sum() > 0:
        wish = wish * joint.value / wish.sum()
    excess = joint.shares - wish
    for i, j in itertools.permutations(range(size), 2):
        movable = min((gap[s] for s in subsets if i in s and j not in s), default=0.0)
        if movable > 1e-7 and joint.shares[j] > 1e-7:
            assert excess[i] >= excess[j] - 1e-7, f"moving flow from input {j} to {i} would be nearer"


@pytest.mark.filterwarnings("ignore::flowgraph.errors.FlowgraphWarning")
@pytest.mark.parametrize("seed", range(5))
def test_edge_flow_carries_the_shares(seed):
    graph = fg.LayeredGraph.from_matrices(random_mixing(seed, 3, 5), residual=None, normalize=False)
    joint = fg.joint_flow(graph, (3, 2))
    for block, flow in zip(graph.blocks, joint.edge_flow, strict=True):
        assert (flow >= -1e-12).all()
        assert (flow <= block.capacity + 1e-9).all()
    assert joint.edge_flow[0].sum(0) == pytest.approx(joint.shares, abs=1e-8)
    assert joint.edge_flow[2].sum(1) == pytest.approx(joint.value * (np.arange(5) == 2), abs=1e-8)
    assert joint.edge_flow[1].sum(1) == pytest.approx(joint.edge_flow[2].sum(0), abs=1e-8)


@pytest.mark.filterwarnings("ignore::flowgraph.errors.FlowgraphWarning")
def test_rollout_is_the_joint_flow_where_rows_sum_to_one():
    graph = fg.LayeredGraph.from_matrices(random_mixing(1, 4, 6) + 0.01)
    joint = fg.joint_flow(graph, (4, 3))
    assert joint.value == pytest.approx(1.0)
    assert np.asarray(joint) == pytest.approx(fg.rollout(graph, targets=3)[0], abs=1e-9)


def test_nothing_flows_where_nothing_leads():
    graph = fg.LayeredGraph.from_matrices(np.zeros((2, 3, 3)), residual=None, normalize=False)
    joint = fg.joint_flow(graph, (2, 0))
    assert joint.value == 0
    assert not joint.shares.any()


def test_an_input_is_no_source():
    graph = fg.LayeredGraph.from_matrices(np.eye(3)[None])
    with pytest.raises(FlowgraphError, match=r"source: \(0, 1\) is an input"):
        fg.joint_flow(graph, (0, 1))
