"""What must always hold, judged by the simulated machines and not by anybody's opinion of them.

`sim.world` calls one method per thing that happens; the first broken invariant raises `Violation`
and ends the run. The codes are those of the design: S1 … S25 for safety, L1 … L5 for liveness.
"""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from llmgw.agent.core import Launch
from llmgw.fleet import events
from llmgw.fleet.lifecycle import ENDED
from llmgw.fleet.routes import Endpoint, Routes
from llmgw.fleet.shard import ShardSpec, ShardStatus
from llmgw.fleet.world import Fleet, Shard
from llmgw.planning import actions
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.reconcile import Pass
from tests.sim import scenario
from tests.sim.gateways import LOAD_EVERY, Gateway
from tests.sim.machines import Engine, Machine
from tests.sim.oracle_people import PeopleOracle
from tests.sim.rest import fits
from tests.sim.verdict import Violation

if TYPE_CHECKING:
    from tests.sim.control import Control
    from tests.sim.world import World

SLACK = 1e-6
SURGE = 1
"""Replicas above the wanted count, as the design allows."""

DEAF = 4.0
"""Seconds of silence that may be counted wrongly: stalls shorter than the loop can notice."""

SWEEP = 150.0
"""Seconds without a disturbance in which every shard of a failed replica must be gone: stop grace 20,
verification 60, memory 20, and orders that were lost are given again."""


SLOW = 20.0
"""Seconds beyond its delay in which what failed is tried again."""

SELDOM = 6
"""Of so many passes one has its tables looked through: what is kept too long is there in the next one too."""


@dataclasses.dataclass(slots=True)
class Tries:
    """Failures in a row of one (model, generation), the earliest next start, and whether it was tried since."""

    failures: int = 0
    not_before: float = 0.0
    at: float = 0.0
    again: bool = False


class Memory:
    """What the oracle remembers of one life of the control plane; it `began` on the listening clock."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.heard: set[str] = set()
        self.gateways: set[str] = set()
        self.failed: set[str] = set()
        self.tries: dict[tuple[str, str], Tries] = {}
        self.draining: dict[str, float] = {}


class Oracle:
    """The judge of one run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._life = Memory(0.0)
        self._stopped: set[str] = set()
        self._routed: set[str] = set()
        self._given_up: dict[int, set[str]] = {}
        self._passes = 0
        self.orders = 0
        self.people = PeopleOracle(world, self._require)

    @property
    def _now(self) -> float:
        return self._world.clock.now

    def control_started(self) -> None:
        """A new life of the control plane: what it was told before is forgotten."""
        self._life = Memory(self._world.listened)
        self.people.control_started()

    def catalog_changed(self) -> None:
        """Generations that nobody wants any more start from nothing when they come back."""
        wanted = scenario.current(self._world.disk.catalog)
        tries = self._life.tries
        self._life.tries = {key: tries[key] for key in tries if key[1] in wanted.get(key[0], ())}
        self.people.catalog_changed(wanted)

    # --- machines -----------------------------------------------------------------------------

    def launching(self, machine: Machine, command: Launch) -> None:
        """S1, S3, S6, S11: what is true where an engine is about to be executed."""
        spec = command.spec
        for gpu in spec.gpus:
            for engine in machine.holders(gpu):
                if engine.alive:
                    self._require(
                        engine.spec.key == spec.key, "S1", f"{spec.replica} takes {gpu} from {engine}"
                    )
                else:
                    self._require(
                        False, "S3", f"{spec.replica} takes {gpu} before the memory of {engine} is back"
                    )
        twin = machine.find(spec.key)
        self._require(twin is None or not twin.alive, "S11", f"{spec.replica}:{spec.rank} is executed twice")
        self._room(machine, spec)
        self._gang(spec)

    def _room(self, machine: Machine, spec: ShardSpec) -> None:
        """S2: the machine has what the engine was promised."""
        have = {gpu.uuid for gpu in machine.gpus}
        self._require(have.issuperset(spec.gpus), "S2", f"{machine.name} has no {spec.gpus}")
        left = machine.memory_left() - spec.profile.cpu_memory
        self._require(
            left >= 0, "S2", f"{spec.replica}:{spec.rank} takes {-left} bytes more than {machine.name} has"
        )

    def _gang(self, spec: ShardSpec) -> None:
        for peer in spec.peers:
            held = not spec.source.fetched or self._world.machines[peer.node].cache.whole(spec.cache_name)
            self._require(held, "S6", f"{spec.replica} is executed while {peer.node} lacks its weights")
            if spec.rank == 0 and peer.rank > 0:
                worker = self._world.engine((spec.replica, peer.rank))
                started = worker is not None and worker.phase != "starting"
                self._require(started, "S6", f"rank 0 of {spec.replica} before rank {peer.rank} is started")

    # --- what the control plane hears ---------------------------------------------------------

    def heard(self, control: "Control", event: events.Event) -> None:
        """Failures as they become known: S7 and S9 count from here."""
        match event:
            case events.Registered():
                self._life.heard.add(event.info.id)
                self._world.spoke(event.info.id)
                # A new agent finds a hanging engine alive, and has to see again that it hangs.
                elsewhere = {
                    shard.spec.replica
                    for shard in control.fleet.shards.values()
                    if shard.state == "failed" and shard.spec.node != event.info.id
                }
                back = {s.replica for _, s in event.shards if s.state == "ready"}
                self._life.failed -= back - elsewhere
                self._statuses(control, event.shards, registers=True)
            case events.GatewaySeen() | events.GatewayArrived():
                self._life.gateways.add(event.gateway)
            case events.Heartbeat():
                self._world.spoke(event.node)
            case events.Progressed():
                self._world.spoke(event.node)
                moved = control.fleet.apply(event, self._now).shards != control.fleet.shards
                self._require(not moved, "S18", f"bytes that arrived at {event.node} moved its shards")
            case events.Reported():
                self._world.spoke(event.node)
                known = control.fleet.shards
                told = [(known[s.key].spec, s) for s in event.statuses if s.key in known]
                self._statuses(control, told)

    def _statuses(
        self, control: "Control", told: Iterable[tuple[ShardSpec, ShardStatus]], *, registers: bool = False
    ) -> None:
        """What is new in one message. Of several failures of a generation in one message, one counts:
        nobody can tell whether they came one after the other. What failed before this life of the control
        plane is in the memory of agents: theirs to count."""
        counted: dict[tuple[str, str], float] = {}
        blamed: dict[tuple[str, str], set[str]] = {}
        for spec, status in told:
            self.people.confirmed(status.key)
            if status.state != "failed" or status.replica in self._life.failed:
                continue
            self._life.failed.add(status.replica)
            self._later_gone(spec)
            blamed.setdefault((spec.model, spec.generation), set()).add(spec.node)
            ends = status.replica in control.ledger.drains or status.replica in self._stopped
            if status.key in control.fleet.shards and not ends:
                counted[spec.model, spec.generation] = self._now - status.age
        wanted = scenario.current(self._world.disk.catalog)
        for key, at in counted.items():
            if key[1] in wanted.get(key[0], ()):
                self._count(control, key, at)
                # What a registration tells was counted by the agent, which blames nobody.
                self.people.failed(key, frozenset() if registers else frozenset(blamed[key]), at)

    def _count(self, control: "Control", key: tuple[str, str], at: float) -> None:
        tries = self._life.tries.setdefault(key, Tries())
        if self._was_good(control, key[1]):
            tries.failures = 0
        tries.failures += 1
        timers = control.timers
        delay = min(timers.backoff_cap, timers.backoff_base * 2 ** (tries.failures - 1))
        tries.not_before = max(tries.not_before, at + 0.75 * delay)
        tries.at, tries.again = max(tries.at, self._now), False

    def _was_good(self, control: "Control", generation: str) -> bool:
        """Some replica of the generation was ready for about as long as forgives failures."""
        enough = control.timers.backoff_reset - 30.0
        return any(
            engine.spec.generation == generation
            and engine.ready_at is not None
            and min(self._now, engine.free_at) - engine.ready_at >= enough
            for engine in self._world.engines()
        )

    def _later_gone(self, spec: ShardSpec) -> None:
        """S7: look again once things were calm for long enough."""

        def check() -> None:
            for peer in spec.peers if spec.replica in self._life.failed else ():
                calm = self._world.calm_since(peer.node)
                engine = self._world.engine((spec.replica, peer.rank))
                if engine is None or not engine.alive:
                    continue
                if self._now - calm < SWEEP:
                    self._world.clock.after(SWEEP, check)
                    return
                self._require(False, "S7", f"{engine} lives {SWEEP:g}s after a shard of it failed")

        self._world.clock.after(SWEEP, check)

    # --- what the control plane does ----------------------------------------------------------

    def forgiven(self, model: str) -> None:
        """People cleared what is held against a model."""
        self._life.tries = {key: tries for key, tries in self._life.tries.items() if key[0] != model}
        self.people.forgiven(model)

    def stepped(self) -> None:
        """An agent's core made a step."""
        for agent in self._world.agents.values():
            self.people.stepped(agent, agent.state)

    def passed(self, result: Pass, before: Ledger, fleet: Fleet, wants: Desired, now: float) -> None:
        """S3: one placement per pass; S19, S24: what it wants and when; S25: what it remembers.

        `before` and `fleet` are what it began with.
        """
        self._require(wants.catalog is self._world.disk.catalog, "S19", "a pass wants what was never adopted")
        self._require(now == self._now, "S24", f"a pass believes that it is {now:.1f}")
        control = self._world.control
        standings = control.loop._board.standings
        self.people.passed(before, result.ledger, fleet, control.timers, standings)
        self._passes += 1
        if self._passes % SELDOM == 0:
            self._bounded(result.ledger, fleet)
            self.people.bounded(control, result.ledger, fleet)
        placed = {a.spec.replica for a in result.actions if isinstance(a, actions.Assign)}
        if len(placed) > 1:
            placed -= {replica for replica, _ in fleet.shards}
            self._require(len(placed) <= 1, "S3", f"{len(placed)} replicas were placed in one pass")

    def _acts(self) -> bool:
        """The control plane has heard everybody and is not in the dark: its passes may do anything at all."""
        standings = self._world.control.loop._board.standings
        return standings is not None and standings.heard and not standings.dark

    def _bounded(self, ledger: Ledger, fleet: Fleet) -> None:
        """S25: tables hold what is there or wanted, and nothing else."""
        known = {replica for replica, _ in fleet.shards}
        wanted = {(m, g) for m, of in scenario.current(self._world.disk.catalog).items() for g in of}
        for table, keys, allowed in (
            ("troubles", set(ledger.troubles), wanted),
            ("drains", set(ledger.drains), known),
            ("charged", set(ledger.charged), known),
            ("recalled", set(ledger.recalled), self._world.machines.keys()),
            ("scales", set(ledger.scales) if self._acts() else set(), self._world.disk.catalog.models.keys()),
        ):
            self._require(keys <= allowed, "S25", f"{table} keeps {sorted(keys - allowed)[:3]}")

    def ordered(self, control: "Control", action: actions.Action) -> None:
        """S4, S5, S9, S10, S14, S21: whether the truth allows this order now."""
        if isinstance(action, actions.Assign | actions.Start | actions.Stop):
            self.orders += 1
            self._roster(control)
            self._not_dark(control)
        self.people.ordered(control, action)
        match action:
            case actions.Assign(spec=spec) if spec.key not in self._world.assigned:
                self._world.assigned.add(spec.key)
                self._free(spec)
                self._there(control, spec)
                if spec.rank == 0:
                    self._backed_off(spec)
                    self._not_doubled(control, spec)
                    self._no_surge(control, spec)
            case actions.Drain(replica=replica):
                self._by_the_rule(control, action)
            case actions.Stop():
                self._may_stop(control, action)
                self._stopped.add(action.key[0])
            case actions.Undrain(replica=replica) if replica not in control.ledger.drains:
                self._life.draining.pop(replica, None)

    def _free(self, spec: ShardSpec) -> None:
        """S1, S3: a card is given away only after its node said that everything on it is gone."""
        machine = self._world.machines[spec.node]
        holders = [engine for gpu in spec.gpus for engine in machine.holders(gpu)]
        lives = any(engine.alive for engine in holders)
        names = ", ".join(map(str, holders))
        self._require(
            not holders, "S1" if lives else "S3", f"{spec.replica} gets cards that {names} still holds"
        )

    def _there(self, control: "Control", spec: ShardSpec) -> None:
        """S2: a node gets work only while it speaks."""
        silence = self._world.silence(spec.node)
        self._require(
            spec.node in self._life.heard and silence < control.timers.unreachable + DEAF,
            "S2",
            f"{spec.replica} is placed on {spec.node}, silent for {silence:.1f}s",
        )

    def _no_surge(self, control: "Control", spec: ShardSpec) -> None:
        """S10: one above the most that is wanted, while a generation takes over."""
        model = self._world.disk.catalog.models.get(spec.model)
        most = (model.scaling.max if model is not None else 0) + SURGE
        others = [name for name in self._up(control, spec.model) if name != spec.replica]
        self._require(
            len(others) < most, "S10", f"{spec.replica} is placed beside {len(others)}, at most {most}"
        )

    def _up(self, control: "Control", model: str) -> dict[str, float]:
        """Replica → since when, of those whose every shard serves or comes up, as their nodes say."""
        ranks: dict[str, list[Shard]] = {}
        for shard in control.fleet.shards.values():
            if shard.spec.model == model and shard.confirmed and shard.state not in ENDED:
                ranks.setdefault(shard.spec.replica, []).append(shard)
        return {
            name: max(shard.since for shard in shards)
            for name, shards in ranks.items()
            if len(shards) == len(shards[0].spec.peers)
            and name not in self._life.failed | self._stopped
            and all(self._near(control, peer.node) for peer in shards[0].spec.peers)
        }

    def _near(self, control: "Control", node: str) -> bool:
        return node in self._life.heard and self._world.silence(node) < control.timers.unreachable - DEAF

    def _by_the_rule(self, control: "Control", drain: actions.Drain) -> None:
        """S23: of one too many, the youngest that serves goes."""
        if not drain.because.endswith("this is one more") or not self._world.serving_replica(drain.replica):
            return
        head = self._world.engine((drain.replica, 0))
        assert head is not None
        told = [control.fleet.shards.get((drain.replica, peer.rank)) for peer in head.spec.peers]
        if any(shard is None or shard.state != "ready" for shard in told):
            return  # what is only coming up, as far as anybody said, goes first
        since = self._up(control, head.spec.model)
        younger = [
            name
            for name, began in since.items()
            if drain.replica in since
            and began > since[drain.replica] + SLACK
            and name not in control.ledger.drains
            and self._same(name, head.spec.generation)
        ]
        self._require(not younger, "S23", f"{drain.replica} goes, and {', '.join(younger)} is younger")

    def _same(self, replica: str, generation: str) -> bool:
        engines = self._world.serving_replica(replica)
        return bool(engines) and engines[0].spec.generation == generation

    def _roster(self, control: "Control") -> None:
        missing = sorted(control.roster - self._life.heard - self._world.marks.confirmed_lost)
        waited = self._world.listened - self._life.began
        self._require(
            not missing or waited >= control.timers.place_grace - DEAF,
            "S14",
            f"an order {waited:.1f}s after the start, before {', '.join(missing)} reported",
        )

    def _not_dark(self, control: "Control") -> None:
        known = sorted(control.fleet.nodes)
        confirmed = self._world.marks.confirmed_lost
        found = self._found_dark(control)
        silences = [self._world.silence(name) for name in known if name not in confirmed | found]
        fresh = [s for s in silences if control.timers.unreachable <= s < control.timers.lost]
        every = len(control.fleet.roster | control.fleet.nodes.keys())
        dark = every >= 3 and len(fresh) >= control.timers.mass_share * every
        self._require(not dark, "S21", f"an order while {len(fresh)} of {every} nodes are silent")

    def _found_dark(self, control: "Control") -> set[str]:
        """Nodes of whose ready replicas clients of some gateway were truly refused each, lately."""
        lately = self._now - control.timers.evidence - SLOW
        dark: dict[str, bool] = {}
        for (replica, rank), shard in control.fleet.shards.items():
            if rank == 0 and shard.state == "ready":
                refused = any(
                    gateway.dark.get(replica, -1.0) > lately for gateway in self._world.gateways.values()
                )
                dark[shard.spec.node] = dark.get(shard.spec.node, True) and refused
        return {node for node, found in dark.items() if found}

    def untried(self, since: float) -> str:
        """L5: what failed, and was not tried again in the longest delay of a healed world; empty = nothing."""
        tries = self._life.tries
        newest = max((each.at for each in tries.values()), default=0.0)
        cap = 1.25 * self._world.control.timers.backoff_cap
        return self.unmet() if self._now > max(since, newest) + cap + SLOW else ""

    def unmet(self) -> str:
        """What failed, was not tried again, is wanted and has room; empty = nothing."""
        wanted, models = scenario.current(self._world.disk.catalog), self._world.disk.catalog.models
        for (model, generation), tries in self._life.tries.items():
            profile = wanted.get(model, {}).get(generation)
            if profile is None or tries.again or not fits(self._world, profile):
                continue
            if len(self._world.serving(model)) < models[model].scaling.min:
                return f"{model} failed {self._now - tries.at:.0f}s ago and was not tried again"
        return ""

    def _backed_off(self, spec: ShardSpec) -> None:
        tries = self._life.tries.get((spec.model, spec.generation))
        if tries is not None:
            tries.again = True
        early = tries is not None and self._now < tries.not_before - SLACK
        self._require(
            not early, "S9", f"{spec.replica} is placed too soon after {tries and tries.failures} failures"
        )

    def _not_doubled(self, control: "Control", spec: ShardSpec) -> None:
        """S4: nothing is rebuilt while the original serves and its silence is no loss."""
        model = self._world.disk.catalog.models.get(spec.model)
        emptied = self._world.marks.draining
        serving = [
            replica
            for replica, engines in self._world.serving(spec.model).items()
            if engines[0].spec.generation == spec.generation
            and replica not in control.ledger.drains
            and replica not in self._life.failed | self._stopped
            and all(self._believed(control, engine) and engine.spec.node not in emptied for engine in engines)
        ]
        wanted = model.scaling.max if model is not None else 0
        self._require(
            len(serving) < wanted,
            "S4",
            f"{spec.replica} is built though {len(serving)} of {wanted} serve: {', '.join(serving)}",
        )

    def _believed(self, control: "Control", engine: Engine) -> bool:
        """The control plane knows of it and its node is not truly lost."""
        node = engine.spec.node
        return node in self._life.heard and not self._lost(control, node)

    def _lost(self, control: "Control", node: str) -> bool:
        """It was silent for long enough, or people say so, or took it out of the roster."""
        confirmed = node in self._world.marks.confirmed_lost
        limit = control.timers.unreachable if confirmed else control.timers.lost
        return self._world.silence(node) >= limit - DEAF or node not in self._world.disk.roster

    def _may_stop(self, control: "Control", action: actions.Stop) -> None:
        replica = action.key[0]
        engines = self._world.serving_replica(replica)
        known = replica in self._routed and replica not in self._life.failed | self._stopped
        if not engines or not known or not self._life.gateways:
            return
        lost = any(self._lost(control, e.spec.node) for e in engines)
        if lost and replica not in self._life.draining:
            self._not_green(control, action)
        if lost:
            return
        self._require(
            replica in self._life.draining,
            "S4",
            f"{replica} serves, and is stopped undrained: {action.because}",
        )
        self._drained(replica, engines[0].spec)
        self._enough_left(control, replica, engines[0].spec)

    def _not_green(self, control: "Control", action: actions.Stop) -> None:
        for gateway in self._world.gateways.values():
            age = self._now - gateway.green.get(action.key[0], -1e9)
            # Younger than one report of the gateway, the control plane cannot know it yet.
            fresh = 1.5 * LOAD_EVERY < age < control.timers.evidence / 2 and gateway.speaks
            self._require(
                not fresh, "S4", f"{action.key[0]} answers clients, and is stopped: {action.because}"
            )

    def _drained(self, replica: str, spec: ShardSpec) -> None:
        if self._now >= self._life.draining[replica] + spec.profile.drain - SLACK:
            return
        for gateway in self._world.gateways.values():
            if gateway.name not in self._life.gateways:
                continue  # away since before this control plane began: nobody can wait for it
            routed = any(e.replica == replica and not e.draining for e in gateway.routes.endpoints)
            self._require(not routed, "S5", f"{replica} is stopped while {gateway.name} still routes to it")
            left = gateway.in_flight(replica)
            self._require(not left, "S5", f"{replica} is stopped with {left} requests of {gateway.name}")

    def _enough_left(self, control: "Control", replica: str, spec: ShardSpec) -> None:
        """S10: a voluntary stop leaves as many as are wanted, or makes room for its successor."""
        model = self._world.disk.catalog.models.get(spec.model)
        drain = control.ledger.drains.get(replica)
        if model is None or drain is None or drain.gap:
            return
        others = {
            other.spec.replica
            for other in control.fleet.shards.values()
            if other.spec.model == spec.model
            and other.spec.replica != replica
            and other.spec.replica not in self._life.failed
            and self._was_ready(other.spec)
        }
        self._require(
            len(others) >= model.scaling.min,
            "S10",
            f"{replica} is stopped, {len(others)} of {model.scaling.min} others serve",
        )

    def _was_ready(self, spec: ShardSpec) -> bool:
        engine = self._world.engine(spec.key)
        return engine is not None and engine.ready_at is not None

    # --- routing ------------------------------------------------------------------------------

    def published(self, routes: Routes) -> None:
        """S7, S8: what a new table sends clients to. Who was too silent for it is remembered: a word
        may come while the table travels."""
        self.people.published(routes)
        self._given_up[routes.version] = {
            engine.spec.replica
            for engine in self._world.engines()
            if self._lost(self._world.control, engine.spec.node)
        }
        for endpoint in routes.endpoints:
            failed = endpoint.replica in self._life.failed
            self._require(not failed, "S7", f"{endpoint.replica} is routed after it failed")
            self._require(
                endpoint.draining or self._whole(endpoint),
                "S8",
                f"{endpoint.replica} is routed and was never ready",
            )
            self._routed.add(endpoint.replica)
            if endpoint.draining:
                self._life.draining.setdefault(endpoint.replica, self._now)
            else:
                self._life.draining.pop(endpoint.replica, None)

    def _whole(self, endpoint: Endpoint) -> bool:
        """Every rank of the replica came to serve once."""
        head = self._world.engine((endpoint.replica, 0))
        if head is None:
            return False
        ranks = [self._world.engine((endpoint.replica, peer.rank)) for peer in head.spec.peers]
        return all(rank is not None and rank.ready_at is not None for rank in ranks)

    def _given_up_by_people(self, replica: str) -> bool:
        """Whether somebody said that a node of it is gone."""
        head = self._world.engine((replica, 0))
        confirmed = self._world.marks.confirmed_lost
        return head is not None and any(peer.node in confirmed for peer in head.spec.peers)

    def adopting(self, gateway: Gateway, routes: Routes) -> None:
        """S4: no table takes away what serves, unless it was drained or stopped."""
        if routes.partial:
            return
        kept = {endpoint.replica for endpoint in routes.endpoints}
        for endpoint in gateway.routes.endpoints:
            replica = endpoint.replica
            if (
                replica in kept
                or endpoint.draining
                or replica in self._stopped
                or replica in self._life.failed
                or replica in self._given_up.get(routes.version, ())
                or self._given_up_by_people(replica)
            ):
                continue
            serves = bool(self._world.serving_replica(replica))
            self._require(not serves, "S4", f"{replica} serves, and {gateway.name} forgets it")

    @staticmethod
    def _require(holds: bool, code: str, said: str) -> None:
        if not holds:
            raise Violation(code, said)
