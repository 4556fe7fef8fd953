"""Fleets of any size, drawn from a seed: for the benches, the comparison with the optimum, the properties."""

import random

from llmgw.catalog.model import Catalog, Model, Profile
from llmgw.fleet import events
from llmgw.fleet.node import Gpu, InstalledEngine, NodeInfo
from llmgw.fleet.world import Fleet
from tests.planning.story import a_catalog, a_model, a_profile

NOW = 1000.0
SIZES = ((1, 70), (2, 20), (4, 8), (8, 2))
"""(GPUs of a replica, share in percent)."""


def machine(name: str, kind: str = "H100", gpus: int = 8, **more: object) -> NodeInfo:
    """A node whose cards are all of one type."""
    cards = tuple(Gpu(f"{name}-{i}", kind, 80 << 30) for i in range(gpus))
    return NodeInfo(
        name,
        name,
        gpus=cards,
        engines=(InstalledEngine("llamacpp"),),
        disk_free=1 << 44,
        **more,  # type: ignore[arg-type]
    )


def registered(*infos: NodeInfo, now: float = NOW) -> Fleet:
    """A fleet in which these nodes have just registered."""
    return Fleet(since=now - 100).after([events.Registered(info) for info in infos], now)


def big(nodes: int, replicas: int, per_model: int = 10) -> tuple[Catalog, Fleet]:
    """8-GPU nodes and a catalog of mixed sizes that fits on four fifths of them (at four replicas a node)."""
    chance = random.Random(f"{nodes}/{replicas}")
    profiles = {size: a_profile(f"x{size}", gpus_per_node=size, tensor_parallel=size) for size, _ in SIZES}
    models: list[Model] = []
    left = replicas
    while left:
        count = min(left, per_model)
        (size,) = chance.choices([size for size, _ in SIZES], [share for _, share in SIZES])
        models.append(a_model(f"m{len(models):05}", replicas=count, profiles=(f"x{size}",)))
        left -= count
    fleet = registered(*(machine(f"n{i:05}") for i in range(nodes)))
    return a_catalog(*models, profiles=profiles.values()), fleet


def mixed(seed: int, load: float = 1.05) -> tuple[Catalog, Fleet]:
    """A dozen nodes of four GPU types, and constrained demand of `load` times what they have."""
    chance = random.Random(f"mixed/{seed}")
    kinds = ("H200", "H100", "A100", "L40S")
    infos = [machine(f"n{i:02}", chance.choice(kinds), chance.choice((2, 4, 8, 8))) for i in range(14)]
    capacity = sum(len(info.gpus or ()) for info in infos)
    profiles: list[Profile] = []
    models: list[Model] = []
    asked = 0
    while asked < load * capacity:
        size = chance.choice((1, 1, 2, 4, 8))
        profile = a_profile(
            f"p{len(models)}",
            gpus_per_node=size,
            nodes=2 if size == 8 and chance.random() < 0.3 else 1,
            gpu_types=tuple(chance.sample(kinds, chance.choice((1, 2, 3)))) if chance.random() < 0.6 else (),
        )
        count = chance.choice((1, 1, 2, 3))
        profiles.append(profile)
        models.append(a_model(f"m{len(models):03}", replicas=count, profiles=(profile.name,)))
        asked += profile.nodes * size * count
    return a_catalog(*models, profiles=profiles), registered(*infos)


OPENB_NODES = (
    ("G2", 8, 549), ("T4", 2, 387), ("P100", 2, 131), ("G3", 8, 39), ("V100M16", 4, 28), ("V100M32", 8, 21),
    ("V100M16", 1, 19), ("T4", 4, 17), ("V100M32", 4, 9), ("V100M16", 8, 8), ("P100", 1, 3), ("A10", 1, 2),
)  # fmt: skip
"""(GPU type, cards, nodes): the histogram of Alibaba's openb trace of 2023."""
OPENB_SIZES = ((1, 3911), (2, 222), (4, 206), (8, 556))
"""(whole GPUs, pods) of its multi-GPU variant."""
OPENB_CONSTRAINED = 1504 / 3986
"""The share of pods that name GPU types, in its gpuspec33 variant."""


def openb(seed: int, share: float = 1.0, load: float = 1.05) -> tuple[Catalog, Fleet]:
    """`share` of the openb fleet, under demand of its sizes and constraints of `load` times what it has."""
    chance = random.Random(f"openb/{seed}")
    infos = [
        machine(f"{kind}x{cards}-{i:03}", kind, cards)
        for kind, cards, nodes in OPENB_NODES
        for i in range(max(1, round(nodes * share)))
    ]
    chance.shuffle(infos)
    capacity = sum(len(info.gpus or ()) for info in infos)
    hosts = {size: [kind for kind, cards, _ in OPENB_NODES if cards >= size] for size, _ in OPENB_SIZES}
    profiles: dict[str, Profile] = {}
    models: list[Model] = []
    asked = 0
    while asked < load * capacity:
        (size,) = chance.choices([size for size, _ in OPENB_SIZES], [pods for _, pods in OPENB_SIZES])
        kinds: tuple[str, ...] = ()
        if chance.random() < OPENB_CONSTRAINED:
            able = sorted(set(hosts[size]))
            kinds = tuple(sorted(chance.sample(able, min(len(able), chance.choice((1, 2, 2, 3))))))
        name = f"x{size}-{'-'.join(kinds) or 'any'}"
        profiles[name] = a_profile(name, gpus_per_node=size, gpu_types=kinds)
        count = chance.choice((1, 1, 2, 4))
        models.append(a_model(f"m{len(models):05}", replicas=count, profiles=(name,)))
        asked += size * count
    return a_catalog(*models, profiles=profiles.values()), registered(*infos)
