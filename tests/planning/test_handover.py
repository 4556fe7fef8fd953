"""A name that moves to another model: who answers for it goes on until the other one does."""

import dataclasses

import pytest

from llmgw.catalog.model import Model, Scaling
from llmgw.kit.chance import seeded
from llmgw.planning.actions import Assign
from llmgw.planning.desired import Desired
from llmgw.planning.plan import make_plan
from llmgw.routing.table import build
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile, kinds

OLD = a_model("old", aliases=("chat",))
NEW = a_model("new", aliases=("chat",))


def _served(*models: Model, gpus: int = 4) -> Story:
    story = Story(a_node("n", gpus=gpus), catalog=a_catalog(*models)).gateway()
    story.runs()
    story.after(60.0).runs()
    return story


def _answers(story: Story, name: str) -> str:
    """The model that a client gets who asks for `name`; empty = nobody."""
    route = build(story.ledger.routes).route(name)
    return route.model if route is not None and route.levels[0].endpoints else ""


@pytest.mark.parametrize(
    ("after", "name"),
    [
        ((NEW,), "chat"),  # the old model leaves
        ((a_model("old"), NEW), "chat"),  # it stays, without the name
        ((a_model("new", aliases=("old", "chat")),), "old"),  # it is renamed
        ((a_model("chat"),), "chat"),  # the alias becomes a model
    ],
)
def test_somebody_answers_all_the_time(after: tuple[Model, ...], name: str) -> None:
    """From the first table after the edit to the last one, across the load and the time in which it proves itself."""
    story = _served(OLD)
    heir = after[-1].name
    story.adopts(a_catalog(*after))
    answered = [_answers(story, name)]
    for _ in range(20):
        actions = story.decides()
        answered.append(_answers(story, name))
        story.obeys(*actions).after(1.0)

    assert "" not in answered
    assert answered[0] == "old"
    assert answered[-1] == heir
    assert [model for model, before in zip(answered, ["", *answered], strict=False) if model != before] == [
        "old",
        heir,
    ]
    assert bool(story.ready("old")) == ("old" in {model.name for model in after})


def test_a_stop_waits_for_the_heir_to_prove_itself() -> None:
    """The old copy drains after the new one has been Ready for `min_ready`, and not before."""
    story = _served(OLD)
    story.adopts(a_catalog(NEW))

    assert kinds(story.runs()) == ["assign", "start"]
    assert story.after(story.timers.min_ready - 1.0).decides() == ()
    assert kinds(story.after(1.0).runs()) == ["drain", "stop"]


def test_all_that_the_heir_gets_is_waited_for() -> None:
    """One of two new copies is no match for two old ones."""
    story = _served(dataclasses.replace(OLD, scaling=Scaling(2, 2)))
    story.adopts(a_catalog(dataclasses.replace(NEW, scaling=Scaling(2, 2))))
    first, second = (action.spec for action in story.decides())
    for spec in (first, second):
        story.says(spec.key, "held")
    story.decides()
    story.says(first.key, "ready")
    story.after(60.0).runs()
    assert _answers(story, "chat") == "old"

    story.says(second.key, "ready")
    story.after(story.timers.min_ready).runs()
    assert (_answers(story, "chat"), story.ready("old")) == ("new", [])


def test_an_heir_that_fails_takes_nothing_over() -> None:
    """What serves goes on for as long as the new one does not start."""
    story = _served(OLD)
    story.adopts(a_catalog(NEW))
    for _ in range(10):
        for action in story.decides():
            if isinstance(action, Assign):
                story.says(action.spec.key, "failed", reason="exit 1")
            else:
                story.obeys(action)
        story.after(100.0)
    assert _answers(story, "chat") == "old"
    assert story.ready("old")


def test_where_there_is_no_room_for_both_the_old_one_goes_first() -> None:
    """As many copies as the new one needs the room of, one after the other; a name without anybody is told by a guard."""
    story = _served(dataclasses.replace(OLD, scaling=Scaling(3, 3)), gpus=3)
    story.adopts(a_catalog(NEW))

    first = story.decides()
    assert kinds(first) == ["drain"]
    assert "no room beside it for new" in first[0].because
    assert _answers(story, "chat") == "old"
    story.after(1.0).runs()
    assert (len(story.ready("old")), len(story.ready("new"))) == (2, 1)
    story.after(story.timers.min_ready).runs()
    assert (_answers(story, "chat"), story.ready("old")) == ("new", [])


def test_the_room_of_what_waits_for_its_heir_comes_anyway() -> None:
    """A roll-out that needs it opens no gap for itself meanwhile."""
    other = a_model("other", profiles=("own",))
    story = Story(a_node("n", gpus=3), catalog=a_catalog(OLD, other, profiles=[a_profile("own")])).gateway()
    story.runs()
    story.after(60.0).runs()
    story.adopts(a_catalog(NEW, other, profiles=[a_profile("own", args=(("seed", 1),))]))
    lowest = 1
    for _ in range(60):
        story.obeys(*story.decides()).after(1.0)
        serving = {e.model for e in story.ledger.routes.endpoints if not e.draining}
        lowest = min(lowest, "other" in serving)

    assert lowest == 1
    assert (story.ready("old"), len(story.ready("new")), len(story.ready("other"))) == ([], 1, 1)


def test_an_heir_that_fits_nowhere_holds_nothing_back() -> None:
    """The old model left the catalog: it goes, as one whose names nobody gets."""
    story = _served(OLD, gpus=1)
    story.adopts(
        a_catalog(dataclasses.replace(NEW, profiles=("huge",)), profiles=[a_profile("huge", gpus_per_node=2)])
    )
    assert kinds(story.runs()) == ["drain", "stop"]
    assert story.ready("old") == []


def test_who_wants_nothing_to_run_takes_names_at_once() -> None:
    """A model that sleeps until it is asked for is asked for."""
    story = _served(OLD)
    story.adopts(a_catalog(dataclasses.replace(NEW, scaling=Scaling(0, 1))))
    assert kinds(story.runs()) == ["drain", "stop"]


def test_a_plan_says_whose_the_name_becomes_and_when() -> None:
    """A row of its own, and the stop after the start; no guard has anything against it."""
    story = _served(OLD)
    plan = make_plan(
        story.desired,
        Desired(a_catalog(NEW)),
        story.fleet,
        story.ledger,
        story.now,
        seeded(1),
        story.timers,
        base=1,
    )
    assert [(row.symbol, row.model) for row in plan.rows] == [("+", "new"), ("-", "old"), ("~", "new")]
    assert plan.rows[-1].said == "chat goes from old to new, once new is ready"
    assert plan.moved == (("chat", 1),)


def test_a_plan_does_not_promise_what_there_is_no_room_for() -> None:
    """Where the old one has to go first the name waits for nobody."""
    story = _served(OLD, gpus=1)
    new = Desired(a_catalog(NEW))
    plan = make_plan(
        story.desired, new, story.fleet, story.ledger, story.now, seeded(1), story.timers, base=1
    )
    assert plan.rows[-1].said == "chat goes from old to new"
    assert plan.moved == (("chat", 0),)
