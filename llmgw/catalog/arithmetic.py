"""How many GPUs a profile takes, and whether its numbers agree.

Called by `checks` (do they agree?) and `resolve` (what was left out?). The rule of each engine is
data in `engine_facts`: the product of its `world` degrees and `wider` flags is nodes × gpus_per_node;
on CPU it counts processes, which the nodes share evenly; llama.cpp has no such rule.
"""

import dataclasses
import math

from llmgw.catalog import options
from llmgw.catalog.documents import AnyProfile, LlamacppDocument, SglangDocument, VllmDocument
from llmgw.catalog.engine_facts import FACTS
from llmgw.kit.text import count


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The five numbers of a profile, with the one that was left out filled in."""

    nodes: int
    gpus_per_node: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1


def shape(profile: AnyProfile) -> Shape:
    """The numbers of `profile`: gpus_per_node or tensor_parallel follows from the others where left out."""
    if isinstance(profile, LlamacppDocument):
        return Shape(profile.nodes, profile.gpus_per_node)
    written = profile.model_fields_set
    gpus, tensor = profile.gpus_per_node, profile.tensor_parallel
    if "gpus_per_node" not in written:
        gpus = max(1, tensor * _others(profile) // profile.nodes)
    elif "tensor_parallel" not in written and gpus:
        tensor = max(1, profile.nodes * gpus // _others(profile))
    return Shape(profile.nodes, gpus, tensor, profile.pipeline_parallel, profile.data_parallel)


def cards(profile: AnyProfile) -> int:
    """GPUs on each node."""
    # Most profiles say it: the shape of each would cost as much as all its other rules.
    written = "gpus_per_node" in profile.model_fields_set
    return profile.gpus_per_node if written else shape(profile).gpus_per_node


def _others(profile: VllmDocument | SglangDocument) -> int:
    """The product of the degrees beside tensor_parallel."""
    found = 1
    for name in FACTS[profile.engine].world:
        if name != "tensor_parallel":
            found *= int(getattr(profile, name))
    return found * math.prod(size for _, size in _wider(profile))


def _wider(profile: AnyProfile) -> list[tuple[str, int]]:
    """The engine's own flags that multiply its GPUs, with the sizes that `profile` gives them."""
    written, engine = profile.args.items(), profile.engine
    return [(name, options.positive(options.last(written, engine, name), 1)) for name in FACTS[engine].wider]


@dataclasses.dataclass(frozen=True, slots=True)
class Disagreement:
    """Why the numbers of a profile cannot all hold, and one change that would do."""

    said: str
    help: str


def disagreement(profile: AnyProfile) -> Disagreement | None:
    """What is wrong with the numbers of `profile`, None where they agree."""
    found = shape(profile)
    world = FACTS[profile.engine].world
    if not world:
        return None
    degrees = [*((name, int(getattr(found, name))) for name in world), *_wider(profile)]
    need = math.prod([value for _, value in degrees])
    if not found.gpus_per_node:
        return _on_cpu(found, degrees, need)
    have = found.nodes * found.gpus_per_node
    if need == have:
        return None
    said = f"{_product(degrees)} needs {count(need, 'GPU')}, {count(found.nodes, 'node')} × {found.gpus_per_node} has {have}"
    return Disagreement(said, _repair(found, need, have))


def _on_cpu(found: Shape, degrees: list[tuple[str, int]], need: int) -> Disagreement | None:
    if need % found.nodes == 0:
        return None
    said = f"{_product(degrees)} makes {need} processes, which {found.nodes} nodes cannot share evenly"
    return Disagreement(said, f"set tensor_parallel: {found.nodes}")


def _product(degrees: list[tuple[str, int]]) -> str:
    shown = [(name, value) for name, value in degrees if value != 1] or degrees[:1]
    return " × ".join(f"{name} {value}" for name, value in shown)


def _repair(found: Shape, need: int, have: int) -> str:
    """The smallest change that makes the products equal."""
    others = need // found.tensor_parallel
    if need > have and need % found.gpus_per_node == 0:
        return f"set nodes: {need // found.gpus_per_node}"
    if have % others == 0:
        return f"set tensor_parallel: {have // others}"
    if need % found.nodes == 0:
        return f"set gpus_per_node: {need // found.nodes}"
    return "make the two products equal"
