"""Shards in rank order, and what a replica is because of them. Derived from reports, never stored.

`planning.board` derives a replica again whenever something that it follows from has changed.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from llmgw.fleet.expiry import Standing, Timers
from llmgw.fleet.lifecycle import ENDED, PENDING
from llmgw.fleet.shard import ShardSpec
from llmgw.fleet.world import Shard

Phase = Literal["Fetching", "Starting", "Ready", "Unreachable", "Failed", "Lost", "Unknown"]

_SERVING = frozenset({"ready", "draining"})
_COMING = PENDING - {"held"}


@dataclasses.dataclass(frozen=True, slots=True)
class Replica:
    """One replica. `shards[i]` is rank i, or None where no node reports it.

    `phase` says what it is worth: Ready serves; Unreachable was ready and is still routed; Unknown waits
    for a node that has not spoken since we began to listen; Failed and Lost have to go.
    `why` is the reason of the last two. `since` is when its last shard became what it is.
    """

    id: str
    spec: ShardSpec
    shards: tuple[Shard | None, ...]
    phase: Phase
    why: str
    since: float

    @property
    def model(self) -> str:
        return self.spec.model

    @property
    def generation(self) -> str:
        return self.spec.generation

    @property
    def present(self) -> tuple[Shard, ...]:
        return tuple([shard for shard in self.shards if shard is not None])

    @property
    def serves(self) -> bool:
        """Whether clients are sent to it (unless it drains)."""
        return self.phase == "Ready" or (
            self.phase == "Unreachable" and all(shard.state in _SERVING for shard in self.present)
        )

    @property
    def hangs_on_time(self) -> bool:
        """Whether time, silence or evidence alone can change what it is."""
        if self.phase == "Ready":
            return False
        return self.phase in ("Unreachable", "Lost") or any(
            shard is None or not shard.confirmed for shard in self.shards
        )


def derive(
    present: Sequence[Shard],
    standings: Mapping[str, Standing],
    green: bool,
    now: float,
    timers: Timers,
    called: Callable[[str], str] = str,
) -> Replica:
    """The replica that these shards make, one or more in rank order.

    `green` = its data plane proves that it lives; `called` names a node.
    """
    spec = present[0].spec
    if len(present) == len(spec.peers):
        shards: tuple[Shard | None, ...] = tuple(present)
    else:
        ranks = {shard.spec.rank: shard for shard in present}
        shards = tuple([ranks.get(peer.rank) for peer in spec.peers])
    phase, why = _phase(spec, shards, standings, green, now, timers, called)
    return Replica(spec.replica, spec, shards, phase, why, max([shard.since for shard in present]))


def _phase(
    spec: ShardSpec,
    shards: tuple[Shard | None, ...],
    standings: Mapping[str, Standing],
    green: bool,
    now: float,
    timers: Timers,
    called: Callable[[str], str],
) -> tuple[Phase, str]:
    doubtful = False
    states: set[str] = set()
    for peer, shard in zip(spec.peers, shards, strict=True):
        if shard is None:
            doubtful = True
            continue
        state = shard.status.state
        if state in ENDED:
            return "Failed", f"rank {shard.spec.rank}: {shard.status.reason or state}"
        if not shard.confirmed or standings.get(peer.node) != "Ready":
            doubtful = True
        states.add(state)
    if doubtful and (found := _doubt(spec, shards, standings, green, now, timers, called)) is not None:
        return found
    if states <= _SERVING:
        return "Ready", ""
    return ("Starting", "") if states.isdisjoint(_COMING) else ("Fetching", "")


def _doubt(
    spec: ShardSpec,
    shards: tuple[Shard | None, ...],
    standings: Mapping[str, Standing],
    green: bool,
    now: float,
    timers: Timers,
    called: Callable[[str], str],
) -> tuple[Phase, str] | None:
    """What silence, absence and want of confirmation make of it; None if they change nothing."""
    standing_of = [standings.get(peer.node, "Unheard") for peer in spec.peers]
    if "Lost" in standing_of and not green:
        lost = spec.peers[standing_of.index("Lost")]
        return "Lost", f"node {called(lost.node)} is lost"
    for peer, shard, stands in zip(spec.peers, shards, standing_of, strict=True):
        if shard is None and green and stands in ("Unheard", "Lost"):
            continue  # it answers clients, so the rank that nobody reports lives
        if shard is None and stands == "Unheard":
            return "Unknown", f"node {called(peer.node)} has not reported yet"
        if shard is None:
            return "Failed", f"rank {peer.rank} is gone"
        if not shard.confirmed and now - shard.since >= 3 * timers.ack:
            return "Failed", f"rank {peer.rank}: its node did not confirm it"
    if any(stands != "Ready" for stands in standing_of):
        return "Unreachable", "a node is silent"
    return None
