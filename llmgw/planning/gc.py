"""What the nodes' caches hold that nothing wants: a listing, and exactly that list to collect.

`llmgw gc` prints a `Listing`; `llmgw gc --collect` sends its candidates to the nodes, each of which
checks every entry again (`agent.collect`). Silence is no evidence here: a node that was not heard,
or that said nothing about its cache, offers no candidate.
"""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterable

from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import CachedWeights
from llmgw.fleet.world import Fleet, Node, Shard
from llmgw.kit.units import show_seconds

WANTED = "wanted by the catalog"
ROLLBACK = "wanted by an earlier catalog, for a rollback"
FETCHING = "being fetched"


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """Cache names that stay: of the adopted catalog, and of those before it that a rollback may need."""

    now: frozenset[str]
    rollback: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One entry that nothing wants, as its node listed it."""

    node: str
    entry: CachedWeights
    because: str


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """Entries that stay, added up by their reason. `size` in bytes."""

    because: str
    entries: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class NotAsked:
    """A node whose cache is not in the listing, and why."""

    node: str
    because: str


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """Candidates by node, then biggest first; what stays; which nodes are not in it."""

    candidates: tuple[Candidate, ...]
    kept: tuple[Kept, ...]
    not_asked: tuple[NotAsked, ...]

    @property
    def id(self) -> str:
        """`g-` and six digits of the list's digest: the same list has the same id, in any order."""
        shown = sorted(
            (c.node, c.entry.cache_name, c.entry.size, c.entry.modified, c.entry.whole)
            for c in self.candidates
        )
        text = json.dumps(shown, separators=(",", ":"))
        return f"g-{hashlib.sha256(text.encode()).hexdigest()[:6]}"

    @property
    def size(self) -> int:
        """Bytes of all candidates."""
        return sum(candidate.entry.size for candidate in self.candidates)

    def by_node(self) -> dict[str, tuple[CachedWeights, ...]]:
        """What each node is to be asked to remove."""
        nodes = sorted({candidate.node for candidate in self.candidates})
        return {node: tuple(c.entry for c in self.candidates if c.node == node) for node in nodes}


def listing(
    fleet: Fleet, wanted: Wanted, now: float, timers: Timers, *, nodes: Collection[str] | None = None
) -> Listing:
    """Reported entries − wanted − in use − being fetched. `nodes` narrows it; None = all of the roster."""
    candidates: list[Candidate] = []
    kept: list[tuple[str, int]] = []
    not_asked: list[NotAsked] = []
    for name in sorted(fleet.roster | fleet.nodes.keys()):
        if nodes is not None and name not in nodes:
            continue
        entries = _entries(fleet, name, now, timers)
        if isinstance(entries, NotAsked):
            not_asked.append(entries)
            continue
        for entry in sorted(entries, key=lambda each: (-each.size, each.cache_name)):
            stays = _stays(fleet, name, entry, wanted)
            if stays:
                kept.append((stays, entry.size))
            else:
                candidates.append(Candidate(name, entry, _because(entry)))
    return Listing(tuple(candidates), _summed(kept), tuple(not_asked))


def _entries(fleet: Fleet, name: str, now: float, timers: Timers) -> tuple[CachedWeights, ...] | NotAsked:
    node = fleet.nodes.get(name)
    if node is None:
        return NotAsked(name, "not heard since this control plane started")
    if not _answers(node, fleet, now, timers):
        return NotAsked(name, f"not heard for {show_seconds(now - node.last_seen)}")
    if node.info.weights is None:
        return NotAsked(name, "it says nothing about its cache")
    return node.info.weights


def _answers(node: Node, fleet: Fleet, now: float, timers: Timers) -> bool:
    return node.connected and fleet.standing(node.info.id, now, timers) == "Ready"


def _stays(fleet: Fleet, node: str, entry: CachedWeights, wanted: Wanted) -> str:
    """Why the entry stays; empty = nothing wants it."""
    if any(progress.cache_name == entry.cache_name for progress in fleet.progress.get(node, ())):
        return FETCHING
    users = [shard for shard in fleet.on_node(node) if shard.spec.cache_name == entry.cache_name]
    if users:
        return _in_use(users)
    if entry.cache_name in wanted.now:
        return WANTED
    return ROLLBACK if entry.cache_name in wanted.rollback else ""


def _in_use(users: Iterable[Shard]) -> str:
    first = min(users, key=lambda shard: shard.spec.key)
    return f"in use by {first.spec.replica} ({first.state})"


def _because(entry: CachedWeights) -> str:
    return "no model's source" if entry.whole else "abandoned fetch of no model's source"


def _summed(kept: Iterable[tuple[str, int]]) -> tuple[Kept, ...]:
    sizes: dict[str, list[int]] = {}
    for because, size in kept:
        sizes.setdefault(because, []).append(size)
    sums = [Kept(because, len(each), sum(each)) for because, each in sizes.items()]
    return tuple(sorted(sums, key=lambda each: (-each.size, each.because)))
