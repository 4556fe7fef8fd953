"""Where a replica goes: hard rules in a list, then preferences as one tuple.

Called by `reconcile` for the one replica it may place in a pass, and by screens that explain why
nothing fits. Every refusal names the node, the rule and the numbers.
"""

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence

from llmgw.catalog.model import Model, Profile
from llmgw.fleet.expiry import Standing
from llmgw.fleet.inventory import Room
from llmgw.fleet.node import Gpu
from llmgw.fleet.shard import PORTS_PER_SHARD, Peer, ShardSpec
from llmgw.kit.units import show_bytes, show_memory

DISK_RESERVE = 1 << 30
"""Bytes of disk that no download may take: engines write compile caches."""


@dataclasses.dataclass(frozen=True, slots=True)
class NoFit:
    """Why one node cannot take a shard. `node` is its name; `rule` a stable code."""

    node: str
    rule: str
    said: str

    def __str__(self) -> str:
        return f"{self.node}: {self.said}"


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One replica looking for a place. `source_bytes` is 0 while nobody knows the size."""

    model: Model
    profile: Profile
    generation: str
    source_bytes: int = 0
    avoid: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """A node as placement sees it."""

    room: Room
    standing: Standing
    cordoned: str = ""

    @property
    def name(self) -> str:
        return self.room.info.name


def node_ready(site: Site, _: Request) -> str:
    if site.standing != "Ready":
        return f"the node is {site.standing}"
    return f"cordoned: {site.cordoned}" if site.cordoned else ""


def not_refused(site: Site, request: Request) -> str:
    return "it failed to start here last time" if site.room.info.id in request.avoid else ""


def engine_installed(site: Site, request: Request) -> str:
    engines = site.room.info.engines
    if engines is None or any(engine.name == request.profile.engine for engine in engines):
        return ""
    return f"no {request.profile.engine} (has {', '.join(sorted(e.name for e in engines)) or 'no engine'})"


def labels_match(site: Site, request: Request) -> str:
    have = dict(site.room.info.labels)
    missing = [f"{key}={value}" for key, value in request.profile.node_labels if have.get(key) != value]
    return f"label {', '.join(missing)} is missing" if missing else ""


def cards_free(site: Site, request: Request) -> str:
    wanted = request.profile.gpus_per_node
    if not wanted:
        return ""
    if site.room.info.gpus is None:
        return "its GPUs are not known"
    free = candidates(site.room, request.profile)
    if len(free) >= wanted:
        return ""
    kind = f" of {'/'.join(request.profile.gpu_types)}" if request.profile.gpu_types else ""
    holders = sorted(set(site.room.held_by.values()))
    held = f"; {', '.join(holders)} hold the others" if holders else ""
    return f"{len(free)} GPUs{kind} free, {wanted} needed{held}"


def cores_and_memory_fit(site: Site, request: Request) -> str:
    info, profile = site.room.info, request.profile
    if info.cpu_cores is not None and profile.cpu_cores > info.cpu_cores - site.room.cores_booked:
        left = info.cpu_cores - site.room.cores_booked
        return f"{left:g} of {info.cpu_cores:g} cores not booked, {profile.cpu_cores:g} needed"
    if info.memory_total is not None and profile.cpu_memory > info.memory_total - site.room.memory_booked:
        left = info.memory_total - site.room.memory_booked
        return f"{show_memory(max(0, left))} of memory not booked, {show_memory(profile.cpu_memory)} needed"
    return ""


def disk_fits(site: Site, request: Request) -> str:
    # Skipped where the weights already are: holding the file is what used the space.
    info = site.room.info
    if not request.model.source.fetched or info.disk_free is None or info.holds(request.model.cache_name):
        return ""
    left = info.disk_free - site.room.disk_booked - DISK_RESERVE
    if request.source_bytes <= left:
        return ""
    return f"{show_bytes(max(0, left))} of disk free, {show_bytes(request.source_bytes)} to fetch"


def ports_free(site: Site, _: Request) -> str:
    if site.room.port_block(PORTS_PER_SHARD) is not None:
        return ""
    first, last = site.room.info.ports
    return f"no {PORTS_PER_SHARD} ports in a row are free in {first}-{last}"


RULES: tuple[Callable[[Site, Request], str], ...] = (
    node_ready,
    not_refused,
    engine_installed,
    labels_match,
    cards_free,
    cores_and_memory_fit,
    disk_fits,
    ports_free,
)
"""In the order people read them. Each returns why not, or nothing."""


def candidates(room: Room, profile: Profile) -> list[Gpu]:
    """The free cards of the node that `profile` may use, in the node's order; all of one type."""
    fits = [gpu for gpu in room.free_gpus() if _card_fits(gpu, profile)]
    by_type: dict[str, list[Gpu]] = {}
    for gpu in fits:
        by_type.setdefault(gpu.name, []).append(gpu)
    enough = [cards for cards in by_type.values() if len(cards) >= profile.gpus_per_node]
    return min(enough, key=len) if enough else max(by_type.values(), key=len, default=[])


def _card_fits(gpu: Gpu, profile: Profile) -> bool:
    if profile.gpu_types and not any(fnmatch.fnmatchcase(gpu.name, kind) for kind in profile.gpu_types):
        return False
    if gpu.memory_total and gpu.memory_total < profile.gpu_memory:
        return False
    return gpu.memory_total - gpu.foreign >= gpu.memory_total * profile.gpu_memory_utilization


def refusals(sites: Iterable[Site], request: Request) -> list[NoFit]:
    """Every node's every reason not to take a shard of `request`."""
    return [
        NoFit(site.name, rule.__name__, said)
        for site in sites
        for rule in RULES
        if (said := rule(site, request))
    ]


def fits(site: Site, request: Request) -> bool:
    """Whether the node can take a shard of `request` now."""
    return not any(rule(site, request) for rule in RULES)


def choose(request: Request, sites: Sequence[Site], pressure: Mapping[str, float]) -> tuple[Site, ...]:
    """The best nodes for one replica, all or none: () when fewer than `nodes` of them fit.

    Rank 0's comes first in the order of preference. A gang's nodes have cards of one type.
    """
    good = [site for site in sites if fits(site, request)]
    good.sort(key=lambda site: preference(site, request, pressure))
    for kind in dict.fromkeys(_kind(site, request) for site in good):
        same = [site for site in good if _kind(site, request) == kind]
        if len(same) >= request.profile.nodes:
            return tuple(same[: request.profile.nodes])
    return ()


def preference(
    site: Site, request: Request, pressure: Mapping[str, float]
) -> tuple[int, float, int, float, bool, str]:
    """Smaller is better: siblings apart, the least wanted GPU type, best fit, weights there, name."""
    room = site.room
    cores_left = (room.info.cpu_cores or 0.0) - room.cores_booked
    return (
        room.siblings.get(request.model.name, 0),
        pressure.get(_kind(site, request), 0.0),
        len(room.free_gpus()),
        cores_left if not request.profile.gpus_per_node else 0.0,
        not room.info.holds(request.model.cache_name),
        site.name,
    )


def _kind(site: Site, request: Request) -> str:
    cards = candidates(site.room, request.profile) if request.profile.gpus_per_node else []
    return cards[0].name if cards else "cpu"


def specs(replica: str, request: Request, sites: Sequence[Site]) -> tuple[ShardSpec, ...]:
    """The complete shards of `replica` on `sites`, in rank order: cards, ports, and where the others are."""
    blocks = [site.room.port_block(PORTS_PER_SHARD) for site in sites]
    peers = tuple(
        Peer(rank, site.room.info.id, site.room.info.address, block or 0)
        for rank, (site, block) in enumerate(zip(sites, blocks, strict=True))
    )
    profile = request.profile
    return tuple(
        ShardSpec(
            replica=replica,
            model=request.model.name,
            rank=rank,
            generation=request.generation,
            profile=profile,
            source=request.model.source,
            peers=peers,
            gpus=tuple(gpu.uuid for gpu in candidates(site.room, profile)[: profile.gpus_per_node]),
            source_bytes=request.source_bytes,
        )
        for rank, site in enumerate(sites)
    )


def demand_pressure(requests: Iterable[tuple[Profile, int]], sites: Iterable[Site]) -> dict[str, float]:
    """How much of each GPU type is wanted, as a share of what there is.

    `requests` = (profile, replicas wanted) over all that is wanted, placed or not, so that it does not
    move while placing. A replica that may use several types presses on each with its share.
    """
    capacity: dict[str, int] = {}
    for site in sites:
        for gpu in site.room.info.gpus or ():
            capacity[gpu.name] = capacity.get(gpu.name, 0) + 1
    demand: dict[str, float] = dict.fromkeys(capacity, 0.0)
    for profile, count in requests:
        allowed = [
            kind
            for kind in capacity
            if not profile.gpu_types or any(fnmatch.fnmatchcase(kind, want) for want in profile.gpu_types)
        ]
        for kind in allowed:
            demand[kind] += profile.nodes * profile.gpus_per_node * count / len(allowed)
    return {kind: demand[kind] / capacity[kind] for kind in capacity}
