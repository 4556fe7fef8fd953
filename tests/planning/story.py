"""A control plane's day as a dialogue: nodes say things, time passes, and the story says what follows.

Everybody heartbeats while time passes, unless silence is the point. The nodes obey at once unless told
to wait; what they do is written as reports, so the real Fleet and the real settle are what is tested.
"""

import dataclasses
from collections.abc import Iterable

from llmgw.catalog import sources
from llmgw.catalog.model import Catalog, Model, Profile, Scaling
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import CachedWeights, Gpu, InstalledEngine, NodeInfo
from llmgw.fleet.shard import ShardKey, ShardSpec, ShardStatus, State
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import seeded
from llmgw.planning.actions import Action, Assign, Drain, Start, Stop, Undrain
from llmgw.planning.board import Board
from llmgw.planning.desired import Desired, Marks
from llmgw.planning.ledger import Ledger
from llmgw.planning.settle import Settled, settle

SHA = "ab" * 32


def a_profile(name: str = "small", **more: object) -> Profile:
    """A one-GPU llama.cpp profile."""
    return dataclasses.replace(Profile(name, "llamacpp", gpus_per_node=1), **more)  # type: ignore[arg-type]


def a_model(
    name: str = "qwen", *, replicas: int = 1, profiles: Iterable[str] = ("small",), **more: object
) -> Model:
    """A model with its weights on an http server."""
    source = sources.parse(f"http://weights/{name}.gguf", SHA)
    scaling = Scaling(replicas, max(1, replicas))
    return dataclasses.replace(Model(name, source, tuple(profiles), scaling=scaling), **more)  # type: ignore[arg-type]


def a_catalog(*models: Model, profiles: Iterable[Profile] = ()) -> Catalog:
    """A catalog of these models over these profiles (and `small`)."""
    every = {profile.name: profile for profile in (a_profile(), *profiles)}
    return Catalog({model.name: model for model in models}, every)


def a_node(name: str, *, gpus: int = 4, **more: object) -> NodeInfo:
    """A node with H100 cards, llama.cpp and room on the disk."""
    cards = tuple(Gpu(f"{name}-gpu{i}", "H100", 80 << 30) for i in range(gpus))
    info = NodeInfo(name, name, gpus=cards, engines=(InstalledEngine("llamacpp"),), disk_free=1 << 40)
    return dataclasses.replace(info, **more)  # type: ignore[arg-type]


class Story:
    """Nodes that obey, a clock that only the story moves, and everything that was decided."""

    def __init__(
        self, *nodes: NodeInfo, catalog: Catalog | None = None, timers: Timers | None = None
    ) -> None:
        self.now = 1000.0
        self.timers = timers or Timers()
        self.chance = seeded(7)
        self.fleet = Fleet(since=self.now, roster=frozenset(node.id for node in nodes))
        self.ledger = Ledger()
        self.desired = Desired(catalog)
        self.silent: set[str] = set()
        self.gateways: dict[str, dict[str, int]] = {}
        self.last: Settled | None = None
        self.board = Board()
        for node in nodes:
            self.registers(node)

    # --- what happens ---

    def registers(self, node: NodeInfo, *shards: tuple[ShardSpec, ShardStatus]) -> "Story":
        return self.hears(events.Registered(node, shards))

    def hears(self, *happened: events.Event) -> "Story":
        for event in happened:
            self.fleet = self.fleet.apply(event, self.now)
        return self

    def says(self, key: ShardKey, state: State, **more: object) -> "Story":
        """The node of shard `key` reports it in `state`."""
        status = dataclasses.replace(ShardStatus(*key, state), **more)  # type: ignore[arg-type]
        return self.hears(events.Reported(self.fleet.shards[key].spec.node, (status,)))

    def silence(self, *nodes: str) -> "Story":
        self.silent |= set(nodes)
        return self

    def speaks(self, *nodes: str) -> "Story":
        self.silent -= set(nodes)
        return self.hears(*(events.Heartbeat(node) for node in nodes))

    def gateway(self, name: str = "gw", **in_flight: int) -> "Story":
        """A gateway is there, acknowledges every table at once, and has this in flight."""
        self.gateways[name] = {key.replace("__", "/"): value for key, value in in_flight.items()}
        return self.hears(self._gateway_word(name))

    def adopts(self, catalog: Catalog | None) -> "Story":
        self.desired = dataclasses.replace(self.desired, catalog=catalog)
        return self

    def marks(self, marks: Marks) -> "Story":
        self.desired = dataclasses.replace(self.desired, marks=marks)
        return self

    def after(self, seconds: float) -> "Story":
        """Time passes; everybody who is not silent is heard at the end of it."""
        self.now += seconds
        self.hears(*(events.Heartbeat(node) for node in self.fleet.nodes if node not in self.silent))
        return self.hears(*(self._gateway_word(name) for name in self.gateways))

    # --- what follows ---

    def decides(self) -> tuple[Action, ...]:
        """Settle now; what was decided."""
        self.last = settle(
            self.desired, self.fleet, self.ledger, self.now, self.chance, self.timers, self.board
        )
        self.fleet, self.ledger = self.last.fleet, self.last.ledger
        return self.last.actions

    def obeys(self, *actions: Action) -> "Story":
        """The nodes do what they were told, and report it."""
        for action in actions:
            match action:
                case Assign(spec=spec):
                    self._holds(spec)
                    self.says(spec.key, "held")
                case Start(key=key):
                    self.says(key, "ready")
                case Stop(key=key):
                    self.says(key, "stopping").says(key, "gone")
        return self

    def runs(self, passes: int = 20) -> list[Action]:
        """Decide and obey until nothing is left to do now; everything that was decided."""
        done: list[Action] = []
        for _ in range(passes):
            actions = self.decides()
            if not actions:
                return done
            done += actions
            self.obeys(*actions)
            self.hears(*(self._gateway_word(name) for name in self.gateways))
        raise AssertionError(f"never quiet: {done[-4:]}")

    def ready(self, model: str = "qwen") -> list[str]:
        """The routed, not draining replicas of `model`."""
        return [e.replica for e in self.ledger.routes.endpoints if e.model == model and not e.draining]

    def _gateway_word(self, name: str) -> events.GatewaySeen:
        return events.GatewaySeen(name, self.ledger.routes.version, tuple(self.gateways[name].items()))

    def _holds(self, spec: ShardSpec) -> None:
        node = self.fleet.nodes[spec.node].info
        if not node.holds(spec.cache_name):
            entry = CachedWeights(spec.cache_name, spec.source.canonical, spec.source_bytes)
            info = dataclasses.replace(node, weights=(*(node.weights or ()), entry))
            self.hears(events.Reported(spec.node, (), info))


def kinds(actions: Iterable[Action]) -> list[str]:
    """What the actions are, for the eye."""
    names: dict[type, str] = {
        Assign: "assign",
        Start: "start",
        Stop: "stop",
        Drain: "drain",
        Undrain: "undrain",
    }
    return [names[type(action)] for action in actions]
