"""Nodes that take nothing new for a while because many models failed to start there.

One model that fails is the model's fault, and several under one profile are the profile's; several that
fail on one node are the node's. It follows from
the ledger's troubles and ends with them, or after the longest back-off: there is no terminal failure.
"""

from collections.abc import Iterable, Mapping

from llmgw.fleet.expiry import Timers
from llmgw.planning.ledger import Trouble

MODELS = 3
"""Different models whose newest start failed on a node, before the node is blamed."""


def quarantined(troubles: Mapping[tuple[str, str], Trouble], now: float, timers: Timers) -> Mapping[str, str]:
    """Node id → why it takes nothing new."""
    failed: dict[str, dict[str, Trouble]] = {}
    for (model, _), trouble in troubles.items():
        if now < ends_at(trouble, timers):
            for node in trouble.nodes:
                failed.setdefault(node, {})[model] = trouble
    return {
        node: f"{len(models)} models failed to start here ({', '.join(sorted(models))})"
        for node, models in failed.items()
        if len(models) >= MODELS and _suspects(models.values()) >= MODELS
    }


def _suspects(troubles: Iterable[Trouble]) -> int:
    """How many failures have no other cause in common: under one profile they count once, but for the
    models that serve elsewhere under it."""
    alone, shared = 0, set()
    for trouble in troubles:
        if trouble.elsewhere or not trouble.profile:
            alone += 1
        else:
            shared.add(trouble.profile)
    return alone + len(shared)


def ends_at(trouble: Trouble, timers: Timers) -> float:
    """When a failure blames its node no longer."""
    return trouble.at + timers.backoff_cap
