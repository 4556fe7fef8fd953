"""Failed starts and the delay they cost: carried on (model, generation), not on a replica that is gone.

A step of `reconcile`. Each failed replica is charged once; minutes of Ready forgive; there is no
terminal failure, only a capped delay with its reason.
"""

import dataclasses

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
    charged = set(ledger.charged & view.replicas.keys())
    _remembered_by_agents(view, troubles, charged, delays, chance)
    for replica in view.replicas.values():
        key = (replica.model, replica.generation)
        if broke(replica) and replica.id not in charged and replica.id not in ledger.drains:
            failures = troubles[key].failures + 1 if key in troubles else 1
            until = view.now + delays.delay(failures, chance)
            nodes = tuple(sorted(shard.spec.node for shard in replica.present if _broke(shard)))
            troubles[key] = Trouble(failures, until, replica.why, nodes)
            charged.add(replica.id)
        elif replica.phase == "Ready" and view.now - replica.since >= view.timers.backoff_reset:
            troubles.pop(key, None)
    if view.desired.catalog is not None:
        current = {
            (model.name, generation)
            for model in view.desired.catalog.models.values()
            for generation in view.desired.catalog.generations(model)
        }
        troubles = {key: trouble for key, trouble in troubles.items() if key in current}
    return dataclasses.replace(ledger, troubles=troubles, charged=frozenset(charged))


def broke(replica: Replica) -> bool:
    """Whether a start of it failed; a replica whose node went away broke nothing."""
    return replica.phase == "Failed" and any(_broke(shard) for shard in replica.present)


def _broke(shard: Shard) -> bool:
    return shard.state == "failed" or not shard.confirmed


def _remembered_by_agents(
    view: View,
    troubles: dict[tuple[str, str], Trouble],
    charged: set[str],
    delays: Backoff,
    chance: Chance,
) -> None:
    """Take over what agents remember of failures that this control plane has not seen itself."""
    if view.ledger.troubles or view.ledger.charged:
        return
    for node in view.fleet.nodes.values():
        for failure in node.failures:
            key = (failure.model, failure.generation)
            if key in troubles and troubles[key].failures >= failure.count:
                continue
            until = node.since - failure.age + delays.delay(failure.count, chance)
            troubles[key] = Trouble(failure.count, until, failure.reason)
    charged |= {r.id for r in view.replicas.values() if broke(r) and (r.model, r.generation) in troubles}
