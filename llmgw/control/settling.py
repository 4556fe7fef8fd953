"""When a catalog that people are still writing counts as written. Pure; used by `watch`.

Every look at the tree brings its mark. A tree is settled when two looks that are `Pace.settle` seconds
apart found the same mark and nobody holds a lock on it; a lock that nobody ever removes delays it only
for `Pace.patience`. Trees that pass by in between were never there: the newest wins.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: between two equal looks, between two looks without an event, and for a lock to go away."""

    settle: float = 0.75
    rescan: float = 5.0
    patience: float = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Settling:
    """The mark that was seen last, and the monotonic time when it was seen first. None: nothing yet."""

    mark: str | None = None
    since: float = 0.0

    def saw(self, mark: str, now: float) -> "Settling":
        """After a look that found `mark`."""
        return self if mark == self.mark else Settling(mark, now)

    def settled(self, now: float, pace: Pace, *, locked: bool) -> bool:
        """Whether it is written, as far as can be seen."""
        stands = now - self.since
        return stands >= pace.settle and (not locked or stands >= pace.patience)

    def look_at(self, now: float, pace: Pace) -> float:
        """The time of the next look where it has not settled yet and no event comes before."""
        whole = self.since + pace.settle
        return whole if whole > now else now + pace.settle
