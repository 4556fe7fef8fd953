"""What a profile's arguments say about a model's size and split: the few that `divisibility` and `memory` ask for.

They are asked for by name: short forms, and beginnings that the engine completes, are resolved by `flags`.
"""

from collections.abc import Iterable
from typing import TypeVar

from llmgw.catalog import flags
from llmgw.catalog.model import Profile

Argument = str | int | float | bool | tuple[str, ...]
V = TypeVar("V")


def argument(profile: Profile, name: str) -> Argument | None:
    """The value of a flag, None where it is not given."""
    return last(profile.args, profile.engine, name)


def last(args: Iterable[tuple[str, V]], engine: str, name: str) -> V | None:
    """The value of the flag `name`: the last one that is given, as an engine's parser has it."""
    found = None
    for flag, value in args:
        if flags.whole(flag, engine) == name:
            found = value
    return found


def given(profile: Profile, *names: str) -> bool:
    """Whether any of `names`, or a key inside one, is given."""
    return any(flags.whole(flag, profile.engine).partition(".")[0] in names for flag, _ in profile.args)


def number(profile: Profile, name: str, *, default: int) -> int:
    """A positive whole number, `default` where it is not given or no number."""
    return positive(argument(profile, name), default)


def positive(value: object, default: int) -> int:
    """`value` as a positive whole number, `default` where it is none."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if type(value) is int and value > 0 else default


def word(profile: Profile, name: str, *, default: str = "auto") -> str:
    """A text in lower case."""
    value = argument(profile, name)
    return value.lower() if isinstance(value, str) else default


def switched_on(profile: Profile, name: str) -> bool:
    """Whether a flag without a value is set."""
    return argument(profile, name) is True


def expert_parallel(profile: Profile) -> bool:
    """Whether experts are shared out whole instead of being cut."""
    if profile.engine == "sglang":
        return expert_parallel_size(profile) > 1
    return switched_on(profile, "enable-expert-parallel")


def prefill_ranks(profile: Profile) -> int:
    """vLLM's ranks that share each prompt: prefill context parallelism."""
    return number(profile, "prefill-context-parallel-size", default=1)


def expert_parallel_size(profile: Profile) -> int:
    """SGLang's size of expert parallelism."""
    return number(profile, "ep-size", default=1)
