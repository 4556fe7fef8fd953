"""What must always hold on a node, judged by its processes: S11, S12, S13 and L3.

`sim.world` calls one method per thing that happens; `sim.oracle` judges everything above the node. Who
truly descends from which launch is known here, and to nobody else.
"""

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmgw.planning import actions
from tests.sim.agents import INVENTORY_EVERY, Agent
from tests.sim.machines import Engine, Machine
from tests.sim.oracle import Violation
from tests.sim.processes import Process, readable

if TYPE_CHECKING:
    from tests.sim.world import World

ENDS = 30.0
"""Seconds after the first contact in which a marked engine that nothing describes is gone."""

SEEN = 2 * INVENTORY_EVERY
"""Seconds without a disturbance after which the control plane knows who holds which card."""


def require(holds: bool, code: str, said: str) -> None:
    """Raise Violation unless it `holds`."""
    if not holds:
        raise Violation(code, said)


class NodeOracle:
    """The judge of every node of one run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._expected: dict[str, list[tuple[Engine, str]]] = {}

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

    def launching(self, machine: Machine, engine_of: str, key: tuple[str, int]) -> None:
        """S11: no second process for a shard."""
        twins = [str(engine) for engine in machine.living() if engine.spec.key == key]
        require(not twins, "S11", f"{engine_of} is executed while {', '.join(twins)} lives")

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
        """S13: a card of a stranger is offered to nobody."""
        if not isinstance(action, actions.Assign):
            return
        node, now = action.spec.node, self._world.clock.now
        taken = self._world.machines[node].taken()
        for gpu in action.spec.gpus if taken else ():
            long = gpu in taken and min(now - taken[gpu], now - self._world.calm_since(node)) > SEEN
            require(not long, "S13", f"{action.spec.replica} gets {gpu}, which a stranger holds")

    # --- rest ---------------------------------------------------------------------------------

    def unrest(self) -> Iterator[str]:
        """L3: no process of ours that its agent does not keep."""
        for agent in self._world.agents.values():
            for engine in undescribed(agent):
                yield f"{engine} lives on {agent.machine.name} and nobody keeps it"


def undescribed(agent: Agent) -> list[Engine]:
    """Engines that live and that their agent knows nothing of."""
    known = agent.cookies
    return [engine for engine in agent.machine.living() if engine.cookie not in known]
