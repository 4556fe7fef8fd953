"""Hands on the fleet: what may be done, what it leads to, and how long it stands."""

import errno
import pathlib

import pydantic
import pytest

from llmgw.control.store import Store
from llmgw.fleet import events
from llmgw.fleet.node import InstalledEngine, NodeInfo
from llmgw.fleet.shard import ShardStatus
from llmgw.planning.actions import Assign, Stop
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines
from tests.control.plane import Plane, files


def node(name: str, called: str = "") -> NodeInfo:
    return NodeInfo(
        name, called or name, engines=(InstalledEngine("llamacpp"),), cpu_cores=8, memory_total=64 << 30,
        disk_free=1 << 40,
    )  # fmt: skip


def served(root: pathlib.Path, *names: str) -> Plane:
    """A control plane whose one model is Ready on its first node."""
    plane = Plane(root)
    for name in names or ("n0", "n1"):
        plane.hears(events.Registered(node(name)))
    assert plane.call("POST", "/v1/apply", {"files": files("qwen")})[0] == 200
    plane.loop.decide()
    for key in list(plane.loop.fleet.shards):
        holder = plane.loop.fleet.shards[key].spec.node
        plane.hears(events.Reported(holder, (ShardStatus(*key, "ready"),)))
    plane.loop.decide()
    return plane


def act(plane: Plane, verb: str, name: str, **more: object) -> tuple[int, str]:
    """Status and what was said."""
    status, said = plane.call("POST", "/v1/hands", {"verb": verb, "name": name, "who": "dana", **more})
    return status, said["said"] if status == 200 else said["error"]["said"]


def home(plane: Plane) -> str:
    """The node of the only replica."""
    return next(iter(plane.loop.fleet.shards.values())).spec.node


def test_a_cordon_keeps_new_replicas_away_and_says_whose_it_is(tmp_path: pathlib.Path) -> None:
    """Nothing is placed on a cordoned node; the refusal names reason and person; the journal has the act."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(node("n0")))
    assert act(plane, "cordon", "n0", reason="disk") == (200, "n0 is cordoned: nothing new is placed on it")
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    plane.loop.decide()
    assert not plane.loop.fleet.shards
    assert plane.loop.unplaced[0].reasons[0].said == "cordoned: disk (dana)"
    assert [(e.kind, e.about, e.said) for e in plane.journal.after(0)][1] == (
        "hand", "n0", "cordon by dana: disk",
    )  # fmt: skip
    assert act(plane, "uncordon", "n0")[0] == 200
    plane.loop.decide()
    assert len(plane.loop.fleet.shards) == 1


def test_marks_survive_a_restart_and_end_with_their_time(tmp_path: pathlib.Path) -> None:
    """A new control plane stands by them; the pass at their end is asked for, and lifts them on disk too."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(node("n0")))
    act(plane, "cordon", "n0", reason="disk", seconds=100)
    again = Plane(tmp_path, clock=plane.clock)
    again.hears(events.Registered(node("n0")))
    again.loop.decide()
    assert again.loop.desired.marks.cordoned == {"n0": "disk (dana)"}
    assert again.loop._wake_at is not None
    assert again.loop._wake_at <= plane.clock.now() + 100
    again.passes(101)
    again.loop.decide()
    assert not again.loop.desired.marks.cordoned
    assert not Store(tmp_path).marks().marks
    last = [entry for entry in again.journal.after(0) if entry.about == "n0" and entry.kind == "hand"][-1]
    assert last.said == "no longer cordoned: its time is over"


def test_a_drain_is_shown_and_done_as_shown(tmp_path: pathlib.Path) -> None:
    """Its plan moves the replica as this act's change; an act on another plan than the shown one is stale."""
    plane = served(tmp_path)
    away = home(plane)
    asked = {"verb": "drain", "name": away, "reason": "memory"}
    status, plan = plane.call("POST", "/v1/hands/plan", asked)
    assert status == 200
    assert [(row["symbol"], row["model"], row["origin"]) for row in plan["rows"]] == [
        ("=>", "qwen", "change")
    ]
    assert not plane.loop.desired.marks.draining
    assert act(plane, "drain", away, expect="0" * 64)[0] == 409
    assert act(plane, "drain", away, reason="memory", expect=plan["digest"])[0] == 200
    plane.sent.clear()
    plane.loop.decide()
    assert [a.spec.node for a in plane.sent if isinstance(a, Assign)] == [({"n0", "n1"} - {away}).pop()]


def test_names_that_are_none_or_two_are_refused(tmp_path: pathlib.Path) -> None:
    """A slip is answered with the nearest name, a name that two nodes have with both ids."""
    plane = Plane(tmp_path)
    for name, called in (("id1", "gpu-a1"), ("id2", "gpu-b1"), ("id3", "gpu-b1")):
        plane.hears(events.Registered(node(name, called)))
    status, error = plane.call("POST", "/v1/hands", {"verb": "cordon", "name": "gpu-a2"})
    assert status == 400
    assert error["error"]["help"] == "did you mean `gpu-a1`?"
    assert act(plane, "cordon", "gpu-b1") == (
        400, "cannot tell which node gpu-b1 is: gpu-b1 (id2) and gpu-b1 (id3) are called so",
    )  # fmt: skip
    assert act(plane, "cordon", "id2")[0] == 200
    assert act(plane, "pause", "qwen", reason="x")[0] == 400


def test_a_node_is_forgotten_only_when_nothing_can_be_left_of_it(tmp_path: pathlib.Path) -> None:
    """Refused while it speaks, and while nobody confirmed that its replicas are gone; then it is no more."""
    plane = served(tmp_path)
    gone = home(plane)
    assert act(plane, "forget", gone)[0] == 423
    assert act(plane, "confirm-lost", gone)[0] == 423
    plane.hears(events.Disconnected(gone))
    plane.passes(20)
    plane.hears(events.Heartbeat(({"n0", "n1"} - {gone}).pop()))
    status, said = act(plane, "forget", gone)
    assert status == 423
    assert "nobody confirmed that qwen/" in said
    assert act(plane, "confirm-lost", gone)[0] == 200
    plane.loop.decide()
    assert len({shard.spec.replica for shard in plane.loop.fleet.shards.values()}) == 2
    assert act(plane, "forget", gone)[0] == 200
    assert plane.forgotten == [gone]
    assert gone not in plane.loop.fleet.roster
    assert not plane.hands.kept.marks


def test_a_node_that_was_called_lost_and_speaks_is_not(tmp_path: pathlib.Path) -> None:
    """Its next silence is a new one: the mark does not wait for it."""
    plane = served(tmp_path)
    away = home(plane)
    plane.hears(events.Disconnected(away))
    plane.passes(20)
    assert act(plane, "confirm-lost", away)[0] == 200
    plane.hears(events.Registered(node(away)))
    plane.hands.returned(away)
    assert not plane.loop.desired.marks.confirmed_lost
    assert not Store(tmp_path).marks().marks


def test_a_paused_model_is_left_alone(tmp_path: pathlib.Path) -> None:
    """Nothing is started or stopped of it, whatever the catalog says, until it is resumed."""
    plane = served(tmp_path)
    assert act(plane, "pause", "qwen", reason="driver")[0] == 200
    plane.call("POST", "/v1/apply", {"files": files("qwen", replicas=3)})
    plane.sent.clear()
    plane.loop.decide()
    assert plane.sent == []
    assert act(plane, "resume", "qwen")[0] == 200
    plane.loop.decide()
    assert len([a for a in plane.sent if isinstance(a, Assign)]) == 2
    assert not [a for a in plane.sent if isinstance(a, Stop)]


def test_a_mark_can_be_lifted_when_only_the_mark_is_left(tmp_path: pathlib.Path) -> None:
    """The model left the catalog, the node the roster: what was said of them does not stay for ever."""
    plane = served(tmp_path)
    act(plane, "pause", "qwen", reason="driver")
    act(plane, "cordon", "n1")
    plane.call("POST", "/v1/apply", {"files": files("beta"), "allow": []})
    again = Plane(tmp_path, clock=plane.clock)
    assert act(again, "uncordon", "n1") == (200, "n1 is open again")
    assert act(again, "resume", "qwen") == (200, "qwen is resumed")
    assert not Store(tmp_path).marks().marks


def test_a_retry_ends_a_back_off_at_once(tmp_path: pathlib.Path) -> None:
    """The model waits after a failed start; somebody repaired it, and it is placed in the next pass."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(node("n0")))
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    plane.loop.decide()
    (key,) = plane.loop.fleet.shards
    plane.hears(events.Reported("n0", (ShardStatus(*key, "failed", reason="exit 1"),)))
    plane.loop.decide()
    plane.hears(events.Reported("n0", (ShardStatus(*key, "gone"),)))
    plane.loop.decide()
    assert not plane.loop.fleet.shards
    assert act(plane, "retry", "qwen") == (200, "qwen is tried again at once: 1 failed start forgotten")
    plane.loop.decide()
    assert len(plane.loop.fleet.shards) == 1


def test_what_cannot_be_kept_is_not_done(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk refuses the act with the file, and the fleet is as it was."""
    plane = served(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "marks.json"))

    monkeypatch.setattr(Store, "save_marks", full)
    status, said = act(plane, "cordon", "n0")
    assert status == 500
    assert "marks.json" in said
    assert not plane.loop.desired.marks.cordoned


def test_a_fenced_control_plane_takes_no_orders(tmp_path: pathlib.Path) -> None:
    """Nothing would follow from it: refused, and nothing is kept."""
    plane = served(tmp_path)
    plane.loop.fence("a newer one commands")
    assert act(plane, "cordon", "n0")[0] == 423
    assert not Store(tmp_path).marks().marks


def test_what_no_sound_client_sends_is_refused(tmp_path: pathlib.Path) -> None:
    """Unknown verbs, endless times and endless reasons change nothing."""
    plane = served(tmp_path)
    for body in (
        {"verb": "reboot", "name": "n0"},
        {"verb": "cordon", "name": "n0", "seconds": -1},
        {"verb": "cordon", "name": "n0", "reason": "x" * 2000},
        {"verb": "cordon"},
    ):
        assert plane.call("POST", "/v1/hands", body)[0] == 400
    assert not plane.hands.kept.marks


def test_a_drain_with_nowhere_to_go_says_so(tmp_path: pathlib.Path) -> None:
    """The only node: the plan calls it this act's, names what stays, promises no move; nothing is unplaced by it."""
    plane = served(tmp_path, "n0")
    (name,) = {shard.spec.replica for shard in plane.loop.fleet.shards.values()}
    asked = {"verb": "drain", "name": "n0", "who": "root"}
    plan = plane.call("POST", "/v1/hands/plan", asked)[1]
    (item,) = plan["unplaced"]
    assert (item["origin"], item["stay"]) == ("change", [name])
    lines = plan_lines(pydantic.TypeAdapter(Plan).validate_python(plan, strict=False))
    assert f"  ! {name} stays: there is nowhere to move it" in lines
    assert "      n0: drained: by root, without a reason" in lines
    assert "This change" in lines
    assert "move away" not in act(plane, "drain", "n0")[1]
    plane.loop.decide()
    assert plane.call("GET", "/v1/status")[1]["unplaced"] == []
    assert [row["state"] for row in plane.call("GET", "/v1/replicas")[1]] == ["Ready"]
    assert plane.call("POST", "/v1/hands/plan", asked)[1]["unplaced"][0]["origin"] == "healing"
