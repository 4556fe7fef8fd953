"""Shards in rank order, and what a replica is because of them. Derived on every pass, never stored."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

from llmgw.fleet.expiry import Standing, Timers
from llmgw.fleet.lifecycle import ENDED, PENDING
from llmgw.fleet.shard import ShardSpec
from llmgw.fleet.world import Fleet, Shard

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
        return self.phase in ("Ready", "Unreachable") and all(
            shard.state in ("ready", "draining") for shard in self.present
        )


def replicas(
    fleet: Fleet, standings: Mapping[str, Standing], green: Iterable[str], now: float, timers: Timers
) -> dict[str, Replica]:
    """Every replica of the fleet, by id, in id order. `green` are those whose data plane proves life."""
    by_id: dict[str, list[Shard]] = {}
    for key in sorted(fleet.shards):
        by_id.setdefault(key[0], []).append(fleet.shards[key])
    alive = frozenset(green)
    return {
        name: _replica(name, shards, standings, name in alive, now, timers) for name, shards in by_id.items()
    }


def _replica(
    name: str,
    present: list[Shard],
    standings: Mapping[str, Standing],
    green: bool,
    now: float,
    timers: Timers,
) -> Replica:
    spec = present[0].spec
    ranks: dict[int, Shard] = {shard.spec.rank: shard for shard in present}
    shards = tuple(ranks.get(peer.rank) for peer in spec.peers)
    phase, why = _phase(spec, shards, standings, green, now, timers)
    return Replica(name, spec, shards, phase, why, max(shard.since for shard in present))


def _phase(
    spec: ShardSpec,
    shards: tuple[Shard | None, ...],
    standings: Mapping[str, Standing],
    green: bool,
    now: float,
    timers: Timers,
) -> tuple[Phase, str]:
    for shard in shards:
        if shard is not None and shard.state in ENDED:
            return "Failed", f"rank {shard.spec.rank}: {shard.status.reason or shard.state}"
    standing_of = [standings.get(peer.node, "Unheard") for peer in spec.peers]
    lost = [peer for peer, stands in zip(spec.peers, standing_of, strict=True) if stands == "Lost"]
    if lost and not green:
        return "Lost", f"node {lost[0].node} is lost"
    for peer, shard, stands in zip(spec.peers, shards, standing_of, strict=True):
        if shard is None and green and stands in ("Unheard", "Lost"):
            continue  # it answers clients, so the rank that nobody reports lives
        if shard is None and stands == "Unheard":
            return "Unknown", f"node {peer.node} has not reported yet"
        if shard is None:
            return "Failed", f"rank {peer.rank} is gone"
        if not shard.confirmed and now - shard.since >= 3 * timers.ack:
            return "Failed", f"rank {peer.rank}: its node did not confirm it"
    states = [shard.state for shard in shards if shard is not None]
    if any(stands != "Ready" for stands in standing_of):
        return "Unreachable", "a node is silent"
    if all(state in ("ready", "draining") for state in states):
        return "Ready", ""
    return (
        ("Fetching", "")
        if any(state in PENDING and state != "held" for state in states)
        else ("Starting", "")
    )
