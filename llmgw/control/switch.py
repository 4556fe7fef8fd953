"""The switch for incident time: while it is held, nothing that is followed is adopted; people still apply.

Built by `serve`, asked by `watch`, set by `llmgw hold` and `llmgw release` over `applying`. It has an owner,
a reason and perhaps an end, and is on disk before anybody is told that it holds.
"""

import datetime
from collections.abc import Callable

from llmgw.control.journal import Journal
from llmgw.control.records import OnHold
from llmgw.control.store import MAKE_ROOM, Store
from llmgw.errors import Failed
from llmgw.kit.clock import Clock


class Switch:
    """Held or not."""

    def __init__(self, store: Store, journal: Journal, clock: Clock) -> None:
        self._store, self._journal, self._clock = store, journal, clock
        self._held: OnHold | None = None
        self.released: Callable[[], None] = lambda: None

    def resume(self) -> None:
        """Stand by what was kept, after a start. Raises Failed where it cannot be read."""
        self._held = self._store.on_hold()

    @property
    def held(self) -> OnHold | None:
        """Who holds it, and why; None where nobody does any more."""
        held = self._held
        if held is not None and held.until is not None and held.until <= self._clock.wall():
            self._journal.note("catalog", "hold", f"the hold of {held.who} is over: {held.reason}")
            self._keep(None)
            return None
        return held

    def hold(self, who: str, reason: str, seconds: float | None) -> OnHold:
        """Hold it from now on, for `seconds` if they are given. Raises Failed where that cannot be kept."""
        now = self._clock.wall()
        until = now + datetime.timedelta(seconds=seconds) if seconds is not None else None
        held = OnHold(who=who, reason=reason, since=now, until=until)
        self._keep(held)
        self._journal.note("catalog", "hold", f"held by {who or '?'}: {reason}")
        return held

    def release(self, who: str) -> OnHold | None:
        """Hold it no more; who held it until now. Raises Failed where that cannot be kept."""
        before = self.held
        self._keep(None)
        if before is not None:
            self._journal.note("catalog", "hold", f"released by {who or '?'}")
            self.released()
        return before

    def _keep(self, held: OnHold | None) -> None:
        try:
            self._store.save_on_hold(held)
        except OSError as error:
            raise Failed(
                f"cannot keep the hold: {error.strerror}: {error.filename}. Nothing was changed",
                help=MAKE_ROOM,
            ) from error
        self._held = held
