"""What must always hold on a node, judged by its processes and its disk: S2, S11, S12, S13, S16, S17 and L3.

`sim.world` calls one method per thing that happens; `sim.oracle` judges everything above the node. Who
truly descends from which launch is known here, and to nobody else.
"""

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmgw.agent.manifest import name_of
from llmgw.fleet.node import CachedWeights
from llmgw.fleet.shard import ShardSpec
from llmgw.planning import actions
from tests.sim.agents import INVENTORY_EVERY, Agent
from tests.sim.faults import EVERYWHERE
from tests.sim.machines import Engine, Machine
from tests.sim.processes import Process, readable
from tests.sim.verdict import require
from tests.sim.weights import UNIT, Cache, Directory, Flight

if TYPE_CHECKING:
    from tests.sim.world import World

ENDS = 30.0
"""Seconds after the first contact in which a marked engine that nothing describes is gone."""

SEEN = 2 * INVENTORY_EVERY
"""Seconds without a disturbance after which the control plane knows who holds which card."""

SPEAKS = 7.0
"""Seconds between two heartbeats at most, on a line that is well."""


class NodeOracle:
    """The judge of every node of one run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._expected: dict[str, list[tuple[Engine, str]]] = {}
        self._shown: dict[str, tuple[frozenset[CachedWeights], frozenset[str]]] = {}

    # --- signals ------------------------------------------------------------------------------

    def signalled(self, machine: Machine, process: Process, number: signal.Signals) -> None:
        """S12: only what we launched is signalled. S13: what nothing describes, only after the contact."""
        engine = process.engine
        require(engine is not None, "S12", f"{number.name} reaches {process} on {machine.name}")
        agent = self._world.agents.get(machine.name)
        early = (
            agent is not None and not agent.met and engine is not None and engine.cookie not in agent.cookies
        )
        require(not early, "S13", f"{engine} is ended before the control plane was heard")

    # --- restarts -----------------------------------------------------------------------------

    def restarting(self, machine: Machine) -> None:
        """An agent is about to look: what lives with a record that can be read must be found as it is."""
        reached = {
            record.identity.cookie: record.reached
            for data in machine.shelf.files.values()
            if (record := readable(data)) is not None
        }
        self._expected[machine.name] = [
            (engine, reached[engine.cookie])
            for engine in machine.living()
            if engine.leader and engine.cookie in reached
        ]

    def adopted(self, agent: Agent) -> None:
        """S11: the same pids, as far as they were; and nothing that does not live."""
        machine, shards = agent.machine, agent.state.shards
        for engine in undescribed(agent):
            engine.doomed = True
        for engine, reached in self._expected.pop(machine.name, []):
            kept = shards.get(engine.spec.key)
            require(
                kept is not None and (kept.pid, kept.state) == (engine.pid, reached),
                "S11",
                f"{engine} lives as pid {engine.pid}, {reached}, and its new agent keeps {kept}",
            )
        for kept in shards.values():
            twin = machine.engines.get(kept.pid)
            lives = twin is not None and twin.leader and twin.spec.key == kept.spec.key
            require(lives or kept.state == "failed", "S11", f"{kept.spec.replica} was adopted as {kept.pid}")

    def launching(self, machine: Machine, spec: ShardSpec) -> None:
        """S11: no second process for a shard. S17: on the right weights."""
        twins = [str(engine) for engine in machine.living() if engine.spec.key == spec.key]
        require(not twins, "S11", f"{spec.replica} is executed while {', '.join(twins)} lives")
        if spec.source.fetched:
            entry = machine.cache.entries.get(spec.cache_name)
            right = entry is not None and machine.cache.right(spec.source.canonical, entry)
            require(right, "S17", f"{spec.replica} is executed on {machine.name} with wrong weights")

    # --- what nothing describes ---------------------------------------------------------------

    def contacted(self, agent: Agent) -> None:
        """S13: from here on what nothing describes has to end."""
        for engine in undescribed(agent):
            self._ends(agent, engine, self._world.clock.now + ENDS)

    def _ends(self, agent: Agent, engine: Engine, by: float) -> None:
        def check() -> None:
            if agent.life.over or not engine.alive:
                return
            if any(process.dying for process in engine.tree if process.alive):
                self._ends(agent, engine, self._world.clock.now + ENDS)
                return
            require(False, "S13", f"{engine} lives {ENDS:g}s after the contact, and nothing describes it")

        self._world.clock.at(by, check)

    def ordered(self, action: actions.Action) -> None:
        """S13: a card of a stranger is offered to nobody. S2: neither is a lost one, and no disk is promised twice."""
        if not isinstance(action, actions.Assign):
            return
        self._has_room(action.spec)
        node, now = action.spec.node, self._world.clock.now
        taken, fallen = self._world.machines[node].taken(), self._world.machines[node].fallen
        for gpu in action.spec.gpus if taken or fallen else ():
            for bad, code, what in (
                (taken, "S13", "a stranger holds"),
                (fallen, "S2", "the driver has lost"),
            ):
                long = gpu in bad and min(now - bad[gpu], now - self._world.calm_since(node)) > SEEN
                require(not long, code, f"{action.spec.replica} gets {gpu}, which {what}")

    def _has_room(self, spec: ShardSpec) -> None:
        """S2: what lies on the disk, and all that was promised to it, is not more than the disk."""
        cache, now = self._world.machines[spec.node].cache, self._world.clock.now
        # A control plane that stood still has heard nothing of a disk that filled meanwhile.
        heard = now - self._world.calm_since(EVERYWHERE) > SEEN and self._world.silence(spec.node) < SPEAKS
        calm = now - cache.crowded > SEEN and heard
        if spec.node not in self._world.agents or not spec.source_bytes or not calm:
            return
        kept = [each.spec for each in self._world.agents[spec.node].state.shards.values()]
        coming = {each.cache_name: each.source_bytes // UNIT for each in (*kept, spec)}
        # An entry that was damaged lies there; nobody is told before it is fetched again.
        coming = {name: size for name, size in coming.items() if name not in cache.entries}
        if spec.cache_name not in coming or cache.growing(SEEN, coming):
            return
        here = {name: cache.partials[name].size() for name in coming.keys() & cache.partials.keys()}
        more = sum(max(0, size - here.get(name, 0)) for name, size in coming.items())
        require(
            more <= cache.free(),
            "S2",
            f"{spec.replica} makes {more} bytes that {spec.node} is to fetch, and {cache.free()} are free",
        )

    # --- weights ------------------------------------------------------------------------------

    def written(self, cache: Cache, directory: Directory, flight: Flight) -> None:
        """S17: one writer a source, and it has the lock."""
        require(directory.writer is flight, "S17", f"two write {flight.source.canonical} on {cache.node}")
        mine = cache.partials.get(flight.name) is directory
        require(mine, "S17", f"{flight.source.canonical} is written on {cache.node} where nobody finds it")

    def committed(self, cache: Cache, source: str) -> None:
        """S17: a final name means the right bytes."""
        entry = cache.entries[name_of(source)]
        require(cache.right(source, entry), "S17", f"wrong bytes are called {source} on {cache.node}")

    def asked(self, node: str, entries: tuple[CachedWeights, ...], wanted: frozenset[str]) -> None:
        """People collect what was listed; `wanted` are the cache names of the catalog they saw."""
        self._shown[node] = (frozenset(entries), wanted)

    def removed(self, cache: Cache, entry: CachedWeights, found: Directory) -> None:
        """S16: what was shown, unwanted, ours alone and idle."""
        shown, wanted = self._shown.get(cache.node, (frozenset(), frozenset()))
        what = f"{entry.source} is removed on {cache.node}"
        require(entry in shown, "S16", f"{what} and was not shown so")
        require(entry.cache_name not in wanted, "S16", f"{what} and is wanted")
        there = sum(each.status.st_size for each in found.found())
        require(there == entry.size, "S16", f"{what}, and has {there} bytes where {entry.size} were shown")
        require(not found.odd, "S16", f"{what} with {', '.join(found.odd)}, which is not ours")
        machine, agent = self._world.machines[cache.node], self._world.agents[cache.node]
        users = [str(engine) for engine in machine.living() if engine.spec.cache_name == entry.cache_name]
        users += [
            kept.spec.replica
            for kept in agent.state.shards.values()
            if kept.spec.cache_name == entry.cache_name
        ]
        require(not users, "S16", f"{what} and {', '.join(users)} needs it")
        require(found.writer is None, "S16", f"{what} while it is fetched")

    # --- rest ---------------------------------------------------------------------------------

    def unrest(self) -> Iterator[str]:
        """L3: no process of ours that its agent does not keep."""
        for agent in self._world.agents.values():
            for engine in undescribed(agent):
                yield f"{engine} lives on {agent.machine.name} and nobody keeps it"
            for name, partial in agent.machine.cache.partials.items():
                if (partial.writer is None) == (name in agent.fetching):
                    yield f"a partial of {agent.machine.name} and its fetch do not agree"


def undescribed(agent: Agent) -> list[Engine]:
    """Engines that live and that their agent knows nothing of."""
    known = agent.cookies
    return [engine for engine in agent.machine.living() if engine.cookie not in known]
