"""What people asked for, as frozen values: the desired state.

Built by `catalog.resolve` from documents that passed every check; read by planning, routing and
the screens. Nothing here can be wrong any more: names resolve, arithmetic holds.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping

from llmgw.catalog.sources import Source, cache_name


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """How to run a model. Sizes in bytes, times in seconds; 0 GPUs means on CPU.

    `world` = tensor × pipeline × data parallel processes over `nodes` machines.
    """

    name: str
    engine: str
    nodes: int = 1
    gpus_per_node: int = 0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    gpu_types: tuple[str, ...] = ()
    gpu_memory: int = 0
    gpu_memory_utilization: float = 0.9
    max_model_len: int = 0
    distributed: str = "mp"
    node_labels: tuple[tuple[str, str], ...] = ()
    cpu_cores: float = 0.0
    cpu_memory: int = 0
    engine_version: str = ""
    args: tuple[tuple[str, str | int | float | bool | tuple[str, ...]], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    start_deadline: float = 1200.0
    drain: float = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class Scaling:
    """Bounds of the replica count, and the load per replica it aims at between them."""

    min: int = 1
    max: int = 1
    target_in_flight: int = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """Something a client can ask for by name. `fallbacks` are models: aliases are resolved."""

    name: str
    source: Source
    profiles: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    scaling: Scaling = Scaling()
    protect: bool = False

    @property
    def cache_name(self) -> str:
        return cache_name(self.source)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a person wrote something: a file below the catalog, line and column from 1."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclasses.dataclass(frozen=True, slots=True)
class Catalog:
    """One valid catalog.

    `places` maps (`model/NAME` or `profile/NAME`, dotted field or "") to where it was written;
    `digest` is of the documents' meaning, not of their bytes: moving a file changes nothing.
    Generations are found once, and kept from one catalog to the next by `resolve`.
    """

    models: Mapping[str, Model]
    profiles: Mapping[str, Profile]
    places: Mapping[tuple[str, str], Place] = dataclasses.field(default_factory=dict)
    digest: str = ""
    known: dict[str, tuple[Model, Mapping[str, str]]] = dataclasses.field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    def place(self, what: str, field: str = "") -> Place | None:
        """The place of `what`'s `field`, or of `what` itself where the field was left to its default."""
        return self.places.get((what, field)) or self.places.get((what, ""))

    def generations(self, model: Model) -> Mapping[str, str]:
        """Generation → profile name, in order of preference."""
        known = self.known.get(model.name)
        if known is None or known[0] is not model:
            found = {generation(model, self.profiles[name]): name for name in model.profiles}
            known = self.known[model.name] = (model, found)
        return known[1]

    def remember(self, before: "Catalog") -> None:
        """Take over the generations of `before` that are still right: model and profiles are the same values."""
        for name, known in dict(before.known).items():
            model = self.models.get(name)
            if model is known[0] and all(self.profiles[p] is before.profiles.get(p) for p in model.profiles):
                self.known[name] = known


def generation(model: Model, profile: Profile) -> str:
    """Digest of everything whose change needs an engine restart; frozen by a golden test.

    Left out on purpose: aliases, fallbacks, bounds, protection, drain, start deadline, labels. A
    field at its default is left out too, so that a new field restarts nothing.
    """
    kept: dict[str, object] = {
        field.name: value
        for field in dataclasses.fields(Profile)
        if field.name not in ("name", "start_deadline", "drain", "node_labels")
        and (value := getattr(profile, field.name)) != field.default
    }
    canonical = {"model": model.name, "source": model.source.canonical, "engine": profile.engine, **kept}
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
