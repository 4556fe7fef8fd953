"""What a catalog asks of placement, worked out once: generations, sizes, and which cards are wanted how much.

`planning.board` keeps one for as long as the same catalog stands; everything here is a function of
the catalog (and of the fleet's cards), never of time.
"""

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping

from llmgw.catalog.model import Catalog, Model, Profile
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.routes import RoutedModel

SizeKey = tuple[int, int, str]
"""(−GPUs, allowed GPU types, name): the order in which replicas look for a place."""


@dataclasses.dataclass(frozen=True, slots=True)
class Want:
    """One model as placement needs it. `generations` maps the current ones to their profiles, in order."""

    model: Model
    generations: Mapping[str, Profile]
    cache_name: str
    size_key: SizeKey


class Wants:
    """Every model of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.models = {name: _want(catalog, model) for name, model in sorted(catalog.models.items())}
        self.elastic = {
            name: want.model
            for name, want in self.models.items()
            if want.model.scaling.min < want.model.scaling.max
        }
        self.routed = tuple(
            RoutedModel(
                want.model.name, want.model.aliases, want.model.fallbacks, wakes=want.model.scaling.min == 0
            )
            for want in self.models.values()
        )
        self.label_keys = frozenset(
            key for profile in catalog.profiles.values() for key, _ in profile.node_labels
        )

    def pressure(self, infos: Iterable[NodeInfo]) -> dict[str, float]:
        """How much of each GPU type is wanted, as a share of what there is.

        Counted over all that is wanted, placed or not, so that it does not move while placing. A
        replica that may use several types presses on each with its share.
        """
        capacity: dict[str, int] = {}
        for info in infos:
            for gpu in info.gpus or ():
                capacity[gpu.name] = capacity.get(gpu.name, 0) + 1
        demand: dict[str, float] = dict.fromkeys(capacity, 0.0)
        shares: dict[tuple[str, ...], list[str]] = {}
        for want in self.models.values():
            profile = next(iter(want.generations.values()))
            if profile.gpu_types not in shares:
                shares[profile.gpu_types] = [kind for kind in capacity if allows(profile, kind)]
            allowed = shares[profile.gpu_types]
            for kind in allowed:
                wanted = profile.nodes * profile.gpus_per_node * want.model.scaling.min
                demand[kind] += wanted / len(allowed)
        return {kind: demand[kind] / capacity[kind] for kind in capacity}


def allows(profile: Profile, kind: str) -> bool:
    """Whether `profile` may run on GPUs of this type."""
    return not profile.gpu_types or any(fnmatch.fnmatchcase(kind, want) for want in profile.gpu_types)


def _want(catalog: Catalog, model: Model) -> Want:
    profile = catalog.profiles[model.profiles[0]]
    return Want(
        model=model,
        generations={
            generation: catalog.profiles[name] for generation, name in catalog.generations(model).items()
        },
        cache_name=model.cache_name,
        size_key=(-profile.nodes * profile.gpus_per_node, len(profile.gpu_types) or 1_000, model.name),
    )
