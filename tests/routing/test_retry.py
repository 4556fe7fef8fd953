"""Where a request goes, and when it goes no further."""

import dataclasses
from collections import Counter
from collections.abc import Mapping

import hypothesis
from hypothesis import strategies as st

from llmgw.fleet.routes import Endpoint, RoutedModel, Routes
from llmgw.kit.chance import seeded
from llmgw.routing.choose import choose
from llmgw.routing.retry import (
    Attempt,
    Journey,
    Nothing,
    Policy,
    advance,
    after_death,
    set_out,
    verdict,
    was_stale,
)
from llmgw.routing.table import RoutingTable, build

T0 = 1000.0


def table(fallbacks: Mapping[str, tuple[str, ...]] = {}, **replicas: int) -> RoutingTable:
    """Models by name with so many Ready replicas."""
    models = tuple(RoutedModel(name, fallbacks=fallbacks.get(name, ())) for name in replicas)
    ends = tuple(
        Endpoint(f"{name}/{n}", name, "127.0.0.1", n + 1)
        for name, count in replicas.items()
        for n in range(count)
    )
    return build(Routes(1, models=models, endpoints=ends))


def walk(
    routes: RoutingTable,
    policy: Policy,
    *,
    aside: Mapping[str, float] = {},
    deaths: bool = False,
) -> tuple[list[str], Nothing]:
    """Every attempt of a request for `a` whose attempts all fail, and why it ended."""
    journey, went = set_out("a", policy, T0), list[str]()
    while True:
        found = advance(journey, routes, {}, aside, policy, seeded(1), T0)
        if isinstance(found, Nothing):
            return went, found
        went.append(found.endpoint.replica)
        journey = after_death(found.journey) if deaths else found.journey


def test_a_slow_replica_gets_what_no_other_can_take() -> None:
    """While another of the model is well it gets nothing new; alone it is asked, before any fallback."""
    ends = tuple(Endpoint(f"a/{n}", "a", "127.0.0.1", n + 1, slow=n > 0) for n in range(3))
    models = (RoutedModel("a", fallbacks=("b",)), RoutedModel("b"))
    routes = build(Routes(1, models=models, endpoints=(*ends, Endpoint("b/0", "b", "127.0.0.1", 9))))
    first = [
        advance(set_out("a", Policy(), T0), routes, {"a/0": 99}, {}, Policy(), seeded(n), T0)
        for n in range(50)
    ]
    assert {found.endpoint.replica for found in first if isinstance(found, Attempt)} == {"a/0"}
    went, _ = walk(routes, Policy(attempts=9, deaths=9))
    assert (went[0], set(went[1:3]), went[3:]) == ("a/0", {"a/1", "a/2"}, ["b/0"])


def test_the_less_busy_of_two_is_chosen() -> None:
    """With two endpoints both are looked at, so the busy one is never taken."""
    ends = table(a=2).routes["a"].levels[0].endpoints
    assert {choose(ends, {"a/0": 1}, seeded(n)).replica for n in range(50)} == {"a/1"}


def test_equally_busy_endpoints_share() -> None:
    """Over many requests of no difference, each of five gets its part."""
    ends = table(a=5).routes["a"].levels[0].endpoints
    chance = seeded(7)
    got = Counter(choose(ends, {}, chance).replica for _ in range(5000))
    assert len(got) == 5
    assert min(got.values()) > 850


def test_in_flight_stays_level() -> None:
    """Two choices keep ten endpoints within a few requests of each other."""
    ends = table(a=10).routes["a"].levels[0].endpoints
    chance, load = seeded(3), Counter[str]()
    for _ in range(1000):
        load[choose(ends, load, chance).replica] += 1
    assert max(load.values()) - min(load.values()) <= 6


def test_one_budget_covers_every_level() -> None:
    """Two replicas of a, two of b, three attempts: both of a, one of b, and no fourth."""
    went, end = walk(table({"a": ("b",)}, a=2, b=2), Policy(attempts=3))
    assert [replica[0] for replica in went] == ["a", "a", "b"]
    assert end == Nothing("budget")


def test_no_replica_is_tried_twice() -> None:
    """With attempts to spare, the request ends when everybody was asked."""
    went, end = walk(table(a=3), Policy(attempts=9))
    assert sorted(went) == ["a/0", "a/1", "a/2"]
    assert end == Nothing("all_tried")


def test_a_fallback_is_asked_at_once_where_nothing_is_ready() -> None:
    """No replica of a: b is the first attempt."""
    went, _ = walk(table({"a": ("b",)}, a=0, b=1), Policy())
    assert went == ["b/0"]


def test_what_is_set_aside_comes_last() -> None:
    """The fallback is asked before a replica that was just unreachable, and that one before nobody."""
    went, _ = walk(table({"a": ("b",)}, a=2, b=1), Policy(attempts=3), aside={"a/0": T0 + 1})
    assert went == ["a/1", "b/0", "a/0"]
    went, _ = walk(table(a=1), Policy(), aside={"a/0": T0 + 1})
    assert went == ["a/0"]


def test_being_set_aside_ends_by_itself() -> None:
    """At its time a replica is like any other again."""
    went, _ = walk(table({"a": ("b",)}, a=1, b=1), Policy(attempts=1), aside={"a/0": T0})
    assert went == ["a/0"]


def test_two_deaths_are_one_too_many() -> None:
    """A request that two engines died under goes to no third."""
    went, end = walk(table(a=4), Policy(attempts=4), deaths=True)
    assert len(went) == 2
    assert end == Nothing("poison")


def test_a_deadline_ends_it_whatever_is_left() -> None:
    """After `first_byte` seconds no attempt begins."""
    policy = Policy(first_byte=5.0)
    journey = set_out("a", policy, T0)
    assert isinstance(advance(journey, table(a=1), {}, {}, policy, seeded(1), T0 + 4.9), Attempt)
    assert advance(journey, table(a=1), {}, {}, policy, seeded(1), T0 + 5.0) == Nothing("late")


def test_a_model_that_left_the_catalog_meanwhile_is_nowhere() -> None:
    """The table of the moment decides, not the one that the request began with."""
    assert advance(set_out("a", Policy(), T0), table(b=1), {}, {}, Policy(), seeded(1), T0) == Nothing(
        "none_ready"
    )


@hypothesis.given(
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(1, 6),
    st.sets(st.integers(0, 3)),
    st.booleans(),
)
def test_every_journey_ends_within_its_budget(
    a: int, b: int, c: int, attempts: int, aside: set[int], deaths: bool
) -> None:
    """Whatever the table, the fallbacks' ring and what is set aside: bounded, never twice the same."""
    ring = {"a": ("b",), "b": ("c",), "c": ("a",)}
    went, _ = walk(
        table(ring, a=a, b=b, c=c),
        Policy(attempts=attempts),
        aside={f"a/{n}": T0 + 1 for n in aside},
        deaths=deaths,
    )
    assert len(went) == min(attempts, a + b + c, 2 if deaths else 99)
    assert len(set(went)) == len(went)


def test_an_engine_that_says_no_is_told_from_one_that_broke() -> None:
    """429 and 503 rest, 500, 502 and 504 may be a death, everything else is an answer."""
    kinds = {status: verdict(status) for status in (200, 400, 404, 422, 429, 500, 501, 502, 503, 504)}
    assert [status for status, kind in kinds.items() if kind == "resting"] == [429, 503]
    assert [status for status, kind in kinds.items() if kind == "broke"] == [500, 502, 504]


def test_only_a_kept_connection_that_closed_at_once_was_stale() -> None:
    """A new connection, a byte of an answer, or a while of work: then it was a death."""
    assert was_stale(reused=True, heard=False, elapsed=0.01)
    assert not was_stale(reused=False, heard=False, elapsed=0.01)
    assert not was_stale(reused=True, heard=True, elapsed=0.01)
    assert not was_stale(reused=True, heard=False, elapsed=5.0)


def test_a_journey_is_a_value() -> None:
    """An attempt gives the next journey and leaves the one before as it was."""
    journey = Journey("a", T0 + 1)
    found = advance(journey, table(a=1), {}, {}, Policy(), seeded(1), T0)
    assert isinstance(found, Attempt)
    assert journey == Journey("a", T0 + 1)
    assert found.journey == dataclasses.replace(journey, tried=(("a", "a/0"),))
