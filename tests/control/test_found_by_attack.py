"""Histories that an attack on the control plane found, each told as a story."""

import asyncio
import dataclasses
import datetime
import errno
import pathlib

import pytest

from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.sources import Source
from llmgw.control.holding import Rules
from llmgw.control.knowledge import Knowledge
from llmgw.control.store import Store
from llmgw.control.trees import Directory
from llmgw.fleet import events
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import ShardStatus, State
from llmgw.kit.clock import SystemClock
from llmgw.planning.actions import Assign, Stop
from llmgw.transport.ranges import CannotRead
from tests.control.following import PACE, Followed, until, write
from tests.control.plane import Clock, Plane, files
from tests.control.test_hands import act, home, node, served

AUTO = Rules("files", "auto")
DAY = 86_400.0


class Jumpy(Clock):
    """A clock whose wall somebody sets; what nobody sets goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.off = 0.0

    def wall(self) -> datetime.datetime:
        return super().wall() + datetime.timedelta(seconds=self.off)


# --- the switch -------------------------------------------------------------------------------


def test_whoever_was_told_that_it_is_held_was_told_the_truth(tmp_path: pathlib.Path) -> None:
    """Held while a tree is being looked into: it is not adopted, and taken once the hold ends."""
    looked: list[bool] = []
    go_on = asyncio.Event()

    async def slow(source: Source) -> ModelFacts:
        looked.append(True)
        await go_on.wait()
        raise CannotRead(source.canonical)

    clock, root = Clock(), tmp_path / "catalog"
    write(root, files("qwen"))
    made = Plane(tmp_path / "state", clock=clock, knowledge=Knowledge(slow, clock))
    followed = Followed(tmp_path / "state", Directory(root, SystemClock()), AUTO, plane=made)

    async def day() -> None:
        await followed.watch.look()
        clock.at += PACE.settle
        looking = asyncio.create_task(followed.watch.look())
        await until(lambda: bool(looked), "the model is looked into")
        made.switch.hold("dana", "incident", None)
        go_on.set()
        await looking
        assert followed.number == 0
        made.switch.release("dana")
        await followed.watch.look()
        assert followed.number == 1

    asyncio.run(day())


def test_a_hold_and_a_mark_last_as_long_as_they_were_asked_for(tmp_path: pathlib.Path) -> None:
    """The wall clock jumps a day ahead: four hours are four hours, also after another hand set a mark."""
    clock = Jumpy()
    made = Plane(tmp_path, clock=clock)
    for name in ("n0", "n1"):
        made.hears(events.Registered(node(name)))
    made.switch.hold("dana", "incident", 4 * 3600)
    act(made, "drain", "n0", seconds=4 * 3600)
    clock.off = DAY
    act(made, "cordon", "n1", seconds=2 * 3600)
    clock.at += 2 * 3600
    made.loop.decide()
    assert made.switch.held is not None
    assert list(made.loop.desired.marks.draining) == ["n0"]
    assert not made.loop.desired.marks.cordoned
    clock.at += 2 * 3600
    made.loop.decide()
    assert made.switch.held is None
    assert not made.loop.desired.marks.draining


def test_a_jump_back_makes_no_hold_longer(tmp_path: pathlib.Path) -> None:
    """The wall clock goes back a day; the hold ends when its hours are over, and what waited is looked at."""
    clock = Jumpy()
    made = Plane(tmp_path, clock=clock)
    woken: list[bool] = []
    made.switch.released = lambda: woken.append(True)
    made.switch.hold("dana", "incident", 3600)
    clock.off = -DAY
    clock.at += 3600
    assert made.switch.held is None
    made.switch.expire()
    made.switch.expire()
    assert woken == [True]
    assert Store(tmp_path).on_hold() is None


def test_asking_who_holds_it_writes_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold ended on a disk that refuses: the answer is nobody; forgetting it is tried until it is kept."""
    made = Plane(tmp_path)
    made.switch.hold("dana", "incident", 10)
    made.clock.at += 11

    def refuses(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path / "hold.json"))

    with monkeypatch.context() as broken:
        broken.setattr(Store, "save_on_hold", refuses)
        assert made.call("GET", "/v1/hold") == (200, None)
        made.switch.expire()
        assert made.journal.after(0)[-1].kind == "alarm"
        assert Store(tmp_path).on_hold() is not None
    made.keeping.again()
    assert Store(tmp_path).on_hold() is None


# --- hands ------------------------------------------------------------------------------------


def test_what_a_restart_has_not_heard_is_not_forgotten_unconfirmed(tmp_path: pathlib.Path) -> None:
    """Nothing is known of a node that has not spoken yet: its model would be started a second time."""
    before = served(tmp_path, "n0", "n1")
    away = home(before)
    other = ({"n0", "n1"} - {away}).pop()
    made = Plane(tmp_path, roster=frozenset({"n0", "n1"}), clock=before.clock)
    made.adoption.resume()
    made.hears(events.Registered(node(other)))
    status, said = act(made, "forget", away)
    assert status == 423
    assert "has not spoken since this control plane started" in said
    made.loop.decide()
    assert not [action for action in made.sent if isinstance(action, Assign)]
    assert act(made, "confirm-lost", away)[0] == 200
    assert act(made, "forget", away)[0] == 200


def test_an_id_wins_over_a_name(tmp_path: pathlib.Path) -> None:
    """A node calls itself by another one's id: every hand still reaches that one, and the other by its own id."""
    made = Plane(tmp_path)
    made.hears(events.Registered(node("n0", "gpu-a")))
    made.hears(events.Registered(node("n9", "n0")))
    assert act(made, "cordon", "n9")[0] == 200
    assert act(made, "cordon", "n0") == (200, "gpu-a is cordoned: nothing new is placed on it")
    assert act(made, "uncordon", "n0")[0] == 200
    assert list(made.loop.desired.marks.cordoned) == ["n9"]
    assert act(made, "uncordon", "n0")[1] == "gpu-a was not cordoned anyhow"


# --- guards -----------------------------------------------------------------------------------


def lives(made: Plane, rounds: int = 6) -> list[int]:
    """Nodes that speak obey for a minute; how many replicas served after each ten seconds."""
    counts: list[int] = []
    for _ in range(rounds):
        made.loop.decide()
        for key, shard in list(made.loop.fleet.shards.items()):
            if shard.spec.node in made.loop.fleet.nodes:
                state: State = "gone" if shard.ordered == "stop" else "ready"
                made.hears(events.Reported(shard.spec.node, (ShardStatus(*key, state),)))
        made.passes(10)
        for name in made.loop.fleet.nodes:
            made.hears(events.Heartbeat(name))
        made.loop.decide()
        counts.append(len(made.loop.ledger.routes.endpoints))
    return counts


def small(name: str = "n0") -> NodeInfo:
    """A node on which four replicas fill everything: whatever is replaced leaves a gap."""
    return dataclasses.replace(node(name), cpu_cores=4)


def planned(made: Plane, catalog: dict[str, str]) -> tuple[str, list[str]]:
    """The digest of a plan, and what its guards say."""
    status, plan = made.call("POST", "/v1/plan", {"files": catalog})
    assert status == 200
    return plan["digest"], [f"{each['guard']} {each['what']}" for each in plan["guards"]]


def applied(made: Plane, catalog: dict[str, str]) -> int:
    return made.call("POST", "/v1/apply", {"files": catalog, "expect": planned(made, catalog)[0]})[0]


ALL_GUARDS = ["mass_stop 4", "outage a", "outage b", "outage c", "outage d"]


def full(root: pathlib.Path) -> Plane:
    """Four models on one node that has no room for a fifth."""
    made = Plane(root)
    made.hears(events.Registered(small()))
    assert applied(made, files(*"abcd")) == 200
    assert lives(made)[-1] == 4
    return made


def test_while_most_nodes_are_silent_a_plan_is_judged_by_what_follows_once_they_are_back(
    tmp_path: pathlib.Path,
) -> None:
    """Three of four fall silent, so nothing may act; a removal of eight of ten models is a mass stop all the same."""
    made = Plane(tmp_path)
    names = [f"n{number}" for number in range(4)]
    for name in names:
        made.hears(events.Registered(small(name)))
    models = [f"m{number}" for number in range(10)]
    assert applied(made, files(*models)) == 200
    lives(made)
    assert planned(made, files(*models[:2]))[1] == ["mass_stop 8"]
    for name in names[:3]:
        made.hears(events.Disconnected(name))
    for _ in range(6):
        made.passes(5)
        made.hears(events.Heartbeat("n3"))
    assert made.loop.view().dark
    assert planned(made, files(*models[:2]))[1] == ["mass_stop 8"]
    assert applied(made, files(*models[:2])) == 423
    assert made.loop.view().dark


def test_a_followed_catalog_waits_while_most_nodes_are_silent(tmp_path: pathlib.Path) -> None:
    """What takes something away is not judged in the dark; what only adds is. Once they are back it is judged."""
    write(tmp_path / "catalog", files(*"abcd"))
    made = Plane(tmp_path / "state")
    followed = Followed(tmp_path / "state", Directory(tmp_path / "catalog", SystemClock()), AUTO, plane=made)
    names = ["n0", "n1", "n2"]
    for name in names:
        made.hears(events.Registered(node(name)))
    followed.settles()
    lives(made)
    made.passes(20)
    made.hears(events.Heartbeat("n2"))
    assert made.loop.view().dark
    write(tmp_path / "catalog", files(*"abcde"))
    followed.settles()
    assert (followed.number, len(followed.models)) == (2, 5)
    write(tmp_path / "catalog", files(*"abcde", length=1024))
    followed.settles()
    assert (followed.number, followed.why) == (2, "")
    assert followed.watch.report()["busy"] == "most nodes are silent"
    for name in names:
        made.hears(events.Heartbeat(name))
    followed.settles()
    assert followed.number == 3
    assert followed.watch.report()["busy"] == ""


def test_what_a_guard_held_is_not_adopted_by_a_restart(tmp_path: pathlib.Path) -> None:
    """Another release judges again, but not before the nodes spoke: until then the guard's hold stands."""
    root, state = tmp_path / "catalog", tmp_path / "state"
    write(root, files(*"abcd"))

    def follow(build: str, made: Plane) -> Followed:
        rules = Rules("files", "auto", "catalog", build)
        return Followed(state, Directory(root, SystemClock()), rules, plane=made)

    made = Plane(state)
    made.hears(events.Registered(small()))
    followed = follow("1", made)
    followed.settles()
    assert lives(made)[-1] == 4
    write(root, files(*"abcd", length=1024))
    followed.settles()
    assert (followed.number, followed.why) == (1, "guard")
    shards = tuple((shard.spec, shard.status) for shard in made.loop.fleet.shards.values())
    later = Plane(state, roster=frozenset({"n0"}), clock=made.clock)
    again = follow("2", later)
    again.settles()
    assert (again.number, again.why) == (1, "guard")
    assert again.watch.report()["busy"] == "1 node has not spoken yet"
    again.settles()
    assert len([each for each in later.journal.after(0) if "not judged yet" in each.said]) == 1
    later.hears(events.Registered(small(), shards))
    again.settles()
    assert (again.number, again.why, again.watch.report()["busy"]) == (1, "guard", "")


def test_a_followed_catalog_waits_no_longer_than_the_grace(tmp_path: pathlib.Path) -> None:
    """A node of the roster that never comes back is Lost in the end; what follows then is known."""
    root, state = tmp_path / "catalog", tmp_path / "state"
    write(root, files("qwen"))
    before = Followed(state, Directory(root, SystemClock()), AUTO)
    before.settles()
    write(root, files("qwen", length=1024))
    made = Plane(state, roster=frozenset({"n0", "n1"}), clock=before.plane.clock)
    followed = Followed(state, Directory(root, SystemClock()), AUTO, plane=made)
    made.hears(events.Registered(node("n1")))
    followed.settles()
    assert followed.number == 1
    made.passes(made.loop.timers.lost_grace)
    made.hears(events.Heartbeat("n1"))
    followed.settles()
    assert followed.number == 2


def test_before_the_nodes_spoke_an_apply_is_guarded_by_what_the_catalogs_want(tmp_path: pathlib.Path) -> None:
    """What would be replaced counts as stopped, for nobody knows whether there is room; it may be allowed by name."""
    full(tmp_path)
    made = Plane(tmp_path, roster=frozenset({"n0"}))
    made.adoption.resume()
    catalog = files(*"abcd", length=1024)
    digest, said = planned(made, catalog)
    assert said == ALL_GUARDS
    assert applied(made, catalog) == 423
    body = {"files": catalog, "expect": digest, "allowed": [each.split() for each in said]}
    assert made.call("POST", "/v1/apply", body)[0] == 200


def test_a_pause_is_no_way_around_a_guard(tmp_path: pathlib.Path) -> None:
    """Paused, changed and resumed by themselves, four models would be away one after the other: guarded as ever."""
    made = full(tmp_path)
    catalog = files(*"abcd", length=1024)
    assert planned(made, catalog)[1] == ALL_GUARDS
    for name in "abcd":
        act(made, "pause", name, seconds=60)
    assert planned(made, catalog)[1] == ALL_GUARDS
    assert applied(made, catalog) == 423
    assert min(lives(made, 12)) == 4


def test_a_pause_of_what_does_not_change_is_no_guard_s_business(tmp_path: pathlib.Path) -> None:
    """What was allowed once for a paused model is not asked again at each apply of another one."""
    made = full(tmp_path)
    act(made, "pause", "a")
    catalog = files(*"abcd", length=1024)
    digest, said = planned(made, catalog)
    allowed = [each.split() for each in said]
    assert made.call("POST", "/v1/apply", {"files": catalog, "expect": digest, "allowed": allowed})[0] == 200
    aliased = {**catalog, "b.yaml": f"{catalog['b.yaml']}aliases: [bee]\n"}
    assert not [each for each in planned(made, aliased)[1] if each == "outage a"]


def test_a_resume_shows_what_follows(tmp_path: pathlib.Path) -> None:
    """The model was changed while it was paused: its replacement is the resume's own change."""
    made = served(tmp_path)
    lives(made)
    act(made, "pause", "qwen")
    assert applied(made, files("qwen", length=1024)) == 200
    status, plan = made.call("POST", "/v1/hands/plan", {"verb": "resume", "name": "qwen"})
    assert status == 200
    assert [(row["symbol"], row["origin"]) for row in plan["rows"]] == [("+/-", "change")]


def test_a_paused_model_that_leaves_the_catalog_is_stopped_and_the_plan_says_so(
    tmp_path: pathlib.Path,
) -> None:
    """A pause is about a model of the catalog: the plan names it with its reason before anything stops."""
    made = Plane(tmp_path)
    made.hears(events.Registered(node("n0")))
    assert applied(made, files("qwen", "phi")) == 200
    lives(made)
    act(made, "pause", "qwen", reason="do not touch")
    _, plan = made.call("POST", "/v1/plan", {"files": files("phi")})
    assert [(row["symbol"], row["model"]) for row in plan["rows"]] == [("-", "qwen")]
    assert plan["alarms"] == [
        "qwen is paused: do not touch (dana); it leaves the catalog, so it is stopped all the same"
    ]
    assert applied(made, files("phi")) == 200
    lives(made)
    assert {action.key[0].partition("/")[0] for action in made.sent if isinstance(action, Stop)} == {"qwen"}
