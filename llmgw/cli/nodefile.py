"""A node that does not exist yet, as people describe it: `llmgw plan --with-node FILE.yaml`.

    name: gpu-b3
    gpus: [{type: H100, memory: 80GiB, count: 8}]
    engines: [vllm 0.19]
    cpu_cores: 64
    memory: 512GiB
    disk: 3.5TB
    labels: {zone: b}

Only `name` is needed. What is left out is not said, and excludes nothing, as with a real node.
"""

import pathlib
from typing import Annotated, Any

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from llmgw.errors import Failed
from llmgw.fleet.node import Gpu, InstalledEngine, NodeInfo
from llmgw.kit.text import safe
from llmgw.kit.units import size

MOST_CARDS = 64
LONGEST = 16 * 1024
"""Characters of such a file: what nests without end takes YAML a while to refuse."""


def _size(value: Any) -> int:
    return size(value) if isinstance(value, str) else int(value)


Size = Annotated[int, pydantic.BeforeValidator(_size), pydantic.Field(ge=0)]
_STRICT = pydantic.ConfigDict(extra="forbid", frozen=True)


class Cards(pydantic.BaseModel):
    """So many cards of one type."""

    model_config = _STRICT

    type: str
    memory: Size = 0
    count: int = pydantic.Field(default=1, ge=1, le=MOST_CARDS)


class NodeDocument(pydantic.BaseModel):
    """The file."""

    model_config = _STRICT

    name: str = pydantic.Field(min_length=1, max_length=200)
    gpus: list[Cards] | None = None
    engines: list[str] | None = None
    cpu_cores: float | None = pydantic.Field(default=None, gt=0)
    memory: Size | None = None
    disk: Size | None = None
    labels: dict[str, str] = {}

    def info(self) -> NodeInfo:
        """The node as if it had registered."""
        kinds = [(cards.type, cards.memory) for cards in self.gpus or () for _ in range(cards.count)]
        gpus = tuple(Gpu(f"{self.name}-gpu{i}", kind, memory) for i, (kind, memory) in enumerate(kinds))
        named = [each.partition(" ") for each in self.engines or () if each.strip()]
        engines = [InstalledEngine(name, version.strip()) for name, _, version in named]
        return NodeInfo(
            id=self.name,
            name=self.name,
            gpus=None if self.gpus is None else gpus,
            cpu_cores=self.cpu_cores,
            memory_total=self.memory,
            memory_free=self.memory,
            disk_free=self.disk,
            engines=None if self.engines is None else tuple(engines),
            labels=tuple(sorted(self.labels.items())),
        )


def read_node(path: pathlib.Path) -> NodeInfo:
    """The node that the file describes. Raises Failed with every mistake in it."""
    try:
        text = path.read_text(encoding="utf-8")
        if len(text) > LONGEST:
            raise Failed(f"cannot read {path}: no node needs more than {LONGEST} characters")
        found = YAML(typ="safe", pure=True).load(text)
        return NodeDocument.model_validate(found).info()
    except OSError as error:
        raise Failed(f"cannot read {path}: {error.strerror}") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise Failed(
            f"cannot read {path}: it is no YAML: {safe(' '.join(str(error).split()))[:200]}"
        ) from error
    except RecursionError:
        raise Failed(f"cannot read {path}: it is nested too deeply") from None
    except pydantic.ValidationError as error:
        said = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg'].lower()}"
            for each in error.errors()[:5]
        )
        raise Failed(
            f"cannot take {path} as a node: {safe(said)}",
            help="name: gpu-b3, gpus: [{type: H100, memory: 80GiB, count: 8}], engines, memory, disk, labels",
        ) from error
