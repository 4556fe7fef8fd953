"""What a creation takes: memory of a card, disk of a node, bytes, seconds. The numbers of one row of a plan.

Called by `planning.plan` for each replica that the rehearsal creates. Sizes in bytes. Sums are exact here;
`kit.sums` rounds them so that they add up as they are shown.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.fitting import card_of
from llmgw.catalog.memory import estimate
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import ShardSpec
from llmgw.kit.text import count
from llmgw.kit.units import show_bytes, show_seconds

Basis = Literal["exact", "estimate"]

FETCH_GUESS = 500e6
"""Bytes per second of a fetch while nobody has seen one."""
LOAD_GUESS = 2e9
"""Bytes per second at which an engine reads its weights while nobody has seen it start."""
START_GUESS = 20.0
"""Seconds that a start takes beside reading the weights."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """The middle of what was measured, and of how many."""

    middle: float
    times: int


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What the control plane measured: seconds of starts by generation, bytes per second of fetches by node id."""

    starts: Mapping[str, Sample] = dataclasses.field(default_factory=dict)
    fetches: Mapping[str, Sample] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What is known beside the fleet: of models by cache name, and what was measured.

    `unread` says of which the source could not be looked into, and why.
    """

    facts: Mapping[str, ModelFacts] = dataclasses.field(default_factory=dict)
    seen: Seen = dataclasses.field(default_factory=Seen)
    unread: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that something takes; `basis` is `measured: 41s, 12 times` or `guess: 2.0 GB/s`."""

    seconds: float
    basis: str


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One part of a sum of memory."""

    name: str
    size: int
    basis: Basis = "estimate"


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """The sum of `parts` on the card (or in the booked memory) of the rank that needs most, of `budget`.

    `budget` = `card` × `share`. `said` is what the KV cache holds. `cpu` = booked memory, no card.
    """

    parts: tuple[Part, ...]
    budget: int
    card: int
    share: float
    said: str = ""
    cpu: bool = False

    @property
    def total(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def short(self) -> int:
        """Bytes that are missing; 0 or less where it fits."""
        return self.total - self.budget


@dataclasses.dataclass(frozen=True, slots=True)
class Seat:
    """Where one rank goes: its node's name, its cards by their place there, and the node's disk.

    `fetch` = bytes it brings (None = length not known); `free` = bytes free before it, None = not said.
    """

    node: str
    cards: tuple[int, ...] = ()
    fetch: int | None = 0
    free: int | None = None


def seat(spec: ShardSpec, info: NodeInfo, fetch: int | None, free: int | None) -> Seat:
    """The seat of a shard on its node."""
    numbers = {gpu.uuid: number for number, gpu in enumerate(info.gpus or ())}
    cards = tuple(sorted(numbers[gpu] for gpu in spec.gpus if gpu in numbers))
    return Seat(info.name, cards, fetch, free)


def memory(specs: Sequence[ShardSpec], infos: Iterable[NodeInfo], facts: ModelFacts | None) -> Memory | None:
    """The sum on the smallest of the cards that were chosen; None where the facts do not say enough."""
    if facts is None:
        return None
    profile = specs[0].profile
    mine = {gpu for spec in specs for gpu in spec.gpus}
    sizes = [g.memory_total for info in infos for g in info.gpus or () if g.uuid in mine and g.memory_total]
    card = min(sizes, default=0) if profile.gpus_per_node else 0
    found = estimate(facts, profile, card or card_of(profile))
    if found is None or not found.card:
        return None
    # llama.cpp takes exactly its context; the others take all that is left.
    kv = found.sequence if profile.engine == "llamacpp" else max(found.room, found.sequence)
    parts = [*(Part(term.name, term.size, term.basis) for term in found.terms), Part("KV", kv, "exact")]
    said = ""
    if profile.engine != "llamacpp" and found.sequence and found.fits:
        said = f"KV holds {found.concurrency:.1f} x {found.length:,} tokens"
    return Memory(tuple(parts), found.budget, found.card, found.share, said, cpu=not profile.gpus_per_node)


def fetching(seats: Sequence[Seat], nodes: Sequence[str], seen: Seen) -> Timing | None:
    """The slowest of the fetches; None where there is none or its length is not known. `nodes` are ids."""
    found = [
        _fetch(seat.fetch, node, seen) for seat, node in zip(seats, nodes, strict=True) if seat.fetch != 0
    ]
    known = [timing for timing in found if timing is not None]
    return max(known, key=lambda timing: timing.seconds) if known and len(known) == len(found) else None


def _fetch(size: int | None, node: str, seen: Seen) -> Timing | None:
    if size is None:
        return None
    sample = seen.fetches.get(node)
    if sample is None and seen.fetches:
        # Not this node's word, but this fleet's.
        sample = sorted(seen.fetches.values(), key=lambda each: each.middle)[len(seen.fetches) // 2]
    if sample is None:
        return Timing(size / FETCH_GUESS, f"guess: {show_bytes(FETCH_GUESS)}/s")
    basis = f"measured: {show_bytes(sample.middle)}/s, {count(sample.times, 'time')}"
    return Timing(size / sample.middle, basis)


def weight(spec: ShardSpec, infos: Iterable[NodeInfo], facts: ModelFacts | None) -> int:
    """Bytes of a shard's weights as far as anybody knows, also a node that has them; 0 = nobody does."""
    told = spec.source_bytes or (facts.download if facts is not None else 0)
    entries = (each for info in infos for each in info.weights or ())
    return told or max(
        (each.size for each in entries if each.whole and each.cache_name == spec.cache_name), default=0
    )


def starting(spec: ShardSpec, size: int, seen: Seen, before: Iterable[str] = ()) -> Timing | None:
    """From exec to ready. `size` are the bytes of its weights, 0 = not known: then nobody can guess.

    `before` are generations that ran the same weights with other settings: what they took is the next best basis.
    """
    for generation in (spec.generation, *before):
        sample = seen.starts.get(generation)
        if sample is not None:
            how = "measured" if generation == spec.generation else "measured before this change"
            basis = f"{how}: {show_seconds(sample.middle)}, {count(sample.times, 'time')}"
            return Timing(sample.middle, basis)
    if not size:
        return None
    ranks = max(1, spec.profile.nodes)
    return Timing(START_GUESS + size / ranks / LOAD_GUESS, f"guess: {show_bytes(LOAD_GUESS)}/s")
