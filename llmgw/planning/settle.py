"""Passes until nothing more follows at once: the one entrance to `reconcile`.

Called by the control plane's loop, by `rehearse` (which is `llmgw plan`) and by the simulation. What
was decided is written into the fleet at once (`Assigned`, `Ordered`), so that the next pass sees it.
"""

import dataclasses

from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.world import Draft, Fleet
from llmgw.kit.chance import Chance
from llmgw.planning.actions import Action, Assign, Start, Stop
from llmgw.planning.board import Board
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.needs import Unplaced
from llmgw.planning.reconcile import Pass, reconcile


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
    desired: Desired,
    fleet: Fleet,
    ledger: Ledger,
    now: float,
    chance: Chance,
    timers: Timers,
    memory: Board | None = None,
) -> Settled:
    """Decide until a pass asks for no other. Ends: each placing pass fills room that is finite.

    `memory` belongs to whoever settles again and again; it only saves time.
    """
    board = Board() if memory is None else memory
    draft = Draft(fleet)
    actions: list[Action] = []
    while True:
        step = reconcile(desired, draft.fleet, ledger, now, chance, timers, board)
        write(draft, step, now, board)
        ledger = step.ledger
        actions += step.actions
        if not step.again:
            return Settled(draft.fleet, ledger, tuple(actions), step.wake_at, step.unplaced, step.alarms)


def write(draft: Draft, step: Pass, now: float, board: Board) -> None:
    """Write the orders of a pass into the fleet, and tell the board which shards they are."""
    known = draft.fleet.shards
    for action in step.actions:
        match action:
            case Assign(spec=spec):
                again = spec.key in known
                draft.apply(events.Ordered(spec.key, "assign") if again else events.Assigned(spec), now)
                board.wrote(spec.key)
            case Start(key=key):
                draft.apply(events.Ordered(key, "start"), now)
                board.wrote(key)
            case Stop(key=key):
                draft.apply(events.Ordered(key, "stop"), now)
                board.wrote(key)
