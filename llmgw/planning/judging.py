"""What the guards judge: not a plan as it is shown, but what follows from it sooner or later.

`control.adoption` and `llmgw plan --fleet` ask for every plan. Two things hide what follows: a pause, which
ends, and a darkness, in which nothing acts until the nodes are back. The guards look at a rehearsal without
either. What nodes have not told since a restart cannot be rehearsed: `guards` counts what the catalogs want.
"""

import dataclasses

from llmgw.fleet.world import Fleet
from llmgw.kit.chance import Chance
from llmgw.planning import diff, guards
from llmgw.planning.asking import Asked, Given, suppose
from llmgw.planning.desired import Desired
from llmgw.planning.fired import Fired
from llmgw.planning.plan import Plan, make_plan
from llmgw.planning.view import View, look


def judged(
    plan: Plan, given: Given, new: Desired, limits: guards.Limits, chance: Chance, asked: Asked | None = None
) -> tuple[Fired, ...]:
    """The guards that refuse `plan`, which leads from what is `given` to `new`, whose catalog must not be None.

    `chance` is for one more rehearsal; `asked` what the plan supposes.
    """
    if new.catalog is None:
        raise ValueError("guards need a catalog")
    view = look(given.desired, given.fleet, given.ledger, given.now, given.timers, given.board)
    serving = frozenset(
        name for name, replica in view.replicas.items() if replica.serves and name not in view.ledger.drains
    )
    dark, unheard = view.dark, bool(view.unheard)
    awake = _awake(given.desired, new)
    fleet = _lit(view) if dark else given.fleet
    view.board.rest(acted=False)
    if dark or awake is not new:
        plan = make_plan(
            given.desired,
            awake,
            suppose(fleet, asked or Asked(), given.now)[0],
            given.ledger,
            given.now,
            chance,
            given.timers,
            base=given.number,
            board=given.board,
        )
    seen = guards.Seen(serving, heard=not unheard)
    return guards.fired(plan, given.desired.catalog, new.catalog, limits, seen)


def _awake(old: Desired, new: Desired) -> Desired:
    """`new` without the pauses of models that it changes: these end, and then all of it happens."""
    paused = new.marks.paused
    if not paused or new.catalog is None:
        return new
    changed = diff.changes(old.catalog, new.catalog)
    left = {
        name: reason
        for name, reason in paused.items()
        if name not in changed or changed[name].code == "unchanged"
    }
    return (
        new if left == paused else dataclasses.replace(new, marks=dataclasses.replace(new.marks, paused=left))
    )


def _lit(view: View) -> Fleet:
    """The fleet once the nodes that fell silent together are heard again."""
    gone = view.ledger.lost | view.desired.marks.confirmed_lost
    nodes = {
        name: node if name in gone else dataclasses.replace(node, last_seen=view.now)
        for name, node in view.fleet.nodes.items()
    }
    return dataclasses.replace(view.fleet, nodes=nodes)
