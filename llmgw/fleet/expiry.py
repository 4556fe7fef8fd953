"""When silence becomes a fact: Ready, Unreachable, Lost, from the last word and `now`.

Two stages, far apart, so that a blip never tears down a serving replica. Called by
`planning.reconcile` and the screens.
"""

import dataclasses
import math
from typing import Literal

Standing = Literal["Ready", "Unreachable", "Lost", "Unheard"]


@dataclasses.dataclass(frozen=True, slots=True)
class Timers:
    """Every timer of the control plane's decisions, in seconds; the table is in the docs.

    Each may be a fraction of a second: a test's day is short.
    """

    unreachable: float = 15.0
    lost: float = 300.0
    place_grace: float = 60.0
    lost_grace: float = 300.0
    evidence: float = 30.0
    min_ready: float = 10.0
    stop_grace: float = 20.0
    ack: float = 10.0
    """An order that changed nothing for this long is sent again; an assignment that no report confirms
    for three times this long is given up."""
    backoff_base: float = 5.0
    backoff_cap: float = 300.0
    backoff_reset: float = 300.0
    gateway_silent: float = 15.0
    scale_window: float = 300.0
    """A model between its bounds shrinks to the most that was asked for over this long."""
    scale_every: float = 15.0
    mass_share: float = 0.55

    def still(self) -> "Timers":
        """Under which nothing is given up for silence since a restart, nor for want of requests: a rehearsal's."""
        return dataclasses.replace(self, lost_grace=math.inf, scale_window=math.inf, scale_every=math.inf)


def standing(last_seen: float, now: float, timers: Timers) -> Standing:
    """What the silence of a node since `last_seen` means at `now`."""
    silence = now - last_seen
    if silence >= timers.lost:
        return "Lost"
    return "Unreachable" if silence >= timers.unreachable else "Ready"
