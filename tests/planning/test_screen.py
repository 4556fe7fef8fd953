"""Rows of the screens: what people see is what the loop decides by, and nothing that nobody said."""

import dataclasses

from llmgw.cli.screens import node_lines
from llmgw.fleet.node import Gpu, Holder
from llmgw.fleet.world import Fleet
from llmgw.planning.actions import Assign
from llmgw.planning.alarms import alarms
from llmgw.planning.desired import Marks
from llmgw.planning.ledger import Trouble
from llmgw.planning.reasons import halts, reasons, tried
from llmgw.planning.screen import NodeRow, ReplicaRow, model_rows, node_rows, outstanding, replica_rows
from llmgw.planning.view import View, look
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile


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


def why_late(story: Story) -> dict[str, str]:
    """What status says of the models that it waits for."""
    assert story.last is not None
    late = [line.partition(":")[0] for line in outstanding(seen(story))]
    return reasons(seen(story), story.last.unplaced, late)


def test_what_a_model_waits_for_has_its_reason() -> None:
    """Back-off with the last words, no place with the first refusal, what is on its way; of who serves, nothing."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model("bad"), a_model("good")))
    for action in [a for a in story.decides() if isinstance(a, Assign)]:
        if action.spec.model == "bad":
            story.says(action.spec.key, "failed", reason="exit 1: unknown flag --foo")
    story.decides()
    assert why_late(story)["good"] == "1 Fetching"
    assert why_late(story)["bad"].startswith("failed to start 1 time, try 2 in ")
    assert why_late(story)["bad"].endswith("; last: rank 0: exit 1: unknown flag --foo")
    (row,) = [row for row in replicas(story) if row.state == "Backoff"]
    assert row.detail == why_late(story)["bad"]
    story.after(7).decides()
    assert "try 2 is under way" in why_late(story)["bad"]
    lone = Story(a_node("n0", engines=()), catalog=a_catalog(a_model()))
    lone.decides()
    assert why_late(lone) == {"qwen": "fits on none of 1 node; n0: no llamacpp (has no engine)"}


def test_a_try_that_is_due_is_told_without_a_time() -> None:
    """In 0s is no time to wait for."""
    view = seen(served())
    told = [tried(view, "qwen", "g", Trouble(1, view.now + left, "exit 1")) for left in (3.0, 0.4, -0.1)]
    assert [each.partition(", ")[2] for each in told] == [
        "try 2 in 3s; last: exit 1",
        "try 2 is next; last: exit 1",
        "it may be tried now; last: exit 1",
    ]


def test_engines_that_were_all_killed_say_so() -> None:
    """They served: what ended them is the reason, not that they failed to start."""
    story = served()
    (name,) = story.ready()
    story.says((name, 0), "failed", reason="killed by SIGKILL").decides()
    said = why_late(story)["qwen"]
    assert said.startswith("ended after 6m40s serving, try 2 in ")
    assert said.endswith("; rank 0: killed by SIGKILL")


def test_every_screen_counts_what_serves_on_a_silent_node_alike() -> None:
    """It is asked as before, so it counts; that nobody hears of it is said beside it, and it is waited for."""
    story = Story(*(a_node(f"n{i}", gpus=1) for i in range(3)), catalog=a_catalog(a_model(replicas=2)))
    story.runs()
    home = story.fleet.shards[story.ready()[0], 0].spec.node
    story.after(400).silence(home).after(20).decides()
    assert why_late(story) == {"qwen": f"no word from {home}"}
    (row,) = model_rows(seen(story))
    assert (row.ready, row.silent, row.wanted) == (2, 1, 2)
    assert outstanding(seen(story)) == ("qwen: 2 of 2 ready, 1 of them on silent nodes",)
    assert sorted(row.state for row in replicas(story)) == ["Ready", "Unreachable"]


def test_while_a_new_generation_comes_the_one_before_is_said_to_serve() -> None:
    """`0 of 1 ready` of a model that serves all the while frightens people for nothing."""
    story = served().gateway()
    story.adopts(a_catalog(a_model(source=a_model("other").source))).decides()
    assert outstanding(seen(story))[0] == "qwen: 0 of 1 ready; 1 of the generation before serves"
    (row,) = model_rows(seen(story))
    assert (row.ready, row.wanted) == (1, 1)


def test_a_gang_that_is_not_there_has_all_its_ranks() -> None:
    """Without a place, in back-off or paused: none of N are ready, not none of one."""
    gang = a_profile("gang", nodes=2)
    catalog = a_catalog(a_model(profiles=("gang",)), profiles=[gang])
    story = Story(a_node("n0"), catalog=catalog)
    story.decides()
    assert [(row.state, row.ready, row.world) for row in replicas(story)] == [("Pending", 0, 2)]
    story.marks(Marks(paused={"qwen": "driver (dana)"})).decides()
    assert [(row.state, row.ready, row.world) for row in replicas(story)] == [("Paused", 0, 2)]
    both = Story(a_node("n0"), a_node("n1"), catalog=catalog)
    first = next(a for a in both.decides() if isinstance(a, Assign))
    both.says(first.spec.key, "failed", reason="exit 1")
    both.obeys(*both.decides()).decides()
    assert ("Backoff", 0, 2) in [(row.state, row.ready, row.world) for row in replicas(both)]


def test_a_halted_roll_out_is_told_in_its_row() -> None:
    """The row of the next try says that what was before serves on."""
    story = served()
    story.adopts(a_catalog(a_model(source=a_model("other").source)))
    new = next(a for a in story.decides() if isinstance(a, Assign))
    story.says(new.spec.key, "failed", reason="exit 1")
    story.obeys(*story.decides()).decides()
    (row,) = [row for row in replicas(story) if row.state == "Backoff"]
    assert row.detail.startswith("the roll-out is halted: it failed to start 1 time, try 2 in ")


def test_another_profile_that_serves_is_no_roll_out() -> None:
    """Both generations are the catalog's: the one that fails is tried again, and nothing is halted for it."""
    catalog = a_catalog(
        a_model(replicas=2, profiles=("small", "other")), profiles=[a_profile("other", args=(("seed", 1),))]
    )
    story = Story(a_node("n0"), catalog=catalog)
    story.runs()
    current = catalog.generations(catalog.models["qwen"])
    (failing,) = current.keys() - {shard.spec.generation for shard in story.fleet.shards.values()}
    trouble = Trouble(1, story.now + 60.0, "exit 1", at=story.now)
    story.ledger = dataclasses.replace(story.ledger, troubles={("qwen", failing): trouble})

    assert halts(seen(story), "qwen", failing, trouble) == []
    assert not any("halted" in said for said in alarms(seen(story)))
