"""Rows of the screens: replicas, nodes, models and what is still outstanding. Pure, from one `View`.

The control plane's API sends them, the CLI prints them; both from the very look that `reconcile` takes.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from llmgw.fleet.node import Gpu, InstalledEngine
from llmgw.fleet.replica import Replica
from llmgw.fleet.shard import Progress
from llmgw.planning.needs import Unplaced
from llmgw.planning.reasons import no_place, tried
from llmgw.planning.roll import Kind, kind
from llmgw.planning.scaling import wanted
from llmgw.planning.sharing import shared_ports
from llmgw.planning.view import View

_NONE: collections.Counter[Kind] = collections.Counter()


@dataclasses.dataclass(frozen=True, slots=True)
class ShardRow:
    """One shard, for the wide view."""

    rank: int
    node: str
    state: str
    pid: int
    port: int
    gpus: tuple[str, ...]
    adopted: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica, or one that is wanted and not there. `age` in seconds; `progress` of its fetch."""

    replica: str
    model: str
    state: str
    ready: int
    world: int
    nodes: tuple[str, ...] = ()
    engine: str = ""
    profile: str = ""
    generation: str = ""
    age: float = 0.0
    detail: str = ""
    source: str = ""
    progress: Progress | None = None
    shards: tuple[ShardRow, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. Sizes in bytes, None where it did not say; `seen` is the age of its last word in seconds.

    `cards` counts its GPUs by name. `cordoned` and `draining` are the reasons people gave, or quarantine's.
    `lost_in` is how long it may stay silent before it is Lost, where it is Unreachable. `strangers` are lines about
    cards with processes that are not ours.
    """

    id: str
    name: str
    state: str
    connected: bool
    seen: float | None
    gpus: int | None
    gpus_free: int | None
    memory_free: int | None
    disk_free: int | None
    engines: tuple[str, ...] | None
    shards: int
    cordoned: str = ""
    address: str = ""
    build: str = ""
    warnings: tuple[str, ...] = ()
    draining: str = ""
    cards: tuple[tuple[str, int], ...] = ()
    lost_in: float | None = None
    strangers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ModelRow:
    """One name clients may ask for. `silent` of the `ready` ones are on nodes that nobody hears of."""

    model: str
    ready: int
    wanted: int
    aliases: tuple[str, ...]
    fallbacks: tuple[str, ...]
    place: str
    paused: str = ""
    silent: int = 0


def replica_rows(view: View, unplaced: tuple[Unplaced, ...]) -> tuple[ReplicaRow, ...]:
    """Every replica, then every wanted one that has no place, is paused or waits for its back-off."""
    rows = [_replica_row(view, replica) for _, replica in sorted(view.replicas.items())]
    rows += [
        ReplicaRow(
            item.model,
            item.model,
            "Pending",
            0,
            _ranks(view, item.profile),
            profile=item.profile,
            detail=no_place(item),
        )
        for item in unplaced
        if not item.stay
    ]
    for (model, generation), trouble in sorted(view.ledger.troubles.items()):
        if trouble.until > view.now and _short_of(view, model, generation):
            catalog = view.desired.catalog
            profile = catalog.generations(catalog.models[model]).get(generation, "") if catalog else ""
            said = tried(view, model, generation, trouble)
            rows.append(
                ReplicaRow(model, model, "Backoff", 0, _ranks(view, profile), profile=profile, detail=said)
            )
    return (*rows, *_paused(view))


def _ranks(view: View, profile: str) -> int:
    """How many shards a replica under this profile has."""
    catalog = view.desired.catalog
    return catalog.profiles[profile].nodes if catalog is not None and profile in catalog.profiles else 1


def _paused(view: View) -> Iterator[ReplicaRow]:
    """A row for each paused model that has fewer replicas than it should."""
    models = view.desired.catalog.models if view.desired.catalog is not None else {}
    for name, reason in sorted(view.desired.marks.paused.items()):
        alive = [r for r in view.of_model(name) if r.phase not in ("Failed", "Lost")]
        if name in models and len(alive) < wanted(view, models[name]):
            profile = models[name].profiles[0]
            yield ReplicaRow(name, name, "Paused", 0, _ranks(view, profile), profile=profile, detail=reason)


def _short_of(view: View, model: str, generation: str) -> int:
    """How many replicas of this generation are wanted and not there; older ones may serve meanwhile."""
    catalog = view.desired.catalog
    if catalog is None or model not in catalog.models:
        return 0
    alive = [
        r
        for r in view.of_model(model)
        if r.generation == generation and r.phase not in ("Failed", "Lost") and r.id not in view.ledger.drains
    ]
    return max(0, wanted(view, catalog.models[model]) - len(alive))


def _replica_row(view: View, replica: Replica) -> ReplicaRow:
    name = view.fleet.name
    state, detail = replica_state(view, replica)
    fetching = [shard for shard in replica.present if shard.state in ("assigned", "fetching")]
    progress = next(
        (
            row
            for shard in fetching
            for row in view.fleet.progress.get(shard.spec.node, ())
            if row.cache_name == shard.spec.cache_name
        ),
        None,
    )
    return ReplicaRow(
        replica=replica.id,
        model=replica.model,
        state=state,
        ready=0
        if replica.phase == "Lost"
        else sum(shard.state in ("ready", "draining") for shard in replica.present),
        world=len(replica.spec.peers),
        nodes=tuple(name(peer.node) for peer in replica.spec.peers),
        engine=replica.spec.profile.engine,
        profile=replica.spec.profile.name,
        generation=replica.generation,
        age=max(0.0, view.now - replica.since),
        detail=detail,
        source=replica.spec.source.canonical.partition("#")[0] if fetching else "",
        progress=progress,
        shards=tuple(
            ShardRow(
                shard.spec.rank,
                name(shard.spec.node),
                shard.state,
                shard.status.pid,
                shard.spec.port,
                shard.spec.gpus,
                shard.status.adopted,
            )
            for shard in replica.present
        ),
    )


def replica_state(view: View, replica: Replica) -> tuple[str, str]:
    """What it is, as people call it, and what there is to say about that."""
    drain = view.ledger.drains.get(replica.id)
    if any(shard.state == "stopping" for shard in replica.present) or (drain is not None and drain.stop_sent):
        return "Stopping", drain.because if drain is not None else replica.why
    if drain is not None:
        flying = sum(gateway.in_flight.get(replica.id, 0) for gateway in view.fleet.gateways.values())
        return "Draining", f"{flying} in flight, stop in at most {max(0.0, drain.limit - view.now):.0f}s"
    said = next((s.status.reason for s in replica.present if s.status.reason), "")
    if replica.phase == "Starting":
        waiting = [s for s in replica.present if s.state in ("held", "starting")]
        ranks = f"{len(replica.present) - len(waiting)} of {len(replica.shards)} ranks started"
        return "Starting", f"{ranks}; {said}" if said else ranks
    if replica.phase == "Ready" and any(shard.status.slow for shard in replica.present):
        said = said or "slow: it answers no probes, new requests go elsewhere"
    return replica.phase, replica.why or (said if replica.phase == "Ready" else "")


def away(view: View) -> tuple[NodeRow, ...]:
    """The nodes that are not Ready, by name."""
    others = [name for name, standing in view.standings.items() if standing != "Ready"]
    return _node_rows(view, others, {}) if others else ()


def node_rows(view: View) -> tuple[NodeRow, ...]:
    """Every node of the roster, by name; of those that have not spoken yet nothing else is known."""
    return _node_rows(view, view.standings, shared_ports(view))


def _node_rows(
    view: View, names: Iterable[str], shared: Mapping[str, tuple[str, ...]]
) -> tuple[NodeRow, ...]:
    rows = []
    for name in names:
        node, standing = view.fleet.nodes.get(name), view.standings[name]
        if node is None:
            called = view.fleet.name(name)
            rows.append(NodeRow(name, called, standing, False, None, None, None, None, None, None, 0))
            continue
        info, room = node.info, view.board.stock.sites[name].room
        silence = max(0.0, view.now - node.last_seen)
        draining = view.desired.marks.draining.get(name, "")
        rows.append(
            NodeRow(
                id=name,
                name=info.name,
                state=standing,
                connected=node.connected,
                seen=silence,
                gpus=None if info.gpus is None else len(info.gpus),
                gpus_free=None if info.gpus is None else len(room.free_gpus()),
                memory_free=info.memory_free,
                disk_free=info.disk_free,
                engines=None if info.engines is None else tuple(map(_engine, info.engines)),
                shards=room.shards,
                cordoned="" if draining else view.board.cordoned.get(name, ""),
                address=info.address,
                build=info.build,
                warnings=(*info.warnings, *shared.get(name, ())),
                draining=draining,
                cards=tuple(collections.Counter(gpu.name for gpu in info.gpus or ()).items()),
                lost_in=max(0.0, view.timers.lost - silence)
                if standing == "Unreachable" and not view.dark
                else None,
                strangers=tuple(_strangers(info.gpus or ())),
            )
        )
    return tuple(sorted(rows, key=lambda row: row.name))


def _strangers(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Whose card is how much somebody else's, and what becomes of it."""
    for number, gpu in enumerate(gpus):
        if theirs := gpu.strangers:
            barred = any(holder.bars for holder in gpu.holders)
            yield f"GPU {number}: {theirs}; {'it takes nothing' if barred else 'counted as used'}"


def _engine(engine: InstalledEngine) -> str:
    """`vllm 0.33.0`, with what its own version command did where somebody ran it."""
    known = f"{engine.name} {engine.known_version}".strip()
    return known if engine.works is None else f"{known} (runs)" if engine.works else f"{known} (does not run)"


def model_rows(view: View) -> tuple[ModelRow, ...]:
    """Every model of the adopted catalog."""
    catalog = view.desired.catalog
    if catalog is None:
        return ()
    staying = _staying(view)
    return tuple(
        ModelRow(
            model=name,
            ready=sum(count for (_, _, serves), count in staying.get(name, _NONE).items() if serves),
            wanted=wanted(view, model),
            aliases=model.aliases,
            fallbacks=model.fallbacks,
            place=str(catalog.place(f"model/{name}") or ""),
            paused=view.desired.marks.paused.get(name, ""),
            silent=_silent(staying.get(name, _NONE)),
        )
        for name, model in sorted(catalog.models.items())
    )


def _silent(tally: Mapping[Kind, int]) -> int:
    """How many serve on nodes that are silent."""
    return sum(number for (_, phase, serves), number in tally.items() if serves and phase != "Ready")


def _staying(view: View) -> Mapping[str, collections.Counter[Kind]]:
    """How many replicas of each kind a model has, without those that drain: by what is counted, not by looking
    at each, for everybody who watches asks again and again.
    """
    staying = dict(view.board.roll.tally)
    draining = [view.replicas[name] for name in view.ledger.drains if name in view.replicas]
    for model in {replica.model for replica in draining}:
        staying[model] = staying[model].copy()
    for replica in draining:
        staying[replica.model][kind(replica)] -= 1
    return staying


def outstanding(view: View) -> tuple[str, ...]:
    """What an apply still waits for, one line each; empty = the fleet is what the catalog asks for."""
    catalog = view.desired.catalog
    if catalog is None:
        return ()
    lines: list[str] = []
    currents = {name: catalog.generations(model) for name, model in catalog.models.items()}
    staying = _staying(view)
    for name, model in sorted(catalog.models.items()):
        if name in view.desired.marks.paused:
            continue
        tally, count = staying.get(name, _NONE), wanted(view, model)
        fresh = {each: number for each, number in tally.items() if each[0] in currents[name]}
        ready = sum(number for (_, phase, _), number in fresh.items() if phase == "Ready")
        there = sum(number for (_, phase, _), number in fresh.items() if phase != "Lost")
        if ready < count:
            lines.append(f"{name}: {_short(fresh, tally, ready, count)}")
        elif there > count:
            lines.append(f"{name}: {there} replicas, {count} wanted")
    lines += [
        f"{name}: {replica_state(view, view.replicas[name])[0].lower()}, to be stopped"
        for name in sorted(_leaving(view, currents))
    ]
    return tuple(lines)


def _short(fresh: Mapping[Kind, int], tally: Mapping[Kind, int], ready: int, count: int) -> str:
    """`2 of 2 ready, 1 of them on silent nodes`: they are asked as before, and waited for."""
    silent = _silent(fresh)
    older = sum(number for each, number in tally.items() if each not in fresh and each[2])
    return (
        f"{ready + silent} of {count} ready"
        + (f", {silent} of them on silent nodes" if silent else "")
        + (f"; {older} of the generation before {'serves' if older == 1 else 'serve'}" if older else "")
    )


def _leaving(view: View, currents: Mapping[str, Mapping[str, str]]) -> set[str]:
    """The replicas that drain or that the catalog does not ask for. `currents` are its generations by model."""
    leaving = {name for name in view.ledger.drains if name in view.replicas}
    for model, tally in view.board.roll.tally.items():
        current = currents.get(model, {})
        if any(generation not in current for generation, _, _ in tally):
            leaving.update(r.id for r in view.of_model(model) if r.generation not in current)
    return leaving
