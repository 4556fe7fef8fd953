"""From a failing schedule to a short story: fewer faults that still break the same invariant.

Delta debugging over the list of faults: halves, then quarters, down to single ones; then each of those
left is made as short as it can be, and what that made needless is dropped. Every attempt is a whole run of
the same seed. Where the story of one seed stays long, `shortest` tries the seeds behind it.
"""

import dataclasses
from collections.abc import Callable, Iterable

from tests.sim.kinds import Fault
from tests.sim.run import Run, run

Schedule = tuple[Fault, ...]

BRIEF = 0.1
"""Seconds below which no fault is made shorter: halves of halves have no end."""


def shortest(failed: Iterable[Run], events: int | None = None, *, enough: int) -> tuple[Run, Run] | None:
    """Of these runs the one that becomes the smallest, and what it became; the first that has `enough` faults
    or fewer ends the search. None where nothing failed."""
    best: tuple[Run, Run] | None = None
    for found in failed:
        small = shrink(found, events)
        if best is None or len(small.faults) < len(best[1].faults):
            best = found, small
        if len(best[1].faults) <= enough:
            break
    return best


def shrink(failed: Run, events: int | None = None) -> Run:
    """The smallest run found that breaks what `failed` broke; its trace is kept."""
    assert failed.violation is not None
    code = failed.violation.code

    def breaks(faults: Schedule) -> bool:
        found = run(failed.seed, plan=faults, events=events).violation
        return found is not None and found.code == code

    # What had not begun when it broke did not break it.
    begun = tuple(fault for fault in failed.faults if fault.at <= failed.seconds)
    faults: Schedule = () if breaks(()) else begun
    before: Schedule | None = None
    while faults != before:
        before, faults = faults, _shorter(_fewer(faults, breaks), breaks)
    return run(failed.seed, plan=faults, events=events, trace=True)


def _fewer(faults: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    size = len(faults)
    while size >= 1 and faults:
        start, before = 0, len(faults)
        while start < len(faults):
            rest = faults[:start] + faults[start + size :]
            if breaks(rest):
                faults = rest
            else:
                start += size
        # What was needed beside another one may be needless without it.
        size = size // 2 if size > 1 or len(faults) == before else 1
    return faults


def _shorter(faults: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    for number, fault in enumerate(faults):
        for lasts in (BRIEF, fault.lasts / 4, fault.lasts / 2):
            brief = dataclasses.replace(fault, lasts=lasts)
            tried = (*faults[:number], brief, *faults[number + 1 :])
            if BRIEF <= lasts < fault.lasts and breaks(tried):
                faults = tried
                break
    return faults
