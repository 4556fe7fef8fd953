"""A plan as it was asked for: of what is given, split from what is pending already, with what is only supposed.

`control.adoption` answers `llmgw plan` with it, and `llmgw plan --fleet` does so without a control plane:
one function, so that the two cannot disagree.
"""

import dataclasses
import fnmatch
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated

import pydantic

from llmgw.catalog.model import Catalog
from llmgw.catalog.suggest import did_you_mean
from llmgw.errors import Failed
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import Chance
from llmgw.kit.text import count
from llmgw.planning import bereft
from llmgw.planning.board import Board
from llmgw.planning.costs import Known
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.plan import NotPlaced, Plan, make_plan
from llmgw.planning.rows import REQUESTED, Command, Row

Named = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """What a plan is made of beside the new catalog. `number` is that of the revision which stands.

    `applied` says in words what stands; `age` is how many seconds ago the fleet was looked at. `board` is
    the memory of the passes over the fleet, where there is one to lend.
    """

    desired: Desired
    fleet: Fleet
    ledger: Ledger
    now: float
    timers: Timers
    number: int = 0
    known: Known = dataclasses.field(default_factory=Known)
    cluster: str = ""
    applied: str = ""
    age: float = 0.0
    board: Annotated[pydantic.InstanceOf[Board] | None, pydantic.Field(exclude=True)] = None


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What is supposed, and what is shown of it. Patterns and names as people wrote them."""

    only: Named = ()
    replace: Named = ()
    without_nodes: Named = ()
    with_nodes: tuple[NodeInfo, ...] = ()


def answer(
    given: Given,
    new: Desired,
    chance: Callable[[], Chance],
    command: Command,
    asked: Asked | None = None,
    base: Catalog | None = None,
) -> Plan:
    """The plan from what stands to `new`. `base` is the catalog that is waited for already, if it is compared.

    `chance` makes a stream for each rehearsal. Raises Failed where a name that was asked for is nobody's.
    """
    asked = asked or Asked()
    fleet, supposed = suppose(given.fleet, asked, given.now)

    def planned(desired: Desired) -> Plan:
        return make_plan(
            given.desired,
            desired,
            fleet,
            given.ledger,
            given.now,
            chance(),
            given.timers,
            base=given.number,
            command=command,
            known=given.known,
            board=given.board,
        )

    plan = planned(new)
    if base is not None:
        plan = split(plan, planned(dataclasses.replace(new, catalog=base)))
    if asked.without_nodes:
        plan = bereft.told(plan, given.fleet, [_node(given.fleet, name) for name in asked.without_nodes])
    if supposed:  # it is of another fleet, so it is another plan: nobody applies this one by its id
        plan = dataclasses.replace(plan, digest=_supposing(plan.digest, supposed))
    plan = dataclasses.replace(plan, cluster=given.cluster, applied=given.applied, suppose=supposed)
    return only(plan, asked.only) if asked.only else plan


# What is only supposed ------------------------------------------------------------------------------


def suppose(fleet: Fleet, asked: Asked, now: float) -> tuple[Fleet, Named]:
    """The fleet as if, and what was supposed in words."""
    said: list[str] = []
    for name in asked.without_nodes:
        fleet = fleet.apply(events.NodeForgotten(_node(fleet, name)), now)
        said.append(f"without node {name}")
    for info in asked.with_nodes:
        if any(info.name == node.info.name for node in fleet.nodes.values()):
            raise Failed(f"cannot suppose node {info.name}: there is one of this name", help="name it anew")
        fleet = fleet.apply(events.Registered(info), now)
        said.append(f"with node {info.name}")
    for name in asked.replace:
        fleet = _requested(fleet, name)
        said.append(f"{name} is rebuilt")
    return fleet, tuple(said)


def _supposing(digest: str, supposed: Named) -> str:
    """The identity of a plan with that digest under these suppositions."""
    return hashlib.sha256(json.dumps([digest, *supposed]).encode()).hexdigest()


def _node(fleet: Fleet, name: str) -> str:
    """The id of the node that people call so."""
    found = [name] if name in fleet.nodes else []
    found += [node for node, known in fleet.nodes.items() if name == known.info.name]
    if not found:
        names = ", ".join(sorted(node.info.name for node in fleet.nodes.values())[:20])
        raise Failed(
            f"cannot plan without node {name}: there is none of this name",
            help=f"nodes: {names or 'none yet'}",
        )
    return found[0]


def _requested(fleet: Fleet, name: str) -> Fleet:
    """The fleet in which every replica of this name, or of this model, is of a generation that nobody wants."""
    shards = {
        key: dataclasses.replace(
            shard,
            spec=dataclasses.replace(shard.spec, generation=REQUESTED + shard.spec.generation),
        )
        for key, shard in fleet.shards.items()
        if name in (shard.spec.replica, shard.spec.model)
    }
    if not shards:
        known = {each for s in fleet.shards.values() for each in (s.spec.replica, s.spec.model)}
        raise Failed(
            f"cannot plan to replace {name}: it is neither a replica nor a model that runs",
            help=did_you_mean(name, sorted(known)) or "llmgw replicas",
        )
    return dataclasses.replace(fleet, shards={**fleet.shards, **shards})


# What is pending already ----------------------------------------------------------------------------


def split(plan: Plan, before: Plan) -> Plan:
    """`plan` with what the base asks for already told apart: what is in both is pending."""
    waiting = Counter(map(_key, before.rows))
    rows: list[Row] = []
    for row in plan.rows:
        if row.origin == "change" and waiting[_key(row)]:
            waiting[_key(row)] -= 1
            row = dataclasses.replace(row, origin="pending")  # noqa: PLW2901 - the same row, told better
        rows.append(row)
    stuck = Counter((item.model, item.profile) for item in before.unplaced)
    unplaced: list[NotPlaced] = []
    for item in plan.unplaced:
        if stuck[item.model, item.profile]:
            stuck[item.model, item.profile] -= 1
            item = dataclasses.replace(item, origin="pending")  # noqa: PLW2901 - as above
        unplaced.append(item)
    return dataclasses.replace(plan, rows=tuple(rows), unplaced=tuple(unplaced))


def _key(row: Row) -> tuple[str, ...]:
    return (row.symbol, row.model, row.code, row.generation, row.why)


# What is shown of it --------------------------------------------------------------------------------


def only(plan: Plan, patterns: Iterable[str]) -> Plan:
    """What concerns the models that match; its identity stays that of the whole plan, which says so.

    How long the whole takes is left out: it is not how long these take.
    """
    wanted = tuple(patterns)
    models = {row.model for row in (*plan.rows, *plan.alone)} | {each.model for each in plan.service}
    models |= {each.model for each in plan.unplaced}
    shown = {name for name in models if any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)}
    if not shown:
        raise Failed(
            f"cannot show only {', '.join(wanted)}: no model matches",
            help=f"models: {', '.join(sorted(models)[:20]) or 'none'}",
        )
    kept = dataclasses.replace(
        plan,
        rows=tuple(row for row in plan.rows if row.model in shown),
        service=tuple(each for each in plan.service if each.model in shown),
        unplaced=tuple(each for each in plan.unplaced if each.model in shown),
        alone=tuple(row for row in plan.alone if row.model in shown),
        seconds=None,
    )
    return dataclasses.replace(kept, suppose=(*plan.suppose, _left_out(plan, shown)))


def _left_out(plan: Plan, shown: set[str]) -> str:
    others = [row.model for row in plan.rows if row.model not in shown]
    what = f"only {', '.join(sorted(shown))}"
    return f"{what}; left out: {count(len(others), 'action')} of {count(len(set(others)), 'model')}"
