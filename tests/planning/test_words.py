"""What a plan says beside its rows, and what it must not say."""

import dataclasses
from typing import Any

import pytest

from llmgw.catalog.model import Catalog, Model, Scaling
from llmgw.catalog.sources import parse
from llmgw.kit.chance import seeded
from llmgw.planning.desired import Desired
from llmgw.planning.diff import MOST, RESTARTS_NOTHING
from llmgw.planning.plan import Plan, make_plan
from llmgw.planning.render import plan_lines, summary_lines
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile

OTHER = a_profile(args=(("threads", 2),))


def plan(story: Story, new: Catalog) -> Plan:
    """The plan from the story's catalog to `new`."""
    return make_plan(
        story.desired, Desired(new), story.fleet, story.ledger, story.now, seeded(3), story.timers, base=1
    )


def served(*models: str, gpus: int = 4) -> Story:
    """These models, one replica each, ready for long on one node."""
    story = Story(a_node("n0", gpus=gpus), catalog=a_catalog(*map(a_model, models)))
    story.runs()
    return story.after(400)


def test_gaps_are_told_with_their_order() -> None:
    """Two models of one profile on a full node: two gaps, which first, and that the second waits."""
    story = served("ada", "bob", gpus=2)
    told = plan(story, a_catalog(a_model("ada"), a_model("bob"), profiles=[OTHER]))
    assert [row.symbol for row in told.rows] == ["-/+", "-/+"]
    (said,) = told.alarms
    assert said == (
        "2 replicas with a gap, for there is no room for old and new: one after the other in this order, "
        "each when the one before serves: ada, bob"
    )
    assert any(said in line for line in plan_lines(told))
    assert [(row.lowest, row.after) for row in told.service] == [(0, 1), (0, 1)]
    assert plan(served("ada", gpus=4), a_catalog(a_model("ada"), profiles=[OTHER])).alarms == ()


def test_a_smaller_profile_is_told() -> None:
    """The big one finds no place beside what serves, so the roll-out lands on the small one: nobody wants to find out."""
    big = a_profile("big", gpus_per_node=3)
    model = a_model("ada", profiles=("big", "small"))
    story = Story(a_node("n0", gpus=4), catalog=a_catalog(model, profiles=[big]))
    story.runs()
    changed = a_profile("big", gpus_per_node=3, args=(("threads", 2),))
    told = plan(story.after(400), a_catalog(model, profiles=[changed, OTHER]))
    assert told.alarms == ("ada gets a replica under profile small: its first one, big, finds no place then",)


def test_bounds_are_told_by_what_changed() -> None:
    """A target or an upper bound is no `scaling.min 1 -> 1`; an upper bound may stop replicas, a target does not."""
    story = served("ada")
    told = plan(story, a_catalog(a_model("ada", scaling=Scaling(1, 3, 5))))
    was = Scaling(1, 1)
    assert [(row.symbol, row.code, row.said) for row in told.rows] == [
        ("~", "scaled", "scaling.max 1 -> 3"),
        ("~", "routing", f"scaling.target_in_flight {was.target_in_flight} -> 5"),
    ]
    more = plan(story, a_catalog(a_model("ada", replicas=2)))
    assert [(row.said, row.why) for row in more.rows] == [
        ("scaling.min 1 -> 2", "scaling.min 1 -> 2; scaling.max 1 -> 2")
    ]


def test_an_argument_that_is_taken_back_is_not_called_routing() -> None:
    """What runs is of that generation already: nothing restarts, and the legend says just that."""
    story = served("ada")
    story.desired = Desired(a_catalog(a_model("ada"), profiles=[OTHER]))
    told = plan(story, a_catalog(a_model("ada")))
    assert [(row.symbol, row.code) for row in told.rows] == [("~", "engine_args_changed")]
    assert any(
        "nothing restarts: routing, bounds, or what already runs so" in line for line in plan_lines(told)
    )


QUIET: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "protect comes": ({}, {"protect": True}, "protect false -> true"),
    "protect goes": ({"protect": True}, {}, "protect true -> false"),
    "aliases": ({}, {"aliases": ("a", "b")}, "aliases none -> a, b"),
    "fallbacks": ({}, {"fallbacks": ("bob",)}, "fallbacks none -> bob"),
    "order": (
        {"profiles": ("small", "big")},
        {"profiles": ("big", "small")},
        "profiles small, big -> big, small",
    ),
}


@pytest.mark.parametrize(("was", "now", "said"), QUIET.values(), ids=QUIET)
def test_what_changes_no_replica_of_a_model_is_told(
    was: dict[str, Any], now: dict[str, Any], said: str
) -> None:
    """A protection that goes unseen protects nobody: each field of a model has its row."""
    big, bob = a_profile("big", gpus_per_node=2), a_model("bob")
    story = Story(a_node("n0"), catalog=a_catalog(a_model("ada", **was), bob, profiles=[big]))
    story.runs()
    told = plan(story.after(400), a_catalog(a_model("ada", **now), bob, profiles=[big]))
    assert [(row.symbol, row.model, row.said) for row in told.rows] == [("~", "ada", said)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"drain": 60.5}, "drain 120s -> 60.5s"),
        ({"start_deadline": 60.0}, "start_deadline 1200s -> 60s"),
        ({"node_labels": (("rack", "r1"),)}, "node_labels none -> rack=r1"),
    ],
)
def test_what_restarts_nothing_in_a_profile_is_told(changed: dict[str, Any], said: str) -> None:
    """Told of the model that uses it, and of the profile where none does."""
    story = served("ada")
    told = plan(story, a_catalog(a_model("ada"), profiles=[a_profile(**changed)]))
    assert (told.rows[0].symbol, told.rows[0].model, told.rows[0].said) == ("~", "ada", said)
    story.desired = Desired(a_catalog(a_model("ada"), profiles=[a_profile("idle")]))
    told = plan(story, a_catalog(a_model("ada"), profiles=[a_profile("idle", **changed)]))
    assert [(row.symbol, row.model, row.said) for row in told.rows] == [("~", "profile/idle", said)]


def test_a_profile_that_nobody_uses_comes_and_goes_seen() -> None:
    """It changes no replica, and it is a change of the catalog."""
    story = served("ada")
    more = a_catalog(a_model("ada"), profiles=[a_profile("idle")])
    assert [row.said for row in plan(story, more).rows] == ["new profile, not used yet"]
    story.desired = Desired(more)
    gone = plan(story, a_catalog(a_model("ada")))
    assert [row.said for row in gone.rows] == ["the profile left the catalog; nothing used it"]


def test_every_field_has_its_row() -> None:
    """Whoever adds a field to a model or a profile tells its changes too."""
    assert {field.name for field in dataclasses.fields(Model)} == {
        "name", "source", "profiles", "aliases", "fallbacks", "scaling", "protect",
    }  # fmt: skip
    quiet = {field for field in RESTARTS_NOTHING if field != "name"}
    assert quiet == {"start_deadline", "drain", "node_labels"}


def test_every_difference_is_told() -> None:
    """Source, settings and bounds in one commit: the row tells the first, the lines below it all the others."""
    story = served("ada")
    changed = a_profile(args=(("alpha", 1),), env=(("LD_PRELOAD", "/tmp/evil.so"),))
    moved = a_model("ada", replicas=2, source=parse("http://elsewhere/ada.gguf", "ef" * 32))
    told = plan(story, a_catalog(moved, profiles=[changed]))
    assert {row.code for row in told.rows} == {"source_changed"}
    lines = "\n".join(plan_lines(told))
    for said in (
        "alpha unset -> 1",
        "LD_PRELOAD unset -> /tmp/evil.so",
        "scaling.min 1 -> 2",
    ):
        assert lines.count(said) == 1, said
    assert lines.count("source -> http://elsewhere/ada.gguf#sha256=efef") == 2
    assert "also      as above" in lines
    assert told.rows[0].said in summary_lines(told)[0]
    assert "(+4 more)" in summary_lines(told)[0]


def test_more_differences_than_anybody_reads_are_counted() -> None:
    """Thirty settings at once: twenty are told, ten are counted; another thirtieth is another plan."""
    story = served("ada")

    def env(last: str) -> Catalog:
        found = (*((f"SETTING_{number:02}", "0") for number in range(29)), ("Z_LAST", last))
        return a_catalog(a_model("ada"), profiles=[a_profile(env=found)])

    told = plan(story, env("0"))
    assert (len(told.rows[0].also), told.rows[0].more) == (MOST - 1, 10)
    assert any(line.strip() == "+10 more, not told here" for line in plan_lines(told))
    assert told.digest != plan(story, env("1")).digest
