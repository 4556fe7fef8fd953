"""The observed state: what nodes and gateways said, and what was asked of them since.

`Fleet` is a value. `apply(event, now)` gives the next one; the maps inside are copied when they
change and never mutated, so a snapshot can be planned against while the loop goes on.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

from llmgw.fleet import events
from llmgw.fleet.expiry import Standing, Timers, standing
from llmgw.fleet.lifecycle import may_follow
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import Failure, Progress, ShardKey, ShardSpec, ShardStatus

K = TypeVar("K")
V = TypeVar("V")


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node and when it was last heard. `since` is the time of its last Register."""

    info: NodeInfo
    last_seen: float
    since: float
    connected: bool = True
    failures: tuple[Failure, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """A shard as last reported, and the order that is under way for it."""

    spec: ShardSpec
    status: ShardStatus
    since: float
    confirmed: bool = True
    ordered: Literal["", "assign", "start", "stop"] = ""
    ordered_at: float = 0.0

    @property
    def state(self) -> str:
        return self.status.state


@dataclasses.dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway's last word: the table it serves by and what it has in flight."""

    acked: int
    in_flight: Mapping[str, int]
    green_at: Mapping[str, float]
    queued: Mapping[str, int]
    last_seen: float


@dataclasses.dataclass(frozen=True, slots=True)
class Fleet:
    """Everything observed. `since` is when this control plane began to listen."""

    since: float = 0.0
    roster: frozenset[str] = frozenset()
    nodes: Mapping[str, Node] = dataclasses.field(default_factory=dict)
    shards: Mapping[ShardKey, Shard] = dataclasses.field(default_factory=dict)
    gateways: Mapping[str, Gateway] = dataclasses.field(default_factory=dict)
    progress: Mapping[str, tuple[Progress, ...]] = dataclasses.field(default_factory=dict)

    def apply(self, event: events.Event, now: float) -> "Fleet":  # noqa: PLR0911, PLR0912 - one arm an event
        """The fleet after `event`. A word from an unknown node or shard changes nothing."""
        match event:
            case events.Registered():
                return self._registered(event, now)
            case events.Reported():
                return self._reported(event, now)
            case events.Heartbeat():
                return _idle(self._heard(event.node, now), event.idle)
            case events.Progressed():
                heard = self._heard(event.node, now)
                return dataclasses.replace(heard, progress=_put(self.progress, event.node, event.progress))
            case events.Disconnected(node=name):
                if name not in self.nodes:
                    return self
                gone = dataclasses.replace(self.nodes[name], connected=False)
                return dataclasses.replace(self, nodes=_put(self.nodes, name, gone))
            case events.Assigned(spec=spec):
                status = ShardStatus(spec.replica, spec.rank, "assigned")
                shard = Shard(spec, status, now, confirmed=False)
                return dataclasses.replace(self, shards=_put(self.shards, spec.key, shard))
            case events.Ordered(key=key, order=order):
                if key not in self.shards:
                    return self
                shard = dataclasses.replace(self.shards[key], ordered=order, ordered_at=now)
                return dataclasses.replace(self, shards=_put(self.shards, key, shard))
            case events.GatewaySeen():
                return self._gateway(event, now)
            case events.GatewayForgotten(gateway=name):
                return dataclasses.replace(self, gateways=_without(self.gateways, (name,)))
            case events.Stalled(seconds=seconds):
                return self._stalled(seconds, now)
            case events.NodeForgotten(node=name):
                left = [key for key, shard in self.shards.items() if shard.spec.node == name]
                return dataclasses.replace(
                    self,
                    roster=self.roster - {name},
                    nodes=_without(self.nodes, (name,)),
                    shards=_without(self.shards, left),
                    progress=_without(self.progress, (name,)),
                )

    def standing(self, node: str, now: float, timers: Timers) -> Standing:
        """What the node's silence means. One of the roster that has not spoken yet is Unheard."""
        known = self.nodes.get(node)
        if known is not None:
            return standing(known.last_seen, now, timers)
        return "Lost" if now - self.since >= timers.lost_grace else "Unheard"

    def name(self, node: str) -> str:
        """The node's name for people; its id while it has not spoken."""
        return self.nodes[node].info.name if node in self.nodes else node

    def on_node(self, node: str) -> list[Shard]:
        """The shards whose spec names `node`."""
        return [shard for shard in self.shards.values() if shard.spec.node == node]

    def _registered(self, event: events.Registered, now: float) -> "Fleet":
        name = event.info.id
        old = [key for key, shard in self.shards.items() if shard.spec.node == name]
        shards = {key: shard for key, shard in self.shards.items() if key not in set(old)}
        for spec, status in event.shards:
            if status.state != "gone":
                shards[spec.key] = Shard(spec, status, now - status.age)
        return dataclasses.replace(
            self,
            roster=self.roster | {name},
            nodes=_put(self.nodes, name, Node(event.info, now, now, failures=event.failures)),
            shards=shards,
            progress=_put(self.progress, name, event.progress),
        )

    def _reported(self, event: events.Reported, now: float) -> "Fleet":
        heard = self._heard(event.node, now)
        if event.info is not None and event.node in heard.nodes:
            node = dataclasses.replace(heard.nodes[event.node], info=event.info)
            heard = dataclasses.replace(heard, nodes=_put(heard.nodes, event.node, node))
        shards = dict(heard.shards)
        for status in event.statuses:
            shard = shards.get(status.key)
            if (
                shard is None
                or shard.spec.node != event.node
                or not may_follow(shard.status.state, status.state)
            ):
                continue
            if status.state == "gone":
                del shards[status.key]
            else:
                since = shard.since if status.state == shard.state else now - status.age
                shards[status.key] = dataclasses.replace(shard, status=status, since=since, confirmed=True)
        return dataclasses.replace(heard, shards=shards)

    def _heard(self, name: str, now: float) -> "Fleet":
        if name not in self.nodes:
            return self
        node = dataclasses.replace(self.nodes[name], last_seen=now, connected=True)
        return dataclasses.replace(self, nodes=_put(self.nodes, name, node))

    def _gateway(self, event: events.GatewaySeen, now: float) -> "Fleet":
        seen = Gateway(
            acked=event.acked,
            in_flight=dict(event.in_flight),
            green_at={replica: now - age for replica, age in event.green},
            queued=dict(event.queued),
            last_seen=now,
        )
        return dataclasses.replace(self, gateways=_put(self.gateways, event.gateway, seen))

    def _stalled(self, seconds: float, now: float) -> "Fleet":
        def later(at: float) -> float:
            return min(now, at + seconds)

        # Orders wait for answers that we could not hear; what a shard is, it has been all the while.
        shards = {
            key: dataclasses.replace(
                shard,
                since=shard.since if shard.confirmed else later(shard.since),
                ordered_at=later(shard.ordered_at),
            )
            if shard.ordered or not shard.confirmed
            else shard
            for key, shard in self.shards.items()
        }
        return dataclasses.replace(
            self,
            since=later(self.since),
            nodes={k: dataclasses.replace(v, last_seen=later(v.last_seen)) for k, v in self.nodes.items()},
            gateways={
                k: dataclasses.replace(v, last_seen=later(v.last_seen)) for k, v in self.gateways.items()
            },
            shards=shards,
        )


def _put(table: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    return {**table, key: value}


def _without(table: Mapping[K, V], keys: Iterable[K]) -> dict[K, V]:
    gone = set(keys)
    return {key: value for key, value in table.items() if key not in gone}


def _idle(fleet: Fleet, idle: tuple[tuple[ShardKey, bool], ...]) -> Fleet:
    changed = {
        key: dataclasses.replace(shard, status=dataclasses.replace(shard.status, idle=value))
        for key, value in idle
        if (shard := fleet.shards.get(key)) is not None and shard.status.idle != value
    }
    return dataclasses.replace(fleet, shards={**fleet.shards, **changed}) if changed else fleet
