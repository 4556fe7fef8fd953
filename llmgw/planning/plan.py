"""A plan: the rehearsal's transcript as rows that people read and a digest that binds them.

Made by the control plane for `llmgw plan` and `llmgw apply`; text, JSON and the apply all use this one
value. Its identity is what it does and why, not when, where or with which random suffix.
"""

import collections
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping

from llmgw.catalog.model import Catalog
from llmgw.fleet.expiry import Timers
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import Chance
from llmgw.kit.text import count
from llmgw.planning import diff
from llmgw.planning.actions import Assign
from llmgw.planning.alone import left_alone
from llmgw.planning.board import Board
from llmgw.planning.costs import Known
from llmgw.planning.desired import Desired
from llmgw.planning.fired import Fired
from llmgw.planning.ledger import Ledger
from llmgw.planning.notes import notes
from llmgw.planning.rehearse import Rehearsal, rehearse
from llmgw.planning.rows import Command, Origin, Row, Telling, duration, replica_rows, routing_rows, rowless
from llmgw.planning.view import View, look
from llmgw.planning.wouldfit import would_fit


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """Ready replicas of a model now, at the lowest point of the apply, and after it."""

    model: str
    now: int
    lowest: int
    after: int


@dataclasses.dataclass(frozen=True, slots=True)
class NotPlaced:
    """A wanted replica that fits nowhere. `reasons` are (node, rule, why), one per node and rule, at most
    `MOST_REASONS` of `nodes` nodes. `would_fit` are changes with which it would fit, the nearest first.
    `stay` are the replicas that it was to take over from: they serve on. `short` says of a gang that the nodes
    without a reason are too few. `because` is what is supposed that costs it its place.
    """

    model: str
    profile: str
    reasons: tuple[tuple[str, str, str], ...]
    nodes: int = 0
    origin: Origin = "change"
    would_fit: tuple[str, ...] = ()
    stay: tuple[str, ...] = ()
    short: str = ""
    because: str = ""

    @property
    def said(self) -> str:
        """`fits on none of 6 nodes`, or how many a gang needs and finds."""
        said = self.short or f"fits on none of {count(self.nodes, 'node')}"
        return f"{said}; {self.because}" if self.because else said


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What would happen, in order. `digest` is its identity; `base` the revision it was made against.

    `guards` are those that refuse it until somebody allows exactly that. `alone` is left as it is on
    purpose. `seconds` until everything is ready that has an estimate, None where nothing has. `catalog`,
    `applied` and `observed` say what it was made of; `suppose` what was only supposed: such a plan is not
    applied. `moved` are the names that other models get, each with the fewest ready replicas on the way.
    `unreachable` are the nodes that were not Ready when it was made, by name.
    """

    digest: str
    base: int
    rows: tuple[Row, ...]
    service: tuple[Service, ...]
    unplaced: tuple[NotPlaced, ...] = ()
    alarms: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    catalog_digest: str = ""
    guards: tuple[Fired, ...] = ()
    alone: tuple[Row, ...] = ()
    seconds: float | None = None
    cluster: str = ""
    catalog: str = ""
    applied: str = ""
    observed: str = ""
    suppose: tuple[str, ...] = ()
    moved: tuple[tuple[str, int], ...] = ()
    unreachable: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"p-{self.digest[:6]}"

    @property
    def empty(self) -> bool:
        """Nothing this catalog changes and nothing to heal."""
        return not self.rows


def make_plan(
    old: Desired,
    new: Desired,
    fleet: Fleet,
    ledger: Ledger,
    now: float,
    chance: Chance,
    timers: Timers,
    *,
    base: int,
    command: Command = lambda _: (),
    known: Known | None = None,
    board: Board | None = None,
) -> Plan:
    """The plan from what is adopted (`old`) to `new`, whose catalog must not be None.

    `command` gives the command line of a shard; planning itself knows no engine. `known` is what was
    read and measured beside the fleet. `board` is lent as for `rehearse`.
    """
    if new.catalog is None:
        raise ValueError("a plan needs a catalog")
    board = Board() if board is None else board
    looked = look(new, fleet, ledger, now, timers, board)
    board.rest(acted=False)
    alone = left_alone(looked)
    played = rehearse(new, fleet, ledger, now, chance, timers, board=board)
    changed = diff.changes(old.catalog, new.catalog)
    known = known or Known()
    before = _before(old.catalog, new.catalog, changed)
    told = Telling(fleet, changed, command, known, new.marks.draining, looked.lost, before)
    rows = replica_rows(played, told)
    rows += rowless(rows, changed)
    rows += routing_rows(old.catalog, new.catalog, played.moved)
    return Plan(
        digest=digest_of(counted(rows), new.catalog.digest),
        base=base,
        rows=tuple(rows),
        service=_service(played, changed),
        unplaced=_unplaced(played, new, changed, known, looked),
        alarms=(*played.alarms, *notes(rows, new.catalog, new.marks.paused)),
        catalog_digest=new.catalog.digest,
        alone=alone,
        seconds=duration(rows, played),
        observed=_observed(looked),
        moved=tuple(sorted(played.moved.items())),
        unreachable=tuple(fleet.name(node) for node, stands in looked.standings.items() if stands != "Ready"),
    )


def _before(
    old: Catalog | None, new: Catalog, changed: Mapping[str, diff.Change]
) -> Mapping[str, tuple[str, ...]]:
    """Generations of changed models whose weights stay the same, as they were."""
    if old is None:
        return {}
    names = (name for name, change in changed.items() if change.code != "unchanged")
    return {
        name: tuple(old.generations(old.models[name]))
        for name in names
        if name in old.models and name in new.models and old.models[name].source == new.models[name].source
    }


def _service(played: Rehearsal, changed: dict[str, diff.Change]) -> tuple[Service, ...]:
    models = sorted({*changed, *played.before, *played.after})
    return tuple(
        Service(m, played.before.get(m, 0), played.lowest.get(m, 0), played.after.get(m, 0)) for m in models
    )


MOST_REASONS = 64
"""Reasons that a plan keeps of one replica without a place."""
MOST_TRIED = 10
"""Replicas without a place for which it is tried what would help."""


def _unplaced(
    played: Rehearsal,
    new: Desired,
    changed: Mapping[str, diff.Change],
    known: Known,
    looked: View,
) -> tuple[NotPlaced, ...]:
    """What found no place, with reasons, and for the first few what would help."""
    if not played.unplaced or new.catalog is None:
        return ()
    view = look(new, played.fleet, played.ledger, played.ended, looked.timers, looked.board)
    found: list[NotPlaced] = []
    told = _named(played)
    for item in played.unplaced:
        model, profile = new.catalog.models[item.model], new.catalog.profiles[item.profile]
        size = new.sizes.get(model.cache_name, 0)
        facts = known.facts.get(model.cache_name)
        ways = would_fit(view, model, profile, size, facts, told) if len(found) < MOST_TRIED else ()
        unchanged = changed[item.model].code == "unchanged" if item.model in changed else False
        found.append(
            NotPlaced(
                item.model,
                item.profile,
                tuple((r.node, r.rule, told(r.said)) for r in item.reasons[:MOST_REASONS]),
                nodes=len({r.node for r in item.reasons}),
                origin="pending" if unchanged else "change",
                would_fit=ways,
                stay=tuple(map(told, item.stay)),
                short=item.short,
            )
        )
    view.board.rest(acted=False)
    return tuple(found)


_REPLICA = r"[^\s,]+/[a-z0-9]{4}(?![a-z0-9])"
_REPLICAS = re.compile(rf"{_REPLICA}(?:, {_REPLICA})*")


def _named(played: Rehearsal) -> Callable[[str], str]:
    """Calls a replica that only the rehearsal knows by its model: its id is drawn anew each time.

    A list of replicas stays in its order also then.
    """
    new = {step.action.spec.replica for step in played.steps if isinstance(step.action, Assign)}

    def called(replica: str) -> str:
        return f"{replica.rpartition('/')[0]} (new)" if replica in new else replica

    return lambda said: _REPLICAS.sub(lambda m: ", ".join(sorted(map(called, m[0].split(", ")))), said)


def _observed(view: View) -> str:
    """`6 nodes, 1 Unreachable`."""
    others = collections.Counter(stands for stands in view.standings.values() if stands != "Ready")
    words = [count(len(view.standings), "node"), *(f"{number} {stands}" for stands, number in others.items())]
    return ", ".join(words)


Counted = Mapping[tuple[str, str, str, str, str], int]
"""(symbol, model, code, generation, what changes into what) → how often."""


def counted(rows: Iterable[Row]) -> Counted:
    """What makes a plan the plan it is: not times, nodes, suffixes or self-healing.

    What changes into what is in it, so that a change somebody else made to the same thing meanwhile
    makes this another plan.
    """
    changes = [row for row in rows if row.origin != "healing"]
    return collections.Counter((row.symbol, row.model, row.code, row.generation, row.why) for row in changes)


def digest_of(counts: Counted, catalog: str) -> str:
    """The identity of a plan for the catalog with that digest."""
    text = json.dumps([catalog, *sorted([*key, count] for key, count in counts.items())])
    return hashlib.sha256(text.encode()).hexdigest()
