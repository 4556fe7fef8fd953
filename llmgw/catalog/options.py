"""What a profile's arguments say about a model's size and split: the few that `divisibility` and `memory` ask for.

Arguments have their canonical spelling here; an engine's short forms are named beside the long ones.
"""

from llmgw.catalog.model import Profile

Argument = str | int | float | bool | tuple[str, ...]


def argument(profile: Profile, *names: str) -> Argument | None:
    """The value of the first of `names` that is given."""
    written = dict(profile.args)
    return next((written[name] for name in names if name in written), None)


def given(profile: Profile, *names: str) -> bool:
    """Whether any of `names`, or a key inside one, is given."""
    return any(flag.partition(".")[0] in names for flag, _ in profile.args)


def number(profile: Profile, *names: str, default: int) -> int:
    """A positive whole number, `default` where it is not given or no number."""
    value = argument(profile, *names)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if type(value) is int and value > 0 else default


def word(profile: Profile, *names: str, default: str = "auto") -> str:
    """A text in lower case."""
    value = argument(profile, *names)
    return value.lower() if isinstance(value, str) else default


def switched_on(profile: Profile, *names: str) -> bool:
    """Whether a flag without a value is set."""
    return argument(profile, *names) is True


def expert_parallel(profile: Profile) -> bool:
    """Whether experts are shared out whole instead of being cut."""
    if profile.engine == "sglang":
        return expert_parallel_size(profile) > 1
    return switched_on(profile, "enable-expert-parallel", "ep")


def expert_parallel_size(profile: Profile) -> int:
    """SGLang's size of expert parallelism."""
    return number(profile, "ep-size", "ep", "expert-parallel-size", default=1)
