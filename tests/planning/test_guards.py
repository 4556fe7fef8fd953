"""Guards: each fires at its limit and not one below it, counts what really stops, and names its one way out."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.catalog.model import Catalog, Model, Place, Scaling
from llmgw.kit.chance import seeded
from llmgw.planning.desired import Desired
from llmgw.planning.fired import Allowed, Fired, options, refusal
from llmgw.planning.guards import Limits, Seen, fired
from llmgw.planning.plan import make_plan
from llmgw.planning.view import look
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile

LIMITS = Limits()
OTHER = a_profile(args=(("threads", 2),))


def runs(*models: Model, gpus: int = 16, nodes: int = 1) -> Story:
    """These models, all ready."""
    story = Story(*(a_node(f"n{i}", gpus=gpus) for i in range(nodes)), catalog=a_catalog(*models))
    story.runs(60)
    return story


def guards(story: Story, new: Catalog, limits: Limits = LIMITS, *, heard: bool = True) -> dict[str, Fired]:
    """What fires, by what an apply would say."""
    plan = make_plan(
        story.desired, Desired(new), story.fleet, story.ledger, story.now, seeded(3), story.timers, base=1
    )
    view = look(story.desired, story.fleet, story.ledger, story.now, story.timers)
    serving = frozenset(name for name, replica in view.replicas.items() if replica.serves)
    found = fired(plan, story.desired.catalog, new, limits, Seen(serving, heard))
    return {each.allow: each for each in found}


def ten(without: int = 0) -> list[Model]:
    return [a_model(f"m{number}") for number in range(10 - without)]


def test_four_of_ten_is_a_mass_stop_and_three_are_not() -> None:
    """30 % may go; one more may not, and the number to allow is the number that stops."""
    story = runs(*ten())
    assert guards(story, a_catalog(*ten(3))) == {}
    found = guards(story, a_catalog(*ten(4)))
    assert list(found) == ["--allow-mass-stop 4"]
    said = found["--allow-mass-stop 4"].said
    assert said == "it would stop 4 of 10 ready replicas (40 %), the limit is 30 %, from 3 on"


def test_a_small_fleet_is_not_blocked_for_ever() -> None:
    """One of two, two of four: below the floor, whatever the share."""
    assert guards(runs(a_model("a"), a_model("b")), a_catalog(a_model("a"))) == {}
    story = runs(*(a_model(name) for name in "abcd"))
    assert guards(story, a_catalog(a_model("a"), a_model("b"))) == {}
    assert list(guards(story, a_catalog(a_model("a")))) == ["--allow-mass-stop 3"]


def test_what_is_created_or_replaced_with_room_is_no_stop() -> None:
    """From nothing to ten, and ten replaced one by one with the new one first."""
    empty = Story(a_node("n0", gpus=16), catalog=a_catalog())
    assert guards(empty, a_catalog(*ten())) == {}
    assert guards(runs(*ten(), gpus=32), a_catalog(*ten(), profiles=[OTHER])) == {}


def test_what_is_replaced_with_a_gap_counts() -> None:
    """No room for both: each of four is away for a while; they are stops, and outages of their models."""
    models = [a_model(name) for name in "abcd"]
    found = guards(runs(*models, gpus=4), a_catalog(*models, profiles=[OTHER]))
    assert "--allow-mass-stop 4" in found
    assert "--allow-outage a" in found


def test_what_does_not_serve_is_not_counted() -> None:
    """Four models that never came up are removed: nothing of theirs stops serving anybody."""
    story = Story(a_node("n0", gpus=6), catalog=a_catalog(*ten()))
    story.runs(60)
    ready = {name.partition("/")[0] for name in (e.replica for e in story.ledger.routes.endpoints)}
    assert len(ready) == 6
    assert guards(story, a_catalog(*(model for model in ten() if model.name in ready))) == {}


def test_before_everybody_has_spoken_the_catalogs_are_counted() -> None:
    """A restart that has heard nobody sees no replica: what is no longer wanted counts instead."""
    story = Story(a_node("n0", gpus=16), catalog=a_catalog(*ten()))
    assert guards(story, a_catalog(*ten(4))) == {}
    found = guards(story, a_catalog(*ten(4)), heard=False)
    assert "4 of 10 wanted replicas" in found["--allow-mass-stop 4"].said
    assert guards(story, a_catalog(*ten(3)), heard=False) == {}


def test_a_limit_says_where_it_is_set() -> None:
    """Who set the limit is found by file and line."""
    limits = Limits(0.1, 2, {"mass_stop": "llmgw.toml:14", "mass_stop_least": "llmgw.toml:15"})
    (found,) = guards(runs(*ten()), a_catalog(*ten(2)), limits).values()
    assert found.said.endswith("the limit is 10 % (llmgw.toml:14), from 2 on (llmgw.toml:15)")


def test_nothing_left_to_ask() -> None:
    """The last model removed, or everything scaled to nothing; one that is left is enough."""
    story = runs(a_model("a"), a_model("b"))
    assert list(guards(story, a_catalog())) == ["--allow-empty"]
    none = Scaling(0, 0)
    sleeping = [a_model("a", scaling=none), a_model("b", scaling=none)]
    assert list(guards(story, a_catalog(*sleeping))) == ["--allow-empty"]
    assert guards(story, a_catalog(a_model("a"), sleeping[1])) == {}


def test_an_empty_catalog_needs_no_fleet_to_be_refused() -> None:
    """Before any node has spoken, an empty catalog is refused already."""
    assert list(guards(Story(catalog=a_catalog(a_model("a"))), a_catalog())) == ["--allow-empty"]
    assert guards(Story(catalog=None), a_catalog()) == {}


def test_a_gap_is_an_outage_unless_a_fallback_answers() -> None:
    """One card: the old one goes first. With a fallback that serves meanwhile nobody is turned away."""
    story = runs(a_model("a"), gpus=1)
    found = guards(story, a_catalog(a_model("a"), profiles=[OTHER]))
    assert list(found) == ["--allow-outage a"]
    assert found["--allow-outage a"].said == "a has 1 ready now and would have 0 on the way"
    big = a_profile("big", gpus_per_node=2)
    other = a_profile("big", gpus_per_node=2, args=(("threads", 2),))
    asked = (a_model("a", profiles=("big",), fallbacks=("b",)), a_model("b"))
    both = Story(a_node("n0", gpus=3), catalog=a_catalog(*asked, profiles=[big]))
    both.runs(60)
    assert guards(both, a_catalog(*asked, profiles=[other])) == {}
    alone = (dataclasses.replace(asked[0], fallbacks=()), asked[1])
    assert list(guards(both, a_catalog(*alone, profiles=[other]))) == ["--allow-outage a"]


def test_an_alias_that_moves_to_what_has_no_room_beside_it_is_an_outage() -> None:
    """Clients that ask by the alias would find nobody until the new model is up; with room the old one answers so long."""
    new = a_catalog(a_model("b"), a_model("new", aliases=("chat",)))
    full = runs(a_model("a", aliases=("chat",)), a_model("b"), gpus=2)
    found = guards(full, new)
    assert list(found) == ["--allow-outage chat"]
    assert found["--allow-outage chat"].said.endswith("; it moves from a to new")
    assert guards(full, a_catalog(a_model("a"), a_model("b", aliases=("chat",)))) == {}
    assert guards(runs(a_model("a", aliases=("chat",)), a_model("b")), new) == {}


def test_what_is_not_wanted_any_more_has_no_outage() -> None:
    """A model that is removed, or scaled to nothing, goes on purpose."""
    story = runs(a_model("a"), a_model("b"))
    assert guards(story, a_catalog(a_model("b"))) == {}
    assert guards(story, a_catalog(a_model("a", scaling=Scaling(0, 0)), a_model("b"))) == {}


def test_a_protected_model_stays() -> None:
    """Removed or scaled to nothing, with or without its protection: the catalog that stands decides."""
    story = runs(a_model("a", protect=True), a_model("b"))
    assert list(guards(story, a_catalog(a_model("b")))) == ["--allow-removal a"]
    asleep = a_model("a", scaling=Scaling(0, 0))
    assert list(guards(story, a_catalog(asleep, a_model("b")))) == ["--allow-removal a"]
    assert guards(story, a_catalog(a_model("a"), a_model("b"))) == {}
    assert guards(runs(a_model("a"), a_model("b")), a_catalog(a_model("b"))) == {}


def test_protection_is_found_by_its_line() -> None:
    """The refusal names where the protection stands."""
    places = {("model/a", "protect"): Place("catalog/a.yaml", 7)}
    protected = dataclasses.replace(a_catalog(a_model("a", protect=True), a_model("b")), places=places)
    story = runs(a_model("a", protect=True), a_model("b")).adopts(protected)
    (found,) = guards(story, a_catalog(a_model("b"))).values()
    assert found.said == "a is protected (catalog/a.yaml:7) and would be removed"


TWO = (Fired("mass_stop", "9", "it would stop 9 of 12"), Fired("outage", "a", "a has 0 on the way"))


@pytest.mark.parametrize(
    ("allowed", "lines"),
    [
        ({("mass_stop", "9"), ("outage", "a")}, 0),
        ({("mass_stop", "9")}, 1),
        ({("mass_stop", "10"), ("outage", "a")}, 2),
        ({("mass_stop", "8"), ("outage", "b")}, 4),
        ({("mass_stop", "9"), ("outage", "a"), ("empty", "")}, 1),
        (set(), 2),
    ],
)
def test_an_override_is_exactly_what_it_says(allowed: Allowed, lines: int) -> None:
    """Another number, another name, or one too many: refused, and the right one is named."""
    assert len(refusal(TWO, frozenset(allowed))) == lines
    assert options(TWO) == "--allow-mass-stop 9 --allow-outage a"


def test_an_override_in_vain_is_refused_with_the_right_one() -> None:
    """It says what it should have been."""
    (first, second) = refusal(TWO[:1], frozenset({("mass_stop", "8")}))
    assert first == TWO[0].said
    assert second == "--allow-mass-stop 8 allows what this plan does not do: it would be --allow-mass-stop 9"
    (alone,) = refusal((), frozenset({("empty", "")}))
    assert alone.endswith("leave it out")


counts = st.integers(0, 4)


@given(st.lists(counts, min_size=1, max_size=4), st.lists(counts, min_size=1, max_size=4))
def test_the_number_is_what_really_stops(was: list[int], then: list[int]) -> None:
    """Scaled as anybody likes: the guard fires exactly where its own arithmetic says, with that number."""

    def of(numbers: list[int]) -> Catalog:
        return a_catalog(*(a_model(f"m{i}", scaling=Scaling(n, n)) for i, n in enumerate(numbers)))

    story = Story(a_node("n0", gpus=16), catalog=of(was))
    story.runs(60)
    stops = sum(max(0, n - (then[i] if i < len(then) else 0)) for i, n in enumerate(was))
    found = [each for each in guards(story, of(then)).values() if each.guard == "mass_stop"]
    assert [each.what for each in found] == ([str(stops)] if stops >= 3 and stops > 0.3 * sum(was) else [])
