"""Histories that an attack on the reconciler found, each told as a story."""

import dataclasses

import pytest

from llmgw.catalog.model import Catalog, Scaling
from llmgw.fleet import events
from llmgw.fleet.shard import Failure
from llmgw.planning.actions import Action, Assign, Drain, Stop
from llmgw.planning.desired import Desired, Marks
from llmgw.planning.guards import Limits, Seen, fired
from llmgw.planning.plan import make_plan
from llmgw.planning.promise import compare, promise
from llmgw.planning.rehearse import Rehearsal, rehearse
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile, kinds, seeded

LONGER = dataclasses.replace(a_profile(), max_model_len=8192)


def served(replicas: int, *, nodes: int = 2, gpus: int = 4) -> Story:
    """Replicas of qwen that have been ready for minutes."""
    story = Story(
        *(a_node(f"n{i}", gpus=gpus) for i in range(nodes)), catalog=a_catalog(a_model(replicas=replicas))
    )
    story.runs()
    story.after(400).runs()
    return story


def plan_of(story: Story, catalog: Catalog | None) -> Rehearsal:
    """What the story's control plane would say of `catalog` now."""
    desired = dataclasses.replace(story.desired, catalog=catalog)
    return rehearse(desired, story.fleet, story.ledger, story.now, seeded(3), story.timers)


@pytest.mark.parametrize("which", [0, 1])
def test_scaling_down_keeps_the_replica_whose_node_speaks(which: int) -> None:
    """Of two, one on a silent node: the one that is heard stays, or nothing might serve until Lost."""
    story = served(2)
    story.silence(story.fleet.shards[story.ready()[which], 0].spec.node).after(20).decides()
    story.adopts(a_catalog(a_model(replicas=1))).runs()
    assert [r for r in story.ready() if story.fleet.shards[r, 0].spec.node not in story.silent]


def test_the_back_off_of_a_second_profile_is_obeyed() -> None:
    """An older, longer trouble of the first profile does not hide the newest one of the second."""
    big = a_profile("big", gpus_per_node=4)
    story = Story(a_node("n0"), catalog=a_catalog(a_model(profiles=("big", "small")), profiles=[big]))

    def fail_once() -> tuple[Action, ...]:
        (assign,) = [action for action in story.decides() if isinstance(action, Assign)]
        story.says(assign.spec.key, "held").decides()
        story.says(assign.spec.key, "failed", reason="exit 1")
        actions = story.decides()
        story.obeys(*(action for action in actions if isinstance(action, Stop)))
        return actions

    for _ in range(3):
        fail_once()
        story.after(400)
    info = story.fleet.nodes["n0"].info
    assert info.gpus is not None
    busy = dataclasses.replace(info.gpus[0], foreign=80 << 30)
    story.hears(events.Reported("n0", (), dataclasses.replace(info, gpus=(busy, *info.gpus[1:]))))
    assert kinds(fail_once()) == ["stop"]


def test_a_plan_lets_orders_under_way_succeed() -> None:
    """What is starting when people plan is ready in the plan."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model()))
    (assign,) = story.decides()
    assert isinstance(assign, Assign)
    story.says(assign.spec.key, "held").decides()
    story.says(assign.spec.key, "starting")
    assert plan_of(story, story.desired.catalog).after == {"qwen": 1}


def test_a_plan_goes_on_from_the_middle_of_a_roll_out() -> None:
    """The drain that is still to come is in it."""
    story = served(1)
    new = a_catalog(a_model(), profiles=[LONGER])
    (assign,) = story.adopts(new).decides()
    assert isinstance(assign, Assign)
    story.says(assign.spec.key, "held").decides()
    story.says(assign.spec.key, "starting")
    assert any(isinstance(step.action, Drain) for step in plan_of(story, new).steps)


def test_a_plan_counts_on_a_card_that_is_being_vacated() -> None:
    """A model that will take it is not shown as one that fits nowhere."""
    story = served(1, nodes=1, gpus=1)
    story.adopts(a_catalog()).decides()
    for key in list(story.fleet.shards):
        story.says(key, "stopping")
    assert not plan_of(story, a_catalog(a_model("llama"))).unplaced


def test_an_old_memory_of_a_failure_does_not_forbid_the_swap_for_ever() -> None:
    """A failure of yesterday, told by an agent, does not keep a full node on the old generation."""
    story = served(1, nodes=1, gpus=1)
    new = a_catalog(a_model(), profiles=[LONGER])
    story.adopts(new)
    generation = next(iter(new.generations(new.models["qwen"])))
    shards = tuple((shard.spec, shard.status) for shard in story.fleet.shards.values())
    remembered = (Failure("qwen", generation, 1, 86400.0, "exit 1"),)
    story.hears(events.Registered(a_node("n0", gpus=1), shards, remembered))
    assert "drain" in kinds(story.runs())


def test_a_pause_takes_back_what_drains_and_stops_nothing() -> None:
    """Paused in the middle of a roll-out, the old one serves again: when the new one dies it is the last."""
    story = Story(a_node("n0", gpus=2), catalog=a_catalog(a_model()))
    story.gateway()
    story.runs(60)
    (old,) = story.ready()
    story.adopts(a_catalog(a_model(), profiles=[LONGER])).runs(60)
    story.after(story.timers.min_ready + 1)
    story.gateways["gw"] = {old: 3}
    story.after(1)
    assert kinds(story.decides()) == ["drain"]
    story.marks(Marks(paused={"qwen": "incident (dana)"}))
    for key, shard in list(story.fleet.shards.items()):
        if shard.spec.replica != old:
            story.says(key, "failed", reason="boom")
    story.gateways["gw"] = {}
    done: list[Action] = []
    for _ in range(10):
        actions = story.decides()
        done += actions
        story.obeys(*actions).after(20)
    assert [action for action in done if isinstance(action, Stop) and action.key[0] == old] == []
    assert story.ready() == [old]


def test_a_pause_lets_go_what_was_told_to_stop() -> None:
    """A stop that was sent cannot be taken back: its replica goes on to its end."""
    story = served(2)
    story.adopts(a_catalog(a_model(replicas=1)))
    (stop,) = [action for _ in range(3) for action in story.decides() if isinstance(action, Stop)]
    story.marks(Marks(paused={"qwen": "incident (dana)"}))
    assert "undrain" not in kinds(story.decides())
    story.obeys(stop).runs()
    assert len(story.ready()) == 1


def elastic(most: int) -> Catalog:
    """One model between one replica and `most`, one request each."""
    return a_catalog(a_model(scaling=Scaling(1, most, 1)))


def by_day() -> Story:
    """Twelve replicas, because twelve requests are in flight."""
    story = Story(a_node("n0", gpus=16), catalog=elastic(12))
    story.gateway()
    story.runs(60)
    story.gateways["gw"] = {story.ready()[0]: 12}
    story.after(5).runs(60)
    story.after(5).runs(60)
    assert len(story.ready()) == 12
    return story


def test_a_lower_bound_from_above_is_a_change_that_stops() -> None:
    """Eleven of twelve go because the most may be one: guarded, and not what was shown while one ran."""
    night = Story(a_node("n0", gpus=16), catalog=elastic(12))
    night.gateway()
    night.runs(60)
    shown, now = (
        make_plan(s.desired, Desired(elastic(1)), s.fleet, s.ledger, s.now, seeded(3), s.timers, base=1)
        for s in (night, by_day())
    )
    assert {(row.symbol, row.code, row.said, row.origin) for row in now.rows} == {
        ("-", "scaled", "scaling.max 12 -> 1", "change")
    }
    serving = frozenset(row.replica for row in now.rows) | {"qwen/left"}
    assert [each.allow for each in fired(now, elastic(12), elastic(1), Limits(), Seen(serving))] == [
        "--allow-mass-stop 11"
    ]
    assert shown.digest != now.digest
    assert compare(promise(shown), promise(now)).stale
