"""The table in effect and what this gateway knows of its replicas: in flight, set aside, last answer.

`gateway.exchange` takes and gives back replicas here, `gateway.link` reports from here. Choosing a
replica and counting it are one step, and a report reads the table's version and the counts in one
step too. So "acknowledged v, 0 in flight" means: nothing chosen by an older table is under way.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping

from llmgw.fleet.routes import Routes
from llmgw.kit.chance import Chance
from llmgw.routing import retry, table
from llmgw.routing.retry import Attempt, Journey, Nothing, Policy
from llmgw.routing.table import RoutingTable


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """A report: the version in effect, in flight by replica, seconds since each last answered or was not reached."""

    version: int
    in_flight: tuple[tuple[str, int], ...]
    green: tuple[tuple[str, float], ...]
    dark: tuple[tuple[str, float], ...]


class Endpoints:
    """`news` is called when there is something to report at once, `adopted` with each new table and the
    replicas that it no longer offers.
    """

    def __init__(
        self,
        policy: Policy,
        chance: Chance,
        *,
        news: Callable[[], None],
        adopted: Callable[[RoutingTable, Collection[str]], None],
    ) -> None:
        self.routes = Routes()
        self.table = RoutingTable()
        self.policy = policy
        self.in_flight: dict[str, int] = {}
        self._news = news
        self._adopted = adopted
        self._aside: dict[str, float] = {}
        self._green: dict[str, float] = {}
        self._dark: dict[str, float] = {}
        self._chance = chance

    def adopt(self, routes: Routes) -> bool:
        """Serve by `routes` from now on, unless they are not newer than what is served by. True if adopted.

        `self.routes` is then what is served by: not the same where `routes` are partial.
        """
        if routes.version <= self.table.version:
            return False
        self.routes = table.merged(self.routes, routes)
        before, self.table = self.table, table.build(self.routes)
        known = {endpoint.replica for endpoint in self.routes.endpoints}
        self._green = _only(self._green, known)
        self._aside = _only(self._aside, known)
        self._dark = _only(self._dark, known)
        self._adopted(self.table, before.ready.keys() - self.table.ready.keys())
        self._news()
        return True

    def take(self, journey: Journey, now: float) -> Attempt | Nothing:
        """Choose a replica for the next attempt and count the request as in flight there."""
        found = retry.advance(
            journey, self.table, self.in_flight, self._aside, self.policy, self._chance, now
        )
        if isinstance(found, Attempt):
            replica = found.endpoint.replica
            self.in_flight[replica] = self.in_flight.get(replica, 0) + 1
        return found

    def give_back(self, replica: str) -> None:
        """The attempt on `replica` is over, its connection included."""
        left = self.in_flight[replica] - 1
        if left:
            self.in_flight[replica] = left
            return
        del self.in_flight[replica]
        if replica not in self.table.ready:
            self._news()

    def answered(self, replica: str, now: float) -> None:
        """`replica` completed a request: evidence that its engine lives."""
        self._green[replica] = now
        self._aside.pop(replica, None)
        self._dark.pop(replica, None)

    def unreachable(self, replica: str, now: float) -> None:
        """`replica` could not be reached, or went away: others are asked first for a while."""
        self._aside[replica] = now + self.policy.aside

    def connected(self, replica: str, now: float, *, made: bool) -> None:
        """A connection to `replica` was `made`, or could not be: evidence about its machine, whatever it answers."""
        if made:
            self._dark.pop(replica, None)
        elif replica in self.table.ready:
            self._dark[replica] = now

    def sweep(self, now: float) -> None:
        """Forget what has run out."""
        if self._aside:
            self._aside = {replica: until for replica, until in self._aside.items() if until > now}

    def standing(self, now: float) -> Standing:
        """What there is to report."""
        return Standing(
            self.table.version,
            tuple(sorted(self.in_flight.items())),
            _ages(self._green, now),
            _ages(self._dark, now),
        )


def _only(times: Mapping[str, float], known: set[str]) -> dict[str, float]:
    return {replica: at for replica, at in times.items() if replica in known}


def _ages(times: Mapping[str, float], now: float) -> tuple[tuple[str, float], ...]:
    return tuple((replica, max(0.0, now - at)) for replica, at in sorted(times.items()))
