"""What people do meanwhile: marks on nodes and models, crowds of clients, plans; and nodes on which nothing starts.

Merged into `sim.faults.KINDS`. Marks go through the real `control.hands`; a lift that cannot be done now
is tried again, as people do.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from llmgw.catalog.model import Catalog
from llmgw.control.hands import Verb
from tests.sim import scenario
from tests.sim.kinds import WAITS, Fault, Kind, Undo

if TYPE_CHECKING:
    from tests.sim.world import World

AGAIN = 5.0
"""Seconds until people try again what could not be done."""


def _model(world: "World", fault: Fault) -> str:
    names = list(world.disk.catalog.models)
    return names[fault.target % len(names)] if names else ""


def _marked(
    set_: Verb, lift: Verb, pick: Callable[["World", Fault], str], longest: float, most: int = 8
) -> Kind:
    """A mark stands for a while. Some end by themselves, the others are lifted."""

    def begin(world: "World", fault: Fault) -> Undo | None:
        name = pick(world, fault)
        expires = 0.7 * fault.lasts if fault.size < 0.3 else None
        if not name or not world.act(set_, name, expires):
            return None
        return lambda: _lifted(world, lift, name)

    return Kind(begin, longest=longest, most=most)


def _lifted(world: "World", lift: Verb, name: str) -> None:
    if world.disk.marks.of(name) and not world.act(lift, name):
        world.clock.after(AGAIN, lambda: _lifted(world, lift, name))


def _gone(kind: str, further: Callable[["World", str], bool]) -> Kind:
    """A node is away, people say that it is lost, and go `further`; in the end it comes back."""

    def begin(world: "World", fault: Fault) -> Undo | None:
        name = world.pick_machine(fault)
        if not world.machines[name].on:
            return None
        away = _off if fault.size < 0.7 else _unreachable
        back = away(world, name)
        over = False

        def confirm() -> None:
            if over or (world.machines[name].on and away is _off):
                return
            if world.act("confirm-lost", name) and further(world, name):
                world.struck(kind, name)
            else:
                world.clock.after(AGAIN, confirm, world.trouble)

        def undo() -> None:
            nonlocal over
            over = True
            back()

        world.clock.after(world.control.timers.unreachable + AGAIN, confirm, world.trouble)
        return undo

    return Kind(begin, longest=300.0, most=2, shortest=60.0, counts=False)


def _off(world: "World", name: str) -> Undo:
    world.power_off(name)
    return lambda: world.power_on(name)


def _unreachable(world: "World", name: str) -> Undo:
    """The machine lives on, whatever people say."""
    path = world.paths[name]
    path.darken("up")
    path.darken("down")

    def undo() -> None:
        path.light("down")
        path.light("up")

    return undo


def _no_further(world: "World", name: str) -> bool:
    return True


def _forget(world: "World", name: str) -> bool:
    return world.act("forget", name)


def retry(world: "World", fault: Fault) -> None:
    """People clear the back-off of a model that waits for one."""

    def look() -> bool:
        if world.clock.now > fault.at + WAITS:
            return True
        blamed = sorted({model for model, _ in world.control.ledger.troubles})
        wanted = [name for name in blamed if name in world.disk.catalog.models]
        if not wanted or not world.act("retry", wanted[fault.target % len(wanted)]):
            return False
        world.struck(fault.kind, wanted[fault.target % len(wanted)])
        return True

    world.lie_in_wait(look)


def rush(world: "World", fault: Fault) -> Undo | None:
    """Clients flock to one model."""
    names = [name for name, model in world.disk.catalog.models.items() if scenario.elastic(model)]
    names = names or list(world.disk.catalog.models)
    if not names:
        return None
    name = names[fault.target % len(names)]
    world.rushes[name] += 1

    def undo() -> None:
        world.rushes[name] -= 1

    return undo


def planned(world: "World", fault: Fault) -> Undo | None:
    """People plan a change, look at the plan for a while, and apply it if it is still the same."""
    if not world.disk.catalog.models or not world.control.answers:
        return None
    changed = scenario.sealed(_other(world, fault))
    plan = world.control.plan(changed, world.clock.chance(f"plan/{fault.at}"))

    def apply() -> None:
        if world.control.answers:
            again = world.control.plan(changed, world.clock.chance(f"apply/{fault.at}"))
            world.oracle.people.compared(plan, again)
            world.note(f"apply {plan.id}: the plan is {again.id}")
            if again.digest == plan.digest and not world.control.loop.fenced:
                world.struck(fault.kind, again.id)
                world.adopt(changed)

    return apply


def _other(world: "World", fault: Fault) -> Catalog:
    catalog, name = world.disk.catalog, _model(world, fault)
    if fault.size < 0.4:
        return scenario.scaled(catalog, name, round(10 * fault.size))
    return scenario.rearranged(catalog, name, fault.target)


def called_off(world: "World", fault: Fault) -> None:
    """People change a model just after a replica of it was placed: its node has not even looked for the weights."""

    def look() -> bool:
        early = {
            kept.spec.model
            for agent in world.agents.values()
            for kept in agent.state.shards.values()
            if kept.state == "assigned"
        }
        names = sorted(early & world.disk.catalog.models.keys())
        if names:
            name = names[fault.target % len(names)]
            world.struck(fault.kind, name)
            world.adopt(scenario.rearranged(world.disk.catalog, name, fault.target))
        return bool(names) or world.clock.now > fault.at + WAITS

    world.lie_in_wait(look)


def bad_node(world: "World", fault: Fault) -> None:
    """A driver fails where most models are: every engine there ends, and for a while none comes up."""

    def look() -> bool:
        busy = {name: _models_on(world, name) for name in world.agents if not world.machines[name].cursed}
        most = max(busy.values(), default=0)
        if world.clock.now > fault.at + WAITS:
            return True
        if most < 1 + 2 * (fault.size < 0.7):
            return False
        name = next(name for name, count in busy.items() if count == most)
        _curse(world, name, fault.lasts)
        world.struck(fault.kind, name)
        return True

    world.lie_in_wait(look)


def _models_on(world: "World", name: str) -> int:
    return len({engine.spec.model for engine in world.machines[name].living() if engine.leader})


def _curse(world: "World", name: str, seconds: float) -> None:
    machine = world.machines[name]
    machine.cursed = True
    world.touch(name)
    for engine in machine.living():
        machine.kill(engine)

    def over() -> None:
        machine.cursed = False

    world.clock.after(seconds, over)


def _machine(world: "World", fault: Fault) -> str:
    return world.pick_machine(fault)


PEOPLE_KINDS: dict[str, Kind] = {
    "cordon": _marked("cordon", "uncordon", _machine, longest=600.0, most=17),
    "node-drain": _marked("drain", "uncordon", _machine, longest=600.0, most=2),
    "pause": _marked("pause", "resume", _model, longest=300.0, most=18),
    "confirm-lost": _gone("confirm-lost", _no_further),
    "forget": _gone("forget", _forget),
    "retry": Kind(retry, longest=0.1, most=42),
    "rush": Kind(rush, longest=400.0, most=17),
    "planned": Kind(planned, longest=60.0, most=4, counts=False),
    "called-off": Kind(called_off, longest=0.1, most=8),
    "bad-node": Kind(bad_node, longest=200.0, most=18),
}
