"""Is an engine that was ready slow, or dead? Decided from probe to probe, by `agent.health`.

Slow is not dead: while bytes, counters or processor time move, nothing ends. Dead is a port that
refuses, or work that stands still for the hang limit.
"""

import dataclasses
from typing import Literal

from llmgw.engines.base import Load
from llmgw.kit.text import count
from llmgw.kit.units import show_seconds

SLOW = 1 / 6
"""Of the hang limit: an engine that stands still for so long is called slow, and again after as long."""

LATE = 2
"""Probes in a row that an engine may leave without an answer before it counts as silent."""

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
    """What the last probes said together. `moved_at` is when the engine was last seen to get on.

    `late` and `refusals` count probes in a row: those without a good answer, and those that were refused.
    """

    moved_at: float
    late: int = 0
    refusals: int = 0
    cpu: int = 0
    progress: float | None = None
    load: Load | None = None

    def after(self, probe: Probe, now: float) -> "Pulse":
        """The pulse once `probe` is taken into account."""
        return Pulse(
            moved_at=now if self._moved(probe) else self.moved_at,
            late=self.late + 1 if probe.outcome in ("slow", "unwell") else 0,
            refusals=self.refusals + 1 if probe.outcome == "refused" else 0,
            cpu=probe.cpu,
            progress=self.progress if probe.progress is None else probe.progress,
            load=self.load if probe.load is None else probe.load,
        )

    def slow(self, probe: Probe, now: float, hang: float) -> str:
        """For how long, in steps, and how the engine stands still; empty while it gets on. `hang` in seconds."""
        steps = int((now - self.moved_at) / (hang * SLOW))
        if not steps:
            return ""
        lasting = show_seconds(steps * hang * SLOW)
        if probe.outcome == "answered" and self.load is not None:
            return f"slow for {lasting}: no token since then, {_waits(self.load)}"
        return f"slow for {lasting}: {probe.said or 'its port refuses connections'}"

    @property
    def silent(self) -> bool:
        """Whether it left so many probes without a good answer that new requests had better go elsewhere."""
        return self.late >= LATE

    def dead(self, probe: Probe, now: float, hang: float) -> str:
        """Why the engine is dead, after `probe`; empty while it lives. `hang` in seconds."""
        if self.refusals >= REFUSALS:
            return f"its process lives, its port refuses connections ({self.refusals} times in a row)"
        if now - self.moved_at < hang:
            return ""
        limit = show_seconds(hang)
        if probe.outcome == "answered":
            assert self.load is not None
            return f"no progress for {limit} with {_waits(self.load)}"
        return f"no progress for {limit}: {probe.said}"

    def _moved(self, probe: Probe) -> bool:
        if probe.progress is not None and probe.progress != self.progress:
            return True
        if probe.outcome == "answered":
            return probe.load is None or probe.load.idle
        return probe.outcome == "slow" and probe.cpu != self.cpu


def _waits(load: Load) -> str:
    """Who waits for an engine that stands still: none of them may have come into its batch."""
    return f"{count(load.running, 'request')} in flight" if load.running else f"{load.waiting} waiting"
