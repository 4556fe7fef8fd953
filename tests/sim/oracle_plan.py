"""S20 at rest: what a rehearsal says is what the loop then does, where everything succeeds.

`sim.world` asks it at the end of some lives: a change is rehearsed, applied and lived through.
"""

import collections
import dataclasses
from typing import TYPE_CHECKING

from llmgw.catalog.model import Catalog
from llmgw.planning import actions
from llmgw.planning.rehearse import rehearse
from tests.sim import scenario
from tests.sim.verdict import require

if TYPE_CHECKING:
    from tests.sim.world import World

SHARE = 0.25
"""Of the lives that can be compared, so many are."""

Told = dict[str, list[str]]


def change(world: "World") -> Catalog | None:
    """What people apply at the rest of this seed; None where nothing is compared.

    A rehearsal knows no clients to come and no failures: a count that follows them, or a delay that is
    still remembered, makes it say something else by right.
    """
    chance, catalog = world.clock.chance("rehearsed"), world.disk.catalog
    names = sorted(catalog.models)
    followed = any(map(world.elastic, names)) or world.control.ledger.troubles
    if not names or followed or not world.control.answers or chance.random() >= SHARE:
        return None
    name = chance.choice(names)
    if chance.random() < 0.5:
        return scenario.sealed(scenario.scaled(catalog, name, chance.randint(0, 3)))
    return scenario.sealed(scenario.rearranged(catalog, name, chance.randint(1000, 9999)))


class Transcript:
    """What is ordered from now on, each thing once, in order."""

    def __init__(self) -> None:
        self.orders: dict[tuple[str, object], str] = {}

    def ordered(self, action: actions.Action) -> None:
        """One more; what is repeated is the same order."""
        match action:
            case actions.Assign(spec=spec):
                self.orders.setdefault(("Assign", spec.key), spec.model)
            case actions.Drain(replica=replica):
                self.orders.setdefault(("Drain", replica), replica.rpartition("/")[0])
            case actions.Undrain(replica=replica):
                self.orders.setdefault(("Undrain", replica), replica.rpartition("/")[0])
            case actions.Start(key=key) | actions.Stop(key=key):
                self.orders.setdefault((type(action).__name__, key), key[0].rpartition("/")[0])

    def told(self) -> Told:
        """Of each model the kinds of its orders in order, without names, nodes and times."""
        kinds: Told = collections.defaultdict(list)
        for (kind, _), model in self.orders.items():
            kinds[model].append(kind)
        return kinds


def rehearsed(world: "World", catalog: Catalog) -> Transcript:
    """What the loop says it would do."""
    control, transcript = world.control, Transcript()
    desired = dataclasses.replace(control.loop.desired, catalog=catalog, sizes=scenario.sizes(catalog))
    control.rehearses = True
    chance, now = world.clock.chance("rehearsal"), world.clock.now
    played = rehearse(desired, control.fleet, control.ledger, now, chance, control.timers)
    control.rehearses = False
    for step in played.steps:
        transcript.ordered(step.action)
    return transcript


def compared(said: Transcript, done: Transcript) -> None:
    """S20: kind for kind, of every model."""
    said_of, done_of = said.told(), done.told()
    for model in sorted(said_of.keys() | done_of.keys()):
        told, did = said_of.get(model, []), done_of.get(model, [])
        require(told == did, "S20", f"of {model} was rehearsed {' '.join(told)}; done was {' '.join(did)}")
