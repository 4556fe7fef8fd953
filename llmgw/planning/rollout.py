"""What one model needs: more replicas, other ones, or fewer. A step of `reconcile`, pure and per model.

Reality wins: a reported replica of a current generation counts, whoever started it. The old
generation goes only when the new one has proved itself, or when there is no room for both.
"""

from collections.abc import Collection, Iterable

from llmgw.catalog.model import Model
from llmgw.fleet.replica import Replica
from llmgw.kit import text
from llmgw.planning.ledger import Trouble
from llmgw.planning.needs import Need, stays
from llmgw.planning.scaling import wanted
from llmgw.planning.view import View

SURGE = 1
"""Replicas above the wanted count while a new generation takes over."""


def leaving(view: View, model: str, *, held: bool) -> Need:
    """The model is not in the catalog: everything it has drains, but for what serves while it is held."""
    drains = view.ledger.drains
    return Need(
        drain=tuple(
            (replica.id, f"{model} left the catalog")
            for replica in view.of_model(model)
            if replica.id not in drains and _counts(replica) and not (held and replica.serves)
        )
    )


def need(view: View, model: Model, generations: Collection[str]) -> Need:
    """What `model` needs. `generations` are the current ones."""
    drains = view.ledger.drains
    mine = view.of_model(model.name)
    if model.name in view.desired.marks.paused:
        return Need(
            undrain=tuple((replica.id, "its model is paused") for replica in mine if _returns(view, replica))
        )
    counted = [replica for replica in mine if _counts(replica) and replica.id not in drains]
    marks = view.desired.marks
    fresh = [replica for replica in counted if stays(replica, generations, marks)]
    stale = [r for r in counted if not stays(r, generations, marks)] if len(fresh) < len(counted) else []
    draining = [replica for replica in mine if replica.id in drains] if drains else []
    count = wanted(view, model)
    back = _undrain(view, draining, generations, fresh, stale, count)
    have = len(fresh) + sum(stays(replica, generations, marks) for replica, _ in back)
    running = len(counted) + sum(not drains[replica.id].stop_sent for replica in draining)
    room_above = count + (SURGE if running > len(fresh) else 0) - running
    troubles = [t for g in generations if (t := view.ledger.troubles.get((model.name, g))) is not None]
    trouble = max(troubles, key=lambda trouble: trouble.at, default=None)
    held_back = bool(back) or _must_wait(view, mine, troubles)
    missing = min(count - have, room_above)
    if trouble is not None and stale:  # one at a time shows whether it starts by now
        missing = min(missing, 1 - sum(not settled(view, replica) for replica in fresh))
    return Need(
        create=0 if held_back else max(0, missing),
        have=have,
        count=count,
        reason=_reason(view, stale, trouble),
        drain=_drain(view, fresh, stale, count),
        undrain=tuple((replica.id, because) for replica, because in back),
        swap=_swap(view, stale, fresh, mine, trouble) if have < count and not back else "",
        ripe_at=_ripe_at(view, fresh) if stale else None,
        old=tuple(replica.id for replica in stale if replica.serves) if trouble is None else (),
        lost=next((replica.why for replica in mine if replica.phase == "Lost"), ""),
    )


def _returns(view: View, replica: Replica) -> bool:
    """Whether it drains and its stop was not sent."""
    drain = view.ledger.drains.get(replica.id)
    return drain is not None and not drain.stop_sent


def joined(need: Need, came: int) -> Need | None:
    """`need` after `came` of the replicas that it asks for came to be and nothing else changed; None = ask again.

    They run and serve nothing yet: there is as much less to create, and no old one may go for them.
    """
    if came > need.create:
        return None
    return Need(
        need.create - came,
        need.have + came,
        need.count,
        need.reason,
        need.drain,
        need.undrain,
        "",
        need.ripe_at,
        need.old,
        need.lost,
    )


def _counts(replica: Replica) -> bool:
    return replica.phase not in ("Failed", "Lost")


def settled(view: View, replica: Replica) -> bool:
    """Whether it has been Ready for long enough to be relied upon."""
    return replica.phase == "Ready" and view.now >= replica.since + view.timers.min_ready


def _ripe_at(view: View, fresh: list[Replica]) -> float | None:
    """When the next new one will have been Ready for long enough."""
    waiting = [r.since for r in fresh if r.phase == "Ready" and not settled(view, r)]
    return min(waiting) + view.timers.min_ready if waiting else None


def _drain(view: View, fresh: list[Replica], stale: list[Replica], count: int) -> tuple[tuple[str, str], ...]:
    """Stale ones whose successors have proved themselves, then what is above the wanted count."""
    if not stale and len(fresh) <= count:
        return ()
    leave: list[tuple[str, str]] = []
    proved = [replica for replica in fresh if settled(view, replica)]
    enough = len(proved) >= count
    serving, heard = _serving((*proved, *stale))
    for replica in sorted(stale, key=_least_use):
        if not replica.serves and (replica.phase != "Unknown" or enough):
            leave.append(
                (replica.id, _drained_node(view, replica) or f"{_generation(replica)} is superseded")
            )
        elif replica.serves and (enough or _spared(replica, serving, heard, count)):
            why = "replaced and its successor is ready" if proved else f"superseded, and {count} others serve"
            leave.append((replica.id, _drained_node(view, replica) or f"{_generation(replica)} is {why}"))
            serving, heard = serving - 1, heard - (replica.phase == "Ready")
    excess = len(fresh) - count
    serving, heard = _serving(fresh)
    for replica in sorted(fresh, key=lambda r: (*_least_use(r)[:2], -r.since, r.id)):
        if excess > 0 and (not replica.serves or _spared(replica, serving, heard, count)):
            leave.append((replica.id, f"{count} wanted, this is one more"))
            excess -= 1
            serving, heard = serving - replica.serves, heard - (replica.phase == "Ready")
    return tuple(leave)


def _serving(replicas: Iterable[Replica]) -> tuple[int, int]:
    """How many clients are sent to, and how many of them have a node that speaks."""
    serving = [replica for replica in replicas if replica.serves]
    return len(serving), sum(replica.phase == "Ready" for replica in serving)


def _least_use(replica: Replica) -> tuple[bool, bool, str]:
    """Who goes first: what serves nobody, then what nobody hears of, then by name."""
    return (replica.serves, replica.phase == "Ready", replica.id)


def _spared(replica: Replica, serving: int, heard: int, count: int) -> bool:
    """Whether enough serve without it. One that is heard is not given up for one that is not."""
    return serving - 1 >= count and (replica.phase != "Ready" or heard - 1 >= count)


def _undrain(
    view: View,
    draining: list[Replica],
    generations: Collection[str],
    fresh: list[Replica],
    stale: list[Replica],
    count: int,
) -> list[tuple[Replica, str]]:
    """Drains taken back: the replica is good, its stop was not sent, and without it too few serve."""
    if not draining:
        return []
    back: list[tuple[Replica, str]] = []
    short_fresh = count - len(fresh)
    serving = sum(replica.serves for replica in (*fresh, *stale))
    for replica in draining:
        drain = view.ledger.drains[replica.id]
        if drain.stop_sent or not replica.serves:
            continue
        current = stays(replica, generations, view.desired.marks)
        if current and (short_fresh > 0 or serving < count):
            back.append((replica, "it is wanted again"))
            short_fresh -= 1
            serving += 1
        elif not current and not drain.gap and serving < count:
            back.append((replica, "its successor does not serve"))
            serving += 1
    return back


def _must_wait(view: View, mine: list[Replica], troubles: Iterable[Trouble]) -> bool:
    """Back-off, of whichever profile; and while a node is unheard, what a Ready replica serves would only be doubled."""
    if any(view.now < trouble.until for trouble in troubles):
        return True
    return bool(view.unheard) and any(replica.serves for replica in mine)


def _swap(
    view: View, stale: list[Replica], fresh: list[Replica], mine: list[Replica], trouble: Trouble | None
) -> str:
    """The old replica to give up for room: only one at a time, and never for a generation that failed."""
    busy = any(replica.id in view.ledger.drains or not _counts(replica) for replica in mine)
    unproved = any(not settled(view, replica) for replica in fresh)
    if trouble is not None or busy or unproved or not stale:
        return ""
    return min(stale, key=lambda replica: (replica.serves, replica.id)).id


def _reason(view: View, stale: list[Replica], trouble: Trouble | None) -> str:
    """Why one is created, other than that one is missing."""
    if trouble is not None:
        spared = (
            f"; rather not on the {text.count(len(trouble.cards), 'card')} where memory ran out"
            if trouble.cards
            else ""
        )
        return f"try {trouble.failures + 1} after: {trouble.reason}{spared}"
    moved = [said for replica in stale if (said := _drained_node(view, replica))]
    return moved[0] if moved else "its generation changed" if stale else ""


def _generation(replica: Replica) -> str:
    return f"generation {replica.generation[:6]}"


def _drained_node(view: View, replica: Replica) -> str:
    """Which of its nodes people want empty, and why; or nothing."""
    draining = view.desired.marks.draining
    nodes = [peer.node for peer in replica.spec.peers if peer.node in draining]
    return f"node {view.fleet.name(nodes[0])} is drained: {draining[nodes[0]]}" if nodes else ""
