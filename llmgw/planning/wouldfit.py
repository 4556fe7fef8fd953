"""What would give a place to a replica that found none: another profile, replicas that move, a shorter context, a node that is open.

Called by `planning.plan` for the first few; pure. Every answer was tried with placement's own rules.
"""

import dataclasses
import glob
import heapq
import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping

from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.memory import SOLD_AS, estimate
from llmgw.catalog.model import Model, Profile
from llmgw.fleet.inventory import room
from llmgw.fleet.shard import ShardSpec
from llmgw.kit.text import count
from llmgw.kit.units import show_memory
from llmgw.planning.placement import Request, Site, refusals
from llmgw.planning.view import View
from llmgw.planning.wants import allows

MOST_SITES = 64
"""Nodes on which it is tried what would have to move: those with the fewest shards."""
MOST_PROFILES = 32
LEAST_LENGTH = 512
"""Tokens below which a shorter context is no way out."""


def would_fit(
    view: View,
    model: Model,
    profile: Profile,
    size: int,
    facts: ModelFacts | None,
    called: Callable[[str], str] = str,
) -> tuple[str, ...]:
    """The nearest of each kind, `profile h100-tp4` say; nothing where nothing of these would do.

    `called` is what people call a replica.
    """
    request = Request(model, profile, "", model.cache_name, size)
    ways = (
        _shorter(view, request, facts),
        _other_profile(view, request, facts),
        _moved(view, request, called),
        _opened(view, request),
    )
    return tuple(itertools.chain.from_iterable(ways))


def _sites(view: View) -> Iterable[Site]:
    return view.board.stock.sites.values()


def _fits(view: View, request: Request) -> bool:
    """Whether it would find its place at once."""
    return view.board.stock.choose(request, view.board.pressure) is not None


def _shorter(view: View, request: Request, facts: ModelFacts | None) -> Iterator[str]:
    """Smaller cards that are there, with as long a context as they hold."""
    profile = request.profile
    if facts is None or not profile.gpus_per_node or not profile.gpu_memory:
        return
    cards = {gpu.memory_total for site in _sites(view) for gpu in site.room.info.gpus or ()}
    for card in sorted((size for size in cards if 0 < size < profile.gpu_memory * SOLD_AS), reverse=True):
        found = estimate(facts, profile, card)
        longest = min(found.longest, profile.max_model_len or found.longest) if found is not None else 0
        smaller = dataclasses.replace(profile, gpu_memory=card, max_model_len=longest, gpu_types=())
        if longest >= LEAST_LENGTH and _fits(view, dataclasses.replace(request, profile=smaller)):
            yield f"max_model_len {longest} on cards of {show_memory(card)} (gpu.memory)"
            return


def _other_profile(view: View, request: Request, facts: ModelFacts | None) -> Iterator[str]:
    """A profile of the catalog for the same engine that this model does not list."""
    catalog, asked = view.desired.catalog, request.profile
    if catalog is None:
        return
    others = sorted(
        (
            each
            for each in catalog.profiles.values()
            if each.engine == asked.engine and each.name not in request.model.profiles
        ),
        key=lambda each: (each.nodes * each.gpus_per_node, each.name),
    )
    for profile in others[:MOST_PROFILES]:
        if _too_small(profile, asked, facts) or not _fits(
            view, dataclasses.replace(request, profile=profile)
        ):
            continue
        yield f"profile {profile.name} ({count(profile.nodes, 'node')} x {count(profile.gpus_per_node, 'GPU')})"
        return


def _too_small(profile: Profile, asked: Profile, facts: ModelFacts | None) -> bool:
    """Whether the model would not fit on its cards; where nobody knows the model, fewer cards are too few."""
    card = profile.gpu_memory or profile.cpu_memory
    if facts is None or not card:
        return profile.nodes * profile.gpus_per_node < asked.nodes * asked.gpus_per_node
    found = estimate(facts, profile, card)
    return found is not None and not found.fits


def _moved(view: View, request: Request, called: Callable[[str], str]) -> Iterator[str]:
    """The fewest replicas that would have to leave the nodes that they leave."""
    on_node: dict[str, list[ShardSpec]] = {}
    for shard in view.fleet.shards.values():
        on_node.setdefault(shard.spec.node, []).append(shard.spec)
    sites = heapq.nsmallest(MOST_SITES, _sites(view), key=lambda each: (each.room.shards, each.name))
    ways = [_emptied(each, sites, on_node) for each in _of_one_type(view, request)]
    best = min(
        (way for way in ways if way), key=lambda way: (sum(number for number, _, _ in way), way), default=()
    )
    names = sorted({called(name) for _, _, leave in best for name in leave})
    if names:
        yield f"{', '.join(names)} left {', '.join(name for number, name, _ in best if number)}"


def _of_one_type(view: View, request: Request) -> Iterator[Request]:
    """What a gang asks for, once for each type of cards that it may have; anything else asks for what it asks for."""
    profile = request.profile
    if profile.nodes == 1 or not profile.gpus_per_node:
        yield request
        return
    kinds = {gpu.name for site in _sites(view) for gpu in site.room.info.gpus or ()}
    for kind in sorted(kind for kind in kinds if allows(profile, kind)):
        alike = dataclasses.replace(profile, gpu_types=(glob.escape(kind),))
        yield dataclasses.replace(request, profile=alike)


def _emptied(
    request: Request, sites: Iterable[Site], on_node: Mapping[str, list[ShardSpec]]
) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    """For each node that it needs: how many replicas leave, the node's name, and who; nothing where that would not do."""
    found = []
    for site in sites:
        leave = _leaving(site, request, on_node.get(site.room.info.id, []))
        if leave is not None:
            found.append((len(leave), site.name, leave))
    best = tuple(sorted(found)[: request.profile.nodes])
    return best if len(best) == request.profile.nodes else ()


def _opened(view: View, request: Request) -> Iterator[str]:
    """A node that people keep free, and that would take it: for replicas of one node. One of the model's own is on
    its way out there, by the same people.
    """
    marks = view.desired.marks
    if request.profile.nodes > 1:
        return
    for site in sorted(_sites(view), key=lambda each: each.name):
        kept_free = site.room.info.id in marks.cordoned or site.room.info.id in marks.draining
        if not kept_free or request.model.name in site.room.siblings:
            continue
        if not refusals([dataclasses.replace(site, cordoned="")], request):
            yield f"{site.name} took replicas again (llmgw node uncordon {shlex.quote(site.name)})"
            return


def _leaving(site: Site, request: Request, specs: list[ShardSpec]) -> tuple[str, ...] | None:
    """Replicas without which the node would take a shard; None where that alone would not do."""
    if not refusals([site], request):
        return ()
    if any(refused.rule not in _HELD for refused in refusals([site], request)):
        return None
    by_size = sorted(specs, key=lambda spec: (len(spec.gpus), spec.replica))
    # One that is large enough by itself, the smallest first; then the largest together.
    tries = [[spec] for spec in by_size]
    tries += [by_size[-number:] for number in range(2, len(by_size) + 1)]
    for leave in tries:
        gone = {spec.replica for spec in leave}
        left = room(site.room.info, [spec for spec in specs if spec.replica not in gone])
        if not refusals([dataclasses.replace(site, room=left)], request):
            return tuple(sorted(gone))
    return None


_HELD = frozenset({"cards_free", "cores_and_memory_fit", "ports_free"})
"""Rules about what a replica gives back when it leaves."""
