"""The only reader of the clock. Composition roots hand a `Clock` down; the core takes `now`.

`now()` is monotonic seconds: it never jumps, and means nothing outside this process. Durations
that leave the process travel as ages. `wall()` is for people and for files: UTC, aware.
"""

import datetime
import time
from typing import Protocol


class Clock(Protocol):
    """Where `now` comes from."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""
        ...

    def wall(self) -> datetime.datetime:
        """The wall clock, UTC, for display and records only."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)
