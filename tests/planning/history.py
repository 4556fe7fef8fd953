"""Random days of a small mixed fleet, event by event: what any two ways of deciding must agree on.

Nodes obey late, fail, fall silent, register again with less; people change catalogs and marks.
"""

import dataclasses
import random
from collections.abc import Callable, Iterator

from llmgw.catalog.model import Catalog, Profile, Scaling
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.lifecycle import NEXT
from llmgw.fleet.node import CachedWeights, NodeInfo
from llmgw.fleet.shard import Failure, Progress, ShardSpec, ShardStatus
from llmgw.fleet.world import Shard
from llmgw.planning.desired import Desired, Marks
from llmgw.planning.ledger import Ledger
from tests.planning.fleets import NOW, machine, registered
from tests.planning.story import a_catalog, a_model, a_profile

TIMERS = Timers(
    unreachable=3.0,
    lost=12.0,
    place_grace=2.0,
    lost_grace=12.0,
    min_ready=1.0,
    scale_window=6.0,
    scale_every=1.0,
    ack=2.0,
    backoff_reset=20.0,
)
KINDS = ("H100", "A100", "L4")
LIKELY: dict[str, tuple[str, ...]] = {
    "assigned": ("fetching", "held"),
    "fetching": ("held",),
    "held": ("held",),
    "starting": ("started", "ready"),
    "started": ("ready",),
    "stopping": ("gone",),
}
"""What a shard that nobody disturbs reports next."""


class Day:
    """One random history: `fleet`, `ledger` and `desired` as they are between two decisions."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = NOW
        infos = [self._machine(f"n{i}") for i in range(self.chance.randint(2, 9))]
        self.fleet = registered(*infos)
        if self.chance.random() < 0.5:
            self.fleet = dataclasses.replace(self.fleet, since=NOW, roster=self.fleet.roster | {"elsewhere"})
        self.ledger = Ledger()
        self.desired = Desired(self._catalog())
        self.silent: set[str] = set()
        self.past: dict[str, list[ShardSpec]] = {}

    def _machine(self, name: str) -> NodeInfo:
        info = machine(name, self.chance.choice(KINDS), self.chance.choice((0, 1, 2, 2, 4)))
        if self.chance.random() < 0.2:
            cards = (*(info.gpus or ()), *(machine(f"{name}x", self.chance.choice(KINDS), 2).gpus or ()))
            info = dataclasses.replace(info, gpus=cards)
        return dataclasses.replace(
            info,
            cpu_cores=self.chance.choice((None, 4.0, 16.0)),
            labels=(("rack", self.chance.choice("ab")),),
            disk_free=self.chance.choice((None, 1 << 34, 1 << 40)),
            ports=(20000, self.chance.choice((20029, 20999))),
        )

    def _profile(self, number: int) -> Profile:
        chance = self.chance
        return a_profile(
            f"p{number}",
            nodes=chance.choice((1, 1, 1, 2)),
            gpus_per_node=chance.choice((0, 1, 1, 2, 4)),
            gpu_types=chance.choice(((), (), ("H100",), ("A100", "L4"))),
            node_labels=chance.choice(((), (), (("rack", "a"),))),
            cpu_cores=chance.choice((0.0, 0.1, 1.5)),
            args=chance.choice(((), (("threads", 2),))),
            drain=5.0,
        )

    def _catalog(self) -> Catalog:
        chance = self.chance
        profiles = [self._profile(i) for i in range(4)]
        models = [
            a_model(
                f"m{i}",
                replicas=chance.choice((0, 1, 1, 2, 4)),
                **chance.choice(({}, {"scaling": Scaling(1, 4, 2)})),
                profiles=[f"p{j}" for j in chance.sample(range(4), chance.choice((1, 1, 2)))],
            )
            for i in range(chance.randint(0, 6))
        ]
        return a_catalog(*models, profiles=profiles)

    def happens(self) -> None:
        """A few things happen, and some time passes."""
        passed = self.chance.choice((0.0, 0.0, 0.0, 0.1, 1.0, 2.5, 9.0))
        if passed:
            self.now += passed
            self.hears(*(events.Heartbeat(name) for name in self.fleet.nodes if name not in self.silent))
        for _ in range(self.chance.randint(0, 4)):
            self.chance.choices([what for what, _ in HAPPENINGS], [often for _, often in HAPPENINGS])[0](self)

    def hears(self, *happened: events.Event) -> None:
        """Apply events now."""
        self.fleet = self.fleet.after(happened, self.now)

    def pick(self) -> Iterator[Shard]:
        """One shard, where there is any."""
        if self.fleet.shards:
            yield self.chance.choice(list(self.fleet.shards.values()))


def progresses(day: Day) -> None:
    """Most shards take their next step."""
    for shard in list(day.fleet.shards.values()):
        state = "starting" if shard.state == "held" and shard.ordered == "start" else shard.state
        if shard.ordered == "stop" and shard.state != "stopping":
            state = "stopping"
        elif state == shard.state:
            state = day.chance.choice(LIKELY.get(state, (state,)))
        if day.chance.random() < 0.7:
            day.hears(events.Reported(shard.spec.node, (ShardStatus(*shard.spec.key, state),)))  # type: ignore[arg-type]


def goes_wrong(day: Day) -> None:
    """A shard reports any state that may follow."""
    for shard in day.pick():
        states = NEXT[shard.status.state] or ("gone",)
        status = ShardStatus(*shard.spec.key, day.chance.choice(states), reason="exit 1")
        day.hears(events.Reported(shard.spec.node, (status,)))


def fails(day: Day) -> None:
    """A shard fails."""
    for shard in day.pick():
        day.hears(
            events.Reported(shard.spec.node, (ShardStatus(*shard.spec.key, "failed", reason="exit 1"),))
        )


def falls_silent_or_speaks(day: Day) -> None:
    """A node changes its mind."""
    day.silent ^= {day.chance.choice(list(day.fleet.nodes) or ["n0"])}


def registers(day: Day) -> None:
    """A node comes back with what it has, with less, or with what it had long ago; or another one comes."""
    name = f"n{day.chance.randint(0, 10)}"
    known = day.fleet.nodes.get(name)
    info = known.info if known is not None and day.chance.random() < 0.6 else day._machine(name)
    here = day.fleet.on_node(name)
    kept = [s for s in here if day.chance.random() < 0.8]
    failures = tuple(Failure(s.spec.model, s.spec.generation, 2, 1.0, "exit 1") for s in kept[:1])
    shards = [(s.spec, dataclasses.replace(s.status, age=1.0)) for s in kept]
    shards += [
        (spec, ShardStatus(*spec.key, day.chance.choice(("ready", "held", "failed")), 30.0))
        for spec in day.past.get(name, [])[-3:]
        if spec.key not in day.fleet.shards and day.chance.random() < 0.5
    ]
    day.past[name] = [*day.past.get(name, []), *(s.spec for s in here)]
    day.hears(events.Registered(info, tuple(shards), failures))


def fetched(day: Day) -> None:
    """A node has other weights now, and tells bytes of a fetch."""
    for shard in day.pick():
        spec, node = shard.spec, day.fleet.nodes.get(shard.spec.node)
        if node is not None:
            entry = CachedWeights(spec.cache_name, spec.source.canonical, 1 << 30)
            info = dataclasses.replace(node.info, weights=(*(node.info.weights or ())[-3:], entry))
            day.hears(events.Reported(spec.node, (), info))
            day.hears(
                events.Progressed(
                    spec.node, (Progress(spec.cache_name, 5, day.chance.choice((None, 1 << 33))),)
                )
            )


def goes_away(day: Day) -> None:
    """A node's stream ends, or a person forgets the node."""
    name = day.chance.choice(list(day.fleet.nodes) or ["n0"])
    day.hears(
        day.chance.choice((events.Disconnected(name), events.Disconnected(name), events.NodeForgotten(name)))
    )


def gateway_speaks(day: Day) -> None:
    """A gateway tells what it serves by; what it completed and could not connect to; or that it leaves."""
    also = random.Random(day.now)
    replicas = sorted({replica for replica, _ in day.fleet.shards})
    some = day.chance.sample(replicas, min(len(replicas), 3))
    name, version = day.chance.choice(("ga", "gb")), day.ledger.routes.version - day.chance.randint(0, 1)
    seen = events.GatewaySeen(
        name,
        version,
        tuple((replica, day.chance.randint(0, 1)) for replica in some),
        tuple((replica, day.chance.uniform(0.0, 40.0)) for replica in some),
        tuple((f"m{number}", day.chance.randint(0, 5)) for number in range(3)),
        tuple((replica, also.uniform(0.0, 40.0)) for replica in replicas if also.random() < 0.5),
    )
    if also.random() < 0.3:
        day.hears(events.GatewayArrived(name, apart=also.random() < 0.7))
    day.hears(day.chance.choice((seen, seen, events.GatewayForgotten(name))))


def stalls(day: Day) -> None:
    """We could not listen."""
    day.now += 5.0
    day.hears(events.Stalled(5.0))
    day.ledger = day.ledger.later(5.0, day.now)


def another_catalog(day: Day) -> None:
    """People apply a catalog, or none stands; mostly a profile of the old one is changed."""
    old = day.desired.catalog
    if old is None or day.chance.random() < 0.3:
        catalog = None if day.chance.random() < 0.2 else day._catalog()
    else:
        name = day.chance.choice(list(old.profiles))
        args = (("threads", day.chance.randint(1, 3)),)
        profile = dataclasses.replace(old.profiles[name], args=args)
        catalog = Catalog(old.models, {**old.profiles, name: profile})
    day.desired = dataclasses.replace(day.desired, catalog=catalog)


def marks(day: Day) -> None:
    """People cordon, pause and confirm losses; sources tell their sizes."""

    def some(names: list[str]) -> list[str]:
        return [name for name in names if day.chance.random() < 0.2]

    asked = day.desired.catalog.models.values() if day.desired.catalog is not None else ()
    day.desired = dataclasses.replace(
        day.desired,
        sizes={model.cache_name: day.chance.choice((1, 1 << 33, 1 << 41)) for model in asked},
        marks=Marks(
            cordoned=dict.fromkeys(some(list(day.fleet.nodes)), "disk"),
            draining=dict.fromkeys(some(list(day.fleet.nodes)), "memory"),
            paused=dict.fromkeys(some([f"m{i}" for i in range(6)]), "driver"),
            confirmed_lost=frozenset(some(list(day.fleet.nodes))),
        ),
    )


HAPPENINGS: tuple[tuple[Callable[[Day], None], int], ...] = (
    (progresses, 40), (goes_wrong, 4), (fails, 3), (falls_silent_or_speaks, 4), (registers, 5), (fetched, 4),
    (goes_away, 2), (gateway_speaks, 6), (stalls, 1), (another_catalog, 5), (marks, 3),
)  # fmt: skip
"""What may happen, and how often."""
