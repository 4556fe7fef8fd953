"""Which free cards of a node a profile may use; and of all the others why not, cause by cause.

The search asks for the cards, placement's rule `cards_free` for the words.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from llmgw.catalog.memory import SOLD_AS
from llmgw.catalog.model import Profile
from llmgw.fleet.inventory import Room
from llmgw.fleet.node import Gpu
from llmgw.kit.units import show_memory
from llmgw.planning.wants import allows

MOST_SAID = 3
"""Words about bad cards that are told of one node; of more, how many."""
_Numbered = tuple[int, Gpu]
"""A card and its number on its node."""
_Cards = Sequence[_Numbered]
_SLICE = "MIG-"
"""How the UUID of a MIG slice begins."""


def usable(room: Room, profile: Profile, spare: Collection[str], kind: str) -> list[Gpu]:
    """The free cards of one type that `profile` may use, in the node's order. `spare` are UUIDs to leave alone."""
    if not allows(profile, kind):
        return []
    least, share, split = profile.gpu_memory * SOLD_AS, profile.gpu_memory_utilization, _is_split(profile)
    return [
        gpu
        for gpu in room.free.get(kind, ())
        if (gpu.memory_total >= least or not gpu.memory_total)
        and gpu.takes(share)
        and gpu.uuid not in spare
        and not (split and gpu.uuid.startswith(_SLICE))
    ]


def _is_split(profile: Profile) -> bool:
    """Whether ranks meet by NCCL or one process has several cards: neither works over MIG slices."""
    return profile.tensor_parallel > 1 or profile.gpus_per_node > 1


def few(room: Room, profile: Profile, spare: Collection[str]) -> str:
    """That too few cards of one type are free, and what is with the others; nothing where there are enough."""
    wanted = profile.gpus_per_node
    free = {kind: number for kind in room.free if (number := len(usable(room, profile, spare, kind)))}
    if max(free.values(), default=0) >= wanted:
        return ""
    if len(free) > 1:
        there = " and ".join(f"{number} {kind}" for kind, number in sorted(free.items()))
        said = f"{there} free, {wanted} of one type needed"
    else:
        of = f" of {'/'.join(profile.gpu_types)}" if profile.gpu_types else ""
        said = f"{sum(free.values())} GPUs{of} free, {wanted} needed"
    return "; ".join((said, *_causes(_Asked(room, profile, spare))))


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """Of which node, for what."""

    room: Room
    profile: Profile
    spare: Collection[str]

    @property
    def least(self) -> float:
        return self.profile.gpu_memory * SOLD_AS


def _causes(asked: _Asked) -> Iterator[str]:
    """One for all cards that have it in common. Cards are told by their number on the node."""
    found: list[list[_Numbered]] = [[] for _ in _CAUSES]
    for number, gpu in enumerate(asked.room.info.gpus or ()):
        for (applies, _), having in zip(_CAUSES, found, strict=True):
            if applies(gpu, asked):
                having.append((number, gpu))
                break
    yield from (words(having, asked) for (_, words), having in zip(_CAUSES, found, strict=True) if having)


def _withdrawn(cards: _Cards, _: _Asked) -> str:
    words = sorted({gpu.said or "not healthy" for _, gpu in cards})
    more = f" and {len(words) - MOST_SAID} more" if len(words) > MOST_SAID else ""
    return f"{_named(cards, 'is', 'are')} withdrawn: {', '.join(words[:MOST_SAID])}{more}"


def _other_type(cards: _Cards, _: _Asked) -> str:
    return f"{_named(cards, 'is', 'are')} of type {', '.join(sorted({gpu.name for _, gpu in cards}))}"


def _small(cards: _Cards, asked: _Asked) -> str:
    sizes = _span(gpu.memory_total for _, gpu in cards)
    return f"{_named(cards, 'has', 'have')} {sizes}, {show_memory(asked.profile.gpu_memory)} asked"


def _slices(cards: _Cards, _: _Asked) -> str:
    return f"{_named(cards, 'is a MIG slice', 'are MIG slices')}, over which no model can be split"


def _held(cards: _Cards, asked: _Asked) -> str:
    holders = sorted({asked.room.held_by[gpu.uuid] for _, gpu in cards})
    return f"{', '.join(holders)} {'holds' if len(holders) == 1 else 'hold'} {len(cards)}"


def _foreign(cards: _Cards, asked: _Asked) -> str:
    theirs, sizes = _span(gpu.foreign for _, gpu in cards), _span(gpu.memory_total for _, gpu in cards)
    needed = _span(round(gpu.memory_total * asked.profile.gpu_memory_utilization) for _, gpu in cards)
    return f"{_named(cards)}: {theirs} of {sizes} held by others, {needed} asked"


def _ran_out(cards: _Cards, _: _Asked) -> str:
    return f"on {len(cards)} more its memory ran out last time"


_CAUSES: tuple[tuple[Callable[[Gpu, _Asked], bool], Callable[[_Cards, _Asked], str]], ...] = (
    (lambda gpu, _: not gpu.healthy, _withdrawn),
    (lambda gpu, asked: not allows(asked.profile, gpu.name), _other_type),
    (lambda gpu, asked: 0 < gpu.memory_total < asked.least, _small),
    (lambda gpu, asked: _is_split(asked.profile) and gpu.uuid.startswith(_SLICE), _slices),
    (lambda gpu, asked: gpu.uuid in asked.room.held_by, _held),
    (lambda gpu, asked: not gpu.takes(asked.profile.gpu_memory_utilization), _foreign),
    (lambda gpu, asked: gpu.uuid in asked.spare, _ran_out),
)
"""What lasts longest first: whether a card has it, and what is said of all that have."""


def _named(cards: _Cards, one: str = "", more: str = "") -> str:
    names = f"{'GPU' if len(cards) == 1 else 'GPUs'} {spans([number for number, _ in cards])}"
    return f"{names} {one if len(cards) == 1 else more}".strip()


def _span(sizes: Iterable[int]) -> str:
    """`40 GiB`, or `40 GiB to 48 GiB`."""
    each = sorted(sizes)
    low, high = show_memory(each[0]), show_memory(each[-1])
    return low if low == high else f"{low} to {high}"


def spans(numbers: Sequence[int]) -> str:
    """`0-3,6` of 0, 1, 2, 3 and 6."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
