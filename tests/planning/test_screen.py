"""Rows of the screens: what people see is what the loop decides by, and nothing that nobody said."""

import dataclasses

from llmgw.cli.screens import node_lines
from llmgw.fleet.node import Gpu, Holder
from llmgw.fleet.world import Fleet
from llmgw.planning.actions import Assign
from llmgw.planning.desired import Marks
from llmgw.planning.screen import NodeRow, ReplicaRow, node_rows, replica_rows
from llmgw.planning.view import View, look
from tests.planning.story import Story, a_catalog, a_model, a_node


def seen(story: Story) -> View:
    return look(story.desired, story.fleet, story.ledger, story.now, story.timers)


def nodes(story: Story) -> dict[str, NodeRow]:
    return {row.name: row for row in node_rows(seen(story))}


def replicas(story: Story) -> list[ReplicaRow]:
    return list(replica_rows(seen(story), story.last.unplaced if story.last is not None else ()))


def served(nodes: int = 3) -> Story:
    story = Story(*(a_node(f"n{i}") for i in range(nodes)), catalog=a_catalog(a_model()))
    story.runs()
    return story.after(400)


def test_a_node_that_has_not_spoken_has_its_name_and_no_last_word() -> None:
    """After a restart its name is known from before; when it spoke is not, and that is no zero."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model()))
    story.fleet = dataclasses.replace(
        Fleet(since=story.now, roster=frozenset({"id7", "id8"})), called={"id7": "gpu-a1"}
    )
    rows = nodes(story)
    assert [(row.id, row.seen, row.state) for row in rows.values()] == [
        ("id7", None, "Unheard"),
        ("id8", None, "Unheard"),
    ]
    assert list(rows) == ["gpu-a1", "id8"]
    story.decides()
    assert story.last is not None
    assert any("gpu-a1" in alarm and "id7" not in alarm for alarm in story.last.alarms)


def test_a_silent_node_counts_down_and_a_lost_one_serves_nothing() -> None:
    """How long until it is Lost; then its replica is 0/1, whatever it was last heard to be."""
    story = served()
    (name,) = story.ready()
    here = story.fleet.shards[name, 0].spec.node
    story.silence(here).after(20).decides()
    assert nodes(story)[here].lost_in == 280.0
    story.after(300).decides()
    assert nodes(story)[here].lost_in is None
    lost = next(row for row in replicas(story) if row.replica == name)
    assert (lost.state, lost.ready, lost.detail) == ("Lost", 0, f"node {here} is lost")


def test_what_people_set_is_seen_where_it_matters() -> None:
    """A drain is told apart from a cordon; a paused model that lacks replicas has a row with why."""
    story = served().marks(
        Marks(cordoned={"n0": "disk"}, draining={"n1": "memory"}, paused={"qwen": "driver (dana)"})
    )
    story.decides()
    rows = nodes(story)
    assert (rows["n0"].cordoned, rows["n0"].draining) == ("disk", "")
    assert (rows["n1"].cordoned, rows["n1"].draining) == ("", "memory")
    assert "Paused" not in {row.state for row in replicas(story)}
    story.adopts(a_catalog(a_model(replicas=2))).decides()
    paused = next(row for row in replicas(story) if row.state == "Paused")
    assert (paused.model, paused.detail) == ("qwen", "driver (dana)")


def test_what_an_engine_waits_for_and_that_it_is_slow_is_said() -> None:
    """A start says what it waits for; a ready engine that stands still says since when, and goes on."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model()))
    (assigned,) = [a for a in story.decides() if isinstance(a, Assign)]
    key = assigned.spec.key
    story.says(key, "held").decides()
    story.says(key, "starting").says(key, "started", reason="nothing listens on port 20000 yet")
    (row,) = replicas(story)
    assert row.detail == "1 of 1 ranks started; nothing listens on port 20000 yet"
    story.says(key, "ready", reason="slow for 40s: no token since then, 3 requests in flight").decides()
    (row,) = replicas(story)
    assert (row.state, row.ready) == ("Ready", 1)
    assert row.detail == "slow for 40s: no token since then, 3 requests in flight"


def test_a_node_says_who_else_is_on_its_cards() -> None:
    """By pid and amount; a card that one of them bars is not among the free ones, and says so."""
    theirs, small = Holder(4177, 3174 << 20, "python3", True), Holder(812, 300 << 20, "Xorg")
    taken = Gpu("c0", "H100", 80 << 30, foreign=3174 << 20, holders=(theirs,))
    cards = (
        dataclasses.replace(taken, healthy=False, said=taken.strangers),
        Gpu("c1", "H100", 80 << 30, foreign=1324 << 20, holders=(small,)),
        Gpu("c2", "H100", 80 << 30, foreign=2 << 30),
        Gpu("c3", "H100", 80 << 30),
    )
    story = Story(dataclasses.replace(a_node("n0"), gpus=cards), catalog=a_catalog(a_model()))
    row = nodes(story)["n0"]
    assert (row.gpus, row.gpus_free) == (4, 3)
    assert node_lines([row])[2:] == [
        "  GPU 0: 3.1 GiB held by pid 4177 (python3), not llmgw's; it takes nothing",
        "  GPU 1: 300 MiB held by pid 812 (Xorg), 1 GiB held by others, not llmgw's; counted as used",
        "  GPU 2: 2 GiB held by processes that are not llmgw's; counted as used",
    ]
