"""The life of a shard as a table; a pair that is not in it is an error.

`agent.core` moves shards along it, `fleet.world` refuses reports that leave it, `docs/` draws it.
"""

from llmgw.fleet.shard import State

NEXT: dict[State, tuple[State, ...]] = {
    "assigned": ("fetching", "held", "failed", "stopping"),
    "fetching": ("held", "failed", "stopping"),
    "held": ("starting", "failed", "stopping"),
    "starting": ("started", "ready", "failed", "stopping"),
    "started": ("ready", "failed", "stopping"),
    "ready": ("draining", "failed", "stopping"),
    "draining": ("ready", "failed", "stopping"),
    "failed": ("stopping",),
    "stopping": ("gone",),
    "gone": (),
}
"""State → the states that may follow it."""

ALIVE: frozenset[State] = frozenset({"starting", "started", "ready", "draining"})
"""A process of the shard is meant to exist."""

PENDING: frozenset[State] = frozenset({"assigned", "fetching", "held"})
"""Placed, and nothing executed yet."""

ENDED: frozenset[State] = frozenset({"failed", "stopping"})
"""On its way out; still holds its GPUs until it is `gone`."""


def may_follow(old: State, new: State) -> bool:
    """Whether a shard may be reported `new` after `old`. Reports may skip states, never go back."""
    if old == new:
        return True
    seen: set[State] = set()
    front = [old]
    while front:
        for following in NEXT[front.pop()]:
            if following == new:
                return True
            if following not in seen:
                seen.add(following)
                front.append(following)
    return False
