"""One pass: desired × observed × ledger × now → what to do. Pure; nothing here can wait or fail halfway.

`settle` repeats it while something was placed; the loop, `llmgw plan` and the simulation all go
through `settle`, so they cannot disagree. The rules it keeps are numbered in docs/architecture.md.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from llmgw.catalog.model import Catalog, Model
from llmgw.fleet.expiry import Timers
from llmgw.fleet.inventory import room, rooms
from llmgw.fleet.replica import Replica
from llmgw.fleet.world import Fleet, Shard
from llmgw.kit.chance import Chance, suffix
from llmgw.planning import draining, rollout, troubles
from llmgw.planning.actions import Action, Assign, Drain, Start, Stop, Undrain
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Draining, Ledger
from llmgw.planning.placement import NoFit, Request, Site, choose, demand_pressure, refusals, specs
from llmgw.planning.routes import routes
from llmgw.planning.view import View, look
from llmgw.planning.wake import wake_at


@dataclasses.dataclass(frozen=True, slots=True)
class Unplaced:
    """A replica that is wanted and fits nowhere: every node's every reason, for the first profile."""

    model: str
    profile: str
    because: str
    reasons: tuple[NoFit, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """What one pass decided. `wake_at` is when time alone will change the answer, or None.

    `placed` = one replica got a place, so another pass should follow at once.
    """

    actions: tuple[Action, ...]
    ledger: Ledger
    wake_at: float | None
    unplaced: tuple[Unplaced, ...] = ()
    alarms: tuple[str, ...] = ()
    placed: bool = False


def reconcile(
    desired: Desired, fleet: Fleet, ledger: Ledger, now: float, chance: Chance, timers: Timers
) -> Pass:
    """Decide once. At most one replica is placed; the same inputs give the same answer."""
    view = look(desired, fleet, ledger, now, timers)
    view = dataclasses.replace(view, ledger=_acknowledge_losses(view, troubles.charge(view, chance)))
    drains = dict(view.ledger.drains)
    actions: list[Action] = []
    unplaced: list[Unplaced] = []
    placed: tuple[Assign, ...] = ()
    if view.may_act() and desired.catalog is not None:
        needs = _needs(view, desired.catalog)
        actions += _sweep(view)
        actions += _starts(view)
        actions += _apply_drains(view, needs, drains)
        actions += draining.advance(view, drains)
        placed, unplaced, swap = _place_one(view, desired.catalog, needs, chance)
        actions += placed
        if swap is not None:
            actions.append(swap)
            _begin(view, swap, drains, gap=True)
    else:
        drains = {name: drain for name, drain in drains.items() if name in view.replicas}
    table = routes(view, drains)
    drains = {
        name: dataclasses.replace(drain, version=table.version) if drain.version == draining.NEW else drain
        for name, drain in drains.items()
    }
    after = dataclasses.replace(view.ledger, drains=drains, routes=table)
    return Pass(
        actions=tuple(actions),
        ledger=after,
        wake_at=wake_at(dataclasses.replace(view, ledger=after)),
        unplaced=tuple(unplaced),
        alarms=_alarms(view),
        placed=bool(placed),
    )


def _acknowledge_losses(view: View, ledger: Ledger) -> Ledger:
    """Nodes whose loss this pass acts on, less those that spoke again."""
    if not view.may_act():
        return ledger
    silent = {name for name, stands in view.standings.items() if stands != "Ready"}
    return dataclasses.replace(ledger, lost=(ledger.lost | view.lost) & silent)


def _needs(view: View, catalog: Catalog) -> dict[str, rollout.Need]:
    """What every model needs, catalog models and leftovers alike, in name order."""
    names = sorted(catalog.models.keys() | {replica.model for replica in view.replicas.values()})
    return {
        name: rollout.need(view, catalog.models[name], catalog.generations(catalog.models[name]))
        if name in catalog.models
        else rollout.leaving(view, name)
        for name in names
    }


def _sweep(view: View) -> list[Stop]:
    """One failed shard fails its replica: the others wait on collectives that never complete."""
    return [
        draining.stop_order(view, shard, replica.why)
        for replica in view.replicas.values()
        if replica.phase in ("Failed", "Lost") and not _ends_in_order(view, replica)
        for shard in replica.present
        if draining.may_stop(view, shard)
    ]


def _ends_in_order(view: View, replica: Replica) -> bool:
    """Whether a drain already stops it rank by rank and nothing of it broke."""
    drain = view.ledger.drains.get(replica.id)
    return drain is not None and drain.stop_sent and not troubles.broke(replica) and replica.phase != "Lost"


def _starts(view: View) -> list[Action]:
    """Workers once every rank holds the weights, rank 0 once every worker is started."""
    actions: list[Action] = []
    for replica in view.replicas.values():
        if replica.phase not in ("Fetching", "Starting") or replica.id in view.ledger.drains:
            continue
        actions += [
            Assign(s.spec, "its node did not confirm it") for s in replica.present if _resend(view, s)
        ]
        if any(shard.state in ("assigned", "fetching") for shard in replica.present):
            continue
        workers = [shard for shard in replica.present if shard.spec.rank > 0]
        attached = all(shard.state in ("started", "ready") for shard in workers)
        because = f"{len(workers)} workers are started" if workers else "its weights are held"
        held = [
            shard for shard in replica.present if shard.state == "held" and (shard.spec.rank > 0 or attached)
        ]
        actions += [
            Start(shard.spec.key, shard.spec.node, shard.spec.generation, because)
            for shard in held
            if shard.ordered != "start" or view.now - shard.ordered_at >= view.timers.ack
        ]
    return actions


def _resend(view: View, shard: Shard) -> bool:
    last = max(shard.since, shard.ordered_at)
    return not shard.confirmed and view.now - last >= view.timers.ack and view.reachable(shard.spec.node)


def _apply_drains(view: View, needs: Mapping[str, rollout.Need], drains: dict[str, Draining]) -> list[Action]:
    actions: list[Action] = []
    for need in needs.values():
        for replica, because in need.undrain:
            del drains[replica]
            actions.append(Undrain(replica, because))
        for replica, because in need.drain:
            drain = Drain(replica, because)
            _begin(view, drain, drains)
            actions.append(drain)
    return actions


def _begin(view: View, drain: Drain, drains: dict[str, Draining], *, gap: bool = False) -> None:
    limit = view.now + view.replicas[drain.replica].spec.profile.drain
    drains[drain.replica] = Draining(view.now, limit, draining.NEW, drain.because, gap)


def _place_one(
    view: View, catalog: Catalog, needs: Mapping[str, rollout.Need], chance: Chance
) -> tuple[tuple[Assign, ...], list[Unplaced], Drain | None]:
    """The first pending replica that fits gets its place; those before it that do not are told why.

    Where nothing could be placed, an old replica may have to go first: then that drain is returned.
    """
    pending = [catalog.models[name] for name, need in needs.items() if need.create]
    if not pending:
        return (), [], None
    pending.sort(key=lambda model: _size_key(catalog, model))
    sites = _sites(view)
    wanted = [(catalog.profiles[m.profiles[0]], rollout.wanted(m)) for m in catalog.models.values()]
    pressure = demand_pressure(wanted, sites)
    unplaced: list[Unplaced] = []
    swap: Drain | None = None
    for model in pending:
        requests = _requests(view, catalog, model)
        for request in requests:
            if chosen := choose(request, sites, pressure):
                shards = specs(_new_id(view, model, chance), request, chosen)
                return tuple(Assign(spec, needs[model.name].because) for spec in shards), unplaced, None
        said = tuple(refusals(sites, requests[0]))
        unplaced.append(Unplaced(model.name, requests[0].profile.name, needs[model.name].because, said))
        old = needs[model.name].swap
        if swap is None and old and any(choose(r, _without(view, sites, old), pressure) for r in requests):
            swap = Drain(old, "no room for its successor beside it: the old one goes first")
    return (), unplaced, swap


def _size_key(catalog: Catalog, model: Model) -> tuple[int, int, str]:
    """Biggest first, ties by fewest allowed GPU types, name last."""
    profile = catalog.profiles[model.profiles[0]]
    return (-profile.nodes * profile.gpus_per_node, len(profile.gpu_types) or 1_000, model.name)


def _sites(view: View) -> list[Site]:
    cordoned = view.desired.marks.cordoned
    return [
        Site(there, view.standings[name], cordoned.get(name, "")) for name, there in rooms(view.fleet).items()
    ]


def _without(view: View, sites: Iterable[Site], replica: str) -> list[Site]:
    """The sites as they would be with `replica` gone."""
    left: dict[str, list[Shard]] = {}
    for shard in view.fleet.shards.values():
        if shard.spec.replica != replica:
            left.setdefault(shard.spec.node, []).append(shard)
    return [
        dataclasses.replace(
            site, room=room(site.room.info, [shard.spec for shard in left.get(site.room.info.id, [])])
        )
        for site in sites
    ]


def _requests(view: View, catalog: Catalog, model: Model) -> list[Request]:
    """The model under each of its profiles, in order; first without the nodes where it failed."""
    found: list[Request] = []
    for generation, name in catalog.generations(model).items():
        trouble = view.ledger.troubles.get((model.name, generation))
        size = _known_size(view, model)
        plain = Request(model, catalog.profiles[name], generation, size)
        if trouble is not None and trouble.nodes:
            found.append(dataclasses.replace(plain, avoid=frozenset(trouble.nodes)))
        found.append(plain)
    return found


def _known_size(view: View, model: Model) -> int:
    """Bytes of the weights, from any node that holds them or was told their length; 0 = not known."""
    name = model.cache_name
    sizes = [
        e.size
        for n in view.fleet.nodes.values()
        for e in n.info.weights or ()
        if e.whole and e.cache_name == name
    ]
    totals = [
        p.total for rows in view.fleet.progress.values() for p in rows if p.cache_name == name and p.total
    ]
    return max([*sizes, *totals], default=0)


def _new_id(view: View, model: Model, chance: Chance) -> str:
    while (name := f"{model.name}/{suffix(chance)}") in view.replicas:
        pass
    return name


def _alarms(view: View) -> tuple[str, ...]:
    alarms = []
    if view.dark:
        silent = sorted(name for name, stands in view.standings.items() if stands == "Unreachable")
        alarms.append(
            f"{len(silent)} of {len(view.standings)} nodes fell silent together: nothing is stopped or placed"
        )
    if not view.heard:
        alarms.append(f"waiting for {len(view.unheard)} nodes of the roster: {', '.join(view.unheard)}")
    return tuple(alarms)
