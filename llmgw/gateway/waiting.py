"""Requests for models that sleep: each asks for a replica, and waits a little for it.

Used by `gateway.exchange`, which resumes when a table brings a replica and gives up when its time is
over; `gateway.link` reports who was asked for, so that the control plane starts one.
"""

import dataclasses
from collections.abc import Callable

from llmgw.routing.table import RoutingTable


@dataclasses.dataclass(frozen=True, slots=True)
class Patience:
    """How long a request waits for a model that sleeps, in seconds (0 = it is refused at once), how many may
    wait in all, and for how long a refused one is reported: a control plane may be away for a moment.
    """

    hold: float = 30.0
    most: int = 1000
    recall: float = 30.0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """One request that waits for `model`, at most `until`; `resume` is called when it may be served."""

    model: str
    resume: Callable[[], None]
    until: float


class Waiting:
    """Who waits, by model. `news` is called when a model is asked for that was not."""

    def __init__(self, patience: Patience, *, news: Callable[[], None]) -> None:
        self._patience = patience
        self._news = news
        self._waits: dict[str, dict[Wait, None]] = {}
        self._asked: dict[str, float] = {}

    @property
    def counts(self) -> dict[str, int]:
        """How many wait, by model."""
        return {model: len(waits) for model, waits in self._waits.items()}

    def asked(self, model: str, now: float) -> None:
        """Somebody asked for `model`, which sleeps."""
        known = self._asked.get(model)
        self._asked[model] = now
        if known is None:
            self._news()

    def enter(self, model: str, resume: Callable[[], None], now: float) -> Wait | None:
        """Wait for a replica of `model`; None: too many wait, or nobody may."""
        patience = self._patience
        if patience.hold <= 0 or sum(self.counts.values()) >= patience.most:
            return None
        wait = Wait(model, resume, now + patience.hold)
        self._waits.setdefault(model, {})[wait] = None
        return wait

    def leave(self, wait: Wait) -> None:
        """Wait no longer."""
        waits = self._waits.get(wait.model, {})
        waits.pop(wait, None)
        if not waits:
            self._waits.pop(wait.model, None)

    def adopted(self, table: RoutingTable) -> None:
        """Another table is in effect: resume who can be served now, and who waits for what is no more."""
        for model in list(self._waits):
            route = table.route(model)
            if route is None or any(level.endpoints for level in route.levels):
                for wait in list(self._waits.pop(model)):
                    wait.resume()
        routes = ((model, table.route(model)) for model in self._asked)
        self._asked = {model: self._asked[model] for model, route in routes if route and route.sleeps}

    def queued(self, now: float) -> tuple[tuple[str, int], ...]:
        """What to report: how many wait for each model, and one where somebody asked lately."""
        self._asked = {m: at for m, at in self._asked.items() if now - at < self._patience.recall}
        return tuple(sorted({**dict.fromkeys(self._asked, 1), **self.counts}.items()))
