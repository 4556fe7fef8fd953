"""Passes until nothing more is placed: the one entrance to `reconcile`.

Called by the control plane's loop, by `rehearse` (which is `llmgw plan`) and by the simulation. What
was decided is written into the fleet at once (`Assigned`, `Ordered`), so that the next pass sees it.
"""

import dataclasses

from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import Chance
from llmgw.planning.actions import Action, Assign, Start, Stop
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.reconcile import Pass, Unplaced, reconcile


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """The state after the passes of one instant, what they decided in order, and when to look again."""

    fleet: Fleet
    ledger: Ledger
    actions: tuple[Action, ...]
    wake_at: float | None
    unplaced: tuple[Unplaced, ...]
    alarms: tuple[str, ...]


def settle(
    desired: Desired, fleet: Fleet, ledger: Ledger, now: float, chance: Chance, timers: Timers
) -> Settled:
    """Decide until a pass places nothing. Ends: each placing pass fills room that is finite."""
    actions: list[Action] = []
    while True:
        step = reconcile(desired, fleet, ledger, now, chance, timers)
        fleet, ledger = ordered(fleet, step, now), step.ledger
        actions += step.actions
        if not step.placed:
            return Settled(fleet, ledger, tuple(actions), step.wake_at, step.unplaced, step.alarms)


def ordered(fleet: Fleet, step: Pass, now: float) -> Fleet:
    """The fleet with the orders of a pass written in."""
    for action in step.actions:
        match action:
            case Assign(spec=spec) if spec.key not in fleet.shards:
                fleet = fleet.apply(events.Assigned(spec), now)
            case Assign(spec=spec):
                fleet = fleet.apply(events.Ordered(spec.key, "assign"), now)
            case Start(key=key):
                fleet = fleet.apply(events.Ordered(key, "start"), now)
            case Stop(key=key):
                fleet = fleet.apply(events.Ordered(key, "stop"), now)
    return fleet
