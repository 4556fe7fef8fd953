"""Nodes that take nothing new for a while because many models failed to start there.

One model that fails is the model's fault; several that fail on one node are the node's. It follows from
the ledger's troubles and ends with them, or after the longest back-off: there is no terminal failure.
"""

from collections.abc import Mapping

from llmgw.fleet.expiry import Timers
from llmgw.planning.ledger import Trouble

MODELS = 3
"""Different models whose newest start failed on a node, before the node is blamed."""


def quarantined(troubles: Mapping[tuple[str, str], Trouble], now: float, timers: Timers) -> Mapping[str, str]:
    """Node id → why it takes nothing new."""
    failed: dict[str, set[str]] = {}
    for (model, _), trouble in troubles.items():
        if now < ends_at(trouble, timers):
            for node in trouble.nodes:
                failed.setdefault(node, set()).add(model)
    return {
        node: f"{len(models)} models failed to start here ({', '.join(sorted(models))})"
        for node, models in failed.items()
        if len(models) >= MODELS
    }


def ends_at(trouble: Trouble, timers: Timers) -> float:
    """When a failure blames its node no longer."""
    return trouble.at + timers.backoff_cap
