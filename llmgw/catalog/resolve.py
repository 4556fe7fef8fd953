"""Documents that passed every check → `catalog.model.Catalog`, the desired state.

Called by `load` last. Aliases among fallbacks become model names, texts with units become numbers,
what was left out is filled in, and mappings become sorted pairs: what means the same is equal.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping

from llmgw.catalog.arithmetic import shape
from llmgw.catalog.book import Book
from llmgw.catalog.documents import AnyProfile, LlamacppDocument, ModelDocument, ScalingDocument, VllmDocument
from llmgw.catalog.fields import ArgumentValue
from llmgw.catalog.flags import canonical
from llmgw.catalog.model import Catalog, Model, Place, Profile, Scaling
from llmgw.catalog.sources import parse
from llmgw.catalog.tree import Tree
from llmgw.kit.units import seconds, size


def resolve(everything: Book) -> Catalog:
    """The catalog that `everything` says. Needs a book in which no rule found an error."""
    models = {model.name: _model(model, everything) for _, model in everything.model_documents()}
    profiles = {profile.name: _profile(profile) for _, profile in everything.profile_documents()}
    trees = {item.what: item.tree for item in everything.written if item.document is not None}
    return Catalog(
        dict(sorted(models.items())), dict(sorted(profiles.items())), Places(trees), _digest(models, profiles)
    )


def _model(document: ModelDocument, everything: Book) -> Model:
    fallbacks = dict.fromkeys(everything.model_called(name) for name in document.fallbacks)
    return Model(
        name=document.name,
        source=parse(document.source, document.sha256),
        profiles=document.profiles,
        aliases=document.aliases,
        fallbacks=tuple(name for name in fallbacks if name),
        scaling=_scaling(document.scaling),
        protect=document.protect,
    )


def _scaling(document: ScalingDocument) -> Scaling:
    most = document.max if "max" in document.model_fields_set else max(1, document.min)
    return Scaling(document.min, most, document.target_in_flight)


def _profile(document: AnyProfile) -> Profile:
    numbers = shape(document)
    common = Profile(
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
    )
    return _with_gpu_fields(common, document)


def _with_gpu_fields(common: Profile, document: AnyProfile) -> Profile:
    if isinstance(document, LlamacppDocument):
        return common
    common = dataclasses.replace(common, gpu_memory_utilization=float(document.gpu_memory_utilization))
    if isinstance(document, VllmDocument):
        return dataclasses.replace(common, distributed=document.distributed)
    return common


Resolved = str | int | float | bool | tuple[str, ...]


def _arguments(document: AnyProfile) -> tuple[tuple[str, Resolved], ...]:
    found = ((canonical(flag), _argument(value)) for flag, value in document.args.items())
    return tuple(sorted(found, key=lambda pair: pair[0]))


def _argument(value: ArgumentValue) -> Resolved:
    return tuple(str(item) for item in value) if isinstance(value, tuple) else value


def _digest(models: Mapping[str, Model], profiles: Mapping[str, Profile]) -> str:
    """Of the meaning: no file, no place, no order of keys; fields at their default are left out."""
    meaning = {
        "models": {name: _said(model) for name, model in models.items()},
        "profiles": {name: _said(profile) for name, profile in profiles.items()},
    }
    canonical_text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical_text.encode()).hexdigest()


def _said(value: Model | Profile) -> dict[str, object]:
    found: dict[str, object] = {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    }
    if isinstance(value, Model):
        found["source"] = value.source.canonical
        if "scaling" in found:
            found["scaling"] = dataclasses.astuple(value.scaling)
    return found


class Places(Mapping[tuple[str, str], Place]):
    """`Catalog.places`, made where somebody looks: few of the many places are ever asked for."""

    def __init__(self, trees: Mapping[str, Tree]) -> None:
        self._trees = trees
        self._found: dict[str, dict[str, Place]] = {}

    def __getitem__(self, wanted: tuple[str, str]) -> Place:
        what, field = wanted
        if what not in self._found:
            self._found[what] = _places(self._trees[what])
        return self._found[what][field]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((what, field) for what, tree in self._trees.items() for field in _places(tree))

    def __len__(self) -> int:
        return sum(len(tree.marks) for tree in self._trees.values())


def _places(tree: Tree) -> dict[str, Place]:
    """Dotted field → where its key is (list items: where they begin); "" is the document itself."""
    return {
        ".".join(map(str, path)): Place(tree.file, span[0] + 1, span[1] + 1)
        for path, (on_key, on_value) in tree.marks.items()
        for span in (on_key or on_value,)
    }
