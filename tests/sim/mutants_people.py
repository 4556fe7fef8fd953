"""Planted bugs in what follows from people's hands, clients and plans, and in the bounds of tables.

Merged into `sim.mutants.MUTANTS`.
"""

import collections
import dataclasses
from typing import Any

from llmgw.agent import core
from llmgw.control import journal
from llmgw.fleet import world
from llmgw.planning import board, handover, placement, plan, rehearse, rollout, scaling, stock
from llmgw.planning.desired import Marks
from llmgw.planning.view import View
from tests.sim.planting import Mutant, always


def _closed_takes_work(right: Any) -> Any:
    """Neither a cordon nor a drain nor a quarantine keeps a node from new work."""

    def site(room: Any, stands: str, cordoned: str = "") -> Any:
        return right(room, stands, "")

    return site


def _paused_goes_on(right: Any) -> Any:
    """A pause is no pause."""

    def need(view: View, *rest: Any) -> Any:
        marks = dataclasses.replace(view.desired.marks, paused=Marks().paused)
        desired = dataclasses.replace(view.desired, marks=marks)
        return right(dataclasses.replace(view, desired=desired), *rest)

    return need


def _silence_is_no_load(right: Any) -> Any:
    """Who tells no load has none."""

    def loads(view: View) -> Any:
        found = right(view)
        return collections.Counter() if found is None else found

    return loads


def _shrinks_at_once(right: Any) -> Any:
    """A lull of a moment costs a replica."""

    def scale(view: View, *rest: Any) -> Any:
        timers = dataclasses.replace(view.timers, scale_window=1.0)
        return right(dataclasses.replace(view, timers=timers), *rest)

    return scale


def _one_more(right: Any) -> Any:
    """The bounds hold for everything but the count."""

    def scale(*seen: Any) -> Any:
        found = right(*seen)
        return dataclasses.replace(found, count=found.count + 1)

    return scale


def _endless(right: Any) -> Any:
    """The journal keeps every line."""

    def init(self: journal.Journal, clock: Any) -> None:
        right(self, clock)
        self._entries = collections.deque()

    return init


def _remembers_all(right: Any) -> Any:
    """An agent remembers every generation that ever failed."""

    def remembered(state: core.AgentState, *rest: Any) -> Any:
        limits = dataclasses.replace(state.limits, failures=10_000)
        after = right(dataclasses.replace(state, limits=limits), *rest)
        return dataclasses.replace(after, limits=state.limits)

    return remembered


def _forgets_nothing(right: Any) -> Any:
    """A node that people forget leaves the roster, and stays a node."""

    def forgotten(draft: world.Draft, name: str) -> None:
        draft._roster = draft._roster - {name}

    return forgotten


PEOPLE_MUTANTS: dict[str, Mutant] = {
    "closed-takes-work": Mutant("a closed node takes new work", stock, "Site", _closed_takes_work),
    "no-quarantine": Mutant(
        "no node is blamed", board, "quarantined", lambda _: always({}), rare=True, meets="bad-node"
    ),
    "paused-goes-on": Mutant("a paused model goes on", rollout, "need", _paused_goes_on, meets="pause"),
    "silence-is-no-load": Mutant(
        "a silent gateway has no load",
        scaling,
        "_loads",
        _silence_is_no_load,
        rare=True,
        meets="gateway-silent",
    ),
    "shrinks-at-once": Mutant("a lull costs a replica", scaling, "_scale", _shrinks_at_once, meets="rush"),
    "beyond-bounds": Mutant("one more than the bounds allow", scaling, "_scale", _one_more),
    "disk-is-endless": Mutant(
        "no download is too much for a disk",
        placement,
        "_BESIDE_CARDS",
        lambda rules: tuple(rule for rule in rules if rule is not placement.disk_fits),
        rare=True,
        meets="disk-full",
    ),
    "names-move-at-once": Mutant(
        "a name leads to who does not serve yet", handover, "held", lambda _: always({}), meets="alias-moves"
    ),
    "leaves-at-once": Mutant(
        "what left waits for nobody who gets its names",
        rollout,
        "leaving",
        lambda right: lambda view, model, **_: right(view, model, held=False),
        meets="rename",
    ),
    "drains-the-last": Mutant(
        "what is one too many goes, whoever is left", rollout, "_spared", lambda _: always(True), rare=True
    ),
    "any-plan-will-do": Mutant(
        "every plan of a catalog is the same", plan, "digest_of", lambda _: always("0" * 64), meets="planned"
    ),
    "rehearses-one-turn": Mutant(
        "a rehearsal ends at its first wait", rehearse._Stage, "_patience", lambda _: always(-1.0)
    ),
    "endless-journal": Mutant("the journal keeps everything", journal.Journal, "__init__", _endless),
    "remembers-all": Mutant(
        "an agent remembers all failures",
        core,
        "_remembered",
        _remembers_all,
        rare=True,
        meets="bad-generation",
    ),
    "forgets-nothing": Mutant(
        "a forgotten node stays", world.Draft, "_forgotten", _forgets_nothing, rare=True, meets="forget"
    ),
}
"""Planted bugs, by name."""
