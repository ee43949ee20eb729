"""Preflows of many pairs at once: the arrays and array operations of push-relabel.

A batch of B pairs shares one :class:`Network`. For every arc matrix ``a`` from level ``tail`` to level ``head``
(sizes n and m) a :class:`Preflow` holds

* ``room[a]`` (B, n, m): residual capacity of the arcs, ``>= 0``,
* ``flow[a]`` (B, n, m): what they carry, the residual capacity of the same arcs turned round, ``>= 0``,

with ``room + flow`` the capacity to rounding. Both are kept, so that a saturated arc has a room of exactly 0 and
an emptied one a flow of exactly 0: no rounding residue ever opens a path. Until a first push the room is the
capacity all pairs share, (1, n, m), and the flow is None; products with it are one matrix product for the whole
batch. For every level of size n there are

* ``excess`` (B, n): what arrived and was not sent on, ``>= 0``; summed over T a preflow is short of a flow by it,
* ``height`` (B, n): arcs on a shortest residual path to the end, ``FAR`` where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FAR = np.iinfo(np.int16).max

Layer = dict[int, np.ndarray]
"""Level -> (B, n) of 0.0 and 1.0: the nodes of one height."""


@dataclass(frozen=True)
class Arcs:
    """All arcs from level ``tail`` to level ``head``; ``capacity`` (n, m)."""

    tail: int
    head: int
    capacity: np.ndarray


class Network:
    """Levels 0 to D in the order of the flow, which starts at one node of level 0 and ends at one of level D."""

    def __init__(self, sizes: list[int], arcs: list[Arcs]) -> None:
        self.sizes = sizes
        self.arcs = arcs
        self.end = len(sizes) - 1
        self.leaving = [[a for a, arc in enumerate(arcs) if arc.tail == k] for k in range(len(sizes))]
        self.arriving = [[a for a, arc in enumerate(arcs) if arc.head == k] for k in range(len(sizes))]

    @property
    def pair_bytes(self) -> int:
        """Of the arrays of one pair: room and flow of all arcs between levels that are not cut down to a node."""
        inner = (arc.capacity.size for arc in self.arcs if arc.tail != 0 and arc.head != self.end)
        return 16 * sum(inner) + 64 * sum(self.sizes)

    def capacities(self, starts: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
        """One (B or 1, n, m) an arc matrix, levels 0 and D cut down to each pair's own node; starts, ends (B,)."""
        return [self._capacity(arc, starts, ends) for arc in self.arcs]

    def _capacity(self, arc: Arcs, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        if arc.tail == 0 and arc.head == self.end:
            return arc.capacity[starts, ends][:, None, None]  # (B, 1, 1)
        if arc.tail == 0:
            return arc.capacity[starts][:, None, :]  # (B, 1, m)
        if arc.head == self.end:
            return arc.capacity.T[ends][:, :, None]  # (B, n, 1)
        return arc.capacity[None]  # (1, n, m)


def times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """(B or 1, n, m) times (B, m), summed over m -> (B, n)."""
    if len(matrix) == 1:
        return vector @ matrix[0].T
    return np.matmul(matrix, vector[:, :, None])[:, :, 0]


def times_turned(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """(B or 1, n, m) times (B, n), summed over n -> (B, m)."""
    if len(matrix) == 1:
        return vector @ matrix[0]
    return np.matmul(vector[:, None, :], matrix)[:, 0, :]


class Preflow:
    """The state of B pairs; starts with all arcs of the start node full."""

    def __init__(self, network: Network, starts: np.ndarray, ends: np.ndarray) -> None:
        self.network = network
        count = len(starts)
        self.capacity = network.capacities(starts, ends)
        self.room = list(self.capacity)
        self.flow: list[np.ndarray | None] = [None] * len(self.room)
        sizes = [1, *network.sizes[1:-1], 1]
        self.excess = [np.zeros((count, n)) for n in sizes]
        for a in network.leaving[0]:
            self.flow[a] = self.capacity[a]
            self.room[a] = np.zeros_like(self.capacity[a])
            self.excess[network.arcs[a].head] += self.capacity[a][:, 0, :]
        self.height = [np.empty(0, np.int16)] * len(sizes)
        self.layers: list[Layer] = []
        self.ahead: list[np.ndarray] = []
        self.accept: list[np.ndarray] = []
        self.share: list[np.ndarray] = []

    @property
    def count(self) -> int:
        return len(self.excess[0])

    @property
    def value(self) -> np.ndarray:
        """(B,): what has arrived at the end."""
        return self.excess[self.network.end][:, 0]

    # --- heights ----------------------------------------------------------------------------------------

    def relabel(self) -> None:
        """Exact heights of all nodes by a backward breadth-first search from the end, a layer at a time.

        Sets ``height``, ``layers`` (layer d: the nodes of height d) and ``ahead`` (B, n): residual capacity of a
        node's admissible arcs, those that lead to height one less. The search stops at the first empty layer:
        whatever lies beyond that gap has height ``FAR`` and is never looked at again.
        """
        sizes = [e.shape[1] for e in self.excess]
        self.height = [np.full((self.count, n), FAR, np.int16) for n in sizes]
        self.ahead = [np.zeros((self.count, n)) for n in sizes]
        self.accept = [np.ones((self.count, n)) for n in sizes]
        end = self.network.end
        self.height[end][:] = 0
        self.layers = [{end: np.ones((self.count, 1))}]
        while self.layers[-1]:
            self.layers.append(self._next_layer(self.layers[-1], len(self.layers)))
        self.layers.pop()

    def _next_layer(self, front: Layer, height: int) -> Layer:
        layer: Layer = {}
        for k in range(1, self.network.end):
            unseen = self.height[k] == FAR
            if not unseen.any():
                continue
            reach = self._towards(k, front)
            if reach is None:
                continue
            new = unseen & (reach > 0)
            if new.any():
                self.height[k][new] = height
                layer[k] = new.astype(np.float64)
                self.ahead[k] += np.where(new, reach, 0.0)
        return layer

    def _towards(self, k: int, front: Layer) -> np.ndarray | None:
        """(B, n): residual capacity from the nodes of level k to the nodes of ``front``, times their weights."""
        total = None
        for a in self.network.leaving[k]:
            head = self.network.arcs[a].head
            if head in front:
                total = _add(total, times(self.room[a], front[head]))
        for a in self.network.arriving[k]:
            tail, flow = self.network.arcs[a].tail, self.flow[a]
            if tail in front and flow is not None:
                total = _add(total, times_turned(flow, front[tail]))
        return total

    def left(self) -> np.ndarray:
        """(B,): excess that still has a way to the end. The nodes without one are the source side of a cut
        whose arcs are full and whose backward arcs are empty, so its capacity is the value plus this."""
        total = np.zeros(self.count)
        for k in range(1, self.network.end):
            total += np.where(self.height[k] < FAR, self.excess[k], 0.0).sum(1)
        return total

    # --- a wave of pushes ---------------------------------------------------------------------------------

    def wave(self, rounds: int) -> None:
        """Push excess from height to height, the greatest first, then down to the end.

        With ``rounds=0`` this is push-relabel's own discharge: every node sends all it can along its admissible
        arcs, in proportion to their room. A node that is sent more than it can send on is then left with excess.
        Each round first works out what the nodes can accept, and sends only that. Excess that finds no one to
        accept it stays where it is.
        """
        before = [e.copy() for e in self.excess]
        arrived = self._send()
        for _ in range(rounds):
            self._look_ahead(before, arrived)
            self.excess = [e.copy() for e in before]
            arrived = self._send()
        self._commit()

    def _send(self) -> list[np.ndarray]:
        """Work out the pushes of a wave, layer by layer downwards: ``share`` (B, n), the part of its admissible
        room times acceptance that a node uses, and the ``excess`` that results. Returns what was offered to
        each node, (B, n), before acceptance."""
        offered = [np.zeros_like(e) for e in self.excess]
        self.share = [np.zeros_like(e) for e in self.excess]
        for height in range(len(self.layers) - 1, 0, -1):
            below = self.layers[height - 1]
            for k, mask in self.layers[height].items():
                excess, ahead = self.excess[k], self.ahead[k]
                # e < ahead: all of it goes, and exactly nothing stays
                share = np.divide(excess, ahead, out=mask.copy(), where=excess < ahead) * mask
                self.excess[k] = np.where(mask > 0, np.maximum(excess - ahead, 0.0), excess)
                self.share[k] += share
                for level, offer in self._offers(k, share, below):
                    offer *= below[level]
                    offered[level] += offer
                    self.excess[level] += offer * self.accept[level]
        return offered

    def _offers(self, k: int, share: np.ndarray, below: Layer) -> list[tuple[int, np.ndarray]]:
        """(level, (B, size)): what nodes of level k would send to each level of ``below`` if all were accepted."""
        result = []
        for a in self.network.leaving[k]:
            head = self.network.arcs[a].head
            if head in below:
                result.append((head, times_turned(self.room[a], share)))
        for a in self.network.arriving[k]:
            tail, flow = self.network.arcs[a].tail, self.flow[a]
            if tail in below and flow is not None:
                result.append((tail, times(flow, share)))
        return result

    def _look_ahead(self, before: list[np.ndarray], offered: list[np.ndarray]) -> None:
        """Layer by layer upwards: ``accept`` (B, n), the part of the last offers that a node can send on, and
        ``ahead`` anew with it. ``before``: the excess a node holds by itself, which goes first."""
        front = self.layers[0]
        for layer in self.layers[1:]:
            accepted = {}
            for k, mask in layer.items():
                total = self._towards(k, front)
                assert total is not None
                self.ahead[k] = np.where(mask > 0, total, self.ahead[k])
                spare = np.maximum(total - before[k], 0.0)
                accept = np.divide(spare, offered[k], out=np.ones_like(spare), where=offered[k] > spare)
                self.accept[k] = np.where(mask > 0, accept, self.accept[k])
                accepted[k] = mask * accept
            front = accepted

    def _commit(self) -> None:
        """Move what the wave worked out: ``room`` to ``flow`` on arcs down, back on arcs up."""
        for a, arc in enumerate(self.network.arcs):
            down = self._weights(arc.tail, arc.head)
            up = self._weights(arc.head, arc.tail) if self.flow[a] is not None else None
            moved = None
            if down is not None:
                moved = np.matmul(down[0], down[1].swapaxes(1, 2))
                moved *= self.room[a]
            if up is not None:
                back = np.matmul(up[1], up[0].swapaxes(1, 2))
                back *= self.flow[a]
                moved = -back if moved is None else moved - back
            if moved is None:
                continue
            flow = self.flow[a]
            if flow is None:
                self.room[a], self.flow[a] = self.room[a] - moved, moved
            else:
                self.room[a] -= moved
                flow += moved

    def _weights(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Shares (B, n, h) and acceptances (B, m, h) by height h, whose product over h is the part of each arc
        that is used: only arcs from one height to the next have one. None where nothing is sent."""
        if stop == 0 or start in (0, self.network.end):
            return None
        shares, accepts = [], []
        for height in range(1, len(self.layers)):
            mask, below = self.layers[height].get(start), self.layers[height - 1].get(stop)
            if mask is None or below is None:
                continue
            share = self.share[start] * mask
            if share.any():
                shares.append(share)
                accepts.append(self.accept[stop] * below)
        if not shares:
            return None
        return np.stack(shares, axis=2), np.stack(accepts, axis=2)

    # --- proof ----------------------------------------------------------------------------------------------

    def certificate(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(value, cut, fault), each (B,), from capacities, flow and heights alone.

        ``value``: what the flow brings to the end. ``cut``: capacity from the nodes of height ``FAR`` to the
        others. ``fault``: by how much the flow is no preflow, summed over what it takes above capacity or below
        zero and what nodes send without having got it. Lessening a preflow's flow node by node from the
        top removes a fault at the cost of as much value, and a preflow without fault extends to a flow of its
        value, so value - fault <= maximum <= cut.
        """
        sizes = [e.shape[1] for e in self.excess]
        net = [np.zeros((self.count, n)) for n in sizes]
        side = [(h == FAR).astype(np.float64) for h in self.height]
        cut, fault = np.zeros(self.count), np.zeros(self.count)
        for arc, capacity, flow in zip(self.network.arcs, self.capacity, self.flow, strict=True):
            cut += (times_turned(capacity, side[arc.tail]) * (1.0 - side[arc.head])).sum(1)
            if flow is None:
                continue
            net[arc.tail] -= flow.sum(2)
            net[arc.head] += flow.sum(1)
            fault += np.maximum(flow - capacity, 0.0).sum((1, 2))
            fault -= np.minimum(flow.min((1, 2)), 0.0) * flow[0].size
        for k in range(1, self.network.end):
            fault -= np.minimum(net[k], 0.0).sum(1)
        return net[self.network.end][:, 0], cut, fault

    # --- pairs that are done --------------------------------------------------------------------------------

    def take(self, pairs: np.ndarray) -> Preflow:
        """The state of some of the pairs, heights included; arrays that all share stay shared."""
        part = object.__new__(Preflow)
        part.network = self.network
        part.capacity = [_rows(x, pairs, self.count) for x in self.capacity]
        part.room = [_rows(x, pairs, self.count) for x in self.room]
        part.flow = [None if x is None else x[pairs] for x in self.flow]
        part.excess = [x[pairs] for x in self.excess]
        part.height = [x[pairs] for x in self.height]
        part.ahead = [x[pairs] for x in self.ahead]
        part.accept = [x[pairs] for x in self.accept]
        part.share = []
        taken = [{k: mask[pairs] for k, mask in layer.items()} for layer in self.layers]
        part.layers = [{k: mask for k, mask in layer.items() if mask.any()} for layer in taken]
        while part.layers and not part.layers[-1]:
            part.layers.pop()
        return part


def _add(total: np.ndarray | None, term: np.ndarray) -> np.ndarray:
    return term if total is None else total + term


def _rows(array: np.ndarray, pairs: np.ndarray, count: int) -> np.ndarray:
    """Rows of a (count, ...) array; a (1, ...) one that all pairs share as it is."""
    return array if len(array) != count else array[pairs]
