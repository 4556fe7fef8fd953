"""Failed starts and the delay they cost: carried on (model, generation), not on a replica that is gone.

A step of `reconcile`. Each failed replica is charged once; minutes of Ready forgive; there is no
terminal failure, only a capped delay with its reason.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping

from llmgw.fleet.causes import ran_out_of_memory
from llmgw.fleet.replica import Replica
from llmgw.fleet.world import Shard
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import Chance
from llmgw.planning.ledger import MOST_CARDS, Ledger, Trouble
from llmgw.planning.view import View

SKEW = 1.0
"""Seconds by which ages that travelled differ at most."""


def charge(view: View, chance: Chance) -> Ledger:
    """The ledger after this pass's new failures and forgivenesses."""
    ledger, replicas = view.ledger, view.replicas
    known = ledger.troubles or ledger.charged or ledger.cleared
    if not known and not view.board.roll.ending and ledger.recalled is view.board.registered:
        return ledger
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
            nodes, at = _newest(troubles.get(key), broken, view.now)
            cards = _cards(troubles[key].cards if key in troubles else (), broken)
            profile = replica.spec.profile.name
            served = max((shard.served for shard in broken), default=0.0)
            troubles[key] = Trouble(failures, until, replica.why, nodes, at, cards, profile, served=served)
            charged.add(name)
    for key in [key for key in troubles if _forgiven(view, key, troubles) or not _current(view, key)]:
        del troubles[key]
    for key, trouble in troubles.items():
        if trouble.elsewhere != (elsewhere := _serves_elsewhere(view, key, trouble)):
            troubles[key] = dataclasses.replace(trouble, elsewhere=elsewhere)
    cleared = {name: at for name, at in ledger.cleared.items() if view.now - at <= _remembered(view, delays)}
    same = troubles == ledger.troubles and charged == ledger.charged and len(cleared) == len(ledger.cleared)
    if same and recalled is ledger.recalled:
        return ledger
    kept = ledger.troubles if troubles == ledger.troubles else troubles
    return dataclasses.replace(
        ledger, troubles=kept, charged=frozenset(charged), recalled=recalled, cleared=cleared
    )


def _serves_elsewhere(view: View, key: tuple[str, str], trouble: Trouble) -> bool:
    """Whether clients are sent to one of this generation that is on none of the nodes where it failed."""
    model, generation = key
    return any(
        replica.serves
        and replica.generation == generation
        and not any(peer.node in trouble.nodes for peer in replica.spec.peers)
        for replica in view.of_model(model)
    )


def _newest(known: Trouble | None, broken: Iterable[Shard], now: float) -> tuple[tuple[str, ...], float]:
    """Where and when the newest failed: one that is told late, by a node that was away, was not the newest."""
    at = max((shard.since if shard.state == "failed" else now for shard in broken), default=now)
    if known is not None and at < known.at - SKEW:
        return known.nodes, known.at
    return tuple(sorted(shard.spec.node for shard in broken)), at


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
    """When a replica that stays Ready voids `trouble`: after a stall of ours not before its node could say so."""
    proved = max(replica.since, trouble.at) + view.timers.backoff_reset
    return max(proved, view.ledger.resumed + view.timers.unreachable)


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
            if failure.age > _remembered(view, delays):
                continue
            key, at = (failure.model, failure.generation), node.since - failure.age
            if at <= view.ledger.cleared.get(failure.model, -math.inf) + SKEW:
                continue
            known = troubles.get(key, Trouble(0, at, failure.reason, at=at, profile=_profile(view, key)))
            blamed = _blamed(known, name, at)
            if known.failures >= failure.count:
                if blamed != known.nodes:
                    troubles[key] = dataclasses.replace(known, nodes=blamed)
                continue
            until = max(known.until, at + delays.delay(failure.count, chance))
            troubles[key] = dataclasses.replace(
                known,
                failures=failure.count,
                until=until,
                reason=failure.reason,
                served=failure.served,
                nodes=blamed,
                at=max(known.at, at),
            )
            charged |= {r.id for r in view.of_model(key[0]) if r.generation == key[1] and _broke_by(r, at)}
    return registered


def _remembered(view: View, delays: Backoff) -> float:
    """Seconds after which a failure's delay is over, and what it says of a start today is nothing."""
    return delays.cap * (1 + delays.share) + view.timers.backoff_reset


def _blamed(known: Trouble, node: str, at: float) -> tuple[str, ...]:
    """Where the newest failed, now that `node` tells of one at `at`: the ranks of one replica fail together."""
    if at > known.at + SKEW:
        return (node,)
    return known.nodes if at < known.at - SKEW else tuple(sorted({*known.nodes, node}))


def _profile(view: View, key: tuple[str, str]) -> str:
    """The name of the profile that this generation of a model stands for, where the catalog has it."""
    want = view.board.wants.models.get(key[0]) if view.board.wants is not None else None
    profile = want.generations.get(key[1]) if want is not None else None
    return profile.name if profile is not None else ""


def _broke_by(replica: Replica, at: float) -> bool:
    """Whether the replica had failed by then."""
    return broke(replica) and replica.since <= at + SKEW
