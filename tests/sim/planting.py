"""What a planted bug is: `sim.mutants` and `sim.mutants_node` fill the table."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug. `place` holds the function `name` that `wrong` replaces, given the right one.

    A `rare` one shows in so few seeds that more of them are looked through. One that `meets` kinds of faults is
    looked for in lives that have one fault more of each, as long as they get.
    """

    said: str
    place: Any
    name: str
    wrong: Callable[[Any], Any]
    rare: bool = False
    meets: str = ""


def always(answer: Any) -> Callable[..., Any]:
    """A function that says the same whatever it is asked."""

    def wrong(*_: Any) -> Any:
        return answer

    return wrong
