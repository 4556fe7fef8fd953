"""What may be tried again, and where: one budget and one deadline a request, over all its levels.

Called by `gateway.exchange` before each attempt and after each that failed. An attempt is chosen
from the table of its own moment: a retry never lands on a replica that began to drain meanwhile.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from llmgw.fleet.routes import Endpoint
from llmgw.kit.chance import Chance
from llmgw.routing.choose import choose
from llmgw.routing.table import Route, RoutingTable

Verdict = Literal["relay", "resting", "broke"]

VERDICTS: Mapping[int, Verdict] = {
    429: "resting",
    503: "resting",
    500: "broke",
    502: "broke",
    504: "broke",
}
"""What an engine's status means before anything of it was sent on; one that is not here is an answer.

`resting` = it is well and says no for now; `broke` = it may be dying, and the request may be why.
"""

STALE_WITHIN = 1.0
"""Seconds in which a kept connection that was closed by its engine shows that it was."""


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """`attempts` in all; `deaths` = engines that may die under one request before it is held to be the cause.

    `first_byte` is how long a request may wait for the first byte of its answer, attempts and all;
    `aside` how long a replica that could not be reached is passed over. Seconds.
    """

    attempts: int = 3
    deaths: int = 2
    first_byte: float = 600.0
    aside: float = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Journey:
    """One request so far. `deaths` counts engines that died, or broke (a 5xx), under it."""

    asked: str
    deadline: float
    tried: tuple[tuple[str, str], ...] = ()
    deaths: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """Go there; `endpoint.model` is the name to ask for."""

    endpoint: Endpoint
    journey: Journey


@dataclasses.dataclass(frozen=True, slots=True)
class Nothing:
    """Nowhere left to go, and why."""

    why: Literal["none_ready", "all_tried", "budget", "poison", "late"]


def set_out(asked: str, policy: Policy, now: float) -> Journey:
    """A request for the name `asked` begins."""
    return Journey(asked, now + policy.first_byte)


def advance(
    journey: Journey,
    table: RoutingTable,
    in_flight: Mapping[str, int],
    aside: Mapping[str, float],
    policy: Policy,
    chance: Chance,
    now: float,
) -> Attempt | Nothing:
    """The next attempt. `aside` tells until when a replica is passed over, by replica.

    Set aside is a hint, not a verdict: where nothing else is left, it is tried all the same.
    """
    if (stop := _spent(journey, policy, now)) is not None:
        return stop
    route = table.route(journey.asked)
    if route is None:
        return Nothing("none_ready")
    endpoint = _pick(route, journey, in_flight, aside, chance, now) or _pick(
        route, journey, in_flight, {}, chance, now
    )
    if endpoint is None:
        return Nothing("all_tried" if journey.tried else "none_ready")
    tried = (*journey.tried, (endpoint.model, endpoint.replica))
    return Attempt(endpoint, Journey(journey.asked, journey.deadline, tried, journey.deaths))


def _spent(journey: Journey, policy: Policy, now: float) -> Nothing | None:
    if now >= journey.deadline:
        return Nothing("late")
    if journey.deaths >= policy.deaths:
        return Nothing("poison")
    return Nothing("budget") if len(journey.tried) >= policy.attempts else None


def _pick(
    route: Route,
    journey: Journey,
    in_flight: Mapping[str, int],
    aside: Mapping[str, float],
    chance: Chance,
    now: float,
) -> Endpoint | None:
    """One endpoint of the first level of the route that has any left for this request."""
    for level in route.levels:
        open_ = level.endpoints
        if journey.tried or aside:
            open_ = tuple(
                endpoint
                for endpoint in level.endpoints
                if (level.model, endpoint.replica) not in journey.tried
                and aside.get(endpoint.replica, now) <= now
            )
        if level.slow:
            open_ = tuple(endpoint for endpoint in open_ if not endpoint.slow) or open_
        if open_:
            return choose(open_, in_flight, chance)
    return None


def verdict(status: int) -> Verdict:
    """Whether an engine's answer is relayed, or another replica is asked first."""
    return VERDICTS.get(status, "relay")


def after_death(journey: Journey) -> Journey:
    """An engine died, or broke, under this request: it may be the request's doing."""
    return dataclasses.replace(journey, deaths=journey.deaths + 1)


def was_stale(*, reused: bool, heard: bool, elapsed: float) -> bool:
    """Whether a lost connection says nothing about its engine: it was kept, and closed as we used it.

    `heard` = a byte of the answer had come; `elapsed` = seconds since the request was sent on it.
    """
    return reused and not heard and elapsed < STALE_WITHIN
