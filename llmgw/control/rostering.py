"""The roster: who a restart waits for, kept on disk as peers come and go. Used by `serve`.

Whoever is new is on disk before anything is decided: all newcomers of one pass are one writing. Of those that
are known it is written once for all that came within a second.
"""

import datetime
from collections.abc import Collection
from typing import Literal

from llmgw.control.keeping import Keeping
from llmgw.control.store import Known, Roster, Store
from llmgw.fleet.world import Fleet, Gateway
from llmgw.kit.clock import Clock
from llmgw.kit.text import count

EVERY = 600.0
"""Seconds between two writings of who is here, so that a restart waits for the right ones."""

SPARE_FILES = 256
"""Open files beside the streams of nodes and gateways: people's requests, state, programs that are run."""

FORGOTTEN_AFTER = datetime.timedelta(days=1)
"""A node or gateway that was away for so long holds no restart and no drain up."""


class Rostering:
    """The roster in memory, and what of it is not on disk yet. Raises Failed where the file cannot be read."""

    def __init__(self, store: Store, keeping: Keeping, clock: Clock) -> None:
        self._store, self._keeping, self._clock = store, keeping, clock
        self._roster = _still_known(store.roster(), clock.wall())
        self._written = clock.now()
        self._new = self._due = False

    def fleet(self) -> Fleet:
        """The fleet as a new control plane knows it: names to wait for, and gateways whose word is to come."""
        now = self._clock.now()
        silent = Gateway(acked=0, in_flight={}, green_at={}, queued={}, last_seen=now)
        nodes = self._roster.nodes
        return Fleet(
            since=now,
            roster=frozenset(name for name, known in nodes.items() if not known.lost),
            gateways=dict.fromkeys(self._roster.gateways, silent),
            called={name: known.name for name, known in nodes.items()},
        )

    def too_many(self, files: int | None) -> str:
        """What `files` open files are too few for, or nothing: a node that finds none cannot connect."""
        nodes, gateways = len(self._roster.nodes), len(self._roster.gateways)
        needed = nodes + gateways + SPARE_FILES
        if files is None or files >= needed:
            return ""
        return (
            f"{count(nodes, 'node')} and {count(gateways, 'gateway')} need {needed} open files here, and {files}"
            " are allowed"
        )

    def met(self, kind: Literal["agent", "gateway"], name: str, called: str) -> None:
        """Somebody is here, known to people as `called`. One that is new is written by the next `write`."""
        table = self._roster.nodes if kind == "agent" else self._roster.gateways
        if name in table and not table[name].lost:
            self._due = True
            return
        field = "nodes" if kind == "agent" else "gateways"
        came = {name: Known(name=called, heard=self._clock.wall())}
        self._roster = self._roster.model_copy(update={field: {**table, **came}})
        self._new = True

    def write(self) -> None:
        """Have every newcomer on disk; where it takes nothing now, it is owed."""
        if self._new:
            self._new = False
            self._keeping.keep("the roster", lambda: self._store.save_roster(self._roster))

    def forget(self, node: str) -> None:
        """A person forgot the node; the next `keep` writes it."""
        nodes = {name: known for name, known in self._roster.nodes.items() if name != node}
        self._roster = self._roster.model_copy(update={"nodes": nodes})

    def owes(self, lost: Collection[str]) -> bool:
        """Whether `keep` has something to write. `lost` are the nodes whose loss was acted on."""
        late = self._clock.now() - self._written > EVERY
        nodes = self._roster.nodes
        unmarked = any(name in nodes and not nodes[name].lost for name in lost)
        return self._new or self._due or late or unmarked

    def keep(self, fleet: Fleet, lost: Collection[str], gateways: Collection[str]) -> None:
        """Write down who is here, for the next start to wait for. `gateways` are those that are connected."""
        now, before = self._clock.wall(), self._roster
        self._due, self._written = False, self._clock.now()
        nodes = {
            name: known.model_copy(update={"lost": True}) if name in lost and not known.lost else known
            for name, known in before.nodes.items()
        }
        for name, node in fleet.nodes.items():
            if node.connected:
                nodes[name] = Known(name=node.info.name, heard=now)
        doors = {name: before.gateways.get(name, Known(name=name, heard=now)) for name in fleet.gateways}
        doors.update({name: Known(name=name, heard=now) for name in gateways if name in fleet.gateways})
        self._roster = _still_known(Roster(nodes=nodes, gateways=doors), now)
        self._new = True
        self.write()

    def close(self, fleet: Fleet, lost: Collection[str], gateways: Collection[str]) -> None:
        """Write what is due; nothing comes after it."""
        if self._due:
            self.keep(fleet, lost, gateways)
        self.write()


def _still_known(roster: Roster, now: datetime.datetime) -> Roster:
    return Roster(
        nodes={name: known for name, known in roster.nodes.items() if now - known.heard < FORGOTTEN_AFTER},
        gateways={
            name: known for name, known in roster.gateways.items() if now - known.heard < FORGOTTEN_AFTER
        },
    )
