"""A plan: the rehearsal's transcript as rows that people read and a digest that binds them.

Made by the control plane for `llmgw plan` and `llmgw apply`; text, JSON and the apply all use this one
value. Its identity is what it does and why, not when, where or with which random suffix.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Literal

from llmgw.catalog.model import Catalog
from llmgw.fleet.expiry import Timers
from llmgw.fleet.shard import ShardSpec
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import Chance
from llmgw.planning import diff
from llmgw.planning.actions import Assign, Drain, Stop
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.rehearse import Rehearsal, Step, rehearse

Symbol = Literal["+", "-", "+/-", "-/+", "~", "!"]
Origin = Literal["change", "healing"]
Command = Callable[[ShardSpec], tuple[str, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One line of a plan. `nodes`, `gpus` and `commands` in rank order; `fetch` in bytes, None = length not known.

    `commands` are the engines' command lines, with `PROGRAM` and `WEIGHTS` for what only the node knows.
    """

    symbol: Symbol
    model: str
    code: str
    said: str
    origin: Origin = "change"
    replica: str = ""
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    profile: str = ""
    generation: str = ""
    fetch: int | None = 0
    held: bool = False
    place: str = ""
    commands: tuple[tuple[str, ...], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """Ready replicas of a model now, at the lowest point of the apply, and after it."""

    model: str
    now: int
    lowest: int
    after: int


@dataclasses.dataclass(frozen=True, slots=True)
class NotPlaced:
    """A wanted replica that fits nowhere, with each node's reasons."""

    model: str
    profile: str
    reasons: tuple[tuple[str, str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What would happen, in order. `digest` is its identity; `base` the revision it was made against."""

    digest: str
    base: int
    rows: tuple[Row, ...]
    service: tuple[Service, ...]
    unplaced: tuple[NotPlaced, ...] = ()
    alarms: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    catalog_digest: str = ""

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
) -> Plan:
    """The plan from what is adopted (`old`) to `new`, whose catalog must not be None.

    `command` gives the command line of a shard; planning itself knows no engine.
    """
    if new.catalog is None:
        raise ValueError("a plan needs a catalog")
    played = rehearse(new, fleet, ledger, now, chance, timers)
    changed = diff.changes(old.catalog, new.catalog)
    rows = _replica_rows(played, fleet, changed, command)
    rows += _rowless(rows, changed)
    rows += _routing_rows(old.catalog, new.catalog)
    unplaced = tuple(
        NotPlaced(u.model, u.profile, tuple((r.node, r.rule, r.said) for r in u.reasons))
        for u in played.unplaced
    )
    return Plan(
        digest=_digest(rows, new.catalog.digest),
        base=base,
        rows=tuple(rows),
        service=_service(played, changed),
        unplaced=unplaced,
        alarms=played.alarms,
        catalog_digest=new.catalog.digest,
    )


def _replica_rows(
    played: Rehearsal, fleet: Fleet, changed: dict[str, diff.Change], command: Command
) -> list[Row]:
    """Creations and stops in the order they happen; a creation that takes over from a stop is one row."""
    rows: list[Row] = []
    names = {name: node.info.name for name, node in fleet.nodes.items()}
    created: dict[str, list[Step]] = {}
    for step in played.steps:
        if isinstance(step.action, Assign):
            created.setdefault(step.action.spec.replica, []).append(step)
    for step in played.steps:
        match step.action:
            case Assign(spec=spec) if spec.rank == 0:
                rows.append(_create(created[spec.replica], names, changed, step.action.because, command))
            case Drain(replica=replica, because=because):
                _stop(rows, fleet, names, changed, replica, because)
            case Stop(key=(replica, 0), because=because) if not any(row.replica == replica for row in rows):
                _stop(rows, fleet, names, changed, replica, because)
    return _paired(rows)


def _create(
    steps: list[Step],
    names: dict[str, str],
    changed: dict[str, diff.Change],
    because: str,
    command: Command,
) -> Row:
    specs = [step.action.spec for step in steps if isinstance(step.action, Assign)]
    change = changed.get(specs[0].model, diff.Change("unchanged", ""))
    healing = change.code == "unchanged"
    sizes = [step.fetch for step in steps]
    return Row(
        symbol="+",
        model=specs[0].model,
        code="missing" if healing else change.code,
        said=because if healing else change.said,
        origin="healing" if healing else "change",
        nodes=tuple(names[spec.node] for spec in specs),
        gpus=tuple(gpu for spec in specs for gpu in spec.gpus),
        profile=specs[0].profile.name,
        generation=specs[0].generation,
        fetch=None if None in sizes else sum(size or 0 for size in sizes),
        held=all(size == 0 for size in sizes),
        place=str(change.place or ""),
        commands=tuple(command(spec) for spec in specs),
    )


def _stop(
    rows: list[Row],
    fleet: Fleet,
    names: dict[str, str],
    changed: dict[str, diff.Change],
    replica: str,
    because: str,
) -> None:
    """A row for a replica that exists now; one that the rehearsal itself created is no news."""
    specs = [shard.spec for (name, _), shard in sorted(fleet.shards.items()) if name == replica]
    if not specs:
        return
    change = changed.get(specs[0].model, diff.Change("model_removed", because))
    healing = change.code == "unchanged"
    rows.append(
        Row(
            symbol="-",
            model=specs[0].model,
            code="not_needed" if healing else change.code,
            said=because if healing else change.said,
            origin="healing" if healing else "change",
            replica=replica,
            nodes=tuple(names.get(spec.node, spec.node) for spec in specs),
            gpus=tuple(gpu for spec in specs for gpu in spec.gpus),
            profile=specs[0].profile.name,
            generation=specs[0].generation,
            place=str(change.place or ""),
        )
    )


def _paired(rows: list[Row]) -> list[Row]:
    """A creation and the stop of another generation of the same model, joined where the first one stands."""
    out: list[Row | None] = list(rows)
    for i, first in enumerate(rows):
        if out[i] is None:
            continue
        for j in range(i + 1, len(rows)):
            other = out[j]
            if other is None or other.model != first.model or {first.symbol, other.symbol} != {"+", "-"}:
                continue
            if first.generation == other.generation:
                continue
            new, old = (first, other) if first.symbol == "+" else (other, first)
            order: Symbol = "+/-" if first.symbol == "+" else "-/+"
            out[i], out[j] = dataclasses.replace(new, symbol=order, replica=old.replica), None
            break
    return [row for row in out if row is not None]


def _rowless(rows: list[Row], changed: dict[str, diff.Change]) -> list[Row]:
    """Changes of models that have no replica to start or stop now: they still change what clients get."""
    shown = {row.model for row in rows}
    return [
        Row(symbol="~", model=name, code=change.code, said=change.said, place=str(change.place or ""))
        for name, change in changed.items()
        if change.code != "unchanged" and name not in shown
    ]


def _routing_rows(old: Catalog | None, new: Catalog) -> list[Row]:
    return [
        Row(symbol="~", model=change.model, code="routing", said=change.said, place=str(change.place or ""))
        for change in diff.routing(old, new)
    ]


def _service(played: Rehearsal, changed: dict[str, diff.Change]) -> tuple[Service, ...]:
    models = sorted({*changed, *played.before, *played.after})
    return tuple(
        Service(m, played.before.get(m, 0), played.lowest.get(m, 0), played.after.get(m, 0)) for m in models
    )


def _digest(rows: Iterable[Row], catalog: str) -> str:
    """Over (action, model, count, code, generation, what changes into what).

    Not over times, nodes, suffixes or self-healing. `said` is in it, so that a change somebody else made
    to the same thing meanwhile makes this another plan.
    """
    counts: dict[tuple[str, str, str, str, str], int] = {}
    for row in rows:
        if row.origin == "change":
            key = (row.symbol, row.model, row.code, row.generation, row.said)
            counts[key] = counts.get(key, 0) + 1
    text = json.dumps([catalog, *sorted([*key, count] for key, count in counts.items())])
    return hashlib.sha256(text.encode()).hexdigest()
