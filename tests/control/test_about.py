"""Why, names, releases and facts for the doctor, from what stands."""

import pathlib

from llmgw.fleet import events
from llmgw.fleet.shard import ShardStatus
from llmgw.wire import messages
from tests.control.plane import Plane, files
from tests.control.test_hands import node, served


def refused(plane: Plane, name: str) -> tuple[str, str]:
    """What is said of a name that nothing has, and what would help."""
    status, answer = plane.call("GET", "/v1/why", name=name)
    assert status == 400
    return answer["error"]["said"], answer["error"]["help"]


def test_whatever_has_the_name_answers(tmp_path: pathlib.Path) -> None:
    """A model, a replica, a node; a name that a model and a node share has two answers."""
    plane = served(tmp_path, "n0", "qwen")
    (key,) = plane.loop.fleet.shards
    for name, kinds in (("qwen", ["model", "node"]), (key[0], ["replica"]), ("n0", ["node"])):
        status, answers = plane.call("GET", "/v1/why", name=name)
        assert (status, [answer["kind"] for answer in answers]) == (200, kinds)


def test_a_name_that_is_gone_says_who_removed_it(tmp_path: pathlib.Path) -> None:
    """The revision in which it is missing, by whom and when; one that never was has the nearest."""
    plane = served(tmp_path)
    plane.call("POST", "/v1/apply", {"files": files("qwen", "beta"), "who": "sam"})
    plane.call("POST", "/v1/apply", {"files": files("qwen"), "who": "dana", "commit": "3f2a91c"})
    said, _ = refused(plane, "beta")
    assert f"revision {plane.adoption.number} removed it, by dana at 2026-01-01" in said
    assert "commit 3f2a91c" in said
    assert refused(plane, "qwem")[1] == "did you mean `qwen`?"
    assert "removed it" not in refused(plane, "qwem")[0]


def test_a_replica_that_is_gone_has_a_last_word(tmp_path: pathlib.Path) -> None:
    """The journal knows what became of it."""
    plane = served(tmp_path)
    (key,) = plane.loop.fleet.shards
    plane.hears(events.NodeForgotten(plane.loop.fleet.shards[key].spec.node))
    said, _ = refused(plane, key[0])
    assert "the last word about it was: " in said


def test_of_a_replica_that_just_died_its_log_is_named(tmp_path: pathlib.Path) -> None:
    """Whoever asks why it is gone wants to read what it said, not what has a name near to its own."""
    plane = served(tmp_path)
    (key,) = plane.loop.fleet.shards
    node_ = plane.loop.fleet.shards[key].spec.node
    plane.hears(events.Reported(node_, (ShardStatus(*key, "gone", reason="exit 1"),)))
    said, help_ = refused(plane, key[0])
    assert said.endswith("the last word about it was: rank 0 gone: exit 1")
    assert help_ == f"llmgw logs {key[0]}"


def test_names_for_completion_are_those_of_the_screens(tmp_path: pathlib.Path) -> None:
    """Models, nodes, replicas with their state, as the CLI keeps them."""
    plane = served(tmp_path)
    plane.hears(events.GatewaySeen("door", 0))
    told = plane.call("GET", "/v1/names")[1]
    assert told["gateways"] == {"door": "speaks"}
    (key,) = plane.loop.fleet.shards
    assert told["models"] == {"qwen": "ready 1/1"}
    assert told["nodes"] == {"n0": "Ready", "n1": "Ready"}
    assert told["replicas"] == {key[0]: "Ready"}
    assert list(told["plans"].values()) == ["revision 1"]


def test_releases_are_what_each_said(tmp_path: pathlib.Path) -> None:
    """Agents by their registration, gateways by their subscription; who did not say is not guessed."""
    plane = served(tmp_path)
    for name, build in (("gw1", "1.2"), ("gw2", "")):
        plane.hears(events.GatewayArrived(name))
        plane.about.met(name, messages.Subscribe(gateway=name, build=build))
    told = plane.call("GET", "/v1/versions")[1]
    assert [(each["name"], each["build"]) for each in told["gateways"]] == [("gw1", "1.2"), ("gw2", "")]
    assert [each["name"] for each in told["agents"]] == ["n0", "n1"]


def test_the_facts_name_what_is_missing(tmp_path: pathlib.Path) -> None:
    """An engine that no node has; none is called missing while a node says nothing of its engines."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(node("n0")))
    vllm = "kind: profile\nname: small\nengine: vllm\ngpus_per_node: 1\n"
    assert plane.call("POST", "/v1/apply", {"files": {**files("qwen"), "small.yaml": vllm}})[0] == 200
    facts = plane.call("GET", "/v1/doctor")[1]
    assert facts["engines"] == [{"profile": "small", "engine": "vllm"}]
    assert facts["disk"]["free"] > 0
    assert facts["loads"] is True


def test_a_gateway_has_an_answer_of_its_own(tmp_path: pathlib.Path) -> None:
    """By its name, and status counts it among the silent ones with for how long."""
    plane = served(tmp_path)
    plane.hears(events.GatewaySeen("door", 0))
    assert plane.call("GET", "/v1/status")[1]["silent_gateways"] == {}
    plane.passes(16)
    (why,) = plane.call("GET", "/v1/why", name="door")[1]
    assert (why["kind"], why["state"]) == ("gateway", "Silent")
    assert list(plane.call("GET", "/v1/status")[1]["silent_gateways"]) == ["door"]
    assert refused(plane, "dor")[1] == "did you mean `door`?"


def test_what_is_over_is_not_wrong_any_more(tmp_path: pathlib.Path) -> None:
    """A killed engine fails its model until another has proved itself; from then on it is history."""
    plane = served(tmp_path)
    (key,) = plane.loop.fleet.shards
    where = plane.loop.fleet.shards[key].spec.node
    plane.hears(events.Reported(where, (ShardStatus(*key, "failed", reason="killed by SIGKILL"),)))
    plane.loop.decide()
    facts = plane.call("GET", "/v1/doctor")[1]
    assert ([each["model"] for each in facts["failing"]], facts["recovered"]) == (["qwen"], [])
    assert plane.call("GET", "/v1/status")[1]["reasons"]["qwen"].endswith("rank 0: killed by SIGKILL")
    plane.hears(events.Reported(where, (ShardStatus(*key, "gone"),)))
    for _ in range(3):
        plane.passes(8)
        for name in ("n0", "n1"):
            plane.hears(events.Heartbeat(name))
        plane.loop.decide()
        for key, shard in list(plane.loop.fleet.shards.items()):
            if shard.state != "ready":
                plane.hears(events.Reported(shard.spec.node, (ShardStatus(*key, "ready"),)))
    facts = plane.call("GET", "/v1/doctor")[1]
    assert (facts["failing"], [each["model"] for each in facts["recovered"]]) == ([], ["qwen"])
    status = plane.call("GET", "/v1/status")[1]
    assert (status["outstanding"], status["reasons"]) == ([], {})


def test_status_names_nodes_that_are_away(tmp_path: pathlib.Path) -> None:
    """With what they are, for how long, and when they are lost."""
    plane = served(tmp_path, "n0", "n1", "n2")
    plane.passes(20)
    for name in ("n1", "n2"):
        plane.hears(events.Heartbeat(name))
    (away,) = plane.call("GET", "/v1/status")[1]["away"]
    assert (away["name"], away["state"]) == ("n0", "Unreachable")
    assert 19 < away["seen"] < 21
    assert 279 < away["lost_in"] < 281
