"""Is an engine that was ready slow, or dead? Decided from probe to probe, by `agent.health`.

Slow is not dead: while bytes, counters or processor time move, nothing ends. Dead is a port that
refuses, or work that stands still for the hang limit.
"""

import dataclasses
from typing import Literal

from llmgw.engines.base import Load
from llmgw.kit.units import show_seconds

REFUSALS = 3
"""In a row: one refused connection may be a full backlog."""


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One look at a ready engine. `cpu` grows with the processor time of its tree."""

    outcome: Literal["answered", "unwell", "slow", "refused"]
    cpu: int = 0
    load: Load | None = None
    progress: float | None = None
    said: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Pulse:
    """What the last probes said together. `moved_at` is when the engine was last seen to get on."""

    moved_at: float
    refusals: int = 0
    cpu: int = 0
    progress: float | None = None
    load: Load | None = None

    def after(self, probe: Probe, now: float) -> "Pulse":
        """The pulse once `probe` is taken into account."""
        return Pulse(
            moved_at=now if self._moved(probe) else self.moved_at,
            refusals=self.refusals + 1 if probe.outcome == "refused" else 0,
            cpu=probe.cpu,
            progress=self.progress if probe.progress is None else probe.progress,
            load=self.load if probe.load is None else probe.load,
        )

    def dead(self, probe: Probe, now: float, hang: float) -> str:
        """Why the engine is dead, after `probe`; empty while it lives. `hang` in seconds."""
        if self.refusals >= REFUSALS:
            return f"its process lives, its port refuses connections ({self.refusals} times in a row)"
        if now - self.moved_at < hang:
            return ""
        limit = show_seconds(hang)
        if probe.outcome == "answered":
            assert self.load is not None
            return f"no progress for {limit} with {self.load.running} requests in flight"
        return f"no progress for {limit}: {probe.said}"

    def _moved(self, probe: Probe) -> bool:
        if probe.progress is not None and probe.progress != self.progress:
            return True
        if probe.outcome == "answered":
            return probe.load is None or probe.load.running == 0
        return probe.outcome == "slow" and probe.cpu != self.cpu
