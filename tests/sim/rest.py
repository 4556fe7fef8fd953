"""When a healed world has come to rest: L1 to L3, judged by the machines."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmgw.catalog.model import Model, Profile
from tests.sim import scenario

if TYPE_CHECKING:
    from tests.sim.world import World


def unrest(world: "World") -> str:
    """Why the world is not at rest; empty when it is."""
    return next(_reasons(world), "")


def _reasons(world: "World") -> Iterator[str]:
    wanted = scenario.current(world.disk.catalog)
    for model in world.disk.catalog.models.values():
        yield from _model(world, model, wanted[model.name])
        scale = world.control.ledger.scales.get(model.name)
        if scale is not None and scale.count > model.scaling.min:
            yield f"{scale.count} of {model.name} are wanted, though nobody asks for it"
    yield from _leftovers(world, wanted)
    yield from world.nodes.unrest()
    for agent in world.agents.values():
        for kept in agent.state.shards.values():
            if kept.state != "ready":
                yield f"{kept.spec.replica}:{kept.spec.rank} is {kept.state} on {agent.machine.name}"
    if world.control.ledger.drains:
        yield f"{', '.join(sorted(world.control.ledger.drains))} drains"
    yield from _tables(world)


def halted(world: "World") -> bool:
    """Some roll-out stands still: its generation failed, and the old one keeps the only room."""
    wanted = scenario.current(world.disk.catalog)
    return any(_stale(world, model, wanted[model]) for model in wanted)


def under_way(world: "World") -> str:
    """What takes its time: whatever comes up, ends or waits by a timer of the design; empty = nothing does."""
    return next(_loads(world), "")


def _loads(world: "World") -> Iterator[str]:
    now, timers = world.clock.now, world.control.timers
    for machine in world.machines.values():
        for engine in machine.engines.values():
            if engine.alive and engine.phase != "ready":
                yield f"{engine} comes up"
            if engine.ready_at is not None and now - engine.ready_at < timers.min_ready + LATER:
                yield f"{engine} has to prove itself"
            if not engine.alive and now < engine.free_at + LATER:
                yield f"{engine} ends"
    for agent in world.agents.values():
        for kept in agent.state.shards.values():
            if kept.state != "ready":
                yield f"{kept.spec.replica}:{kept.spec.rank} is {kept.state}"
    yield from _waits(world)


def _waits(world: "World") -> Iterator[str]:
    now, timers, control = world.clock.now, world.control.timers, world.control
    models = world.disk.catalog.models
    if control.ledger.drains:
        yield "a drain is under way"
    if any(now < trouble.until + LATER for trouble in control.ledger.troubles.values()):
        yield "a failure costs its delay"
    scales = control.ledger.scales
    if any(scale.count > models[name].scaling.min for name, scale in scales.items() if name in models):
        yield "a count waits for its window"
    if control.roster - control.fleet.nodes.keys() and now - control.fleet.since < timers.lost_grace + LATER:
        yield "a node has not spoken yet"
    if any(world.silence(name) >= timers.unreachable for name in world.machines):
        yield "a node is silent"


LATER = 20.0
"""Seconds until the next look sees what came of it."""


def _stale(world: "World", model: str, generations: dict[str, Profile]) -> list[str]:
    serving = world.serving(model)
    return [name for name, engines in serving.items() if engines[0].spec.generation not in generations]


def _model(world: "World", model: Model, generations: dict[str, Profile]) -> Iterator[str]:
    stale = _stale(world, model.name, generations)
    room = any(fits(world, profile) for profile in generations.values())
    failed = any((model.name, generation) in world.control.ledger.troubles for generation in generations)
    count = len(world.serving(model.name)) - len(stale)
    if stale and (room or count or not failed):
        yield f"{stale[0]} serves an old generation"
    if count > model.scaling.max:
        yield f"{count} replicas of {model.name} serve, {model.scaling.max} wanted"
    if count < model.scaling.min and room:
        yield f"{count} replicas of {model.name} serve, {model.scaling.min} wanted, and there is room"


def fits(world: "World", profile: Profile) -> bool:
    """Enough machines have enough cards that nobody holds, and memory."""
    free = [
        sum(not machine.holders(gpu.uuid) for gpu in machine.gpus)
        for machine in world.machines.values()
        if machine.memory_left() >= profile.cpu_memory
    ]
    return sum(cards >= profile.gpus_per_node for cards in free) >= profile.nodes


def _leftovers(world: "World", wanted: dict[str, dict[str, Profile]]) -> Iterator[str]:
    for machine in world.machines.values():
        for engine in machine.living():
            if engine.spec.model not in wanted:
                yield f"{engine} lives on {machine.name} and nothing wants it"
            if not world.serving_replica(engine.spec.replica):
                yield f"{engine} lives on {machine.name} and does not serve"
        for gpu in machine.gpus:
            if any(not engine.alive for engine in machine.holders(gpu.uuid)):
                yield f"{gpu.uuid} is held by the dead"


def _tables(world: "World") -> Iterator[str]:
    serving = {name for model in world.disk.catalog.models for name in world.serving(model)}
    for gateway in world.gateways.values():
        routed = {endpoint.replica for endpoint in gateway.routes.endpoints}
        if routed != serving:
            yield f"{gateway.name} routes to {sorted(routed)}, {sorted(serving)} serve"
