"""Fleets of any size, drawn from a seed: for the benches, the comparison with the optimum, the properties."""

import random

from llmgw.catalog.model import Catalog, Model
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
