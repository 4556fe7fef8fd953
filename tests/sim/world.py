"""One simulated world: machines, agents, gateways, a control plane, and a schedule of faults.

`sim.run` lets it live: safety while faults strike, then every fault ends and the fleet must come to
rest in the state that the catalog asks for. The real loop, sessions, `settle`, `Fleet` and
`agent.core.step` decide; everything around them is made of seeded chance.
"""

import collections
import dataclasses
import functools
import hashlib
import math
import signal
from collections.abc import Callable, Iterable

from llmgw.agent.core import AgentState, Command, Launch
from llmgw.catalog.model import Catalog
from llmgw.catalog.sources import cache_name
from llmgw.control.hands import Act, Verb
from llmgw.control.marks import desired
from llmgw.fleet import events
from llmgw.fleet.node import CachedWeights
from llmgw.fleet.routes import Endpoint, Routes
from llmgw.fleet.shard import ShardKey
from llmgw.planning import actions, gc
from llmgw.planning.desired import Marks
from tests.sim import faults as fault_kinds
from tests.sim import oracle_plan, scenario
from tests.sim.agents import Agent
from tests.sim.clockwork import Clockwork, Life
from tests.sim.control import Control, Disk
from tests.sim.edges import Edges
from tests.sim.gateways import Gateway
from tests.sim.kinds import Fault, Undo
from tests.sim.leaps import leap
from tests.sim.links import DIRECTIONS, End, Path, Stream
from tests.sim.machines import Engine, Machine
from tests.sim.oracle import Oracle
from tests.sim.oracle_node import NodeOracle
from tests.sim.processes import Process
from tests.sim.rest import halted, under_way, unrest
from tests.sim.telling import short
from tests.sim.verdict import Violation
from tests.sim.weights import Cache, Directory, Flight

PATIENCE = 3600.0
"""Simulated seconds within which a healed world must come to rest."""

LOOK, PASSES = 20.0, 20
"""Seconds between two looks whether it did, and passes that it may take while nothing is under way."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """How dense a life is: seconds of faults, all of them within `least` at least, seconds watched at rest.

    One that `leaps` does not live through stretches in which nothing of note happens.
    """

    horizon: float = 1800.0
    least: float | None = None
    quiet: float = 200.0
    leaps: bool = False


CALM, DENSE = Pace(), Pace(horizon=3600.0, least=900.0, quiet=100.0, leaps=True)
"""A life heartbeat by heartbeat, and an hour by its events."""


class World:
    """Everything there is, and how its parts reach one another."""

    def __init__(
        self, seed: int, plan: tuple[Fault, ...] | None, keep_trace: bool, pace: Pace = CALM
    ) -> None:
        self.clock = Clockwork(seed)
        chance = self.clock.chance("scenario")
        self.scenario = scenario.draw(chance)
        drawn = fault_kinds.schedule(self.clock.chance("faults"), pace.horizon, pace.least)
        self.plan = drawn if plan is None else plan
        self._pace = pace
        self.told = 0
        self.disk = Disk(self.scenario.catalog)
        self._kept = (self.disk.marks, desired(self.disk.marks))
        self.spoiled: set[str] = set()
        self.rushes: collections.Counter[str] = collections.Counter()
        self.assigned: set[ShardKey] = set()
        self.took: collections.Counter[str] = collections.Counter()
        self.trace: list[str] = []
        self._keep_trace = keep_trace
        self._digest = hashlib.sha256()
        self._lives = 0
        self._undo: dict[int, Undo] = {}
        self._victims: list[str] = []
        self._active: collections.Counter[str] = collections.Counter()
        self._touched: dict[str, float] = {}
        self._spoken: dict[str, float] = {}
        self._engines: dict[ShardKey, Engine] = {}
        self._listened = 0.0
        self._listening_since: float | None = None
        self.trouble = Life()
        self._waiting: list[Callable[[], bool]] = []
        self._looking = False
        self._haste = self.clock.chance("waiting")
        if pace.leaps:
            self.clock.leap = functools.partial(leap, self)
        self._done = oracle_plan.Transcript()
        self.edges = Edges()
        self.oracle = Oracle(self)
        self.nodes = NodeOracle(self)
        self.machines = {
            name: Machine(self.clock, name, gpus, self) for name, gpus in self.scenario.machines.items()
        }
        for machine in self.machines.values():
            for model in self.scenario.catalog.models.values():
                if model.source.fetched and chance.random() < self.scenario.warm:
                    machine.cache.fill(model.source)
        gateways = [f"gw{i}" for i in range(self.scenario.gateways)]
        self.paths = {name: Path(self.clock, name) for name in [*self.machines, *gateways]}
        self.agents: dict[str, Agent] = {}
        self.gateways = {
            name: Gateway(self.clock, name, self.paths[name], self, self.scenario.clients)
            for name in gateways
        }
        self.start_control()
        for name in self.machines:
            self.start_agent(name)
        for gateway in self.gateways.values():
            gateway.start()

    # --- time ---------------------------------------------------------------------------------

    def live(self, events: int | None) -> None:
        """Faults, then rest; then in every second world a restart of the control plane, which must disturb nothing.

        The faults end after so many `events`: heartbeats, loads and requests are none.
        """
        for number, fault in enumerate(self.plan):
            self.clock.at(fault.at, functools.partial(self._strike, number, fault), self.trouble)
        self.clock.run(self._pace.horizon, math.inf if events is None else events)
        self._heal()
        self._come_to_rest()
        self._stay_at_rest("L4", "at rest")
        # A new control plane gives a failing generation another try.
        if not halted(self) and self.scenario.restarts:
            self.stop_control()
            self.clock.run(self.clock.now + 3.0)
            self.start_control()
            self._stay_at_rest("S14", "after a restart of the control plane at rest")
        if self._pace.leaps and self.clock.now < self._pace.horizon:
            self._stay_at_rest("L4", "in the rest of its hour", self._pace.horizon - self.clock.now)

        self._as_rehearsed()

    def _as_rehearsed(self) -> None:
        """S20: in some worlds people apply one more change, and it goes as it was rehearsed."""
        catalog = oracle_plan.change(self)
        if catalog is None or halted(self):
            return
        said, self._done = oracle_plan.rehearsed(self, catalog), oracle_plan.Transcript()
        self.adopt(catalog)
        self._come_to_rest()
        oracle_plan.compared(said, self._done)

    def _strike(self, number: int, fault: Fault) -> None:
        self._victims = []
        undo = fault_kinds.KINDS[fault.kind].begin(self, fault)
        if undo is None:
            return
        self.note(f"fault {fault.kind} {' '.join(self._victims)} for {fault.lasts:.1f}s")
        self.took[fault.kind] += fault_kinds.KINDS[fault.kind].counts
        victims = tuple(self._victims)
        self._active.update(victims)

        def over() -> None:
            self.note(f"fault {fault.kind} {' '.join(victims)} is over")
            self._active.subtract(victims)
            self._touched.update(dict.fromkeys(victims, self.clock.now))
            undo()

        self._undo[number] = over
        self.clock.after(fault.lasts, functools.partial(self._end, number))

    def _end(self, number: int) -> None:
        if number in self._undo:
            self._undo.pop(number)()

    def _heal(self) -> None:
        self.trouble.over = True
        self.plan = self.plan[: sum(fault.at <= self.clock.now for fault in self.plan)]
        for number in list(self._undo):
            self._end(number)
        self.spoiled.clear()
        for machine in self.machines.values():
            machine.cursed = False
        for gateway in self.gateways.values():
            gateway.send_home()
        for machine in self.machines.values():
            machine.traps.clear()
            machine.cache.feels("")
            machine.cache.crowd(0)
        self.note("every fault is over")

    def _come_to_rest(self) -> None:
        healed, deadline = self.clock.now, self.clock.now + PATIENCE
        quiet, orders, idle = 0, -1, 0
        while quiet < 3:
            passes = self.control.loop.passes
            self.clock.run(self.clock.now + LOOK)
            why = unrest(self)
            quiet = 0 if why or orders != self.oracle.orders else quiet + 1
            orders = self.oracle.orders
            idle = idle + self.control.loop.passes - passes + 1 if why and not under_way(self) else 0
            late = self.oracle.untried(healed) or (self.oracle.unmet() if idle > PASSES else "")
            if late:
                raise Violation("L5", late)
            if idle > PASSES:
                raise Violation("L1", f"{idle} passes without rest, and nothing is under way: {why}")
            if self.clock.now >= deadline:
                raise Violation("L1", f"no rest {PATIENCE:g}s after the last fault: {why or 'orders go on'}")
        self.note("at rest")

    def _stay_at_rest(self, code: str, when: str, seconds: float = 0.0) -> None:
        orders = self.oracle.orders
        self.clock.run(self.clock.now + max(seconds, self._pace.quiet))
        given = self.oracle.orders - orders
        if given:
            raise Violation(code, f"{given} orders {when}")
        if why := unrest(self):
            raise Violation(code, f"{when}: {why}")

    # --- what faults do -----------------------------------------------------------------------

    def touch(self, *names: str) -> None:
        """The fault that is beginning disturbs these nodes."""
        self._victims += names
        self._touched.update(dict.fromkeys(names, self.clock.now))

    def calm_since(self, name: str) -> float:
        """When the last fault that touched this node was over; now if one still lasts."""
        if self._active[name] or self._active[fault_kinds.EVERYWHERE]:
            return self.clock.now
        return max(self._touched.get(name, 0.0), self._touched.get(fault_kinds.EVERYWHERE, 0.0))

    def leapt(self, name: str, delay: float) -> None:
        """A node went on speaking for so long."""
        self._spoken[name] = self._spoken.get(name, 0.0) + delay

    def lie_in_wait(self, look: Callable[[], bool]) -> None:
        """A fault waits for its victim: it looks until it has struck, whenever something changed."""
        if not look():
            self._waiting.append(look)

    def stirred(self, within: float = 2.0) -> None:
        """Something changed that a fault may wait for; it sees it a moment later, `within` so many seconds."""
        if self._waiting and not self._looking:
            self._looking = True
            self.clock.after(self._haste.uniform(0.0, within), self._look, self.trouble)

    def _look(self) -> None:
        self._looking = False
        self._waiting = [look for look in self._waiting if not look()]

    def pick_machine(self, fault: Fault) -> str:
        """The name of the machine that a fault strikes."""
        return self._pick(fault, list(self.machines))

    def pick_gateway(self, fault: Fault) -> str:
        """The name of the gateway that a fault strikes."""
        return self._pick(fault, list(self.gateways))

    def pick_path(self, fault: Fault) -> Path:
        """The path that a fault strikes."""
        return self.paths[self._pick(fault, list(self.paths))]

    def _pick(self, fault: Fault, names: list[str]) -> str:
        name = names[fault.target % len(names)]
        self.touch(name)
        return name

    def struck(self, kind: str, name: str) -> None:
        """A fault that lay in wait found its moment."""
        self.took[kind] += 1
        self.note(f"fault {kind} {name}")

    def strike_path(self, kind: str, name: str) -> None:
        """The same: reset the streams of a path."""
        self.struck(kind, name)
        self.paths[name].cut()

    def power_off(self, name: str) -> None:
        """Everything on the machine ends; its streams say nothing any more."""
        self.machines[name].lose_power()
        for direction in DIRECTIONS:
            self.paths[name].darken(direction)
        self.kill_agent(name)

    def power_on(self, name: str) -> None:
        """The machine boots and its agent starts."""
        self.machines[name].gain_power()
        for direction in DIRECTIONS:
            self.paths[name].light(direction)
        self.start_agent(name)

    def kill_agent(self, name: str) -> None:
        """kill -9."""
        if name in self.agents:
            self.agents.pop(name).die()

    def start_agent(self, name: str) -> None:
        """The next life of an agent, where the machine is on and none runs."""
        if name not in self.agents and self.machines[name].on:
            self._lives += 1
            self.nodes.restarting(self.machines[name])
            agent = Agent(self.clock, self.machines[name], self.paths[name], self, self._lives)
            self.agents[name] = agent
            agent.start()

    def repeat_command(self, target: int) -> bool:
        """Let one of the last commands of an agent arrive again; False where none was obeyed yet."""
        obeyed = [(agent, command) for agent in self.agents.values() for command in agent.orders]
        if not obeyed:
            return False
        agent, command = obeyed[target % len(obeyed)]
        if agent.hears_again(command):
            raise Violation("S15", f"{agent.instance} obeyed {command} twice")
        return True

    def repeat_order(self, target: int) -> bool:
        """Let the control plane give its newest order to an agent once more; False where there is none."""
        return self.control.answers and self.control.again(target)

    def adopt(self, catalog: Catalog) -> None:
        """People apply a catalog; a control plane that is away reads it when it starts."""
        self.disk.catalog = catalog
        self.disk.revision += 1
        self.note(f"catalog: {' '.join(f'{m.name}x{m.scaling.min}' for m in catalog.models.values())}")
        self.oracle.catalog_changed()
        if not self.control.life.over:
            self.control.adopt(catalog)

    def act(self, verb: Verb, name: str, seconds: float | None = None) -> bool:
        """People do something to a node or model by hand. Whether it was done."""
        if not self.control.answers or not self.control.act(Act(verb, name, "people", "as drawn", seconds)):
            return False
        self.note(f"hand {verb} {name}")
        if verb == "retry":
            self.oracle.forgiven(name)
        return True

    def propose(self, catalog: Catalog) -> None:
        """People try to apply a catalog that is wrong."""
        if self.control.answers:
            self.control.propose(catalog)

    def collect(self) -> bool:
        """People look at what nothing wants and have it removed; False where there is nothing."""
        control = self.control
        if not control.answers:
            return False
        wanted = frozenset(cache_name(model.source) for model in self.disk.catalog.models.values())
        shown = gc.listing(control.fleet, gc.Wanted(wanted), self.clock.now, control.timers).by_node()
        for node, entries in shown.items():
            self.nodes.asked(node, entries, wanted)
            control.collect(node, entries)
        return bool(shown)

    # --- the control plane --------------------------------------------------------------------

    @property
    def listened(self) -> float:
        """Seconds in which a control plane was able to listen, since the world began."""
        going = 0.0 if self._listening_since is None else self.clock.now - self._listening_since
        return self._listened + going

    def _deafen(self) -> None:
        self._listened, self._listening_since = self.listened, None

    def start_control(self) -> None:
        """The next life of the control plane."""
        self._listening_since = self.clock.now
        self.control = Control(self.clock, self.disk, self.scenario.timers, self)
        self.oracle.control_started()
        self.edges.control_started()
        self.control.start()

    def stop_control(self) -> None:
        """kill -9."""
        self._deafen()
        self.control.die()

    def pause_control(self) -> None:
        """It stands still; nobody's silence counts meanwhile."""
        self._deafen()
        self.control.pause()

    def resume_control(self) -> None:
        """It goes on, unless it was killed meanwhile."""
        if not self.control.life.over and self.control.paused:
            self._listening_since = self.clock.now
            self.control.resume()

    def spoke(self, name: str) -> None:
        """A word of this node reached the control plane."""
        self._spoken[name] = self.listened

    def silence(self, name: str) -> float:
        """For how long the control plane could have heard the node, and did not."""
        return self.listened - self._spoken.get(name, 0.0)

    def dial(self, path: Path, end: End) -> Stream | None:
        """A stream to the control plane, or None while nobody answers."""
        return self.control.accept(path.name, path, end) if path.whole and self.control.answers else None

    # --- what is true -------------------------------------------------------------------------

    def born(self, engine: Engine) -> None:
        """An engine was executed."""
        self._engines[engine.spec.key] = engine

    def broken(self, generation: str) -> bool:
        """Engines of this generation cannot come up."""
        return generation in self.spoiled

    def changed(self, engine: Engine) -> None:
        """The agent beside an engine may look again."""
        self.stirred()
        if engine.spec.node in self.agents:
            self.agents[engine.spec.node].notice(engine)

    def engine(self, key: ShardKey) -> Engine | None:
        """The newest engine of a shard, dead or alive."""
        return self._engines.get(key)

    def engines(self) -> Iterable[Engine]:
        """The newest engine of every shard that was ever executed."""
        return self._engines.values()

    def serving_replica(self, replica: str) -> list[Engine]:
        """The engines of a replica that truly serves, in rank order; empty if it does not."""
        head = self._engines.get((replica, 0))
        if head is None or not head.ready:
            return []
        ranks = [self._engines.get((replica, peer.rank)) for peer in head.spec.peers]
        ready = [engine for engine in ranks if engine is not None and engine.ready]
        return ready if len(ready) == len(ranks) else []

    def serving(self, model: str) -> dict[str, list[Engine]]:
        """Replica → engines of all that truly serve a model."""
        found = {
            replica: self.serving_replica(replica)
            for (replica, rank), engine in self._engines.items()
            if rank == 0 and engine.spec.model == model
        }
        return {replica: engines for replica, engines in found.items() if engines}

    def behind(self, endpoint: Endpoint) -> Engine | None:
        """The engine that answers at an endpoint, or None if nothing serves there."""
        engines = self.serving_replica(endpoint.replica)
        return engines[0] if engines else None

    def whole(self, replica: str) -> bool:
        """Whether every rank of a replica does its part."""
        return bool(self.serving_replica(replica))

    def rushed(self) -> tuple[str, ...]:
        """The models to which clients flock just now."""
        return tuple(name for name, count in self.rushes.items() if count)

    def elastic(self, model: str) -> bool:
        """Whether the count of a model's replicas follows its clients."""
        models = self.disk.catalog.models
        return model in models and scenario.elastic(models[model])

    @property
    def marks(self) -> Marks:
        """What people's marks ask of the fleet."""
        kept = self.disk.marks
        if kept is not self._kept[0]:
            self._kept = (kept, desired(kept))
        return self._kept[1]

    # --- who watches --------------------------------------------------------------------------

    def launching(self, machine: Machine, command: Launch) -> None:
        """An engine is about to be executed."""
        self.nodes.launching(machine, command.spec)
        self.oracle.launching(machine, command)

    def signalled(self, machine: Machine, process: Process, number: signal.Signals) -> None:
        """A signal is about to reach a process."""
        self.nodes.signalled(machine, process, number)

    def adopted(self, agent: Agent) -> None:
        """An agent has found what an earlier one left."""
        self.nodes.adopted(agent)

    def contacted(self, agent: Agent) -> None:
        """An agent has heard the control plane."""
        self.nodes.contacted(agent)

    def written(self, cache: Cache, directory: Directory, flight: Flight) -> None:
        """A flight is about to write into a partial."""
        self.stirred()
        self.nodes.written(cache, directory, flight)

    def committed(self, cache: Cache, source: str) -> None:
        """A final name stands for this source."""
        self.note(f"{cache.node} has {source}")
        self.nodes.committed(cache, source)

    def removed(self, cache: Cache, entry: CachedWeights, found: Directory) -> None:
        """A collect is about to remove this."""
        self.note(f"{cache.node} removes {entry.source}")
        self.nodes.removed(cache, entry, found)

    def room_changed(self, node: str) -> None:
        """Somebody else took a card or disk, or let it go."""
        if node in self.agents:
            self.agents[node].look_around()

    def stepped(self, before: AgentState, commands: tuple[Command, ...]) -> None:
        """An agent's core made a step."""
        self.edges.stepped(before.shards, commands)
        self.oracle.stepped()

    def heard(self, control: Control, event: events.Event) -> None:
        """An event is about to be applied to the fleet."""
        if not isinstance(event, events.Heartbeat | events.GatewaySeen | events.GatewayArrived):
            self.note(f"heard {short(event)}")
        self.oracle.heard(control, event)

    def ordered(self, control: Control, action: actions.Action) -> None:
        """An action is about to be dispatched."""
        self.note(f"order {short(action)}")
        if isinstance(action, actions.Assign):
            self.stirred(within=0.3)
        self._done.ordered(action)
        self.nodes.ordered(action)
        self.oracle.ordered(control, action)

    def published(self, routes: Routes) -> None:
        """A new routing table is about to go out."""
        shown = " ".join(f"{e.replica}{'(draining)' if e.draining else ''}" for e in routes.endpoints)
        self.note(f"table {routes.version & 0xFFFF}{' partial' if routes.partial else ''}: {shown}")
        self.oracle.published(routes)

    def adopting(self, gateway: Gateway, routes: Routes) -> None:
        """A gateway is about to serve by a newer table."""
        if any(endpoint.draining for endpoint in routes.endpoints):
            self.stirred()
        self.oracle.adopting(gateway, routes)

    def note(self, line: str) -> None:
        """One line of the trace."""
        text = f"{self.clock.now:11.4f} {line}"
        self._digest.update(text.encode())
        self.told += not line.startswith(("fault ", "hand "))
        if self._keep_trace:
            self.trace.append(text)

    @property
    def digest(self) -> str:
        """Of everything noted so far."""
        return self._digest.hexdigest()[:16]
