"""Several models that fail on one node are the node's fault, for a while."""

import dataclasses

from llmgw.catalog.model import Catalog, Model
from llmgw.fleet import events
from llmgw.fleet.shard import Failure, Peer, ShardStatus
from llmgw.planning.actions import Assign
from llmgw.planning.screen import node_rows
from llmgw.planning.view import look
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile

NAMES = ("a", "b", "c")


OWN = tuple(a_profile(f"for-{name}") for name in NAMES)


def asked(*more: Model, shared: bool = False) -> Catalog:
    """The models, each under a profile of its own or all under one, and `more`."""
    models = (a_model(name, profiles=("small" if shared else f"for-{name}",)) for name in NAMES)
    return a_catalog(*models, *more, profiles=OWN)


def broken(models: int = 3, nodes: int = 2, *, shared: bool = False) -> Story:
    """The first models of a full catalog fail on n0, all at once."""
    catalog = asked(shared=shared)
    story = Story(a_node("n0"), catalog=catalog)
    story.runs()
    for number in range(1, nodes):
        story.registers(a_node(f"n{number}"))
    for name in NAMES[:models]:
        story.says((story.ready(name)[0], 0), "failed", reason="exit 1")
    story.runs()
    return story


def placed(story: Story) -> set[str]:
    """The nodes of what is assigned now."""
    return {action.spec.node for action in story.runs() if isinstance(action, Assign)}


def test_a_node_where_three_models_failed_takes_nothing_new() -> None:
    """Other models, which never failed, are kept away from it too; people see why."""
    story = broken()
    story.adopts(asked(a_model("new", replicas=3)))
    assert placed(story) == {"n1"}
    rows = node_rows(look(story.desired, story.fleet, story.ledger, story.now, story.timers))
    assert [row.cordoned for row in rows] == ["3 models failed to start here (a, b, c)", ""]


def test_two_models_blame_no_node() -> None:
    """Two failures may be two bad models: the node goes on."""
    story = broken(models=2)
    story.adopts(asked(a_model("new", replicas=3)))
    assert "n0" in placed(story)


def test_a_quarantine_ends_by_itself() -> None:
    """With no other node to go to, everything is tried here again after the longest back-off."""
    story = broken(nodes=1)
    assert placed(story.after(20)) == set()
    assert story.last is not None
    assert story.last.wake_at is not None
    assert placed(story.after(story.timers.backoff_cap - 20)) == {"n0"}


def test_one_bad_profile_blames_no_node() -> None:
    """Three models that fail under one profile may have only that in common."""
    story = broken(shared=True)
    story.adopts(asked(a_model("new", replicas=3), shared=True))
    assert "n0" in placed(story)


def test_a_profile_that_serves_elsewhere_clears_itself() -> None:
    """The three serve on the next node under the same profile: then it was the node."""
    story = broken(shared=True)
    story.after(20).runs()
    assert {shard.spec.node for shard in story.fleet.shards.values()} == {"n1"}
    story.decides()
    story.adopts(asked(a_model("new", replicas=3), shared=True))
    story.registers(a_node("n2"))
    assert "n0" not in placed(story)


def test_what_a_node_remembers_of_failures_blames_it() -> None:
    """After a restart agents tell of failures: those of three models keep a fourth away, and each avoids its own."""
    catalog = asked(a_model("new"))
    remembered = tuple(
        Failure(name, generation, 1, 2.0, "exit 1")
        for name in NAMES
        for generation in catalog.generations(catalog.models[name])
    )
    story = Story(catalog=catalog).hears(events.Registered(a_node("n0"), failures=remembered))
    story.registers(a_node("n1"))
    assert placed(story) == {"n1"}
    assert {trouble.nodes for trouble in story.ledger.troubles.values()} == {("n0",)}


def test_both_nodes_of_a_gang_are_blamed() -> None:
    """Each of them remembers the one failure of the replica that both held."""
    catalog = asked()
    (generation,) = catalog.generations(catalog.models["a"])
    told = (Failure("a", generation, 1, 2.0, "exit 1"),)
    story = Story(catalog=catalog)
    story.hears(
        events.Registered(a_node("n0"), failures=told), events.Registered(a_node("n1"), failures=told)
    )
    story.decides()
    assert [(t.nodes, t.failures) for t in story.ledger.troubles.values()] == [(("n0", "n1"), 1)]


def test_what_people_cleared_does_not_come_back_with_a_connection() -> None:
    """An agent that registers again tells of the same failure again; one after that counts."""
    catalog = asked()
    (generation,) = catalog.generations(catalog.models["a"])

    def tells(age: float, count: int = 3) -> events.Registered:
        return events.Registered(a_node("n0"), failures=(Failure("a", generation, count, age, "exit 1"),))

    story = Story(catalog=catalog).hears(tells(2.0))
    story.decides()
    assert [trouble.failures for trouble in story.ledger.troubles.values()] == [3]
    story.ledger = story.ledger.forgiving("a", story.now)
    story.after(5).hears(tells(7.0)).decides()
    assert not story.ledger.troubles
    story.after(20).hears(tells(3.0, count=4)).decides()
    assert [trouble.failures for trouble in story.ledger.troubles.values()] == [4]
    story.after(2000).decides()
    assert not story.ledger.cleared


def test_a_failure_that_is_told_late_takes_no_blame_away() -> None:
    """A node that was away tells of an older failure of one of the three: the newest is still where it was."""
    story = broken()
    (key,) = (key for key in story.ledger.troubles if key[0] == "a")
    story.after(20).runs()
    (spec,) = (shard.spec for shard in story.fleet.shards.values() if shard.spec.model == "a")
    late = dataclasses.replace(spec, replica="a/late", peers=(Peer(0, "n1", "n1", 20100),))
    story.registers(a_node("n1"), (late, ShardStatus("a/late", 0, "failed", 120.0, reason="exit 1")))
    story.decides()
    rows = node_rows(look(story.desired, story.fleet, story.ledger, story.now, story.timers))
    assert [row.cordoned for row in rows] == ["3 models failed to start here (a, b, c)", ""]
    assert story.ledger.troubles[key].failures == 2
