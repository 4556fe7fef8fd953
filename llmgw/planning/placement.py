"""Where a replica goes: hard rules in a list, then preferences as one tuple.

`stock` tries the rules on the few nodes that come first by preference; `reconcile` asks for every
refusal of what found no place. Every refusal names the node, the rule and the numbers.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from llmgw.catalog import versions
from llmgw.catalog.model import Model, Profile
from llmgw.fleet.expiry import Standing
from llmgw.fleet.inventory import Room
from llmgw.fleet.shard import PORTS_PER_SHARD, Peer, ShardSpec
from llmgw.kit.units import show_bytes, show_memory
from llmgw.planning.cards import few, usable

DISK_RESERVE = 1 << 30
"""Bytes of disk that no download may take: engines write compile caches."""
CPU = "cpu"
"""The type of card of a model that needs none."""


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
    """One replica looking for a place. `source_bytes` is 0 while nobody knows the size.

    `avoid` are node ids, `spare` the UUIDs of cards, where it did not start lately.
    """

    model: Model
    profile: Profile
    generation: str
    cache_name: str
    source_bytes: int = 0
    avoid: frozenset[str] = frozenset()
    spare: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """A node as placement sees it."""

    room: Room
    standing: Standing
    cordoned: str = ""

    @property
    def name(self) -> str:
        return self.room.info.name

    @property
    def cores_left(self) -> float:
        return (self.room.info.cpu_cores or 0.0) - self.room.cores_booked


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Where one replica goes: a node for each rank, and the type of their cards."""

    kind: str
    sites: tuple[Site, ...]


DRAINED = "drained: "
"""How the reason begins for which a node that people want empty takes nothing new."""


def node_ready(site: Site, _: Request) -> str:
    if site.standing != "Ready":
        return f"the node is {site.standing}"
    if site.cordoned.startswith(DRAINED):
        return site.cordoned
    return f"cordoned: {site.cordoned}" if site.cordoned else ""


def not_refused(site: Site, request: Request) -> str:
    return "it failed to start here last time" if site.room.info.id in request.avoid else ""


def engine_installed(site: Site, request: Request) -> str:
    engines = site.room.info.engines
    if engines is None or request.profile.engine in [engine.name for engine in engines]:
        return ""
    return f"no {request.profile.engine} (has {', '.join(sorted(e.name for e in engines)) or 'no engine'})"


def engine_version(site: Site, request: Request) -> str:
    wanted, name = request.profile.engine_version, request.profile.engine
    if not wanted:
        return ""
    told = [engine.known_version for engine in site.room.info.engines or () if engine.name == name]
    if not told or any(versions.permits(wanted, version) for version in told):
        return ""
    return f"its {name} is {', '.join(told)}, {wanted} is asked"


def labels_match(site: Site, request: Request) -> str:
    have = dict(site.room.info.labels)
    missing = [f"{key}={value}" for key, value in request.profile.node_labels if have.get(key) != value]
    return f"label {', '.join(missing)} is missing" if missing else ""


def cards_free(site: Site, request: Request) -> str:
    if not request.profile.gpus_per_node:
        return ""
    if site.room.info.gpus is None:
        return "its GPUs are not known"
    return few(site.room, request.profile, request.spare)


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
    if not request.model.source.fetched or info.disk_free is None or request.cache_name in site.room.cached:
        return ""
    left = info.disk_free - site.room.disk_booked - DISK_RESERVE
    if request.source_bytes <= left:
        return ""
    shared = site.room.arrives(request.cache_name)
    takes = 0 if shared else info.takes(request.cache_name, request.source_bytes)
    if takes <= left:
        return ""
    return f"{show_bytes(max(0, left))} of disk free, {show_bytes(takes)} to fetch"


def ports_free(site: Site, _: Request) -> str:
    if site.room.port_block() is not None:
        return ""
    first, last = site.room.info.ports
    return f"no {PORTS_PER_SHARD} ports in a row are free in {first}-{last}"


RULES: tuple[Callable[[Site, Request], str], ...] = (
    node_ready,
    not_refused,
    engine_installed,
    engine_version,
    labels_match,
    cards_free,
    cores_and_memory_fit,
    disk_fits,
    ports_free,
)
"""In the order people read them. Each returns why not, or nothing."""
_BESIDE_CARDS = tuple(rule for rule in RULES if rule is not cards_free)


def refusals(sites: Iterable[Site], request: Request) -> list[NoFit]:
    """Every node's every reason not to take a shard of `request`."""
    return [
        NoFit(site.name, rule.__name__, said)
        for site in sites
        for rule in RULES
        if (said := rule(site, request))
    ]


def fits(site: Site, request: Request, kind: str) -> bool:
    """Whether the node can take a shard of `request` now, on cards of this type."""
    profile = request.profile
    if kind != CPU and len(usable(site.room, profile, request.spare, kind)) < profile.gpus_per_node:
        return False
    for rule in _BESIDE_CARDS:  # noqa: SIM110 - a generator would cost half of it
        if rule(site, request):
            return False
    return True


def too_few(sites: Iterable[Site], request: Request) -> str:
    """How many nodes a gang needs, and which of `sites` (that refuse no shard of it) there are; nothing without any."""
    profile = request.profile
    eligible: dict[str, list[str]] = {}
    for site in sites:
        for kind in site.room.free if profile.gpus_per_node else (CPU,):
            if fits(site, request, kind):
                eligible.setdefault(kind, []).append(site.name)
    if not eligible:
        return ""
    if len(eligible) == 1:
        (names,) = eligible.values()
        return f"needs {profile.nodes} nodes, {len(names)} eligible ({_first(names)})"
    each = (f"{len(names)} with {kind} ({_first(names)})" for kind, names in sorted(eligible.items()))
    return f"needs {profile.nodes} nodes with GPUs of one type, eligible are {', '.join(each)}"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def preference(
    site: Site, request: Request, kind: str, pressure: Mapping[str, float]
) -> tuple[int, float, int, float, bool, str]:
    """Smaller is better: siblings apart, the least wanted GPU type, best fit, weights there, name."""
    room = site.room
    return (
        room.siblings.get(request.model.name, 0),
        pressure.get(kind, 0.0),
        len(room.free_gpus() if kind == CPU else room.free.get(kind, ())),
        site.cores_left if kind == CPU else 0.0,
        request.cache_name not in room.cached,
        site.name,
    )


def preference_of_all(
    sites: Sequence[Site], request: Request, kind: str, pressure: Mapping[str, float]
) -> tuple[int, int, float, int, float, int, tuple[str, ...]]:
    """The same over all nodes of a replica: first that none holds many siblings, then that few do."""
    each = [preference(site, request, kind, pressure) for site in sites]
    siblings, pressures, free, cores, cold, names = zip(*each, strict=True)
    return max(siblings), sum(siblings), pressures[0], sum(free), sum(cores), sum(cold), names


def specs(replica: str, request: Request, choice: Choice) -> tuple[ShardSpec, ...]:
    """The complete shards of `replica` in rank order: cards, ports, and where the others are."""
    profile = request.profile
    peers = tuple(
        [
            Peer(rank, site.room.info.id, site.room.info.address, site.room.port_block() or 0)
            for rank, site in enumerate(choice.sites)
        ]
    )
    shards = [
        ShardSpec(
            replica=replica,
            model=request.model.name,
            rank=rank,
            generation=request.generation,
            profile=profile,
            source=request.model.source,
            peers=peers,
            gpus=tuple(
                [
                    gpu.uuid
                    for gpu in usable(site.room, profile, request.spare, choice.kind)[: profile.gpus_per_node]
                ]
            ),
            source_bytes=request.source_bytes,
        )
        for rank, site in enumerate(choice.sites)
    ]
    return tuple(shards)
