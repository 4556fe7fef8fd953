"""What goes wrong: a table of fault kinds, and the schedule that a seed draws from it.

Swarm: a seed leaves about half of the kinds out and draws how often each of the others strikes, so
that rare combinations meet. The schedule is a plain list made before time begins: a shorter list is
a smaller story, which is how `sim.shrink` works.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from llmgw.kit.chance import Chance
from tests.sim import scenario
from tests.sim.faults_node import NODE_KINDS, card_lost
from tests.sim.faults_people import PEOPLE_KINDS
from tests.sim.kinds import WAITS, Fault, Kind, Undo

if TYPE_CHECKING:
    from tests.sim.world import World

EVERYWHERE = "*"
"""A fault that touches every node."""


def schedule(chance: Chance, horizon: float, least: float | None = None) -> tuple[Fault, ...]:
    """The faults of one run, in time order; all of them begin before `horizon`, or before a time drawn from
    `least` on, so that some lives are denser than others.
    """
    last = horizon if least is None else chance.uniform(least, horizon)
    faults = [
        Fault(
            at=chance.uniform(1.0, last),
            kind=name,
            target=chance.randrange(1 << 16),
            lasts=max(kind.shortest, _length(chance, kind.longest)),
            size=chance.random(),
        )
        for name, kind in KINDS.items()
        if chance.random() < 0.5
        for _ in range(chance.randint(1, kind.most))
    ]
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _length(chance: Chance, longest: float) -> float:
    """Mostly short, sometimes as long as it gets."""
    return longest * chance.random() ** 2 + 0.1


def _nothing() -> None:
    """A fault that happened at once has no end."""


# --- machines --------------------------------------------------------------------------------


def power(world: "World", fault: Fault) -> Undo | None:
    """A machine loses power, and boots again."""
    name = world.pick_machine(fault)
    if not world.machines[name].on:
        return None
    world.power_off(name)
    return lambda: world.power_on(name)


def agent_kill(world: "World", fault: Fault) -> Undo | None:
    """An agent is killed; its engines live on until a new one adopts them."""
    name = world.pick_machine(fault)
    if name not in world.agents:
        return None
    world.kill_agent(name)
    return lambda: world.start_agent(name)


def _on_machine(
    attribute: str, value: Callable[[Fault], float | bool], usual: float | bool, most: int
) -> Kind:
    def begin(world: "World", fault: Fault) -> Undo | None:
        machine = world.machines[world.pick_machine(fault)]
        setattr(machine, attribute, value(fault))
        return lambda: setattr(machine, attribute, usual)

    return Kind(begin, longest=240.0, most=most)


# --- engines ---------------------------------------------------------------------------------


def _on_engine(ready: bool, strike: Callable[["World", str, int], None], most: int = 2) -> Kind:
    """An engine is struck as soon as there is one that is as far as that."""

    def begin(world: "World", fault: Fault) -> None:
        def look() -> bool:
            living = [
                (name, engine.pid)
                for name, machine in world.machines.items()
                for engine in machine.living()
                if engine.leader and engine.serving and (engine.phase == "ready") is ready
            ]
            if living:
                name, pid = living[fault.target % len(living)]
                world.struck(fault.kind, name)
                strike(world, name, pid)
            return bool(living) or world.clock.now > fault.at + WAITS

        world.lie_in_wait(look)

    return Kind(begin, longest=0.1, most=most)


def _crash(world: "World", name: str, pid: int) -> None:
    machine = world.machines[name]
    machine.kill(machine.engines[pid])


def _behead(world: "World", name: str, pid: int) -> None:
    machine = world.machines[name]
    machine.kill(machine.engines[pid], others=False)


def _hang(world: "World", name: str, pid: int) -> None:
    machine = world.machines[name]
    machine.hang(machine.engines[pid])


# --- the network -----------------------------------------------------------------------------


def _dark(up: bool, down: bool, gateways: bool = False, most: int = 8) -> Kind:
    def begin(world: "World", fault: Fault) -> Undo:
        name = world.pick_gateway(fault) if gateways else world.pick_machine(fault)
        path = world.paths[name]
        for wanted, direction in ((up, "up"), (down, "down")):
            if wanted:
                path.darken(direction)

        def undo() -> None:
            for wanted, direction in ((up, "up"), (down, "down")):
                if wanted:
                    path.light(direction)

        return undo

    return Kind(begin, longest=500.0, most=most)


def cut(world: "World", fault: Fault) -> Undo:
    """A stream is reset: what is under way is lost."""
    world.pick_path(fault).cut()
    return _nothing


def gateway_cut(world: "World", fault: Fault) -> Undo:
    """A gateway's stream is reset."""
    world.paths[world.pick_gateway(fault)].cut()
    return _nothing


def cut_in_drain(world: "World", fault: Fault) -> None:
    """A gateway's stream is reset at the worst time: while it has requests on what drains."""

    def look() -> bool:
        struck = [gateway for gateway in world.gateways.values() if gateway.drains()]
        if struck:
            world.strike_path(fault.kind, struck[fault.target % len(struck)].name)
        return bool(struck) or world.clock.now > fault.at + WAITS

    world.lie_in_wait(look)


def slow_link(world: "World", fault: Fault) -> Undo:
    """Messages take long, and arrive at other times than their neighbours'."""
    path = world.pick_path(fault)
    path.slow = 20.0 + 180.0 * fault.size

    def undo() -> None:
        path.slow = 1.0

    return undo


def swizzle(world: "World", fault: Fault) -> Undo:
    """Several nodes fall silent one by one, and come back in another order."""
    names = list(world.machines)
    chance = world.clock.chance(f"swizzle/{fault.at}")
    chosen = chance.sample(names, max(1, round(len(names) * fault.size)))
    world.touch(*chosen)
    paths = [world.paths[name] for name in chosen]
    for path in paths:
        path.darken("up")
        path.darken("down")

    def undo() -> None:
        for path in chance.sample(paths, len(paths)):
            path.light("down")
            path.light("up")

    return undo


def gateway_silent(world: "World", fault: Fault) -> Undo:
    """A gateway goes on serving and says nothing."""
    gateway = world.gateways[world.pick_gateway(fault)]
    gateway.silent += 1

    def undo() -> None:
        gateway.silent -= 1

    return undo


def stale_command(world: "World", fault: Fault) -> Undo | None:
    """A command that was obeyed arrives once more."""
    return _nothing if world.repeat_command(fault.target) else None


def repeated_order(world: "World", fault: Fault) -> Undo | None:
    """The control plane gives an order twice, as it does when no answer came in time."""
    return _nothing if world.repeat_order(fault.target) else None


# --- the control plane -----------------------------------------------------------------------


def control_kill(world: "World", fault: Fault) -> Undo | None:
    """The control plane is killed, and starts again with what is on its disk."""
    if world.control.life.over:
        return None
    world.touch(EVERYWHERE)
    world.stop_control()
    return world.start_control


def control_pause(world: "World", fault: Fault) -> Undo | None:
    """The control plane stands still."""
    control = world.control
    if not control.answers:
        return None
    world.touch(EVERYWHERE)
    world.pause_control()
    return world.resume_control


# --- people ----------------------------------------------------------------------------------


def _edit(change: Callable[["World", Fault, str], None], most: int = 2) -> Kind:
    def begin(world: "World", fault: Fault) -> Undo | None:
        names = list(world.disk.catalog.models)
        if not names:
            return None
        change(world, fault, names[fault.target % len(names)])
        return _nothing

    return Kind(begin, longest=0.1, most=most)


def _scale(world: "World", fault: Fault, name: str) -> None:
    world.adopt(scenario.scaled(world.disk.catalog, name, round(4 * fault.size)))


def _rearrange(world: "World", fault: Fault, name: str) -> None:
    world.adopt(scenario.rearranged(world.disk.catalog, name, fault.target))


def _spoil(world: "World", fault: Fault, name: str) -> None:
    changed = scenario.rearranged(world.disk.catalog, name, fault.target)
    world.spoiled |= scenario.current(changed)[name].keys()
    world.adopt(changed)


def removed(world: "World", fault: Fault) -> Undo | None:
    """A model leaves the catalog, and comes back."""
    models = list(world.disk.catalog.models.values())
    if not models:
        return None
    model = models[fault.target % len(models)]
    world.adopt(scenario.without(world.disk.catalog, model.name))
    return lambda: world.adopt(scenario.returned(world.disk.catalog, model))


def renamed(world: "World", fault: Fault) -> Undo | None:
    """A model gets another name and keeps the old one as an alias, until people take it back."""
    models = [each for each in world.disk.catalog.models.values() if not each.name.endswith("x")]
    if not models:
        return None
    model = models[fault.target % len(models)]
    heir = scenario.heir(model)
    world.adopt(scenario.returned(scenario.without(world.disk.catalog, model.name), heir))
    return lambda: world.adopt(scenario.returned(scenario.without(world.disk.catalog, heir.name), model))


def _takes_the_name(world: "World", _: Fault, name: str) -> None:
    world.adopt(scenario.called(world.disk.catalog, name))


def _mistake(world: "World", _: Fault, name: str) -> None:
    world.propose(scenario.impossible(world.disk.catalog, name))


def wall_jump(world: "World", fault: Fault) -> Undo:
    """People's clock is set, hours forth or back; nothing may notice."""
    world.clock.wall_ahead += 20_000.0 * (fault.size - 0.5)
    return _nothing


KINDS: dict[str, Kind] = {
    "power-loss": Kind(power, longest=600.0, most=2),
    "agent-kill": Kind(agent_kill, longest=400.0, most=18),
    "slow-start": _on_machine("slow_start", lambda fault: 2.0 + 18.0 * fault.size, 1.0, most=14),
    "late-memory": _on_machine("late_memory", lambda fault: 1.0 + 19.0 * fault.size, 0.0, most=13),
    "slow-fetch": _on_machine("slow_fetch", lambda fault: 2.0 + 18.0 * fault.size, 1.0, most=13),
    "crash-starting": _on_engine(False, _crash),
    "crash-ready": _on_engine(True, _crash),
    "leader-starting": _on_engine(False, _behead),
    "leader-ready": _on_engine(True, _behead),
    "hang-starting": _on_engine(False, _hang),
    "hang-ready": _on_engine(True, _hang, most=27),
    "partition": _dark(up=True, down=True, most=13),
    "deaf-node": _dark(up=False, down=True, most=13),
    "mute-node": _dark(up=True, down=False, most=12),
    "stream-cut": Kind(cut, longest=0.1, most=11),
    "gateway-cut": Kind(gateway_cut, longest=0.1, most=13),
    "cut-in-drain": Kind(cut_in_drain, longest=0.1, most=6),
    "slow-link": Kind(slow_link, longest=120.0, most=14),
    "swizzle": Kind(swizzle, longest=300.0, most=2),
    "gateway-silent": Kind(gateway_silent, longest=200.0, most=12),
    "gateway-partition": _dark(up=True, down=True, gateways=True, most=12),
    "stale-command": Kind(stale_command, longest=0.1, most=19),
    "repeated-order": Kind(repeated_order, longest=0.1, most=33),
    "control-kill": Kind(control_kill, longest=100.0, most=16),
    "control-pause": Kind(control_pause, longest=400.0, most=22),
    "scale": _edit(_scale),
    "new-generation": _edit(_rearrange),
    "bad-generation": _edit(_spoil, most=2),
    "invalid-catalog": _edit(_mistake, most=14),
    "wall-jump": Kind(wall_jump, longest=0.1, most=19),
    "removal": Kind(removed, longest=200.0, most=2),
    **NODE_KINDS,
    **PEOPLE_KINDS,
    "card-lost": Kind(card_lost, longest=500.0, most=5),
    "rename": Kind(renamed, longest=300.0, most=2),
    "alias-moves": _edit(_takes_the_name, most=3),
}
"""Every kind of fault, by the name that the histogram prints."""
