"""One pass: desired × observed × ledger × now → what to do. Pure; nothing here can wait or fail halfway.

`settle` repeats it while something was placed; the loop, `llmgw plan` and the simulation all go
through `settle`, so they cannot disagree. What its rules mean for
one replica is in docs/life-of-a-replica.md.
"""

import dataclasses
from collections.abc import Mapping

from llmgw.fleet.expiry import Timers
from llmgw.fleet.replica import Replica
from llmgw.fleet.world import Fleet, Shard
from llmgw.kit.chance import Chance
from llmgw.planning import draining, gaps, handover, rollout, scaling, troubles
from llmgw.planning.actions import Action, Assign, Drain, Start, Undrain
from llmgw.planning.alarms import alarms
from llmgw.planning.board import Board
from llmgw.planning.changes import changed
from llmgw.planning.desired import Desired
from llmgw.planning.handover import Moves
from llmgw.planning.ledger import Draining, Gap, Ledger
from llmgw.planning.needs import Needs, Unplaced
from llmgw.planning.placement import specs
from llmgw.planning.quarantine import quarantined
from llmgw.planning.routes import routes
from llmgw.planning.seeking import fits_without, new_id, search_for, swap_for, unplaced_for
from llmgw.planning.view import View, look
from llmgw.planning.wake import wake_at


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """What one pass decided. `wake_at` is when time alone will change the answer, or None.

    `again` = one replica got a place, or other nodes are quarantined: another pass should follow at once;
    it will tell `wake_at`, `unplaced` and `alarms`.
    """

    actions: tuple[Action, ...]
    ledger: Ledger
    wake_at: float | None
    unplaced: tuple[Unplaced, ...] = ()
    alarms: tuple[str, ...] = ()
    again: bool = False


def reconcile(
    desired: Desired,
    fleet: Fleet,
    ledger: Ledger,
    now: float,
    chance: Chance,
    timers: Timers,
    memory: Board | None = None,
) -> Pass:
    """Decide once. At most one replica is placed; the same inputs give the same answer.

    `memory` is what the caller's last pass left; it only saves time.
    """
    view = look(desired, fleet, ledger, now, timers, memory)
    view = _with(view, _acknowledge_losses(view, troubles.charge(view, chance)))
    drains = dict(view.ledger.drains)
    actions: list[Action] = []
    unplaced: list[Unplaced] = []
    placed: tuple[Assign, ...] = ()
    view = _with(view, scaling.rescale(view))
    turned = _blames_others(view, ledger)
    if view.may_act():
        view = _with(view, gaps.tend(view))
        view.board.no_place = frozenset()
        names = handover.held(view, drains)
        needs = _needs(view, names)
        actions += _sweep(view)
        actions += _starts(view)
        actions += _apply_drains(view, needs, drains)
        view = _with(view, _remember_returned(view, actions))
        actions += draining.advance(view, drains)
        if not turned:
            placed, unplaced = _place_one(view, needs, chance)
            actions += placed
        if not placed and not turned:
            view.board.no_place = frozenset(model for _, _, model in needs.pending)
            view, gap = _open_gap(view, needs, drains)
            actions += gap
            actions += _give_way(view, needs, names, drains)
    else:
        drains = {name: drain for name, drain in drains.items() if name in view.replicas}
    table = routes(view, drains)
    drains_told = _told(view, drains, table.version)
    if drains_told is not view.ledger.drains or table is not view.ledger.routes:
        view = _with(view, dataclasses.replace(view.ledger, drains=drains_told, routes=table))
    view.board.rest(acted=view.may_act())
    if placed or turned:
        return Pass(tuple(actions), view.ledger, None, again=True)
    return Pass(tuple(actions), view.ledger, wake_at(view), tuple(unplaced), alarms(view))


def _with(view: View, ledger: Ledger) -> View:
    return view if ledger is view.ledger else dataclasses.replace(view, ledger=ledger)


def _blames_others(view: View, before: Ledger) -> bool:
    """Whether other nodes are to blame than when this pass looked: the next one places, and sees them so."""
    if not view.may_act() or view.ledger.troubles is before.troubles:
        return False
    now, timers = view.now, view.timers
    return (
        quarantined(before.troubles, now, timers).keys()
        != quarantined(view.ledger.troubles, now, timers).keys()
    )


def _told(view: View, drains: Mapping[str, Draining], version: int) -> Mapping[str, Draining]:
    """The drains of the next ledger, new ones with the table that tells them; the old map if it is the same."""
    if not drains and not view.ledger.drains:
        return view.ledger.drains
    told = {
        name: dataclasses.replace(drain, version=version) if drain.version == draining.NEW else drain
        for name, drain in drains.items()
    }
    return view.ledger.drains if told == view.ledger.drains else told


def _acknowledge_losses(view: View, ledger: Ledger) -> Ledger:
    """Nodes whose loss this pass acts on, less those that spoke again."""
    if not view.may_act() or not (ledger.lost or view.lost):
        return ledger
    lost = frozenset(name for name in ledger.lost | view.lost if view.standings.get(name, "Ready") != "Ready")
    return ledger if lost == ledger.lost else dataclasses.replace(ledger, lost=lost)


def _needs(view: View, names: Moves) -> Needs:
    """What every model needs, worked out again where something changed. Who answers for `names` stays."""
    board, wants = view.board, view.board.wants
    blamed = [model for model, _ in changed(board.troubles, view.ledger.troubles)]
    for model in blamed:
        board.needs.searches.pop(model, None)  # other nodes are avoided now
    staying = frozenset(was for was, _ in names.values())
    stale = board.stale.union(blamed, changed(board.scales, view.ledger.scales), staying, board.staying)
    board.staying = staying
    if board.moved:
        stale.update(board.needs.ripening, (model for model, _ in view.ledger.troubles))
    board.troubles, board.scales = view.ledger.troubles, view.ledger.scales
    for name, came in board.joined.items():
        need = board.needs.of.get(name)
        left = rollout.joined(need, came) if need is not None and name not in stale else None
        if left is None or wants is None:
            stale.add(name)
        else:
            board.needs.put(name, left, wants.models[name].size_key)
    for name in stale:
        want = wants.models.get(name) if wants is not None else None
        if want is None:
            board.needs.put(name, rollout.leaving(view, name, held=name in staying), None)
        else:
            board.needs.put(name, rollout.need(view, want.model, want.generations), want.size_key)
    return board.needs


def _sweep(view: View) -> list[Action]:
    """One failed shard fails its replica: the others wait on collectives that never complete."""
    return view.board.stops.renew(
        view.board.asked(view.board.roll.ending), lambda name: _stops_of(view, name)
    )


def _stops_of(view: View, name: str) -> list[Action]:
    if name not in view.board.roll.ending or _ends_in_order(view, view.replicas[name]):
        return []
    replica = view.replicas[name]
    return [
        draining.stop_order(view, shard, replica.why)
        for shard in replica.present
        if draining.may_stop(view, shard)
    ]


def _ends_in_order(view: View, replica: Replica) -> bool:
    """Whether a drain already stops it rank by rank and nothing of it broke."""
    drain = view.ledger.drains.get(replica.id)
    return drain is not None and drain.stop_sent and not troubles.broke(replica) and replica.phase != "Lost"


def _starts(view: View) -> list[Action]:
    """Workers once every rank holds the weights, rank 0 once every worker is started."""
    return view.board.starts.renew(
        view.board.asked(view.board.roll.coming), lambda name: _starts_of(view, name)
    )


def _starts_of(view: View, name: str) -> list[Action]:
    if name not in view.board.roll.coming or name in view.ledger.drains:
        return []
    present = view.replicas[name].present
    actions: list[Action] = [
        Assign(s.spec, "its node did not confirm it") for s in present if _resend(view, s)
    ]
    if any(shard.state in ("assigned", "fetching") for shard in present):
        return actions
    workers = [shard for shard in present if shard.spec.rank > 0]
    attached = all(shard.state in ("started", "ready") for shard in workers)
    because = f"{len(workers)} workers are started" if workers else "its weights are held"
    held = [shard for shard in present if shard.state == "held" and (shard.spec.rank > 0 or attached)]
    actions += [
        Start(shard.spec.key, shard.spec.node, shard.spec.generation, because)
        for shard in held
        if shard.ordered != "start" or view.now - shard.ordered_at >= view.timers.ack
    ]
    return actions


def _resend(view: View, shard: Shard) -> bool:
    last = max(shard.since, shard.ordered_at)
    return not shard.confirmed and view.now - last >= view.timers.ack and view.reachable(shard.spec.node)


def _apply_drains(view: View, needs: Needs, drains: dict[str, Draining]) -> list[Action]:
    actions: list[Action] = []
    for model in sorted(needs.acting):
        need = needs.of[model]
        for replica, because in need.undrain:
            del drains[replica]
            actions.append(Undrain(replica, because))
        for replica, because in need.drain:
            drain = Drain(replica, because)
            _begin(view, drain, drains)
            actions.append(drain)
    return actions


def _remember_returned(view: View, actions: list[Action]) -> Ledger:
    """The ledger with the drains that were just taken back: they do not begin again at once."""
    back = {action.replica: view.now for action in actions if isinstance(action, Undrain)}
    return (
        dataclasses.replace(view.ledger, returned={**view.ledger.returned, **back}) if back else view.ledger
    )


def _begin(view: View, drain: Drain, drains: dict[str, Draining], *, gap: bool = False) -> None:
    limit = view.now + view.replicas[drain.replica].spec.profile.drain
    drains[drain.replica] = Draining(view.now, limit, draining.NEW, drain.because, gap)


def _place_one(view: View, needs: Needs, chance: Chance) -> tuple[tuple[Assign, ...], list[Unplaced]]:
    """The first pending replica that fits gets its place. Where none does, all are told why."""
    board, stock = view.board, view.board.stock
    for model in gaps.in_order(view, needs):
        search = search_for(view, needs, model)
        if search.full_at == stock.grown:
            continue
        for request in search.requests:
            if choice := stock.choose(request, board.pressure):
                shards = specs(new_id(view, model, chance), request, choice)
                because = needs.of[model].because
                return tuple([Assign(spec, because) for spec in shards]), []
        search.full_at = stock.grown
    unplaced = [unplaced_for(view, needs, model) for _, _, model in needs.pending]
    board.explanations.told()
    return (), unplaced


def _give_way(view: View, needs: Needs, names: Moves, drains: dict[str, Draining]) -> list[Action]:
    """As many of what left the catalog as the heir of its names needs the room of; all of it where that is not enough."""
    if not names:
        return []
    actions: list[Action] = []
    leaving = gaps.on_their_way_out(view, needs, drains)
    for heir, olds in handover.give_way(view, names, view.board.no_place, drains):
        search = search_for(view, needs, heir)
        if leaving and fits_without(view, search, leaving):
            continue
        enough = (n for n in range(1, len(olds)) if fits_without(view, search, leaving.union(olds[:n])))
        for old in olds[: next(enough, len(olds))]:
            drain = Drain(old, f"no room beside it for {heir}, which takes its names over")
            _begin(view, drain, drains)
            actions.append(drain)
    return actions


def _open_gap(view: View, needs: Needs, drains: dict[str, Draining]) -> tuple[View, list[Action]]:
    """Where nothing that is pending found a place, an old replica may have to go first."""
    if gaps.is_idle(view, needs, drains):
        view = _with(view, dataclasses.replace(view.ledger, gap=None))
    swap = swap_for(view, needs, drains)
    if swap is None:
        return view, []
    _begin(view, swap, drains, gap=True)
    gap = Gap(view.replicas[swap.replica].model, swap.replica, view.now)
    return _with(view, dataclasses.replace(view.ledger, gap=gap)), [swap]
