"""What a profile's arguments say about a model's size and split: the few that `divisibility` and `memory` ask for.

They are asked for by name: short forms, and beginnings that the engine completes, are resolved by `flags`.
"""

from llmgw.catalog import flags
from llmgw.catalog.model import Profile

Argument = str | int | float | bool | tuple[str, ...]


def argument(profile: Profile, name: str) -> Argument | None:
    """The value of a flag: the last one that is given, as an engine's parser has it."""
    found = [value for flag, value in profile.args if flags.whole(flag, profile.engine) == name]
    return found[-1] if found else None


def given(profile: Profile, *names: str) -> bool:
    """Whether any of `names`, or a key inside one, is given."""
    return any(flags.whole(flag, profile.engine).partition(".")[0] in names for flag, _ in profile.args)


def number(profile: Profile, name: str, *, default: int) -> int:
    """A positive whole number, `default` where it is not given or no number."""
    value = argument(profile, name)
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


def expert_parallel_size(profile: Profile) -> int:
    """SGLang's size of expert parallelism."""
    return number(profile, "ep-size", default=1)
