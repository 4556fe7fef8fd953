"""Failed starts and the delay they cost: carried on (model, generation), not on a replica that is gone.

A step of `reconcile`. Each failed replica is charged once; minutes of Ready forgive; there is no
terminal failure, only a capped delay with its reason.
"""

import dataclasses
from collections.abc import Mapping

from llmgw.fleet.replica import Replica
from llmgw.fleet.world import Shard
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import Chance
from llmgw.planning.ledger import Ledger, Trouble
from llmgw.planning.view import View


def charge(view: View, chance: Chance) -> Ledger:
    """The ledger after this pass's new failures and forgivenesses."""
    ledger = view.ledger
    troubles = dict(ledger.troubles)
    delays = Backoff(base=view.timers.backoff_base, cap=view.timers.backoff_cap)
    charged = {r.id for r in view.replicas.values() if r.id in ledger.charged and broke(r)}
    recalled = _recall(view, troubles, charged, delays, chance)
    for replica in view.replicas.values():
        key = (replica.model, replica.generation)
        if broke(replica) and replica.id not in charged and replica.id not in ledger.drains:
            failures = troubles[key].failures + 1 if key in troubles else 1
            until = view.now + delays.delay(failures, chance)
            nodes = tuple(sorted(shard.spec.node for shard in replica.present if _broke(shard)))
            troubles[key] = Trouble(failures, until, replica.why, nodes, view.now)
            charged.add(replica.id)
    for key in {(r.model, r.generation) for r in view.replicas.values() if _proves(view, r, troubles)}:
        del troubles[key]
    if view.desired.catalog is not None:
        current = {
            (model.name, generation)
            for model in view.desired.catalog.models.values()
            for generation in view.desired.catalog.generations(model)
        }
        troubles = {key: trouble for key, trouble in troubles.items() if key in current}
    return dataclasses.replace(ledger, troubles=troubles, charged=frozenset(charged), recalled=recalled)


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
    return view.now - max(replica.since, trouble.at) >= view.timers.backoff_reset


def _recall(
    view: View,
    troubles: dict[tuple[str, str], Trouble],
    charged: set[str],
    delays: Backoff,
    chance: Chance,
) -> dict[str, float]:
    """Take over what agents remember of failures, once per registration: forgiving must last."""
    for name, node in view.fleet.nodes.items():
        if view.ledger.recalled.get(name) == node.since:
            continue
        for failure in node.failures:
            key, at = (failure.model, failure.generation), node.since - failure.age
            known = troubles.get(key, Trouble(0, at, failure.reason, at=at))
            if known.failures >= failure.count:
                continue
            until = max(known.until, at + delays.delay(failure.count, chance))
            troubles[key] = Trouble(failure.count, until, failure.reason, at=max(known.at, at))
            charged |= {
                r.id for r in view.replicas.values() if (r.model, r.generation) == key and _broke_by(r, at)
            }
    return {name: node.since for name, node in view.fleet.nodes.items()}


def _broke_by(replica: Replica, at: float) -> bool:
    """Whether the replica had failed by then; ages that travelled differ by less than a second."""
    return broke(replica) and replica.since <= at + 1.0
