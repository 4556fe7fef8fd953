"""Roll-outs without room for a surge: one gap in the whole fleet at a time, and none that could be avoided."""

import pytest

from llmgw.planning.actions import Assign, Drain, Undrain
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile

OTHER = a_profile(args=(("threads", 2),))
MODELS = ("ada", "bob", "cid", "dan")


def full(replicas: int = 1, models: tuple[str, ...] = MODELS, gpus: int = 4) -> Story:
    """Models of one shared profile that have been Ready for long and hold every card there is."""
    asked = [a_model(name, replicas=replicas) for name in models]
    story = Story(a_node("n0", gpus=gpus), catalog=a_catalog(*asked))
    story.runs()
    assert len(story.fleet.shards) == gpus
    return story.after(400)


def edited(story: Story) -> Story:
    """The shared profile is another one from now on."""
    assert story.desired.catalog is not None
    return story.adopts(a_catalog(*story.desired.catalog.models.values(), profiles=[OTHER]))


def down(story: Story) -> list[str]:
    """The models of which nothing is ready."""
    return [name for name in MODELS if not story.ready(name)]


def test_one_edit_of_a_shared_profile_takes_one_model_down_at_a_time() -> None:
    """The next model gives its replica up only when the successor of the one before has proved itself."""
    story = edited(full())
    seen = []
    for _ in range(60):
        story.obeys(*story.decides())
        assert len(down(story)) <= 1
        seen += [name for name in down(story) if name not in seen]
        story.after(2)
    assert seen == list(MODELS)
    assert {shard.spec.profile.args for shard in story.fleet.shards.values()} == {OTHER.args}
    assert story.ledger.gap is None


def test_a_shared_profile_that_fails_takes_one_model_down_and_no_other() -> None:
    """The first successor shows that the edit is wrong; the others keep serving until it is taken back."""
    story = full()
    before = story.desired.catalog
    edited(story)
    for _ in range(200):
        actions = story.decides()
        story.obeys(*actions)
        for action in actions:
            if isinstance(action, Assign):
                story.says(action.spec.key, "failed", reason="exit 1: unknown flag")
        assert down(story) in ([], ["ada"])
        story.after(3)
    assert down(story) == ["ada"]
    story.adopts(before).runs()
    assert down(story) == []
    story.after(11).runs()
    assert story.ledger.gap is None


def test_what_was_given_up_is_its_successors() -> None:
    """A bigger model that waits for a place does not take the card that a roll-out has freed."""
    story = full(models=("ada", "bob"), gpus=2)
    wide = a_profile("wide", gpus_per_node=1, gpu_types=("H100",))
    models = [a_model("ada"), a_model("bob"), a_model("aaa", profiles=("wide",))]
    story.adopts(a_catalog(*models, profiles=[OTHER, wide]))
    for _ in range(30):
        story.runs()
        story.after(5)
    assert [bool(story.ready(name)) for name in ("aaa", "ada", "bob")] == [False, True, True]


def test_a_surge_needs_no_gap() -> None:
    """Where one card is free all models roll out by it, in turn, and none is ever down."""
    story = full(models=("ada", "bob", "cid"), gpus=3)
    story.registers(a_node("n1", gpus=1))
    edited(story)
    for _ in range(60):
        story.obeys(*story.decides())
        assert not [name for name in ("ada", "bob", "cid") if not story.ready(name)]
        story.after(2)
    assert {shard.spec.profile.args for shard in story.fleet.shards.values()} == {OTHER.args}


def test_room_that_comes_anyway_is_waited_for() -> None:
    """A model leaves the catalog: its card is where the other's successor goes, beside the old one."""
    story = full(models=("ada", "bob"), gpus=2)
    leaver, _ = story.ready("ada") + story.ready("bob")
    story.gateway("gw", **{leaver.replace("/", "__"): 1})
    story.adopts(a_catalog(a_model("bob"), profiles=[OTHER]))
    assert [a.replica for a in story.decides() if isinstance(a, Drain)] == [leaver]
    story.gateway("gw").runs()
    assert len(story.ready("bob")) == 2
    story.after(11).runs()
    assert len(story.ready("bob")) == 1
    assert not story.ledger.drains


def test_room_that_never_comes_is_not_waited_for() -> None:
    """A node that cannot get rid of an engine does not hold a roll-out up for ever."""
    story = full(models=("ada", "bob"), gpus=2)
    (stuck,) = story.ready("ada")
    story.adopts(a_catalog(a_model("bob"), profiles=[OTHER]))
    story.decides()
    story.says((stuck, 0), "stopping")
    for _ in range(50):
        story.after(5)
        story.obeys(*(action for action in story.decides() if getattr(action, "key", ("", 0))[0] != stuck))
    assert [s.spec.profile.args for s in story.fleet.shards.values() if s.spec.model == "bob"] == [OTHER.args]


def test_what_was_taken_back_does_not_begin_again_at_once() -> None:
    """Its successor is cancelled by somebody else's need for the card: the old one serves, and goes on serving."""
    story = full(replicas=2, models=("ada",), gpus=2)
    story.gateway("gw", **{name.replace("/", "__"): 1 for name in story.ready("ada")})
    story.registers(a_node("n1", gpus=1))
    edited(story).runs()
    story.after(11).decides()
    story.runs()
    (drained,) = story.ledger.drains
    (new,) = [s.spec for s in story.fleet.shards.values() if s.spec.profile.args == OTHER.args]
    bob = a_model("bob", profiles=("wide",))
    wide = a_profile("wide", gpu_types=("H100",))
    story.adopts(a_catalog(a_model("ada", replicas=2), bob, profiles=[OTHER, wide]))
    story.registers(a_node("n1", gpus=1))
    actions = story.decides()
    assert [a.replica for a in actions if isinstance(a, Undrain)] == [drained]
    assert [a.spec.model for a in actions if isinstance(a, Assign)] == ["bob"]
    assert drained in story.ready("ada")
    assert drained not in story.ledger.drains
    assert new.replica not in story.ready("ada")


def forgotten(story: Story) -> Story:
    """A new control plane: it remembers nothing, and every node registers again with what it has."""
    shards = [(s.spec, s.status) for _, s in sorted(story.fleet.shards.items())]
    again = Story(catalog=story.desired.catalog)
    again.registers(story.fleet.nodes["n0"].info, *shards)
    return again


@pytest.mark.parametrize("state", ["comes", "fails", "stops", "is gone"])
def test_a_gap_outlives_its_control_plane(state: str) -> None:
    """Whatever the restart met of the one gap there was, nobody opens a second beside it."""
    story = edited(full())
    (drain,) = [action for action in story.decides() if isinstance(action, Drain)]
    down_one = drain.replica.partition("/")[0]
    story.says((drain.replica, 0), "stopping")
    if state != "stops":
        story.says((drain.replica, 0), "gone")
    if state in ("comes", "fails"):
        (new,) = [action.spec for action in story.decides() if isinstance(action, Assign)]
        story.obeys(Assign(new, ""))
    if state == "fails":
        story.says(new.key, "failed", reason="exit 1: unknown flag")
    again = forgotten(story)
    for _ in range(12):
        again.decides()
        again.after(2)
    assert down(again) == [down_one]


def test_a_fleet_that_begins_has_no_gap() -> None:
    """What is placed for the first time is nobody's successor."""
    story = full()
    assert story.ledger.inherited == ()
    assert story.ledger.gap is None
