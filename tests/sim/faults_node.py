"""What goes wrong on a node: records, pids, cards, launches and signals. Merged into `sim.faults.KINDS`.

Most of these lie in wait for their moment and are counted when it came. Some are traps: set on a machine,
sprung once by what happens there.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.kinds import WAITS, Fault, Kind, Undo
from tests.sim.machines import Engine, Machine
from tests.sim.processes import readable
from tests.sim.weights import proven

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

    return Kind(begin, longest=longest, most=3)


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
    """A process of somebody else computes on a card that was free. It disturbs nobody who knows of it."""
    machine = list(world.machines.values())[fault.target % len(world.machines)]
    free = [
        gpu.uuid for gpu in machine.gpus if not machine.holders(gpu.uuid) and gpu.uuid not in machine.taken()
    ]
    if not machine.on or not free:
        return None
    stranger = machine.stranger(free[fault.target % len(free)])
    return lambda: machine.leaves(stranger)


def card_lost(world: "World", fault: Fault) -> Undo | None:
    """A card falls off the bus: its engine ends, and the driver calls it healthy again after a reset."""
    machine = list(world.machines.values())[fault.target % len(world.machines)]
    left = [gpu.uuid for gpu in machine.gpus if gpu.uuid not in machine.fallen]
    if not machine.on or not left:
        return None
    card = left[fault.target // len(world.machines) % len(left)]
    machine.loses(card)
    return lambda: machine.finds(card)


def trap(world: "World", fault: Fault) -> None:
    """Something on a machine will go wrong the next time that it is done."""
    world.machines[world.pick_machine(fault)].traps[fault.kind] = fault.size


# --- weights ---------------------------------------------------------------------------------


def mood(world: "World", fault: Fault) -> None:
    """The hub answers this node wrongly the next time, and for a while from then on."""
    world.machines[world.pick_machine(fault)].cache.feels(fault.kind, 10.0 + fault.lasts)


def _under_way(strike: Callable[["World", str, Fault], None], *, unproven: bool = False) -> Kind:
    """A node is struck while it fetches, and something has come."""

    def begin(world: "World", fault: Fault) -> None:
        def look() -> bool:
            names = [
                name
                for name, agent in world.agents.items()
                if any(
                    each.writer is not None
                    and each.size()
                    and not (unproven and proven(each.writer.source.canonical))
                    for each in agent.machine.cache.partials.values()
                )
            ]
            if names:
                name = names[fault.target % len(names)]
                world.struck(fault.kind, name)
                strike(world, name, fault)
            return bool(names) or world.clock.now > fault.at + WAITS

        world.lie_in_wait(look)

    return Kind(begin, longest=60.0, most=4)


def _killed(world: "World", name: str, fault: Fault) -> None:
    world.kill_agent(name)
    world.clock.after(0.1 + fault.lasts, lambda: world.start_agent(name))


def _powered_off(world: "World", name: str, fault: Fault) -> None:
    world.power_off(name)
    world.clock.after(0.1 + fault.lasts, lambda: world.power_on(name))


def _republished(world: "World", name: str, fault: Fault) -> None:
    """What nothing proves is another file on its server from now on; and the fetch is cut."""
    cache = world.machines[name].cache
    cache.published += 1
    cache.feels("careless-hub" if fault.size < 0.5 else "cut-fetch", 30.0)
    _killed(world, name, fault)


def disk_full(world: "World", fault: Fault) -> Undo | None:
    """Somebody else fills the disk of a cache."""
    cache = world.machines[world.pick_machine(fault)].cache
    if cache.others:
        return None
    cache.crowd(max(0, cache.free() - int(60 * fault.size)))
    return lambda: cache.crowd(0)


def damaged(world: "World", fault: Fault) -> Undo | None:
    """A file of an entry that nobody uses loses its end."""
    name = world.pick_machine(fault)
    cache = world.machines[name].cache
    idle = [entry for key, entry in cache.entries.items() if key not in _needed(world, name)]
    if not idle or name not in world.agents:  # whose agent is away, nobody knows what it uses
        return None
    data = next(iter(idle[fault.target % len(idle)].files.values()))
    del data[len(data) // 2 :]
    return _nothing


def odd_file(world: "World", fault: Fault) -> Undo | None:
    """Somebody puts a file of their own into every entry, or one more link to one of ours; people collect."""
    cache = world.machines[world.pick_machine(fault)].cache
    entries = [*cache.entries.values(), *cache.partials.values()]
    if not entries:
        return None
    for entry in entries:
        ours = entry.found()[0]
        linked = dataclasses.replace(ours, status=dataclasses.replace(ours.status, st_nlink=2))
        odd = linked if fault.size < 0.5 else dataclasses.replace(ours, name="files/notes.txt")
        entry.odd[odd.name] = odd
    world.clock.after(fault.lasts * 0.9, lambda: _people_collect(world), world.trouble)

    def undo() -> None:
        for entry in entries:
            entry.odd.clear()

    return undo


def _people_collect(world: "World") -> None:
    world.collect()


def collected(world: "World", fault: Fault) -> None:
    """People have removed what nothing wants, as soon as there is something."""

    def look() -> bool:
        found = world.collect()
        if found:
            world.struck(fault.kind, "")
        return found or world.clock.now > fault.at + WAITS

    world.lie_in_wait(look)


def answers(world: "World", fault: Fault) -> None:
    """Engines refuse, break or cut the requests of one gateway the next time, and for a while."""
    world.gateways[world.pick_gateway(fault)].desk.feels(fault.kind, 40.0 + fault.lasts)


def _needed(world: "World", name: str) -> set[str]:
    agent = world.agents.get(name)
    shards = agent.state.shards.values() if agent is not None else ()
    users = {engine.spec.cache_name for engine in world.machines[name].living()}
    return users | {kept.spec.cache_name for kept in shards}


def _nothing() -> None:
    """A fault that happened at once has no end."""


NODE_KINDS: dict[str, Kind] = {
    "torn-record": _unwatched(_torn, longest=60.0),
    "pid-reused": _unwatched(_reused, longest=60.0),
    "boot-squatted": Kind(squatted, longest=200.0, most=2),
    "card-taken": Kind(card_taken, longest=400.0, most=15),
    "killed-in-launch": Kind(trap, longest=0.1, most=4),
    "unreadable": Kind(trap, longest=0.1, most=8),
    "term-ignored": Kind(trap, longest=0.1, most=4),
    "unkillable": Kind(trap, longest=0.1, most=4),
    "bad-fetch": Kind(mood, longest=240.0, most=4),
    "wrong-bytes": Kind(mood, longest=240.0, most=4),
    "cut-fetch": Kind(mood, longest=240.0, most=4),
    "careless-hub": Kind(mood, longest=400.0, most=4),
    "killed-in-fetch": _under_way(_killed),
    "power-loss-in-fetch": _under_way(_powered_off),
    "republished": _under_way(_republished, unproven=True),
    "engine-rests": Kind(answers, longest=100.0, most=26),
    "engine-breaks": Kind(answers, longest=100.0, most=26),
    "answer-cut": Kind(answers, longest=100.0, most=26),
    "disk-full": Kind(disk_full, longest=200.0, most=13),
    "damaged-entry": Kind(damaged, longest=0.1, most=38),
    "odd-file": Kind(odd_file, longest=600.0, most=18),
    "collect": Kind(collected, longest=0.1, most=10),
}
"""Kinds of faults of a node, by name."""
