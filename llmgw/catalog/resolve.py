"""Documents that passed every check → `catalog.model.Catalog`, the desired state.

Called by `load` last: `meaning` with each document that is new, `resolve` with all of them, or with those
that changed since the last time. Texts with
units become numbers, what was left out is filled in, mappings become sorted pairs, and aliases among
fallbacks become model names: what means the same is equal.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llmgw.catalog.arithmetic import shape
from llmgw.catalog.book import Book
from llmgw.catalog.diagnostics import Spot
from llmgw.catalog.documents import AnyProfile, LlamacppDocument, ModelDocument, ScalingDocument, VllmDocument
from llmgw.catalog.fields import ArgumentValue
from llmgw.catalog.flags import canonical
from llmgw.catalog.marks import Mark
from llmgw.catalog.model import Catalog, Model, Place, Profile, Scaling
from llmgw.catalog.reading import Written
from llmgw.catalog.sources import parse
from llmgw.catalog.tree import Tree
from llmgw.kit.units import seconds, size


@dataclasses.dataclass(frozen=True, slots=True)
class Meaning:
    """What one document says, whatever the others say: fallbacks are still the names that were written."""

    value: Model | Profile
    tree: Tree
    digest: str


def meaning(item: Written) -> Meaning | None:
    """What `item` says, None where it says nothing. Needs a document in which no rule found an error."""
    document = item.document
    if document is None:
        return None
    value = _model(document) if isinstance(document, ModelDocument) else _profile(document)
    return Meaning(value, item.tree, _digest(value))


@dataclasses.dataclass(frozen=True, slots=True)
class Whole:
    """A catalog, and what it was made of: tree and line of the digest of each document, in order."""

    catalog: Catalog
    trees: Mapping[str, Tree]
    lines: Mapping[str, bytes]


def resolve(everything: Book, meanings: Iterable[Meaning], before: Whole | None = None) -> Whole:
    """The catalog that `everything` says. Needs a book in which no rule found an error.

    `before` = what was resolved before, and `meanings` only those of documents that say something else since.
    """
    models = dict(before.catalog.models) if before is not None else {}
    profiles = dict(before.catalog.profiles) if before is not None else {}
    trees = dict(before.trees) if before is not None else {}
    lines = dict(before.lines) if before is not None else {}
    for said in sorted(meanings, key=lambda said: (said.value.name, isinstance(said.value, Profile))):
        name = said.value.name
        if isinstance(said.value, Model):
            models[name] = model = _with_fallbacks(said.value, everything)
            what, line = f"model/{name}", f"model {said.digest} {' '.join(model.fallbacks)}\n"
        else:
            profiles[name] = said.value
            what, line = f"profile/{name}", f"profile {said.digest}\n"
        trees[what], lines[what] = said.tree, line.encode()
    digest = hashlib.sha256(b"".join(lines.values())).hexdigest()
    catalog = Catalog(models, profiles, Places(trees), digest)
    if before is not None:
        catalog.remember(before.catalog)
    return Whole(catalog, trees, lines)


def _with_fallbacks(model: Model, everything: Book) -> Model:
    """`model` with the models that its fallbacks stand for, each once."""
    if everything.models.keys() >= set(model.fallbacks):
        return model
    found = dict.fromkeys(everything.model_called(name) for name in model.fallbacks)
    return dataclasses.replace(model, fallbacks=tuple(name for name in found if name))


def _model(document: ModelDocument) -> Model:
    return Model(
        name=document.name,
        source=parse(document.source, document.sha256),
        profiles=document.profiles,
        aliases=document.aliases,
        fallbacks=document.fallbacks,
        scaling=_scaling(document.scaling),
        protect=document.protect,
    )


def _scaling(document: ScalingDocument) -> Scaling:
    most = document.max if "max" in document.model_fields_set else max(1, document.min)
    return Scaling(document.min, most, document.target_in_flight)


def _profile(document: AnyProfile) -> Profile:
    numbers = shape(document)
    return Profile(
        name=document.name,
        engine=document.engine,
        nodes=numbers.nodes,
        gpus_per_node=numbers.gpus_per_node,
        tensor_parallel=numbers.tensor_parallel,
        pipeline_parallel=numbers.pipeline_parallel,
        data_parallel=numbers.data_parallel,
        gpu_types=document.gpu.types,
        gpu_memory=size(document.gpu.memory) if document.gpu.memory else 0,
        max_model_len=document.max_model_len,
        node_labels=tuple(sorted(document.node_labels.items())),
        cpu_cores=float(document.cpu.cores) if document.cpu else 0.0,
        cpu_memory=size(document.cpu.memory) if document.cpu else 0,
        engine_version=document.engine_version,
        args=_arguments(document),
        env=tuple(sorted(document.env.items())),
        start_deadline=seconds(document.start_deadline),
        drain=seconds(document.drain),
        **_gpu_fields(document),
    )


def _gpu_fields(document: AnyProfile) -> dict[str, Any]:
    """What only some engines have; the others leave it at its default."""
    if isinstance(document, LlamacppDocument):
        return {}
    found: dict[str, Any] = {"gpu_memory_utilization": float(document.gpu_memory_utilization)}
    if isinstance(document, VllmDocument):
        found["distributed"] = document.distributed
    return found


Resolved = str | int | float | bool | tuple[str, ...]


def _arguments(document: AnyProfile) -> tuple[tuple[str, Resolved], ...]:
    found = ((canonical(flag), _argument(value)) for flag, value in document.args.items())
    return tuple(sorted(found, key=lambda pair: pair[0]))


def _argument(value: ArgumentValue) -> Resolved:
    return tuple(str(item) for item in value) if isinstance(value, tuple) else value


def _digest(value: Model | Profile) -> str:
    """Of the meaning: no file, no place, no order of keys; fields at their default are left out."""
    found = {
        name: given for name, default in _FIELDS[type(value)] if (given := getattr(value, name)) != default
    }
    if isinstance(value, Model):
        found["source"] = value.source.canonical
        if "scaling" in found:
            scaling = value.scaling
            found["scaling"] = (scaling.min, scaling.max, scaling.target_in_flight)
    return hashlib.sha256(_CANONICAL.encode(found).encode()).hexdigest()


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_FIELDS = {
    Model: [(field.name, field.default) for field in dataclasses.fields(Model) if field.name != "fallbacks"],
    Profile: [(field.name, field.default) for field in dataclasses.fields(Profile)],
}


class Places(Mapping[tuple[str, str], Place]):
    """`Catalog.places`, made where somebody looks: few of the many places are ever asked for."""

    def __init__(self, trees: Mapping[str, Tree]) -> None:
        self._trees = trees
        self._found: dict[str, dict[str, Place]] = {}

    def __getitem__(self, wanted: tuple[str, str]) -> Place:
        what, field = wanted
        mark = self._trees[what].marks.get(tuple(field.split(".")) if field else ())
        if mark is not None:
            return _place(self._trees[what], mark)
        if what not in self._found:
            self._found[what] = _places(self._trees[what])
        return self._found[what][field]

    def spot(self, what: str, field: str) -> Spot:
        """The key of `what`'s `field`, or `what` itself where it was left out, with its source line."""
        return self._trees[what].spot((field,), key=True)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((what, field) for what, tree in self._trees.items() for field in _places(tree))

    def __len__(self) -> int:
        return sum(len(tree.marks) for tree in self._trees.values())


def _places(tree: Tree) -> dict[str, Place]:
    """Dotted field → where its key is (list items: where they begin); "" is the document itself."""
    return {".".join(map(str, path)): _place(tree, mark) for path, mark in tree.marks.items()}


def _place(tree: Tree, mark: Mark) -> Place:
    on_key, on_value = mark
    line, column, *_ = on_key or on_value
    return Place(tree.file, line + 1, column + 1)
