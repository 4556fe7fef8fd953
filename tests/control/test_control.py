"""The control plane's parts: what they keep, what they refuse, and what they do when they could not listen."""

import asyncio
import datetime
import pathlib
import shlex
import subprocess
import sys

import pydantic
import pytest

from llmgw.control.adoption import Proposal
from llmgw.control.asking import Asking
from llmgw.control.collecting import Collecting
from llmgw.control.expecting import Wish
from llmgw.control.store import Known, Roster, Store
from llmgw.control.translate import agent_event, gateway_event, order
from llmgw.engines.registry import ADAPTERS
from llmgw.errors import CatalogInvalid, Failed, Stale
from llmgw.fleet import events
from llmgw.fleet.node import CachedWeights, NodeInfo
from llmgw.fleet.shard import ShardStatus
from llmgw.planning.actions import Assign, Drain, Start, Stop, Undrain
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines
from llmgw.wire import messages
from tests.control.plane import Clock, Plane, files

NODE = NodeInfo("n0", "n0", engines=None)


def test_a_state_directory_has_one_holder(tmp_path: pathlib.Path) -> None:
    """A second control plane on the same directory is refused, and told who has it."""
    hold = "import pathlib,sys; from llmgw.control.store import Store\n"
    hold += "with Store(pathlib.Path(sys.argv[1])).held(): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Failed, match=f"pid {holder.pid}"), Store(tmp_path).held():
            pass
        holder.communicate()
    with Store(tmp_path).held():
        pass


def test_epochs_only_grow(tmp_path: pathlib.Path) -> None:
    """Each start is above the last one, above what it was told of, and above the clock's seconds."""
    store, now = Store(tmp_path), Clock().wall()
    first = store.next_epoch(now)
    assert first == int(now.timestamp())
    assert store.next_epoch(now - datetime.timedelta(days=400)) == first + 1
    store.raise_epoch(first + 40)
    assert store.next_epoch(now) == first + 41


def test_a_lost_state_directory_is_no_old_epoch(tmp_path: pathlib.Path) -> None:
    """Who obeyed the one before is commanded by the new one, though it remembers nothing of it."""
    clock = Clock()
    old = Store(tmp_path / "old")
    old.root.mkdir()
    obeyed = [old.next_epoch(clock.wall()) for _ in range(3)][-1]
    clock.at += 60
    (tmp_path / "new").mkdir()
    assert Store(tmp_path / "new").next_epoch(clock.wall()) > obeyed


def test_what_somebody_else_changed_meanwhile_makes_a_plan_stale(tmp_path: pathlib.Path) -> None:
    """Two people change the same alias: the second one is shown what it would overwrite before it does."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    mine, theirs = (
        {**files("qwen"), "qwen.yaml": f"{files('qwen')['qwen.yaml']}aliases: [{x}]\n"} for x in "ab"
    )
    expected = plane.call("POST", "/v1/plan", {"files": mine})[1]["digest"]
    plane.call("POST", "/v1/apply", {"files": theirs})
    assert plane.call("POST", "/v1/apply", {"files": mine, "expect": expected})[0] == 409
    assert plane.adoption.number == 2


def test_the_roster_comes_back(tmp_path: pathlib.Path) -> None:
    """Who was here is who a restart waits for."""
    roster = Roster(nodes={"n0": Known(name="gpu-1", heard=Clock().wall())})
    Store(tmp_path).save_roster(roster)
    assert Store(tmp_path).roster() == roster


def test_an_applied_catalog_stands_and_survives_a_restart(tmp_path: pathlib.Path) -> None:
    """The bytes that were applied are what the next process stands on."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    status, plan = plane.call("POST", "/v1/plan", {"files": files("qwen")})
    assert (status, [row["symbol"] for row in plan["rows"]]) == (200, ["+"])
    body = {"files": files("qwen"), "expect": plan["digest"], "who": "ada"}
    assert plane.call("POST", "/v1/apply", body)[1]["revision"] == 1
    again = Plane(tmp_path)
    again.adoption.resume()
    assert again.loop.desired.catalog is not None
    assert list(again.loop.desired.catalog.models) == ["qwen"]
    assert again.adoption.number == 1


def test_a_plan_explains_the_command_line_that_the_node_would_run(tmp_path: pathlib.Path) -> None:
    """What `plan --explain` lists is what the agent's adapter builds, but for the two paths only a node knows."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plan = pydantic.TypeAdapter(Plan).validate_python(
        plane.call("POST", "/v1/plan", {"files": files("qwen")})[1]
    )
    ((listed,),) = [row.commands for row in plan.rows]
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    plane.loop.decide()
    (spec,) = [action.spec for action in plane.sent if isinstance(action, Assign)]
    assert listed == ADAPTERS["llamacpp"].command(spec, "WEIGHTS", "PROGRAM").argv
    assert f"      rank 0: {shlex.join(listed)}" in plan_lines(plan, explain=True)
    assert not any("rank 0" in line for line in plan_lines(plan))


def test_applying_what_stands_is_no_work(tmp_path: pathlib.Path) -> None:
    """The same catalog again keeps its revision number and dispatches nothing."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    plane.loop.decide()
    sent = list(plane.sent)
    assert plane.call("POST", "/v1/apply", {"files": files("qwen")})[1]["revision"] == 1
    plane.loop.decide()
    assert plane.sent == sent


def test_a_plan_of_another_world_is_stale(tmp_path: pathlib.Path) -> None:
    """What was expected is compared with what would happen now; a difference changes nothing."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    expected = plane.call("POST", "/v1/plan", {"files": files("qwen")})[1]["digest"]
    plane.call("POST", "/v1/apply", {"files": files("other")})
    status, answer = plane.call("POST", "/v1/apply", {"files": files("qwen"), "expect": expected})
    assert status == 409
    assert "Nothing was changed" in answer["error"]["said"]
    assert plane.adoption.number == 1
    with pytest.raises(Stale):
        asyncio.run(plane.adoption.apply(plane_proposal("qwen"), Wish(expected)))


def plane_proposal(name: str) -> Proposal:
    """A proposal of one model."""
    return Proposal(files(name))


def test_an_invalid_catalog_changes_nothing(tmp_path: pathlib.Path) -> None:
    """It is refused with its places, and what stood goes on standing."""
    plane = Plane(tmp_path)
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    broken = {**files("qwen"), "qwen.yaml": "kind: model\nname: qwen\nprofiles: [none]\n"}
    status, answer = plane.call("POST", "/v1/apply", {"files": broken})
    assert status == 422
    assert "qwen.yaml:" in answer["error"]["said"]
    assert plane.adoption.number == 1
    assert plane.store.revisions() == [1]


def test_a_kept_revision_that_no_longer_loads_is_an_alarm(tmp_path: pathlib.Path) -> None:
    """An upgrade that refuses the old catalog stops nothing: it says so and waits."""
    plane = Plane(tmp_path)
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    path = tmp_path / "revisions" / "00000001.json"
    path.write_text(path.read_text().replace("kind: model", "kind: mode1"))
    again = Plane(tmp_path, roster=frozenset({"n0"}))
    again.adoption.resume()
    assert again.loop.desired.catalog is None
    assert "no longer loads" in again.journal.after(0)[-1].said
    again.hears(events.Registered(NODE))
    again.loop.decide()
    assert again.sent == []


def test_a_stall_is_noticed_before_the_decision(tmp_path: pathlib.Path) -> None:
    """Suspended for an hour: the first decision afterwards already knows that nobody was silent."""
    plane = Plane(tmp_path)
    for name in ("n0", "n1"):
        plane.hears(events.Registered(NodeInfo(name, name)))
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    plane.loop.decide()
    before = len(plane.sent)
    plane.passes(3600, listening=False)
    plane.loop.decide()
    assert {plane.loop.fleet.standing(n, plane.clock.now(), plane.loop.timers) for n in ("n0", "n1")} == {
        "Ready"
    }
    assert [a for a in plane.sent[before:] if not isinstance(a, Assign)] == []
    assert any("stalled" in entry.said for entry in plane.journal.after(0))


def test_real_silence_is_still_silence(tmp_path: pathlib.Path) -> None:
    """While we listen, a node that says nothing becomes Lost."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.passes(301)
    assert plane.loop.fleet.standing("n0", plane.clock.now(), plane.loop.timers) == "Lost"


def test_a_fenced_control_plane_orders_nothing(tmp_path: pathlib.Path) -> None:
    """A newer epoch commands the nodes: this one says so and gives no more orders."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    plane.loop.fence("cannot command: the nodes obey epoch 9")
    plane.loop.decide()
    assert plane.sent == []
    assert plane.call("GET", "/v1/status")[1]["fenced"].startswith("cannot command")
    status, said = plane.call("POST", "/v1/apply", {"files": files("other")})
    assert status == 423
    assert "nothing would follow" in said["error"]["said"]
    assert plane.adoption.number == 1


def test_a_heartbeat_alone_triggers_no_pass(tmp_path: pathlib.Path) -> None:
    """News wakes the loop; a heartbeat of a Ready node is none."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.loop._news.clear()
    plane.hears(events.Heartbeat("n0"))
    assert not plane.loop._news.is_set()
    plane.passes(20)
    plane.hears(events.Heartbeat("n0"))
    assert plane.loop._news.is_set()


def test_counters_matter_only_to_a_drain(tmp_path: pathlib.Path) -> None:
    """An engine that became idle triggers a pass while something drains, and none otherwise."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    plane.loop.decide()
    (key,) = plane.loop.fleet.shards
    plane.hears(events.Reported("n0", (ShardStatus(*key, "ready"),)))
    plane.loop.decide()
    plane.loop._news.clear()
    idle = events.Reported("n0", (ShardStatus(*key, "ready", idle=True),))
    plane.hears(idle)
    assert not plane.loop._news.is_set()
    plane.hears(events.Reported("n0", (ShardStatus(*key, "ready", idle=True, slow=True),)))
    assert plane.loop._news.is_set(), "gateways have to know what is slow"
    plane.hears(idle)
    plane.loop._news.clear()
    plane.call("POST", "/v1/apply", {"files": files("other")})
    plane.loop.decide()
    assert plane.loop.ledger.drains
    plane.loop._news.clear()
    plane.hears(idle)
    assert plane.loop._news.is_set()


def test_the_table_is_published_when_it_changes(tmp_path: pathlib.Path) -> None:
    """Versions only grow, and an unchanged table is not sent again."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    plane.loop.decide()
    plane.loop.decide()
    assert [routes.version for routes in plane.published] == [1]
    assert [model.name for model in plane.published[0].models] == ["qwen"]


def test_every_action_has_its_command_and_every_message_its_event() -> None:
    """Nothing that was decided is lost on the way to the wire, nothing that was said on the way back."""
    plane_actions = (Start(("a/x", 0), "n", "g", "b"), Stop(("a/x", 1), "n", "g", 3.0, "b"))
    for action in plane_actions:
        sent = order(action)
        assert sent is not None
        node, make = sent
        command = make(5, 7)
        assert (node, command.epoch, command.seq) == ("n", 5, 7)
    assert order(Drain("a/x", "b")) is None
    assert order(Undrain("a/x", "b")) is None
    assert agent_event("n", messages.Heartbeat()) == events.Heartbeat("n")
    assert agent_event("n", messages.Result(seq=1)) is None
    assert gateway_event("g", messages.Load(acked=4)) == events.GatewaySeen("g", 4)
    assert gateway_event("g", messages.Leave()) == events.GatewayForgotten("g")
    for said, ours, apart in (("b1", "b1", False), ("b1", "b2", True), ("", "b2", False), ("b1", "", False)):
        hello = messages.Subscribe(gateway="g", host=said)
        assert gateway_event("g", hello, ours) == events.GatewayArrived("g", apart=apart)
    load = messages.Load(acked=7, dark=(("a/1", 2.0),))
    assert gateway_event("g", load) == events.GatewaySeen("g", 7, dark=(("a/1", 2.0),))


def test_a_node_that_does_not_answer_is_said_so(tmp_path: pathlib.Path) -> None:
    """Collecting waits for the node's own word, and says when there was none."""

    async def story() -> None:
        asking = Asking(lambda _node, make: bool(make(1, 9)))
        waiting = Collecting(asking, patience=0.05)
        silent = await waiting.ask("n0", (CachedWeights("a" * 64, "http://h/x", 1),), 1)
        assert "no answer within" in silent.said
        asked = asyncio.ensure_future(waiting.ask("n0", (CachedWeights("a" * 64, "http://h/x", 1),), 1))
        await asyncio.sleep(0)
        row = {"cache_name": "a" * 64, "removed": True, "said": "", "freed": 1}
        asking.answered("n0", messages.Result(seq=9, data={"entries": [row]}))
        assert (await asked).entries == (row,)
        for nonsense in ({"entries": 3}, {"entries": [{"removed": "x"}]}):
            asked = asyncio.ensure_future(waiting.ask("n0", (CachedWeights("a" * 64, "http://h/x", 1),), 1))
            await asyncio.sleep(0)
            asking.answered("n0", messages.Result(seq=9, data=nonsense))
            assert (await asked).said.startswith("its answer cannot be read: ")
        away = Collecting(Asking(lambda _node, _make: False))
        assert "not connected" in (await away.ask("n0", (), 1)).said

    asyncio.run(story())


def test_gc_needs_a_catalog(tmp_path: pathlib.Path) -> None:
    """With no valid catalog "unwanted" would be a lie: nothing is listed."""
    plane = Plane(tmp_path)
    status, answer = plane.call("GET", "/v1/gc")
    assert status == 422
    assert "no valid catalog" in answer["error"]["said"]
    with pytest.raises(CatalogInvalid):
        plane.api._listing()


def test_bad_requests_are_refused_with_a_sentence(tmp_path: pathlib.Path) -> None:
    """Unknown routes, wrong methods and bodies that are no JSON each get their status, never a traceback."""
    plane = Plane(tmp_path)
    assert plane.call("GET", "/v1/nothing")[0] == 404
    assert plane.call("DELETE", "/v1/plan")[0] == 405
    assert plane.call("POST", "/v1/plan", ["no"])[0] == 400
    assert plane.call("POST", "/v1/plan", {"files": {"a.yaml": 3}})[0] == 400


def test_screens_say_where_everything_is(tmp_path: pathlib.Path) -> None:
    """Status, nodes, models and replicas of a fleet in the middle of an apply."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.call("POST", "/v1/apply", {"files": files("qwen", replicas=2)})
    plane.loop.decide()
    assert plane.call("GET", "/v1/status")[1]["outstanding"] == ["qwen: 0 of 2 ready"]
    rows = plane.call("GET", "/v1/replicas")[1]
    assert [(row["state"], row["nodes"]) for row in rows] == [("Fetching", ["n0"])] * 2
    assert plane.call("GET", "/v1/nodes")[1][0]["shards"] == 2
    assert plane.call("GET", "/v1/models")[1][0]["place"] == "qwen.yaml:1"
    assert any(entry["kind"] == "action" for entry in plane.call("GET", "/v1/events")[1])


def test_an_apply_waits_for_what_is_one_too_many(tmp_path: pathlib.Path) -> None:
    """While a surplus replica still serves, nothing is "done": the screens say how many there are."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.call("POST", "/v1/apply", {"files": files("qwen", replicas=2)})
    plane.loop.decide()
    for key in list(plane.loop.fleet.shards):
        plane.hears(events.Reported("n0", (ShardStatus(*key, "ready"),)))
    plane.loop.decide()
    assert plane.call("GET", "/v1/status")[1]["outstanding"] == []
    one = {name: text.replace("max: 9", "max: 1") for name, text in files("qwen").items()}
    plane.call("POST", "/v1/apply", {"files": one})
    assert plane.call("GET", "/v1/status")[1]["outstanding"] == ["qwen: 2 replicas, 1 wanted"]


def test_a_roll_out_that_fails_is_seen_beside_what_serves(tmp_path: pathlib.Path) -> None:
    """The old replica is Ready, and the new generation's back-off has a row of its own with its reason."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    plane.loop.decide()
    (old,) = plane.loop.fleet.shards
    plane.hears(events.Reported("n0", (ShardStatus(*old, "ready"),)))
    plane.call("POST", "/v1/apply", {"files": files("qwen", length=1024)})
    plane.loop.decide()
    (new,) = set(plane.loop.fleet.shards) - {old}
    plane.hears(events.Reported("n0", (ShardStatus(*new, "failed", reason="exit 1: invalid argument"),)))
    plane.loop.decide()
    rows = {row["state"]: row for row in plane.call("GET", "/v1/replicas")[1]}
    assert rows["Ready"]["replica"] == old[0]
    assert "exit 1: invalid argument" in rows["Backoff"]["detail"]
