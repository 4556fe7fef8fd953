"""What a guard says when it fires, and the option that names what a person allows. Part of every plan.

`guards` makes them; `control.adoption` holds an apply to them; the screens print them.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

Guard = Literal["mass_stop", "empty", "outage", "protect"]

OVERRIDES: Mapping[Guard, str] = {
    "mass_stop": "--allow-mass-stop",
    "empty": "--allow-empty",
    "outage": "--allow-outage",
    "protect": "--allow-removal",
}
"""Guard → the option of `llmgw apply` that names what it allows."""

Allowed = frozenset[tuple[Guard, str]]
"""What a person allows: guards, and exactly what of each."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fired:
    """A guard that refuses a plan until a person allows exactly `what`: a count, a name, or nothing more.

    `said` has the numbers and the limit.
    """

    guard: Guard
    what: str
    said: str

    @property
    def allow(self) -> str:
        """`--allow-mass-stop 9`."""
        return option(self.guard, self.what)


def option(guard: Guard, what: str) -> str:
    """How an apply says it."""
    return f"{OVERRIDES[guard]} {what}".rstrip()


def options(guards: Iterable[Fired]) -> str:
    """What an apply has to say to do this plan after all."""
    return " ".join(each.allow for each in guards)


def refusal(guards: Iterable[Fired], allowed: Allowed) -> tuple[str, ...]:
    """Why a plan may not go on, one line each; nothing where exactly what is refused is allowed.

    What is allowed in vain is refused too: an override that is wrong about the plan, or lives in a script.
    """
    found = tuple(guards)
    asked = {(each.guard, each.what) for each in found}
    lines = [each.said for each in found if (each.guard, each.what) not in allowed]
    for guard, what in sorted(allowed - asked):
        instead = options(each for each in found if each.guard == guard)
        better = f"it would be {instead}" if instead else "leave it out"
        lines.append(f"{option(guard, what)} allows what this plan does not do: {better}")
    return tuple(lines)
