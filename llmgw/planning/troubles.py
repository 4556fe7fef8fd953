"""Failed starts and the delay they cost: carried on (model, generation), not on a replica that is gone.

A step of `reconcile`. Each failed replica is charged once; minutes of Ready forgive; there is no
terminal failure, only a capped delay with its reason.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from llmgw.fleet.causes import ran_out_of_memory
from llmgw.fleet.replica import Replica
from llmgw.fleet.world import Shard
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import Chance
from llmgw.planning.ledger import MOST_CARDS, Ledger, Trouble
from llmgw.planning.view import View


def charge(view: View, chance: Chance) -> Ledger:
    """The ledger after this pass's new failures and forgivenesses."""
    ledger, replicas = view.ledger, view.replicas
    troubles = dict(ledger.troubles)
    delays = Backoff(base=view.timers.backoff_base, cap=view.timers.backoff_cap)
    charged = {name for name in ledger.charged if name in replicas and broke(replicas[name])}
    recalled = _recall(view, troubles, charged, delays, chance)
    for name in sorted(view.board.roll.ending):
        replica = replicas[name]
        key = (replica.model, replica.generation)
        if broke(replica) and name not in charged and name not in ledger.drains:
            failures = troubles[key].failures + 1 if key in troubles else 1
            until = view.now + delays.delay(failures, chance)
            broken = [shard for shard in replica.present if _broke(shard)]
            nodes = tuple(sorted(shard.spec.node for shard in broken))
            cards = _cards(troubles[key].cards if key in troubles else (), broken)
            troubles[key] = Trouble(failures, until, replica.why, nodes, view.now, cards)
            charged.add(name)
    for key in [key for key in troubles if _forgiven(view, key, troubles) or not _current(view, key)]:
        del troubles[key]
    same = troubles == ledger.troubles and charged == ledger.charged
    if same and recalled is ledger.recalled:
        return ledger
    kept = ledger.troubles if same else troubles
    return dataclasses.replace(ledger, troubles=kept, charged=frozenset(charged), recalled=recalled)


def _cards(known: tuple[str, ...], broken: Iterable[Shard]) -> tuple[str, ...]:
    """The cards that had too little memory, those of the newest failure last."""
    short = [gpu for s in broken if ran_out_of_memory(s.status.reason) for gpu in s.spec.gpus]
    return (*(gpu for gpu in known if gpu not in short), *short)[-MOST_CARDS:]


def _forgiven(view: View, key: tuple[str, str], troubles: Mapping[tuple[str, str], Trouble]) -> bool:
    model, generation = key
    return any(r.generation == generation and _proves(view, r, troubles) for r in view.of_model(model))


def _current(view: View, key: tuple[str, str]) -> bool:
    """Whether the catalog still asks for this generation; without a catalog nothing is forgotten."""
    model, generation = key
    wants = view.board.wants
    return wants is None or (model in wants.models and generation in wants.models[model].generations)


def broke(replica: Replica) -> bool:
    """Whether a start of it failed; a replica whose node went away broke nothing."""
    return replica.phase == "Failed" and any(_broke(shard) for shard in replica.present)


def _broke(shard: Shard) -> bool:
    return shard.state == "failed" or not shard.confirmed


def _proves(view: View, replica: Replica, troubles: Mapping[tuple[str, str], Trouble]) -> bool:
    """Whether the replica was Ready for long enough since the newest failure, its own or a sibling's."""
    trouble = troubles.get((replica.model, replica.generation))
    if trouble is None or replica.phase != "Ready":
        return False
    return view.now >= proved_at(view, replica, trouble)


def proved_at(view: View, replica: Replica, trouble: Trouble) -> float:
    """When a replica that stays Ready voids `trouble`."""
    return max(replica.since, trouble.at) + view.timers.backoff_reset


def _recall(
    view: View,
    troubles: dict[tuple[str, str], Trouble],
    charged: set[str],
    delays: Backoff,
    chance: Chance,
) -> Mapping[str, float]:
    """Take over what agents remember of failures, once per registration: forgiving must last."""
    registered = view.board.registered
    if view.ledger.recalled is registered:
        return registered
    for name, node in view.fleet.nodes.items():
        if view.ledger.recalled.get(name) == node.since:
            continue
        for failure in node.failures:
            if failure.age > delays.cap * (1 + delays.share) + view.timers.backoff_reset:
                continue  # its delay is over, and what it says of a start today is nothing
            key, at = (failure.model, failure.generation), node.since - failure.age
            known = troubles.get(key, Trouble(0, at, failure.reason, at=at))
            if known.failures >= failure.count:
                continue
            until = max(known.until, at + delays.delay(failure.count, chance))
            troubles[key] = Trouble(
                failure.count, until, failure.reason, at=max(known.at, at), cards=known.cards
            )
            charged |= {r.id for r in view.of_model(key[0]) if r.generation == key[1] and _broke_by(r, at)}
    return registered


def _broke_by(replica: Replica, at: float) -> bool:
    """Whether the replica had failed by then; ages that travelled differ by less than a second."""
    return broke(replica) and replica.since <= at + 1.0
