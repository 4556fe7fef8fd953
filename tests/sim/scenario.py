"""What a seed draws before time begins: machines, a catalog that fits them, timers, and catalog edits."""

import dataclasses
import functools
import hashlib

from llmgw.catalog.model import Catalog, Model, Profile, Scaling, generation
from llmgw.catalog.sources import cache_name, parse
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import Gpu
from llmgw.kit.chance import Chance
from tests.sim.gateways import Clients
from tests.sim.weights import UNIT, bytes_of, cache_of, names_of

GIB = 1 << 30
CHAT = "chat"
"""A name that goes from model to model."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """The start of a run. `machines` maps names to their cards; `warm` is the share of weights that are there.

    `restarts` = in the end the control plane starts anew.
    """

    machines: dict[str, tuple[Gpu, ...]]
    catalog: Catalog
    timers: Timers
    gateways: int
    clients: Clients
    warm: float
    restarts: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """How large a world may be: machines, cards of each, models, replicas of a model; and how often it is drawn."""

    nodes: tuple[int, int]
    cards: tuple[int, ...]
    models: tuple[int, int]
    wanted: int
    gangs: float
    share: float


SIZES = (
    Size(nodes=(2, 3), cards=(2,), models=(1, 2), wanted=1, gangs=0.3, share=0.42),
    Size(nodes=(3, 4), cards=(2,), models=(1, 2), wanted=2, gangs=0.5, share=0.25),
    Size(nodes=(2, 3), cards=(4,), models=(3, 4), wanted=1, gangs=0.0, share=0.25),
    Size(nodes=(4, 6), cards=(2, 4), models=(2, 4), wanted=3, gangs=0.4, share=0.08),
)
"""Most worlds are small: what goes wrong between few goes wrong sooner, and is told in fewer words."""


def draw(chance: Chance) -> Scenario:
    """A fleet, and models that fill up to three quarters of it."""
    (size,) = chance.choices(SIZES, [size.share for size in SIZES])
    cards, count = chance.choice(size.cards), chance.randint(*size.nodes)
    machines = {
        f"n{i}": tuple(Gpu(f"n{i}-g{j}", "H100", 80 * GIB) for j in range(cards)) for i in range(count)
    }
    lost = chance.choice((75.0, 90.0, 180.0, 300.0))
    return Scenario(
        machines=machines,
        catalog=_catalog(chance, size, count * cards * 3 // 4),
        timers=Timers(lost=lost, lost_grace=lost, scale_window=chance.choice((60.0, 150.0, 300.0))),
        gateways=chance.choice((1, 1, 2, 3)),
        clients=Clients(chance.uniform(4.0, 12.0), chance.choice((0.05, 0.1, 0.4))),
        warm=chance.choice((0.0, 0.7, 1.0)),
        restarts=chance.random() < 0.5,
    )


def _catalog(chance: Chance, size: Size, budget: int) -> Catalog:
    models: dict[str, Model] = {}
    profiles: dict[str, Profile] = {}
    for i in range(chance.randint(*size.models)):
        gang = chance.random() < size.gangs
        profile = Profile(
            name=f"p{i}",
            engine="vllm",
            nodes=2 if gang else 1,
            gpus_per_node=chance.choice((1, 1, 2)) if size.gangs else 1,
            tensor_parallel=1,
            cpu_memory=chance.choice((0, 16, 48)) * GIB,
            start_deadline=chance.choice((120.0, 300.0)),
            drain=chance.choice((20.0, 60.0, 120.0)),
        )
        wanted = chance.randint(1, size.wanted)
        needed = profile.nodes * profile.gpus_per_node * wanted
        if needed > budget:
            continue
        budget -= needed
        few = chance.choice((0, 1, wanted)) if chance.random() < 0.4 else wanted
        most = wanted if few < wanted else wanted + (chance.random() < 0.3)
        source = parse(f"hf://org/m{i}@main") if chance.random() < 0.8 else parse(f"file:///weights/m{i}")
        profiles[profile.name] = profile
        models[f"m{i}"] = Model(
            f"m{i}", source, (profile.name,), scaling=Scaling(few, most, chance.choice((2, 4)))
        )
    return Catalog(models, profiles)


def elastic(model: Model) -> bool:
    """Whether its count follows its clients."""
    return model.scaling.min < model.scaling.max


def sizes(catalog: Catalog) -> dict[str, int]:
    """What the hub says of the weights of a catalog, in bytes by cache name; of some it says nothing."""
    sources = [model.source for model in catalog.models.values() if model.source.fetched]
    return {
        cache_name(source): UNIT
        * sum(len(bytes_of(source.canonical, name, 0)) for name in names_of(source.canonical))
        for source in sources
        if cache_of(source.canonical)[2] % 4
    }


def sealed(catalog: Catalog) -> Catalog:
    """The catalog with the digest of what it says."""
    said = repr((sorted(catalog.models.items()), sorted(catalog.profiles.items())))
    return dataclasses.replace(catalog, digest=hashlib.sha256(said.encode()).hexdigest())


@functools.lru_cache(maxsize=4)
def _current(catalog: "_Same") -> dict[str, dict[str, Profile]]:
    return {
        model.name: {
            generation(model, catalog.of.profiles[name]): catalog.of.profiles[name] for name in model.profiles
        }
        for model in catalog.of.models.values()
    }


class _Same:
    """A catalog as a key: the very object."""

    def __init__(self, of: Catalog) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)


def current(catalog: Catalog) -> dict[str, dict[str, Profile]]:
    """Model → generation → profile, as the catalog wants them now."""
    return _current(_Same(catalog))


def scaled(catalog: Catalog, name: str, wanted: int) -> Catalog:
    """The catalog with another replica count for one model."""
    old = catalog.models[name].scaling
    few = min(old.min, wanted) if old.min < old.max else wanted
    scaling = dataclasses.replace(old, min=few, max=wanted)
    model = dataclasses.replace(catalog.models[name], scaling=scaling)
    return dataclasses.replace(catalog, models={**catalog.models, name: model})


def rearranged(catalog: Catalog, name: str, mark: int) -> Catalog:
    """The catalog with another revision of one model's weights, or another engine argument: a new generation."""
    model = catalog.models[name]
    if model.source.fetched and mark % 2:
        moved = dataclasses.replace(model, source=parse(f"hf://org/{name}@r{mark}"))
        return dataclasses.replace(catalog, models={**catalog.models, name: moved})
    profile = catalog.profiles[model.profiles[0]]
    changed = dataclasses.replace(profile, args=(("seed", mark),))
    return dataclasses.replace(catalog, profiles={**catalog.profiles, profile.name: changed})


def without(catalog: Catalog, name: str) -> Catalog:
    """The catalog without one model."""
    return dataclasses.replace(
        catalog, models={other: model for other, model in catalog.models.items() if other != name}
    )


def heir(model: Model) -> Model:
    """The model under another name, which answers for the old one too."""
    return dataclasses.replace(model, name=f"{model.name}x", aliases=(*model.aliases, model.name))


def called(catalog: Catalog, name: str) -> Catalog:
    """The catalog in which this model alone is also called `chat`."""

    def aliases(model: Model) -> tuple[str, ...]:
        others = tuple(alias for alias in model.aliases if alias != CHAT)
        return (*others, CHAT) if model.name == name else others

    models = {n: dataclasses.replace(model, aliases=aliases(model)) for n, model in catalog.models.items()}
    return dataclasses.replace(catalog, models=models)


def impossible(catalog: Catalog, name: str) -> Catalog:
    """The catalog with bounds for one model that nothing can satisfy."""
    model = dataclasses.replace(catalog.models[name], scaling=Scaling(3, 1))
    return dataclasses.replace(catalog, models={**catalog.models, name: model})


def sound(catalog: Catalog) -> bool:
    """Whether adoption would take it."""
    return all(model.scaling.min <= model.scaling.max for model in catalog.models.values())


def returned(catalog: Catalog, model: Model) -> Catalog:
    """The catalog with a model that it once had, but for the names that are others' by now."""
    others = [each for each in catalog.models.values() if each.name != model.name]
    taken = {name for each in others for name in (each.name, *each.aliases)}
    back = dataclasses.replace(model, aliases=tuple(name for name in model.aliases if name not in taken))
    models = {
        each.name: dataclasses.replace(each, aliases=tuple(a for a in each.aliases if a != model.name))
        for each in others
    }
    return dataclasses.replace(catalog, models={**models, model.name: back})
