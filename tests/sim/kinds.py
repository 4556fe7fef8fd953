"""What a fault is, and what a kind of faults is: `sim.faults` and `sim.faults_node` fill the table."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.world import World

WAITS = 900.0
"""Seconds that a fault waits for its victim."""

Undo = Callable[[], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `target` picks its victim among those there are; `size` is how bad, 0 to 1."""

    at: float
    kind: str
    target: int
    lasts: float
    size: float

    def __str__(self) -> str:
        return f"{self.at:8.2f} {self.kind} #{self.target} for {self.lasts:.1f}s"


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """How a fault of one kind begins. `begin` returns how it ends, or None where it found no victim.

    One that lies in wait `counts` not when it begins, but when it struck. Lengths are in seconds.
    """

    begin: Callable[["World", Fault], Undo | None]
    longest: float
    most: int = 3
    shortest: float = 0.1
    counts: bool = True
