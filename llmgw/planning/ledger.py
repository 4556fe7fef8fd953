"""What must outlive a pass and cannot be observed: back-off, drains under way, refused nodes.

Frozen; each pass returns the next one. Lost with the control plane, except what agents remember:
failures come back with their Register.
"""

import dataclasses
from collections.abc import Mapping

from llmgw.fleet.routes import Routes
from llmgw.kit.text import count
from llmgw.kit.units import show_seconds

MOST_CARDS = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Trouble:
    """Failed starts of one (model, generation); the newest was `at`. `until` is when it may be tried again.

    `nodes` are where the newest failed; `cards` (GPU UUIDs, the newest `MOST_CARDS`) had too little memory for it.
    `served` is for how many seconds the newest had been ready before it ended; 0 = its start failed.
    `profile` is what it was run with; `elsewhere` = it serves on other nodes, so that it is these that are to blame.
    """

    failures: int
    until: float
    reason: str
    nodes: tuple[str, ...] = ()
    at: float = 0.0
    cards: tuple[str, ...] = ()
    profile: str = ""
    elsewhere: bool = False
    served: float = 0.0

    @property
    def said(self) -> str:
        """What happened, and how often in a row."""
        if not self.served:
            return f"failed to start {count(self.failures, 'time')}"
        often = f", failure {self.failures} in a row" if self.failures > 1 else ""
        return f"ended after {show_seconds(self.served)} serving{often}"


@dataclasses.dataclass(frozen=True, slots=True)
class Draining:
    """A drain under way: told to the gateways in table `version`; over at `limit` whatever they say.

    `gap` = there was no room for the new one beside the old, so the old goes first.
    """

    since: float
    limit: float
    version: int
    because: str
    gap: bool = False
    stop_sent: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """`model` gave `replica` up for room at `since`, and its successor has not proved itself yet."""

    model: str
    replica: str
    since: float


@dataclasses.dataclass(frozen=True, slots=True)
class Scale:
    """Replicas that an elastic model should have. Since `since` fewer were asked for, `most` at the busiest;
    `since` is infinite while no fewer are.
    """

    count: int
    since: float
    most: int


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """`charged` are the failed replicas already counted; `recalled` tells per node up to which
    registration its memory of failures was taken over; `lost` are the nodes whose loss was acted on;
    `cleared` tells per model when people forgave it; `scales` are the counts between the bounds;
    `gap` is the one that a roll-out left in the fleet, `inherited` are the models that may have left one
    before there was this ledger (None = not looked at yet);
    `returned` tells when a drain was taken back; `resumed` is when our last stall was over, 0 = there was none; `routes` is the
    newest table."""

    troubles: Mapping[tuple[str, str], Trouble] = dataclasses.field(default_factory=dict)
    drains: Mapping[str, Draining] = dataclasses.field(default_factory=dict)
    charged: frozenset[str] = frozenset()
    recalled: Mapping[str, float] = dataclasses.field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    cleared: Mapping[str, float] = dataclasses.field(default_factory=dict)
    scales: Mapping[str, Scale] = dataclasses.field(default_factory=dict)
    gap: Gap | None = None
    inherited: tuple[str, ...] | None = None
    returned: Mapping[str, float] = dataclasses.field(default_factory=dict)
    resumed: float = 0.0
    routes: Routes = dataclasses.field(default_factory=Routes)

    def forgiving(self, model: str, now: float) -> "Ledger":
        """The ledger once people cleared `model`: nor do agents that register again bring it back."""
        kept = {key: trouble for key, trouble in self.troubles.items() if key[0] != model}
        return dataclasses.replace(self, troubles=kept, cleared={**self.cleared, model: now})

    def later(self, seconds: float, now: float) -> "Ledger":
        """The ledger after a stall of ours: a drain's limit counts only while we could hear that it is over, and
        what was Ready before has yet to say that it still is."""
        drains = {k: dataclasses.replace(v, limit=v.limit + seconds) for k, v in self.drains.items()}
        return dataclasses.replace(self, drains=drains, resumed=now)
