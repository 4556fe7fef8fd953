"""The desired state: the adopted catalog, and the marks that people set on the fleet."""

import dataclasses
from collections.abc import Mapping

from llmgw.catalog.model import Catalog


@dataclasses.dataclass(frozen=True, slots=True)
class Marks:
    """Hands on the fleet. Values are the reasons people gave.

    A node in `draining` takes nothing new and its replicas move away, each once its successor is ready.
    """

    cordoned: Mapping[str, str] = dataclasses.field(default_factory=dict)
    draining: Mapping[str, str] = dataclasses.field(default_factory=dict)
    paused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    confirmed_lost: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Desired:
    """What should be. `catalog` is None until a valid one was adopted: absence is not an empty catalog.

    `sizes` are bytes of weights by cache name, where their source told them before anything was fetched.
    """

    catalog: Catalog | None = None
    marks: Marks = dataclasses.field(default_factory=Marks)
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
