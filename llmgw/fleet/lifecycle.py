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
    return new in _REACHABLE[old]


def _reachable(old: State) -> frozenset[State]:
    """`old` itself, and every state on a way from it."""
    seen, front = {old}, [old]
    while front:
        following = set(NEXT[front.pop()]) - seen
        seen |= following
        front += following
    return frozenset(seen)


_REACHABLE = {state: _reachable(state) for state in NEXT}
