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
from llmgw.planning.changes import touched

SizeKey = tuple[int, int, str]
"""(−GPUs, allowed GPU types, name): the order in which replicas look for a place."""


@dataclasses.dataclass(frozen=True, slots=True)
class Want:
    """One model as placement needs it. `generations` maps the current ones to their profiles, in order;
    `gpu_types` are those of the first."""

    model: Model
    generations: Mapping[str, Profile]
    cache_name: str
    size_key: SizeKey
    gpu_types: tuple[str, ...]
    routed: RoutedModel


class Wants:
    """Every model of one catalog."""

    def __init__(self, catalog: Catalog, before: "Wants | None" = None) -> None:
        """`before` are those of a catalog that differs in little: what is the same is the same object."""
        self.catalog = catalog
        self.models = _models(catalog, before)
        self.elastic = {
            name: want.model
            for name, want in self.models.items()
            if want.model.scaling.min < want.model.scaling.max
        }
        self.routed = tuple([want.routed for want in self.models.values()])
        self.label_keys = frozenset(
            [key for profile in catalog.profiles.values() for key, _ in profile.node_labels]
        )
        self._demand: dict[tuple[str, ...], int] = {}
        for want in self.models.values():
            wanted = -want.size_key[0] * want.model.scaling.min
            types = want.gpu_types
            self._demand[types] = self._demand.get(types, 0) + wanted

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
        for types, wanted in self._demand.items():
            allowed = [kind for kind in capacity if is_of(kind, types)]
            for kind in allowed:
                demand[kind] += wanted / len(allowed)
        return {kind: demand[kind] / capacity[kind] for kind in capacity}


def allows(profile: Profile, kind: str) -> bool:
    """Whether `profile` may run on GPUs of this type."""
    return is_of(kind, profile.gpu_types)


def is_of(kind: str, types: tuple[str, ...]) -> bool:
    """Whether a GPU type is one of those that a profile names; none named = any."""
    return not types or any(fnmatch.fnmatchcase(kind, want) for want in types)


def _models(catalog: Catalog, before: Wants | None) -> dict[str, Want]:
    """In the order of names; those of `before` that are still right."""
    if before is None:
        return {name: _want(catalog, model) for name, model in sorted(catalog.models.items())}
    others = touched(before.catalog, catalog)
    wants = {name: want for name, want in before.models.items() if name not in others}
    wants.update((name, _want(catalog, catalog.models[name])) for name in others if name in catalog.models)
    return dict(sorted(wants.items()))


def _want(catalog: Catalog, model: Model) -> Want:
    profile = catalog.profiles[model.profiles[0]]
    return Want(
        model=model,
        generations={
            generation: catalog.profiles[name] for generation, name in catalog.generations(model).items()
        },
        cache_name=model.cache_name,
        size_key=(-profile.nodes * profile.gpus_per_node, len(profile.gpu_types) or 1_000, model.name),
        gpu_types=profile.gpu_types,
        routed=RoutedModel(model.name, model.aliases, model.fallbacks, wakes=model.scaling.min == 0),
    )
