"""The rows of a plan: what the rehearsal creates and stops, in order, and what restarts nothing.

Built by `plan.make_plan` from a rehearsal; printed by `render`, `brief` and `markdown`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from llmgw.catalog.model import Catalog
from llmgw.fleet.shard import ShardSpec
from llmgw.fleet.world import Fleet
from llmgw.planning import costs, diff
from llmgw.planning.actions import Assign, Drain, Stop
from llmgw.planning.rehearse import Rehearsal, Step

Symbol = Literal["+", "-", "+/-", "-/+", "~", "=>", "!", "."]
Origin = Literal["change", "pending", "healing"]
Command = Callable[[ShardSpec], tuple[str, ...]]


REQUESTED = "requested/"
"""Before the generation of a replica that somebody wants rebuilt: no catalog asks for such a one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One line of a plan. `nodes`, `gpus`, `seats` and `commands` in rank order; `fetch` in bytes, None = length not known.

    `change` is what this catalog asks for, `pending` what the base it is compared with asks for already,
    `healing` what would happen anyway. `commands` are the engines' command lines, with `PROGRAM` and
    `WEIGHTS` for what only the node knows. `place` is the line that causes it, `blame` who wrote that. `left` are the nodes that a move leaves;
    rows of one `turn` happen together. `also` are the other differences behind it, each with its line, and
    `more` how many there are beyond those. `unread` is why its source could not be looked into.
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
    seats: tuple[costs.Seat, ...] = ()
    memory: costs.Memory | None = None
    fetching: costs.Timing | None = None
    starting: costs.Timing | None = None
    turn: int = 0
    left: tuple[str, ...] = ()
    blame: str = ""
    also: tuple[tuple[str, str], ...] = ()
    more: int = 0
    unread: str = ""

    @property
    def why(self) -> str:
        """Every difference behind it in one line, without places: a part of a plan's identity."""
        more = [f"{self.more} more"] if self.more else []
        return "; ".join([self.said, *(said for said, _ in self.also), *more])

    @property
    def spot(self) -> str:
        """The line that causes it, for people: of a model that left the catalog the line where it was."""
        return f"was {self.place}" if self.place and self.code == "model_removed" else self.place

    @property
    def seconds(self) -> float | None:
        """Until it is ready, as far as anybody can say."""
        if self.starting is None or (self.fetching is None and self.fetch != 0):
            return None
        return self.starting.seconds + (self.fetching.seconds if self.fetching is not None else 0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Telling:
    """What rows are told by: the fleet as it is, what the catalog changed, how command lines look, what is known.

    `before` are the generations in which the adopted catalog has a model of the same weights.
    """

    fleet: Fleet
    changed: Mapping[str, diff.Change]
    command: Command
    known: costs.Known
    draining: Mapping[str, str]
    lost: frozenset[str]
    before: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


def replica_rows(played: Rehearsal, told: Telling) -> list[Row]:
    """Creations and stops in the order they happen; a creation that takes over from a stop is one row."""
    rows: list[Row] = []
    shown: set[str] = set()
    created: dict[str, list[Step]] = {}
    there = _there(played, told)
    for step in played.steps:
        if isinstance(step.action, Assign):
            created.setdefault(step.action.spec.replica, []).append(step)
    for step in played.steps:
        match step.action:
            case Assign(spec=spec) if spec.rank == 0:
                rows.append(_create(created[spec.replica], told, step.action.because))
            case Drain(replica=replica, because=because) if replica in there:
                rows.append(_stop(there[replica], told, because, step.turn))
                shown.add(replica)
            case Stop(key=(replica, 0), because=because) if replica in there and replica not in shown:
                rows.append(_stop(there[replica], told, because, step.turn))
                shown.add(replica)
    return _moved(_paired(rows, told), there, told)


def _there(played: Rehearsal, told: Telling) -> dict[str, list[ShardSpec]]:
    """The replicas of now that are stopped, or have a rank on a node that is lost; each in rank order."""
    named = {step.action.replica for step in played.steps if isinstance(step.action, Drain)}
    named |= {step.action.key[0] for step in played.steps if isinstance(step.action, Stop)}
    specs = [shard.spec for shard in told.fleet.shards.values()]
    if told.lost:
        named |= {spec.replica for spec in specs if spec.node in told.lost}
    there: dict[str, list[ShardSpec]] = {}
    for spec in sorted((spec for spec in specs if spec.replica in named), key=lambda spec: spec.key):
        there.setdefault(spec.replica, []).append(spec)
    return there


def _create(steps: list[Step], told: Telling, because: str) -> Row:
    pairs = [(step, step.action.spec) for step in steps if isinstance(step.action, Assign)]
    specs = [spec for _, spec in pairs]
    first, infos = specs[0], [told.fleet.nodes[spec.node].info for spec in specs]
    change = told.changed.get(first.model, diff.Change("unchanged", ""))
    healing = change.code == "unchanged"
    sizes = [step.fetch for step in steps]
    seats = tuple(
        costs.seat(spec, info, step.fetch, step.free) for (step, spec), info in zip(pairs, infos, strict=True)
    )
    facts = told.known.facts.get(first.cache_name)
    return Row(
        symbol="+",
        model=first.model,
        code="missing" if healing else change.code,
        said=because if healing else change.said,
        origin="healing" if healing else "change",
        nodes=tuple(info.name for info in infos),
        gpus=tuple(gpu for spec in specs for gpu in spec.gpus),
        profile=first.profile.name,
        generation=first.generation,
        fetch=None if None in sizes else sum(size or 0 for size in sizes),
        held=all(size == 0 for size in sizes),
        place=str(change.place or ""),
        commands=tuple(told.command(spec) for spec in specs),
        seats=seats,
        memory=costs.memory(specs, infos, facts),
        fetching=costs.fetching(seats, [spec.node for spec in specs], told.known.seen),
        starting=costs.starting(
            first,
            costs.weight(first, infos, facts),
            told.known.seen,
            told.before.get(first.model, ()),
        ),
        turn=steps[0].turn,
        also=change.also,
        more=change.more,
        unread="" if facts is not None else told.known.unread.get(first.cache_name, ""),
    )


def _stop(specs: list[ShardSpec], told: Telling, because: str, turn: int) -> Row:
    """A row for a replica that exists now; one that the rehearsal itself created is no news."""
    change = told.changed.get(specs[0].model, diff.Change("model_removed", because))
    healing = change.code == "unchanged"
    infos = [told.fleet.nodes[spec.node].info if spec.node in told.fleet.nodes else None for spec in specs]
    return Row(
        symbol="-",
        model=specs[0].model,
        code="not_needed" if healing else change.code,
        said=because if healing else change.said,
        origin="healing" if healing else "change",
        replica=specs[0].replica,
        nodes=tuple(told.fleet.name(spec.node) for spec in specs),
        gpus=tuple(gpu for spec in specs for gpu in spec.gpus),
        profile=specs[0].profile.name,
        generation=specs[0].generation,
        place=str(change.place or ""),
        seats=tuple(
            costs.seat(spec, info, 0, info.disk_free)
            for spec, info in zip(specs, infos, strict=True)
            if info is not None
        ),
        turn=turn,
        also=change.also,
        more=change.more,
    )


def _paired(rows: list[Row], told: Telling) -> list[Row]:
    """A creation and a stop of the same model, joined where the first one stands.

    Another generation is a replacement; the same one is a move, where people want its node empty.
    """
    out: list[Row | None] = list(rows)
    of_model: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        of_model.setdefault(row.model, []).append(index)
    for i, first in enumerate(rows):
        if out[i] is None:
            continue
        for j in of_model[first.model]:
            other = out[j]
            if j <= i or other is None or {first.symbol, other.symbol} != {"+", "-"}:
                continue
            new, old = (first, other) if first.symbol == "+" else (other, first)
            if new.generation != old.generation:
                symbol: Symbol = "+/-" if first.symbol == "+" else "-/+"
                joined = dataclasses.replace(new, symbol=symbol, replica=old.replica)
                if old.generation.startswith(REQUESTED):
                    joined = dataclasses.replace(
                        joined, code="requested", said="asked for", origin="change", also=(), more=0
                    )
            elif any(told.fleet.name(node) in old.nodes for node in told.draining):
                joined = dataclasses.replace(
                    new, symbol="=>", code="node_draining", replica=old.replica, left=old.nodes
                )
            else:
                continue
            out[i], out[j] = joined, None
            break
    return [row for row in out if row is not None]


def _moved(rows: list[Row], there: Mapping[str, list[ShardSpec]], told: Telling) -> list[Row]:
    """Creations that take over from a replica on a node that is Lost: nobody can stop that one."""
    gone: dict[tuple[str, str], list[str]] = {}
    for replica, specs in there.items():
        if any(spec.node in told.lost for spec in specs):
            gone.setdefault((specs[0].model, specs[0].generation), []).append(replica)
    out = []
    for row in rows:
        waiting = gone.get((row.model, row.generation), [])
        if row.symbol == "+" and row.origin == "healing" and waiting:
            replica = waiting.pop(0)
            left = tuple(told.fleet.name(spec.node) for spec in there[replica])
            lost = [told.fleet.name(spec.node) for spec in there[replica] if spec.node in told.lost]
            said = f"node {lost[0]} is lost"
            row = dataclasses.replace(  # noqa: PLW2901 - the same row, told better
                row, symbol="=>", code="node_lost", said=said, replica=replica, left=left
            )
        out.append(row)
    return out


def rowless(rows: list[Row], changed: Mapping[str, diff.Change]) -> list[Row]:
    """Changes of models that have no replica to start or stop now: they still change what clients get."""
    shown = {row.model for row in rows}
    return [
        Row(
            symbol="~",
            model=name,
            code=change.code,
            said=change.said,
            place=str(change.place or ""),
            also=change.also,
            more=change.more,
        )
        for name, change in changed.items()
        if change.code != "unchanged" and name not in shown
    ]


def routing_rows(old: Catalog | None, new: Catalog, moved: Mapping[str, int]) -> list[Row]:
    """What starts and stops nothing: the routing table, and what a model aims at between its bounds. `moved` as the
    rehearsal tells it: a name that always has somebody waits for its new model.
    """

    def said(change: diff.Routing) -> str:
        return f"{change.said}, once {change.model} is ready" if moved.get(change.name) else change.said

    return [
        Row(symbol="~", model=change.model, code="routing", said=said(change), place=str(change.place or ""))
        for change in diff.routing(old, new)
    ]


def duration(rows: Iterable[Row], played: Rehearsal) -> float | None:
    """Seconds until the last is ready: what happens together takes as long as its slowest.

    A creation without an estimate counts nothing; None = none of them has one.
    """
    created = [row for row in rows if row.symbol not in ("-", "~")]
    slowest: dict[int, float] = {}
    for row in created:
        if row.seconds is not None:
            slowest[row.turn] = max(slowest.get(row.turn, 0.0), row.seconds)
    if created and not slowest:
        return None
    return sum(slowest.values()) + max((step.at for step in played.steps), default=0.0)
