"""A plan is the loop's own function, played forward: what it says is what happens."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.catalog.model import Catalog
from llmgw.fleet.expiry import Timers
from llmgw.kit.chance import seeded
from llmgw.planning.actions import Assign, Drain, Stop
from llmgw.planning.desired import Desired
from llmgw.planning.plan import Plan, make_plan
from llmgw.planning.rehearse import rehearse
from llmgw.planning.render import plan_lines
from llmgw.planning.rows import Row
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile


def plan(story: Story, new: Catalog) -> Plan:
    """The plan from the story's catalog to `new`."""
    return make_plan(
        story.desired, Desired(new), story.fleet, story.ledger, story.now, seeded(3), story.timers, base=1
    )


def served(**more: object) -> Story:
    """One qwen, ready on one of two nodes."""
    story = Story(a_node("n0"), a_node("n1"), catalog=a_catalog(a_model(**more)))
    story.runs()
    return story


def test_a_new_model_is_a_plus_with_its_node_and_bytes() -> None:
    """A plan says what, where, why, and that the size is not known when nobody knows it."""
    story = Story(a_node("n0"), catalog=None)
    (row,) = plan(story, a_catalog(a_model())).rows
    assert (row.symbol, row.nodes, row.said, row.fetch) == ("+", ("n0",), "new model", None)


def test_the_adopted_catalog_is_no_change() -> None:
    """Planning what is adopted and running gives an empty plan."""
    story = served()
    assert story.desired.catalog is not None
    empty = plan(story, story.desired.catalog)
    assert empty.empty
    assert plan_lines(empty) == ["No changes: the fleet is what the catalog asks for."]


def test_what_is_left_alone_is_not_called_as_asked_for() -> None:
    """A replica on a silent node: nothing to do yet, and not all is well."""
    alone = Row(".", "qwen", "node_silent", "node n0 is silent for 19s", origin="healing")
    left = Plan("d" * 64, 1, (), (), alone=(alone,))
    assert left.empty
    assert plan_lines(left)[-1] == "No changes: what is not as the catalog asks is left alone for now."


def test_an_argument_replaces_new_first_and_never_dips() -> None:
    """A rolling change is one row, and the lowest ready count is said."""
    story = served()
    changed = plan(story, a_catalog(a_model(), profiles=[a_profile(args=(("threads", 2),))]))
    (row,) = changed.rows
    assert (row.symbol, row.said, row.replica) == ("+/-", "threads unset -> 2", story.ready()[0])
    assert row.held == (row.nodes == (story.fleet.shards[row.replica, 0].spec.node,))
    (service,) = changed.service
    assert (service.now, service.lowest, service.after) == (1, 1, 1)


def test_without_room_the_plan_states_the_gap() -> None:
    """No card for both: the old goes first, and the plan says that nothing serves meanwhile."""
    story = Story(a_node("n0", gpus=1), catalog=a_catalog(a_model()))
    story.runs()
    changed = plan(story, a_catalog(a_model(), profiles=[a_profile(args=(("threads", 2),))]))
    (row,) = changed.rows
    assert row.symbol == "-/+"
    (service,) = changed.service
    assert (service.now, service.lowest, service.after) == (1, 0, 1)


def test_a_removed_model_is_a_minus() -> None:
    """What leaves the catalog is named with the node it leaves."""
    story = served()
    (row,) = plan(story, a_catalog()).rows
    assert (row.symbol, row.code, row.replica) == ("-", "model_removed", story.ready()[0])


def test_healing_is_told_apart_from_the_change() -> None:
    """What the loop would do anyway is not part of the change, nor of its identity."""
    story = served(replicas=2)
    broken = story.ready()[0]
    story.says((broken, 0), "failed", reason="exit 1").runs()
    aliased = a_catalog(a_model(replicas=2, aliases=("chat",)))
    mixed = plan(story, aliased)
    assert {row.origin for row in mixed.rows if row.symbol == "+"} == {"healing"}
    assert [row.said for row in mixed.rows if row.symbol == "~"] == ["aliases none -> chat"]
    quiet = served(replicas=2)
    assert plan(quiet, aliased).digest == mixed.digest


def test_identity_is_blind_to_suffix_node_and_time() -> None:
    """The same change on another day, with other random ids, is the same plan."""
    story = served()
    target = a_catalog(a_model(replicas=3))
    first = plan(story, target)
    story.after(500)
    again = make_plan(
        story.desired, Desired(target), story.fleet, story.ledger, story.now, seeded(99), story.timers, base=1
    )
    assert first.digest == again.digest
    assert first.digest != plan(story, a_catalog(a_model(replicas=4))).digest


def test_the_plan_of_a_frozen_fleet_waits_for_nobody() -> None:
    """The silence of a node stands still in a plan: nobody becomes Lost while people read."""
    story = served()
    story.silence("n0").silence("n1").after(60)
    story.speaks("n1")
    assert plan(story, a_catalog(a_model())).empty


def test_the_screen_of_a_mixed_plan() -> None:
    """Every kind of row on one screen, as people read it."""
    story = Story(a_node("n0", gpus=2), a_node("n1", gpus=1), catalog=a_catalog(a_model("a"), a_model("b")))
    story.runs()
    new = a_catalog(
        a_model("a", aliases=("x",)), a_model("c", replicas=4), profiles=[a_profile(args=(("threads", 2),))]
    )
    lines = plan_lines(plan(story, new))
    assert all(line == line.rstrip() for line in lines)
    text = "\n".join(lines)
    assert "cannot be placed" in lines[-1]
    assert "the model left the catalog" in text
    assert "aliases none -> x" in text


counts = st.integers(0, 3)


@settings(max_examples=60, deadline=None)
@given(a=counts, b=counts, c=counts, d=counts, threads=st.integers(1, 2), seed=st.integers(0, 99))
def test_a_rehearsal_is_what_the_loop_does(a: int, b: int, c: int, d: int, threads: int, seed: int) -> None:
    """Action for action, on a fleet where everything succeeds, the loop does what was rehearsed."""
    nodes = (a_node("n0", gpus=3), a_node("n1", gpus=2))
    story = Story(*nodes, catalog=a_catalog(a_model("a", replicas=a), a_model("b", replicas=b)))
    story.runs(60)
    story.gateway()
    profile = a_profile(args=(("threads", threads),))
    new = a_catalog(a_model("a", replicas=c), a_model("b", replicas=d), profiles=[profile])
    story.chance = seeded(seed)
    played = rehearse(
        Desired(new), story.fleet, story.ledger, story.now, seeded(seed), dataclasses.replace(story.timers)
    )
    story.adopts(new)
    done = story.runs(60)
    for _ in range(12):
        story.after(Timers().min_ready + 0.1)
        done += story.runs(60)
    assert [step.action for step in played.steps] == done
    assert {type(action) for action in done} <= {Assign, Drain, Stop} | {type(s.action) for s in played.steps}


def test_who_holds_the_cards_is_told_in_one_order() -> None:
    """Also of replicas that only the rehearsal knows: their ids are drawn anew each time."""
    story = served()
    model = next(iter(story.desired.catalog.models.values()))  # type: ignore[union-attr]
    big = a_profile("big", gpus_per_node=8)
    more = dataclasses.replace(model, scaling=dataclasses.replace(model.scaling, min=3, max=3))
    new = a_catalog(more, a_model("vast", profiles=("big",)), profiles=[big])
    made = {
        make_plan(
            story.desired, Desired(new), story.fleet, story.ledger, story.now, seeded(seed), story.timers, base=1
        ).unplaced[0].reasons
        for seed in range(20)
    }  # fmt: skip
    (reasons,) = made
    assert any("(new)" in said and "/" in said for _, _, said in reasons)
