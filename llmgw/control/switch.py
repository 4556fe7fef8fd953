"""The switch for incident time: while it is held, nothing that is followed is adopted; people still apply.

Built by `serve`, asked by `watch`, set by `llmgw hold` and `llmgw release` over `applying`. It has an owner,
a reason and perhaps an end, and is on disk before anybody is told that it holds. Its end is by the clock that
nobody sets; only a start takes it from the wall clock.
"""

import datetime
from collections.abc import Callable

from llmgw.control.journal import Journal
from llmgw.control.keeping import Keeping
from llmgw.control.records import OnHold
from llmgw.control.store import MAKE_ROOM, Store
from llmgw.errors import Failed
from llmgw.kit.clock import Clock


class Switch:
    """Held or not."""

    def __init__(self, store: Store, journal: Journal, keeping: Keeping, clock: Clock) -> None:
        self._store, self._journal, self._keeping, self._clock = store, journal, keeping, clock
        self._held: OnHold | None = None
        self._ends: float | None = None
        self.released: Callable[[], None] = lambda: None

    def resume(self) -> None:
        """Stand by what was kept, after a start. Raises Failed where it cannot be read."""
        held = self._store.on_hold()
        left = held.until - self._clock.wall() if held is not None and held.until is not None else None
        self._stand(held, None if left is None else left.total_seconds())

    @property
    def held(self) -> OnHold | None:
        """Who holds it, and why; None where nobody does any more. Writes nothing: `expire` does."""
        return None if self._over() else self._held

    def expire(self) -> None:
        """End the hold whose time is over: say it, forget it on disk, have what waited looked at. `serve` calls it every second."""
        held = self._held
        if held is None or not self._over():
            return
        self._stand(None, None)
        self._journal.note("catalog", "hold", f"the hold of {held.who or '?'} is over: {held.reason}")
        self._keeping.keep("the hold", lambda: self._store.save_on_hold(self._held))
        self.released()

    def hold(self, who: str, reason: str, seconds: float | None) -> OnHold:
        """Hold it from now on, for `seconds` if they are given. Raises Failed where that cannot be kept."""
        now = self._clock.wall()
        until = now + datetime.timedelta(seconds=seconds) if seconds is not None else None
        held = OnHold(who=who, reason=reason, since=now, until=until)
        self._keep(held, seconds)
        self._journal.note("catalog", "hold", f"held by {who or '?'}: {reason}")
        return held

    def release(self, who: str) -> OnHold | None:
        """Hold it no more; who held it until now. Raises Failed where that cannot be kept."""
        before = self.held
        self._keep(None, None)
        if before is not None:
            self._journal.note("catalog", "hold", f"released by {who or '?'}")
            self.released()
        return before

    def _over(self) -> bool:
        return self._ends is not None and self._ends <= self._clock.now()

    def _keep(self, held: OnHold | None, seconds: float | None) -> None:
        try:
            self._store.save_on_hold(held)
        except OSError as error:
            raise Failed(
                f"cannot keep the hold: {error.strerror}: {error.filename}. Nothing was changed",
                help=MAKE_ROOM,
            ) from error
        self._stand(held, seconds)

    def _stand(self, held: OnHold | None, seconds: float | None) -> None:
        """It is `held` from now on, for `seconds` more if they are given."""
        self._held = held
        self._ends = None if held is None or seconds is None else self._clock.now() + seconds
