"""What goes wrong on a node: records, pids, cards, launches and signals. Merged into `sim.faults.KINDS`.

Most of these lie in wait for their moment and are counted when it came. Some are traps: set on a machine,
sprung once by what happens there.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.kinds import WAITS, Fault, Kind, Undo
from tests.sim.machines import Engine, Machine
from tests.sim.processes import readable

if TYPE_CHECKING:
    from tests.sim.world import World


def _led(machine: Machine) -> list[Engine]:
    """Engines whose leader lives and whose record can be read."""
    recorded = {record.identity.cookie for data in machine.shelf.files.values() if (record := readable(data))}
    return [engine for engine in machine.living() if engine.leader and engine.cookie in recorded]


def _unwatched(strike: Callable[["World", Machine, list[Engine], Fault], None], longest: float) -> Kind:
    """An agent is killed while it has engines; what strikes does so before the next one looks."""

    def begin(world: "World", fault: Fault) -> None:
        def look() -> bool:
            there = [(world.machines[name], _led(world.machines[name])) for name in world.agents]
            victims = [(machine, engines) for machine, engines in there if engines]
            if victims:
                machine, engines = victims[fault.target % len(victims)]
                world.kill_agent(machine.name)
                world.struck(fault.kind, machine.name)
                strike(world, machine, engines, fault)
                world.clock.after(0.1 + fault.lasts, lambda: world.start_agent(machine.name))
            return bool(victims) or world.clock.now > fault.at + WAITS

        world.lie_in_wait(look)

    return Kind(begin, longest=longest, most=4)


def _torn(world: "World", machine: Machine, engines: list[Engine], fault: Fault) -> None:
    """Records are cut, flipped in one bit, or gone."""
    chance = world.clock.chance(f"torn/{fault.at}")
    names = sorted(machine.shelf.files)
    for name in names if fault.size > 0.7 else names[fault.target % len(names) :][:1]:
        machine.shelf.damage(name, _damages(chance.random(), chance.random()))


def _damages(how: float, where: float) -> Callable[[bytes], bytes | None]:
    def damaged(data: bytes) -> bytes | None:
        at = int(where * (len(data) - 1))
        if how < 0.3:
            return None
        if how < 0.6:
            return data[:at]
        return data[:at] + bytes([data[at] ^ (1 << int(how * 8))]) + data[at + 1 :]

    return damaged


def _reused(world: "World", machine: Machine, engines: list[Engine], fault: Fault) -> None:
    """A leader dies while nobody watches, and a stranger is born under its pid, in its tick."""
    engine = engines[fault.target % len(engines)]
    leader = engine.tree[0]
    machine.kill(engine, others=fault.size < 0.3)
    assert machine.kernel.free(leader.pid)
    machine.stranger(like=leader)


def squatted(world: "World", fault: Fault) -> Undo | None:
    """A machine boots anew, and strangers have the pids and ticks that the records name."""
    name = world.pick_machine(fault)
    machine = world.machines[name]
    leaders = [engine.tree[0] for engine in machine.living()]
    if not machine.on or not leaders:
        return None
    world.power_off(name)

    def boot() -> None:
        machine.squatters = leaders
        world.power_on(name)

    return boot


def card_taken(world: "World", fault: Fault) -> Undo | None:
    """A process of somebody else computes on a card that was free."""
    machine = world.machines[world.pick_machine(fault)]
    free = [
        gpu.uuid for gpu in machine.gpus if not machine.holders(gpu.uuid) and gpu.uuid not in machine.taken()
    ]
    if not machine.on or not free:
        return None
    stranger = machine.stranger(free[fault.target % len(free)])
    return lambda: machine.leaves(stranger)


def trap(world: "World", fault: Fault) -> None:
    """Something on a machine will go wrong the next time that it is done."""
    world.machines[world.pick_machine(fault)].traps[fault.kind] = fault.size


NODE_KINDS: dict[str, Kind] = {
    "torn-record": _unwatched(_torn, longest=60.0),
    "pid-reused": _unwatched(_reused, longest=60.0),
    "boot-squatted": Kind(squatted, longest=200.0),
    "card-taken": Kind(card_taken, longest=400.0, most=4),
    "killed-in-launch": Kind(trap, longest=0.1, most=4),
    "term-ignored": Kind(trap, longest=0.1, most=4),
    "unkillable": Kind(trap, longest=0.1, most=4),
}
"""Kinds of faults of a node, by name."""
