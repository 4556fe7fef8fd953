"""Shards in rank order, and what a replica is because of them. Derived from reports, never stored.

`planning.board` derives a replica again whenever something that it follows from has changed.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from llmgw.fleet.expiry import Standing, Timers
from llmgw.fleet.lifecycle import ENDED, PENDING
from llmgw.fleet.shard import ShardSpec
from llmgw.fleet.world import Shard

Phase = Literal["Fetching", "Starting", "Ready", "Unreachable", "Failed", "Lost", "Unknown"]


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
        return tuple(shard for shard in self.shards if shard is not None)

    @property
    def serves(self) -> bool:
        """Whether clients are sent to it (unless it drains)."""
        return self.phase == "Ready" or (
            self.phase == "Unreachable"
            and all(shard.state in ("ready", "draining") for shard in self.present)
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
    present: Iterable[Shard],
    standings: Mapping[str, Standing],
    green: bool,
    now: float,
    timers: Timers,
    called: Callable[[str], str] = str,
) -> Replica:
    """The replica that these shards make. `green` = its data plane proves that it lives; `called` names a node."""
    ranks = {shard.spec.rank: shard for shard in present}
    spec = ranks[min(ranks)].spec
    shards = tuple(ranks.get(peer.rank) for peer in spec.peers)
    phase, why = _phase(spec, shards, standings, green, now, timers, called)
    return Replica(spec.replica, spec, shards, phase, why, max(shard.since for shard in ranks.values()))


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
    for peer, shard in zip(spec.peers, shards, strict=True):
        if shard is not None and shard.state in ENDED:
            return "Failed", f"rank {shard.spec.rank}: {shard.status.reason or shard.state}"
        if shard is None or not shard.confirmed or standings.get(peer.node) != "Ready":
            doubtful = True
    if doubtful and (found := _doubt(spec, shards, standings, green, now, timers, called)) is not None:
        return found
    states = [shard.state for shard in shards if shard is not None]
    if all(state in ("ready", "draining") for state in states):
        return "Ready", ""
    fetching = any(state in PENDING and state != "held" for state in states)
    return ("Fetching", "") if fetching else ("Starting", "")


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
    lost = [peer for peer, stands in zip(spec.peers, standing_of, strict=True) if stands == "Lost"]
    if lost and not green:
        return "Lost", f"node {called(lost[0].node)} is lost"
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
