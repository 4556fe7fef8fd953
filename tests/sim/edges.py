"""Which edges of the lifecycles a run went along: L6 wants every one of them over the seeds.

`sim.agents` tells each step of an agent's core, `sim.run` each pass of the control plane; `python -m
tests.lab sim` prints the sum.
"""

import collections
import typing
from collections.abc import Iterable, Mapping

from llmgw.agent import core
from llmgw.fleet.lifecycle import NEXT
from llmgw.fleet.replica import Phase
from llmgw.fleet.shard import ShardKey
from llmgw.planning.board import Board
from llmgw.planning.desired import Marks

UNTRODDEN = {
    ("held", "failed"): "an agent fails what waits for weights and what it executed, and nothing between",
    ("ready", "draining"): "an agent is never told of a drain: the table is",
    ("draining", "ready"): "as above",
    ("draining", "failed"): "as above",
    ("draining", "stopping"): "as above",
}
"""Edges of the shard's table on which no agent moves, and why."""

STANDINGS = (
    ("Unheard", "Ready"),
    ("Unheard", "Lost"),
    ("Ready", "Unreachable"),
    ("Unreachable", "Ready"),
    ("Unreachable", "Lost"),
    ("Lost", "Ready"),
)
"""What silence and words make of a node, edge by edge."""


def _shard(old: str, new: str) -> str:
    return f"shard {old} → {new}"


def _node(old: str, new: str) -> str:
    return f"node {old} → {new}"


EDGES: tuple[str, ...] = (
    *(_shard(old, new) for old, after in NEXT.items() for new in after if (old, new) not in UNTRODDEN),
    *(f"replica {phase}" for phase in typing.get_args(Phase)),
    *(_node(old, new) for old, new in STANDINGS),
    *(f"node {what}" for what in ("closed", "quarantined")),
    *(f"count of an elastic model goes {way}" for way in ("up", "down")),
)
"""Everything that the simulation can reach, in the order in which it is printed."""


class Edges:
    """What one run went along so far; `count` is by the words of `EDGES`."""

    def __init__(self) -> None:
        self.count: collections.Counter[str] = collections.Counter()
        self._phases: dict[str, str] = {}
        self._standings: dict[str, str] = {}
        self._closed: frozenset[str] = frozenset()
        self._scales: dict[str, int] = {}

    def stepped(self, before: Mapping[ShardKey, core.Kept], commands: Iterable[core.Command]) -> None:
        """An agent's core made a step: its reports tell where the shards went."""
        at = {key: kept.state for key, kept in before.items()}
        for command in commands:
            for status in command.statuses if isinstance(command, core.Report) else ():
                old, new = at.get(status.key), status.state
                if old is None or old == new:
                    continue
                if new == "gone" and old != "stopping":  # nothing was executed: it stops and is gone at once
                    self.count[_shard(old, "stopping")] += 1
                    old = "stopping"
                self.count[_shard(old, new)] += 1
                at[status.key] = new

    def control_started(self) -> None:
        """A new control plane knows no standing and no replica."""
        self._phases, self._standings = {}, {}
        self._closed, self._scales = frozenset(), {}

    def passed(self, board: Board, marks: Marks) -> None:
        """The control plane made a pass."""
        self._hands(board, marks)
        phases = {name: replica.phase for name, replica in board.roll.replicas.items()}
        self.count.update(f"replica {new}" for name, new in phases.items() if self._phases.get(name) != new)
        self._phases = dict(phases)
        standings = board.standings.of if board.standings is not None else {}
        for name, stands in standings.items():
            old = self._standings.get(name, stands)
            if old != stands:
                self.count[_node(old, stands)] += 1
        self._standings = dict(standings)

    def _hands(self, board: Board, marks: Marks) -> None:
        """Nodes that take nothing new, and why; counts that requests move."""
        closed = frozenset(board.cordoned)
        for name in closed - self._closed:
            by_hand = name in marks.cordoned or name in marks.draining
            self.count["node closed" if by_hand else "node quarantined"] += 1
        self._closed = closed
        scales = {name: scale.count for name, scale in board.scales.items()}
        for name, count in scales.items():
            old = self._scales.get(name, count)
            if count != old:
                self.count[f"count of an elastic model goes {'up' if count > old else 'down'}"] += 1
        self._scales = scales
