"""Preflows of many pairs at once: the arrays and array operations of push-relabel.

A batch of B pairs shares one :class:`~flowgraph.solvers.network.Network`. For every arc matrix ``a`` from
level ``tail`` to level ``head`` (sizes n and m) a :class:`Preflow` holds

* ``room[a]`` (B, n, m): residual capacity of the arcs, ``>= 0``,
* ``flow[a]`` (B, n, m): what they carry, the residual capacity of the same arcs turned round, ``>= 0``,

with ``room + flow`` the capacity to rounding. Both are kept, so that a saturated arc has a room of exactly 0
and an emptied one a flow of exactly 0: no rounding residue ever opens a path. Until a first push the room is
the capacity all pairs share, (1, n, m), and the flow is None; products with it are one matrix product for the
whole batch. For every level of size n there are

* ``excess`` (B, n): what arrived and was not sent on, ``>= 0``; by it a preflow is more than a flow,
* ``height`` (B, n): arcs on a shortest residual path to the end, ``FAR`` where there is none.

Products run over whole levels; where few nodes take part, over the rows of those nodes alone.
"""

from __future__ import annotations

import numpy as np

from flowgraph.solvers.network import Network, times, times_turned

FAR = np.iinfo(np.int16).max

ROWS = 12
"""Nodes are taken row by row where fewer than one in so many takes part; a row costs about as much more."""


class Members:
    """Some nodes of one level: ``nodes`` (B, n) bool."""

    def __init__(self, nodes: np.ndarray) -> None:
        self.nodes = nodes
        self.all = bool(nodes.all())
        self.pairs = nodes.any(1)
        """(B,): pairs that have any."""
        self.ones = nodes.astype(np.float64)

    def only(self, values: np.ndarray) -> np.ndarray:
        """``values`` (B, n), 0 at other nodes."""
        return values if self.all else values * self.ones

    def update(self, old: np.ndarray, new: np.ndarray) -> np.ndarray:
        """(B, n): ``new`` at the members, ``old`` at other nodes."""
        return new if self.all else np.where(self.nodes, new, old)


Layer = dict[int, Members]
"""Level -> the nodes of one height."""

Weights = dict[int, np.ndarray]
"""Level -> (B, n)."""


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
        self.height: list[np.ndarray] = []
        self.layers: list[Layer] = []
        self._ahead: list[np.ndarray] = []
        self._accept: list[np.ndarray] = []
        self._share: list[np.ndarray] = []
        self._scratch: dict[tuple[int, ...], np.ndarray] = {}

    @property
    def count(self) -> int:
        return len(self.excess[0])

    @property
    def value(self) -> np.ndarray:
        """(B,): what has arrived at the end."""
        return self.excess[self.network.end][:, 0]

    # --- heights ---------------------------------------------------------------------------------------

    def relabel(self) -> None:
        """Exact heights of all nodes by a backward breadth-first search from the end, a layer at a time.

        Sets ``height`` and ``layers`` (layer d: the nodes of height d). The search stops at the first empty
        layer: whatever lies beyond that gap has height ``FAR`` and is not looked at until the next search.
        """
        sizes = [e.shape[1] for e in self.excess]
        self.height = [np.full((self.count, n), FAR, np.int16) for n in sizes]
        # _ahead: the residual capacity of a node's admissible arcs, which lead to height one less
        self._ahead = [np.zeros((self.count, n)) for n in sizes]
        self._accept = [np.ones((self.count, n)) for n in sizes]
        self.height[-1][:] = 0
        self.layers = [{self.network.end: Members(np.ones((self.count, 1), bool))}]
        while self.layers[-1]:
            self.layers.append(self._next_layer(self.layers[-1], len(self.layers)))
        self.layers.pop()

    def _next_layer(self, front: Layer, height: int) -> Layer:
        layer: Layer = {}
        ones = {k: members.ones for k, members in front.items()}
        for k in range(1, self.network.end):
            pairs = self._next_to(k, front)
            unseen = (self.height[k] == FAR) & pairs[:, None]
            reach = self._towards(k, ones, unseen)
            new = unseen & (reach > 0)
            if new.any():
                layer[k] = Members(new)
                self.height[k][new] = height
                self._ahead[k] = layer[k].update(self._ahead[k], reach)
        return layer

    def _next_to(self, k: int, front: Layer) -> np.ndarray:
        """(B,): pairs that have a node of ``front`` on a level with arcs from or to level k."""
        pairs = np.zeros(self.count, bool)
        for a in self.network.leaving[k]:
            if (head := self.network.arcs[a].head) in front:
                pairs |= front[head].pairs
        for a in self.network.arriving[k]:
            if (tail := self.network.arcs[a].tail) in front and self.flow[a] is not None:
                pairs |= front[tail].pairs
        return pairs

    def shortfall(self) -> np.ndarray:
        """(B,): what the value may still lack, by the capacity of the start's and the end's own arcs."""
        out, into = np.zeros(self.count), np.zeros(self.count)
        for a in self.network.leaving[0]:
            out += self.capacity[a].sum((1, 2))
        for a in self.network.arriving[self.network.end]:
            into += self.capacity[a].sum((1, 2))
        return np.minimum(out, into) - self.value

    def left(self) -> np.ndarray:
        """(B,): excess that still has a way to the end. The nodes without one are the source side of a cut
        whose arcs are full and whose backward arcs are empty, so its capacity is the value plus this."""
        total = np.zeros(self.count)
        for k in range(1, self.network.end):
            total += np.where(self.height[k] < FAR, self.excess[k], 0.0).sum(1)
        return total

    # --- products with the residual graph -----------------------------------------------------------------

    def _towards(self, k: int, weights: Weights, where: np.ndarray) -> np.ndarray:
        """(B, n): residual capacity from the nodes ``where`` (B, n) of level k to the levels of ``weights``,
        times their weights; anything at other nodes."""
        taking_part = np.count_nonzero(where)
        if taking_part == 0:
            return np.zeros(where.shape)
        if taking_part * ROWS < where.size:
            return self._towards_rows(k, weights, where)
        total = np.zeros(where.shape)
        for a in self.network.leaving[k]:
            if (head := self.network.arcs[a].head) in weights:
                total += times(self.room[a], weights[head])
        for a in self.network.arriving[k]:
            tail, flow = self.network.arcs[a].tail, self.flow[a]
            if tail in weights and flow is not None:
                total += times_turned(flow, weights[tail])
        return total

    def _towards_rows(self, k: int, weights: Weights, where: np.ndarray) -> np.ndarray:
        pairs, nodes = np.nonzero(where)
        rows = np.zeros(len(pairs))
        for a in self.network.leaving[k]:
            if (head := self.network.arcs[a].head) in weights:
                rows += np.einsum("km,km->k", self._leaving_rows(a, pairs, nodes), weights[head][pairs])
        for a in self.network.arriving[k]:
            tail, flow = self.network.arcs[a].tail, self.flow[a]
            if tail in weights and flow is not None:
                rows += np.einsum("kn,kn->k", flow[pairs, :, nodes], weights[tail][pairs])
        total = np.zeros(where.shape)
        total[pairs, nodes] = rows
        return total

    def _leaving_rows(self, a: int, pairs: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Room of the arcs that leave some nodes, (nodes, m)."""
        room = self.room[a]
        return room[0, nodes] if len(room) < self.count else room[pairs, nodes]

    def _offers(self, k: int, share: np.ndarray, below: Layer) -> Weights:
        """What nodes of level k send to each level of ``below`` if all is accepted; ``share`` (B, n) is the
        part of its admissible room that a node uses."""
        using = share > 0
        taking_part = np.count_nonzero(using)
        if taking_part == 0:
            return {}
        if taking_part * ROWS < using.size:
            return self._offers_rows(k, share, using, below)
        result: Weights = {}
        for a in self.network.leaving[k]:
            if (head := self.network.arcs[a].head) in below:
                result[head] = below[head].only(times_turned(self.room[a], share))
        for a in self.network.arriving[k]:
            tail, flow = self.network.arcs[a].tail, self.flow[a]
            if tail in below and flow is not None:
                result[tail] = below[tail].only(times(flow, share))
        return result

    def _offers_rows(self, k: int, share: np.ndarray, using: np.ndarray, below: Layer) -> Weights:
        pairs, nodes = np.nonzero(using)
        part = share[pairs, nodes][:, None]
        result: Weights = {}
        for a in self.network.leaving[k]:
            if (head := self.network.arcs[a].head) in below:
                sent = self._leaving_rows(a, pairs, nodes) * part
                result[head] = below[head].only(self._sum_by_pair(sent, pairs))
        for a in self.network.arriving[k]:
            tail, flow = self.network.arcs[a].tail, self.flow[a]
            if tail in below and flow is not None:
                result[tail] = below[tail].only(self._sum_by_pair(flow[pairs, :, nodes] * part, pairs))
        return result

    def _sum_by_pair(self, rows: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """(rows, m) summed over the rows of each pair -> (B, m); ``pairs`` ascending."""
        first = np.concatenate([[0], np.flatnonzero(pairs[1:] != pairs[:-1]) + 1])
        total = np.zeros((self.count, rows.shape[1]))
        total[pairs[first]] = np.add.reduceat(rows, first, axis=0)
        return total

    # --- a wave of pushes --------------------------------------------------------------------------------

    def wave(self, rounds: int) -> None:
        """Push excess from height to height, the greatest first, then down to the end: :meth:`plan` and
        :meth:`commit`."""
        self.plan(rounds)
        self.commit()

    def plan(self, rounds: int) -> None:
        """Work out a wave of pushes, and the excess it will leave.

        With ``rounds=0`` this is push-relabel's own discharge: every node sends all it can along its
        admissible arcs, in proportion to their room. A node that is sent more than it can send on is then left
        with excess. Each round works out from the last what the nodes can accept, and sends only that; excess
        that no one accepts stays where it is.
        """
        before = [e.copy() for e in self.excess]
        offered = self._send()
        # all that any round can touch: nothing is refused in the first sending
        touched = [(e > 0) | (o > 0) for e, o in zip(before, offered, strict=True)]
        for _ in range(rounds):
            self._look_ahead(before, offered, touched)
            self.excess = [e.copy() for e in before]
            offered = self._send()

    def _send(self) -> list[np.ndarray]:
        """Work out the pushes of a wave, layer by layer downwards: ``_share`` (B, n), the part of its
        admissible room times acceptance that a node uses, and the ``excess`` that results. Returns what was
        offered to each node, (B, n) a level."""
        offered = [np.zeros_like(e) for e in self.excess]
        self._share = [np.zeros_like(e) for e in self.excess]
        for height in range(len(self.layers) - 1, 0, -1):
            below = self.layers[height - 1]
            for k, members in self.layers[height].items():
                excess, ahead = self.excess[k], self._ahead[k]
                share = members.only(_quotient(np.minimum(excess, ahead), ahead))
                # all of it goes where excess <= ahead, and exactly nothing stays
                self.excess[k] = members.update(excess, np.maximum(excess - ahead, 0.0))
                self._share[k] += share
                for level, offer in self._offers(k, share, below).items():
                    offered[level] += offer
                    self.excess[level] += offer * self._accept[level]
        return offered

    def _look_ahead(
        self, before: list[np.ndarray], offered: list[np.ndarray], touched: list[np.ndarray]
    ) -> None:
        """Layer by layer upwards: ``_accept`` (B, n), the part of the last offers that a node can send on, and
        ``_ahead`` anew with it. ``before``: the excess a node holds by itself, which goes first."""
        below = {k: members.ones for k, members in self.layers[0].items()}
        for layer in self.layers[1:]:
            accepted = {}
            for k, members in layer.items():
                where = members.nodes & touched[k]
                total = self._towards(k, below, where)
                spare = np.maximum(total - before[k], 0.0)
                accept = 1.0 - _quotient(np.maximum(offered[k] - spare, 0.0), offered[k])
                self._ahead[k] = np.where(where, total, self._ahead[k])
                self._accept[k] = np.where(where, accept, self._accept[k])
                accepted[k] = members.only(self._accept[k])
            below = accepted

    def commit(self) -> None:
        """Move what was planned: from ``room`` to ``flow`` on arcs down, back on arcs up."""
        for a, arc in enumerate(self.network.arcs):
            down = self._used(arc.tail, arc.head)
            up = self._used(arc.head, arc.tail)
            flow = self.flow[a]
            if flow is None:
                if down is not None:
                    moved = np.matmul(down[0], down[1].swapaxes(1, 2)) * self.room[a]
                    self.room[a], self.flow[a] = self.room[a] - moved, moved
                continue
            # an arc is used one way only, since heights differ by one
            if down is not None:
                moved = self._product(down[0], down[1], self.room[a])
                self.room[a] -= moved
                flow += moved
            if up is not None:
                moved = self._product(up[1], up[0], flow)
                flow -= moved
                self.room[a] += moved

    def _product(self, rows: np.ndarray, columns: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """``matrix`` (B, n, m) times the sum over h of ``rows`` (B, n, h) by ``columns`` (B, m, h), in scratch
        space: fresh memory costs more than the product."""
        shape = matrix.shape[1:]
        if shape not in self._scratch or len(self._scratch[shape]) < self.count:
            self._scratch[shape] = np.empty(matrix.shape)
        out = self._scratch[shape][: self.count]
        np.matmul(rows, columns.swapaxes(1, 2), out=out)
        out *= matrix
        return out

    def _used(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Shares (B, n, h) and acceptances (B, m, h) by height h, whose product over h is the part of each arc
        that is used: only arcs from one height to the next have one. None where nothing is sent."""
        if stop == 0 or start in (0, self.network.end):
            return None
        shares, accepts = [], []
        for below, layer in zip(self.layers, self.layers[1:], strict=False):
            if start not in layer or stop not in below:
                continue
            share = layer[start].only(self._share[start])
            if share.any():
                shares.append(share)
                accepts.append(below[stop].only(self._accept[stop]))
        if not shares:
            return None
        return np.stack(shares, axis=2), np.stack(accepts, axis=2)

    # --- proof -------------------------------------------------------------------------------------------

    def certificate(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(value, cut, fault) of some ``pairs``, from capacities, flow and heights alone.

        ``value``: what the flow brings to the end. ``cut``: capacity from the nodes of height ``FAR`` to the
        others. ``fault``: by how much the flow is no preflow, summed over what it takes above capacity or
        below zero and what nodes send without having got it. Lessening the flow node by node from the top
        removes a fault at the cost of as much value, and a preflow without fault extends to a flow of its
        value, so value - fault <= maximum <= cut.
        """
        count = len(pairs)
        net = [np.zeros((count, e.shape[1])) for e in self.excess]
        side = [(h[pairs] == FAR).astype(np.float64) for h in self.height]
        cut, fault = np.zeros(count), np.zeros(count)
        for a, arc in enumerate(self.network.arcs):
            capacity = self._of(self.capacity[a], pairs)
            cut += (times_turned(capacity, side[arc.tail]) * (1.0 - side[arc.head])).sum(1)
            flow = self.flow[a]
            if flow is None:
                continue
            flow = flow[pairs]
            net[arc.tail] -= flow.sum(2)
            net[arc.head] += flow.sum(1)
            fault += np.maximum(flow - capacity, 0.0).sum((1, 2))
            fault -= np.minimum(flow, 0.0).sum((1, 2))
        for k in range(1, self.network.end):
            fault -= np.minimum(net[k], 0.0).sum(1)
        return net[-1][:, 0], cut, fault

    # --- pairs alone ---------------------------------------------------------------------------------------

    def retire(self, pairs: np.ndarray) -> None:
        """Take the excess from pairs that are done, so that nothing more is done for them."""
        for k in range(1, self.network.end):
            self.excess[k][pairs] = 0.0

    def take(self, pairs: np.ndarray) -> Preflow:
        """The state of some pairs, a planned wave with it."""
        part = object.__new__(Preflow)
        part.network = self.network
        part.capacity = [self._of(x, pairs) for x in self.capacity]
        part.room = [self._of(x, pairs) for x in self.room]
        part.flow = [None if x is None else x[pairs] for x in self.flow]
        part.excess = [x[pairs] for x in self.excess]
        part.height = [x[pairs] for x in self.height]
        part.layers = [{k: Members(m.nodes[pairs]) for k, m in layer.items()} for layer in self.layers]
        part._ahead = [x[pairs] for x in self._ahead]
        part._accept = [x[pairs] for x in self._accept]
        part._share = [x[pairs] for x in self._share]
        part._scratch = self._scratch
        return part

    def _of(self, array: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Rows of a (B, ...) array; a (1, ...) one that all pairs share as it is."""
        return array if len(array) < self.count else array[pairs]


def _quotient(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """``part / whole`` for ``0 <= part <= whole``; 0 where ``whole`` is 0."""
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
