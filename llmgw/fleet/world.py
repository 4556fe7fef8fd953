"""The observed state: what nodes and gateways said, and what was asked of them since.

`Fleet` is a value. `apply(event, now)` gives the next one; the maps inside are copied when they
change and never mutated, so a snapshot can be planned against while the loop goes on. `Draft` is where
the next value is written: for many events at once it copies each map once.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Generic, Literal, TypeVar

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
    """A shard as last reported, and the order that is under way for it.

    `served` is for how many seconds one that failed had been ready; 0 = it never was.
    """

    spec: ShardSpec
    status: ShardStatus
    since: float
    confirmed: bool = True
    ordered: Literal["", "assign", "start", "stop"] = ""
    ordered_at: float = 0.0
    served: float = 0.0

    @property
    def state(self) -> str:
        return self.status.state


@dataclasses.dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway's last word: the table it serves by and what it has in flight.

    `dark_at` is when it last could not connect to a replica, of those that it could not connect to since; `apart` =
    it is known to run on another machine than this control plane.
    """

    acked: int
    in_flight: Mapping[str, int]
    green_at: Mapping[str, float]
    queued: Mapping[str, int]
    last_seen: float
    dark_at: Mapping[str, float] = dataclasses.field(default_factory=dict)
    apart: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Fleet:
    """Everything observed. `since` is when this control plane began to listen.

    `called` are the names of nodes by id, from before: for those of the roster that have not spoken yet.
    """

    since: float = 0.0
    roster: frozenset[str] = frozenset()
    nodes: Mapping[str, Node] = dataclasses.field(default_factory=dict)
    shards: Mapping[ShardKey, Shard] = dataclasses.field(default_factory=dict)
    gateways: Mapping[str, Gateway] = dataclasses.field(default_factory=dict)
    progress: Mapping[str, tuple[Progress, ...]] = dataclasses.field(default_factory=dict)
    called: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def apply(self, event: events.Event, now: float) -> "Fleet":
        """The fleet after `event`. A word from an unknown node or shard changes nothing."""
        return self.after((event,), now)

    def after(self, happened: Iterable[events.Event], now: float) -> "Fleet":
        """The fleet after all of these, in order; each map is copied once."""
        draft = Draft(self)
        for event in happened:
            draft.apply(event, now)
        return draft.fleet

    def standing(self, node: str, now: float, timers: Timers) -> Standing:
        """What the node's silence means. One of the roster that has not spoken yet is Unheard."""
        known = self.nodes.get(node)
        if known is not None:
            return standing(known.last_seen, now, timers)
        return "Lost" if now - self.since >= timers.lost_grace else "Unheard"

    def name(self, node: str) -> str:
        """The node's name for people; its id where nobody ever told one."""
        return self.nodes[node].info.name if node in self.nodes else self.called.get(node) or node

    def on_node(self, node: str) -> list[Shard]:
        """The shards whose spec names `node`."""
        return [shard for shard in self.shards.values() if shard.spec.node == node]


class _Table(Generic[K, V]):
    """One map of a draft: somebody else's until it is first written, then a copy of our own."""

    def __init__(self, given: Mapping[K, V]) -> None:
        self.read = given
        self._own: dict[K, V] | None = None

    @property
    def write(self) -> dict[K, V]:
        if self._own is None:
            self.read = self._own = dict(self.read)
        return self._own


class Draft:
    """A fleet being written by one owner: `settle` through its passes, `Fleet.after` through its events.

    `fleet` may be asked for in between. It shares the draft's maps, so it is a value only once its
    owner writes no more.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._since, self._roster, self._seen = fleet.since, fleet.roster, fleet
        self._nodes = _Table(fleet.nodes)
        self._shards = _Table(fleet.shards)
        self._gateways = _Table(fleet.gateways)
        self._progress = _Table(fleet.progress)

    @property
    def fleet(self) -> Fleet:
        """What is written so far; the very fleet that was given while nothing is."""
        seen = self._seen
        if (
            seen.nodes is self._nodes.read
            and seen.shards is self._shards.read
            and seen.gateways is self._gateways.read
            and seen.progress is self._progress.read
            and seen.since == self._since
            and seen.roster is self._roster
        ):
            return seen
        self._seen = Fleet(
            self._since,
            self._roster,
            self._nodes.read,
            self._shards.read,
            self._gateways.read,
            self._progress.read,
            seen.called,
        )
        return self._seen

    def apply(self, event: events.Event, now: float) -> None:  # noqa: PLR0912 - one arm an event
        """Write what `event` changes. A word from an unknown node or shard changes nothing."""
        match event:
            case events.Registered():
                self._registered(event, now)
            case events.Reported():
                self._reported(event, now)
            case events.Heartbeat():
                self._heard(event.node, now)
                self._idle(event.idle)
            case events.Progressed():
                self._heard(event.node, now)
                self._progress.write[event.node] = event.progress
            case events.Disconnected(node=name):
                if name in self._nodes.read:
                    self._nodes.write[name] = dataclasses.replace(self._nodes.read[name], connected=False)
            case events.Assigned(spec=spec):
                status = ShardStatus(spec.replica, spec.rank, "assigned")
                self._shards.write[spec.key] = Shard(spec, status, now, confirmed=False)
            case events.Ordered(key=key, order=order):
                if key in self._shards.read:
                    shard = self._shards.read[key]
                    self._shards.write[key] = Shard(
                        shard.spec, shard.status, shard.since, shard.confirmed, order, now, shard.served
                    )
            case events.GatewayArrived(gateway=name, apart=apart):
                known = self._gateways.read.get(name, Gateway(0, {}, {}, {}, now))
                self._gateways.write[name] = dataclasses.replace(known, acked=0, last_seen=now, apart=apart)
            case events.GatewaySeen():
                self._gateway(event, now)
            case events.GatewayForgotten(gateway=name):
                if name in self._gateways.read:
                    del self._gateways.write[name]
            case events.Stalled(seconds=seconds):
                self._stalled(seconds, now)
            case events.NodeForgotten(node=name):
                self._forgotten(name)

    def _registered(self, event: events.Registered, now: float) -> None:
        name = event.info.id
        if name in self._nodes.read:  # nothing is on a node before its first word
            self._drop_shards(name)
        for spec, status in event.shards:
            if status.state != "gone":
                self._shards.write[spec.key] = Shard(spec, status, now - status.age, served=status.served)
        if name not in self._roster:
            self._roster = self._roster | {name}
        self._nodes.write[name] = Node(event.info, now, now, failures=event.failures)
        self._progress.write[name] = event.progress

    def _reported(self, event: events.Reported, now: float) -> None:
        self._heard(event.node, now)
        if event.info is not None and event.node in self._nodes.read:
            self._nodes.write[event.node] = dataclasses.replace(self._nodes.read[event.node], info=event.info)
        for status in event.statuses:
            shard = self._shards.read.get(status.key)
            if (
                shard is None
                or shard.spec.node != event.node
                or not may_follow(shard.status.state, status.state)
            ):
                continue
            if status.state == "gone":
                del self._shards.write[status.key]
            else:
                since = shard.since if status.state == shard.state else now - status.age
                ended = status.state == "failed" and shard.state in ("ready", "draining")
                served = status.served or (max(0.0, since - shard.since) if ended else shard.served)
                self._shards.write[status.key] = Shard(
                    shard.spec, status, since, True, shard.ordered, shard.ordered_at, served
                )

    def _heard(self, name: str, now: float) -> None:
        if name in self._nodes.read:
            node = self._nodes.read[name]
            self._nodes.write[name] = Node(node.info, now, node.since, failures=node.failures)

    def _idle(self, idle: tuple[tuple[ShardKey, bool], ...]) -> None:
        for key, value in idle:
            shard = self._shards.read.get(key)
            if shard is not None and shard.status.idle != value:
                status = dataclasses.replace(shard.status, idle=value)
                self._shards.write[key] = dataclasses.replace(shard, status=status)

    def _gateway(self, event: events.GatewaySeen, now: float) -> None:
        known = self._gateways.read.get(event.gateway)
        self._gateways.write[event.gateway] = Gateway(
            acked=event.acked,
            in_flight=dict(event.in_flight),
            green_at={replica: now - age for replica, age in event.green},
            queued=dict(event.queued),
            last_seen=now,
            dark_at={replica: now - age for replica, age in event.dark},
            apart=known is not None and known.apart,
        )

    def _stalled(self, seconds: float, now: float) -> None:
        def later(at: float) -> float:
            return min(now, at + seconds)

        self._since = later(self._since)
        for name, node in self._nodes.read.items():
            self._nodes.write[name] = dataclasses.replace(node, last_seen=later(node.last_seen))
        for name, gateway in self._gateways.read.items():
            self._gateways.write[name] = dataclasses.replace(gateway, last_seen=later(gateway.last_seen))
        # Orders wait for answers that we could not hear; what a shard is, it has been all the while.
        for key, shard in self._shards.read.items():
            if shard.ordered or not shard.confirmed:
                self._shards.write[key] = dataclasses.replace(
                    shard,
                    since=shard.since if shard.confirmed else later(shard.since),
                    ordered_at=later(shard.ordered_at),
                )

    def _forgotten(self, name: str) -> None:
        if name in self._roster:
            self._roster = self._roster - {name}
        self._drop_shards(name)
        if name in self._nodes.read:
            del self._nodes.write[name]
        if name in self._progress.read:
            del self._progress.write[name]

    def _drop_shards(self, node: str) -> None:
        for key in [key for key, shard in self._shards.read.items() if shard.spec.node == node]:
            del self._shards.write[key]
