"""What is halted or waited for is said in one sentence: what, and what would help."""

from llmgw.fleet import events
from llmgw.fleet.world import Fleet
from llmgw.planning.actions import Assign, Drain
from llmgw.planning.desired import Marks
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile

OTHER = a_profile(args=(("threads", 2),))


def rolled_out(story: Story, replicas: int) -> Story:
    """Replicas of qwen that serve, and a catalog that wants another generation of them."""
    story.runs()
    assert len(story.ready()) == replicas
    return story.after(400).adopts(a_catalog(a_model(replicas=replicas), profiles=[OTHER]))


def fails(story: Story, seconds: float) -> int:
    """Time passes in which every new start fails; how many were tried."""
    tried = 0
    for _ in range(round(seconds / 2)):
        actions = story.decides()
        story.obeys(*actions)
        new = [action for action in actions if isinstance(action, Assign)]
        for action in new:
            story.says(action.spec.key, "failed", reason="exit 1: unknown flag --threads")
        tried += len(new)
        story.after(2)
    return tried


def alarms(story: Story) -> tuple[str, ...]:
    story.decides()
    assert story.last is not None
    return story.last.alarms


def test_a_halted_roll_out_is_tried_again_where_that_costs_nothing() -> None:
    """By back-off, one replica, in the room of the surge; the old ones serve, and people read what to do."""
    story = rolled_out(Story(a_node("n0", gpus=3), catalog=a_catalog(a_model(replicas=2))), 2)
    old = story.ready()
    assert 6 <= fails(story, 600) <= 9
    assert story.ready() == old
    (said,) = alarms(story)
    assert "the roll-out of qwen is halted" in said
    assert "unknown flag --threads" in said
    assert "2 of 2 serve, what served before goes on" in said
    assert "`llmgw rollback`" in said
    assert "`llmgw retry qwen`" in said


def test_a_halted_gap_is_tried_again_in_its_own_room() -> None:
    """Without room for both one has gone: its card is where the next try is made, and no other goes."""
    story = rolled_out(Story(a_node("n0", gpus=2), catalog=a_catalog(a_model(replicas=2))), 2)
    assert 6 <= fails(story, 600) <= 9
    assert len(story.ready()) == 1
    (said,) = alarms(story)
    assert "1 of 2 serve, one of before gave its place up" in said
    story.adopts(a_catalog(a_model(replicas=2))).runs()
    story.after(11).runs()
    assert len(story.ready()) == 2
    assert alarms(story) == ()


def test_after_a_failure_one_successor_shows_the_way() -> None:
    """Room for two does not mean two tries: the second comes when the first has proved itself."""
    story = rolled_out(Story(a_node("n0", gpus=4), catalog=a_catalog(a_model(replicas=3))), 3)
    fails(story, 10)
    for name in story.ready()[:2]:
        story.says((name, 0), "failed", reason="exit 1")
    story.runs()
    story.after(300)
    tried = [action for action in story.decides() if isinstance(action, Assign)]
    assert len(tried) == 1
    story.obeys(*tried).runs()
    story.after(11)
    assert len([action for action in story.runs() if isinstance(action, Assign)]) == 1


def test_nothing_is_halted_by_a_model_that_is_new() -> None:
    """What never served is no roll-out: its row says when it is tried again."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model(profiles=("small",)), profiles=[OTHER]))
    assert fails(story, 60)
    assert alarms(story) == ()


def test_a_restart_says_whom_it_waits_for_and_how_that_ends() -> None:
    """By name, with the limit, and with what a person can say where the machine is gone."""
    story = rolled_out(Story(a_node("n0"), a_node("n1"), catalog=a_catalog(a_model(replicas=2))), 2)
    again = Story(catalog=story.desired.catalog)
    again.fleet = Fleet(since=again.now, roster=frozenset(("n0", "n1")))
    again.hears(events.Registered(a_node("n0")))
    (said,) = alarms(again)
    assert (
        "waiting for 1 node of the roster: n1; nothing is placed or stopped until they report or it is 1m"
        in said
    )
    assert "`llmgw node confirm-lost NAME`" in said
    assert "`llmgw node forget NAME`" in said
    again.after(61)
    (said,) = alarms(again)
    assert "no model that serves gets more replicas until they report or it is 5m since" in said
    again.after(300)
    assert alarms(again) == ()


def test_a_silent_node_is_named_while_something_runs_there() -> None:
    """Its replicas are left alone for so long; a node without any is nobody's alarm."""
    story = Story(a_node("n0"), a_node("spare"), a_node("third"), catalog=a_catalog(a_model()))
    story.runs()
    home = story.fleet.shards[story.ready()[0], 0].spec.node
    idle = next(name for name in ("spare", "third", "n0") if name != home)
    story.silence(idle).after(30)
    assert alarms(story) == ()
    story.speaks(idle).silence(home).after(30)
    (said,) = alarms(story)
    assert said.startswith(
        f"no word from {home}: what runs there is left alone, and rebuilt elsewhere after 5m"
    )
    assert not any(isinstance(action, Drain) for action in story.decides())


def home_of(story: Story) -> str:
    """The node of the only replica that serves."""
    (name,) = story.ready()
    return story.fleet.shards[name, 0].spec.node


def test_a_lost_node_is_as_loud_as_a_silent_one() -> None:
    """It stays an alarm by name, with what helps, until it speaks, is forgotten or confirmed; the rebuild says why."""
    story = Story(a_node("n0"), a_node("n1"), a_node("n2"), catalog=a_catalog(a_model()))
    story.runs()
    home = home_of(story)
    story.silence(home).after(301)
    (rebuilt,) = [action for action in story.decides() if isinstance(action, Assign)]
    assert rebuilt.because == f"0 of 1 replicas, node {home} is lost"
    story.obeys(rebuilt).runs()
    for _ in range(2):
        (said,) = alarms(story)
        assert said.startswith(f"{home} is lost: what ran there is rebuilt elsewhere")
        assert "`systemctl status llmgw-agent` there" in said
        assert "`llmgw node forget NAME`" in said
        story.after(600)
    confirmed = story.marks(Marks(confirmed_lost=frozenset({home})))
    assert alarms(confirmed) == ()
    story.marks(Marks())
    story.speaks(home).after(1)
    assert alarms(story) == ()


def test_a_gateway_that_does_not_speak_is_an_alarm() -> None:
    """Its clients may get no connection at all; that is said until it speaks again."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model())).gateway("door")
    story.runs()
    del story.gateways["door"]
    story.after(14)
    assert alarms(story) == ()
    story.after(1)
    (said,) = alarms(story)
    assert said.startswith("no word from gateway door: its clients are not served where that is down")
    story.gateway("door")
    assert alarms(story) == ()


def test_a_roll_out_whose_copies_are_ready_for_seconds_is_halted() -> None:
    """Ready for less than `min_ready` is no proof: old ones serve, and the alarm stands through every try."""
    story = rolled_out(Story(a_node("n0", gpus=2), catalog=a_catalog(a_model())).gateway(), 1)
    (old,) = story.ready()
    said: list[tuple[str, ...]] = []
    for _ in range(6):
        for action in story.runs():
            if isinstance(action, Assign):
                story.after(3).says(action.spec.key, "failed", reason="answers 503").decides()
        said.append(alarms(story))
        story.after(60)
    assert story.ready() == [old]
    assert {len(each) for each in said} == {1}
    assert "the roll-out of qwen is halted: generation " in said[-1][0]
    assert "does not stay ready (rank 0: answers 503); 1 of 1 serve" in said[-1][0]
