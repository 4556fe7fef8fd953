"""Gaps: a roll-out that finds no room beside what serves gives an old replica up first, one in the whole fleet at a time.

A step of `reconcile`. One edit of a shared profile concerns many models: the first to be replaced shows
whether the others may follow. While its successor has not proved itself, nobody else opens a gap.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from llmgw.planning import handover
from llmgw.planning.ledger import Draining, Gap, Ledger
from llmgw.planning.needs import Needs, stays
from llmgw.planning.rollout import settled
from llmgw.planning.scaling import wanted
from llmgw.planning.view import View
from llmgw.planning.wants import Want

LET_GO = 80.0
"""Seconds beyond the stop grace in which an engine is verified to be gone and its memory comes back."""


def tend(view: View) -> Ledger:
    """The ledger without the gap that is closed, and without the memory of drains that were taken back long ago."""
    ledger = view.ledger
    inherited = _begun_before(view) if ledger.inherited is None else ledger.inherited
    gap = ledger.gap if ledger.gap is not None and _open(view, ledger.gap) else None
    while gap is None and inherited:
        found, *others = inherited
        gap, inherited = Gap(found, "", view.now), tuple(others)
        gap = gap if _open(view, gap) else None
    returned = {
        name: at
        for name, at in ledger.returned.items()
        if name in view.replicas and view.now < at + view.timers.min_ready
    }
    if gap is ledger.gap and len(returned) == len(ledger.returned) and inherited == ledger.inherited:
        return ledger
    return dataclasses.replace(ledger, gap=gap, returned=returned, inherited=inherited)


def _begun_before(view: View) -> tuple[str, ...]:
    """Models that too few serve, by what the fleet shows of a past that this ledger did not see: a successor
    comes up or failed, an old one ends, or weights without a replica lie there.

    Each of them may be the gap that was open; where it is not, others have waited a little.
    """
    wants = view.board.wants
    return tuple(
        name
        for name, want in (wants.models.items() if wants is not None else ())
        if _began(view, want) and _open(view, Gap(name, "", view.now))
    )


def _began(view: View, want: Want) -> bool:
    replicas = view.of_model(want.model.name)
    if not replicas:
        return view.board.stock.is_held(want.cache_name)
    failed = any((want.model.name, generation) in view.ledger.troubles for generation in want.generations)
    return failed or any(not settled(view, replica) for replica in replicas)


def _open(view: View, gap: Gap) -> bool:
    """Whether the successor still has to come and prove itself."""
    wants, marks = view.board.wants, view.desired.marks
    want = wants.models.get(gap.model) if wants is not None else None
    old = view.replicas.get(gap.replica)
    taken_back = old is not None and old.serves and old.id not in view.ledger.drains
    if want is None or taken_back or gap.model in marks.paused:
        return False
    serving = sum(
        replica.serves
        and replica.id not in view.ledger.drains
        and (settled(view, replica) or not stays(replica, want.generations, marks))
        for replica in view.of_model(gap.model)
    )
    return serving < wanted(view, want.model)


def in_order(view: View, needs: Needs) -> Iterator[str]:
    """The pending models, that of the open gap first: the room that it gave up is its successor's."""
    ahead = view.ledger.gap.model if view.ledger.gap is not None else ""
    if needs.is_pending(ahead):
        yield ahead
    yield from (model for _, _, model in needs.pending if model != ahead)


def is_idle(view: View, needs: Needs, drains: Mapping[str, Draining]) -> bool:
    """Whether the open gap waits for nothing that comes: its successor finds no place though the old one is gone.

    That is a shortage like any other then, and told as one. A successor that fails to start keeps the gap open.
    """
    gap = view.ledger.gap
    if gap is None or gap.replica in view.replicas or not needs.is_pending(gap.model):
        return False
    comes = any(
        replica.phase in ("Fetching", "Starting", "Ready") and not settled(view, replica)
        for replica in view.of_model(gap.model)
    )
    fails = any(model == gap.model for model, _ in view.ledger.troubles)
    return not comes and not fails and not on_their_way_out(view, needs, drains)


def on_their_way_out(view: View, needs: Needs, drains: Mapping[str, Draining]) -> frozenset[str]:
    """Replicas that end anyway, now or by the roll-outs that go on beside what serves; for as long as
    that may be waited for."""
    drained = {name for name, drain in drains.items() if view.now < gone_by(view, drain.limit)}
    ending = {
        name
        for name in view.board.roll.ending
        if name not in drains and view.now < gone_by(view, view.replicas[name].since)
    }
    replaced = {name for model in needs.surging for name in needs.of[model].old}
    replaced |= handover.leaving(view, handover.held(view, drains), drains)
    return frozenset(drained | ending | replaced)


def gone_by(view: View, since: float) -> float:
    """Until when the room of what was to stop at `since` is waited for."""
    return since + view.timers.stop_grace + LET_GO


def turns(view: View) -> Iterator[float]:
    """The instants at which time alone closes the gap, or lets one be opened."""
    ledger, board = view.ledger, view.board
    yield from (at + view.timers.min_ready for at in ledger.returned.values())
    if ledger.gap is not None:
        for replica in view.of_model(ledger.gap.model):
            if replica.phase == "Ready":
                yield replica.since + view.timers.min_ready
    if board.needs.pending and view.may_act():
        yield from (gone_by(view, drain.limit) for drain in ledger.drains.values())
        yield from (gone_by(view, view.replicas[name].since) for name in board.roll.ending)
