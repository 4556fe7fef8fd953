"""Values of a config.json that a stranger wrote: what is no such value is taken for absent.

Called by `hf_config` and `hf_layers`.
"""

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]

_LARGEST = 1 << 40


def number(config: Config, *names: str) -> int:
    """The first of `names` that is a number a model can have, else 0."""
    for name in names:
        value = config.get(name)
        if type(value) is int and 0 < value < _LARGEST:
            return value
    return 0


def mapping(config: Config, name: str) -> Config:
    """The object under `name`, else an empty one."""
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def items(config: Config, name: str) -> list[Any]:
    """The list under `name`, else an empty one."""
    value = config.get(name)
    return value if isinstance(value, list) else []
