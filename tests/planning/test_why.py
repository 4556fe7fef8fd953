"""Why it is as it is: every answer names what decides, in the words of the look that decides."""

import dataclasses

import pytest

from llmgw.catalog.load import load_files
from llmgw.fleet import events
from llmgw.fleet.node import Gpu
from llmgw.fleet.shard import Failure, ShardStatus
from llmgw.kit.units import show_seconds
from llmgw.planning.desired import Marks
from llmgw.planning.screen import outstanding
from llmgw.planning.view import View, look
from llmgw.planning.why import Why, why_model, why_replica
from llmgw.planning.why_gateway import why_gateway
from llmgw.planning.why_node import why_node
from tests.planning.story import Story, a_catalog, a_model, a_node

QWEN = f"kind: model\nname: qwen\nsource: http://weights/qwen.gguf\nsha256: {'ab' * 32}\nprofiles: [small]\n"
SMALL = "kind: profile\nname: small\nengine: llamacpp\ngpus_per_node: 1\nmax_model_len: 512\n"
NEW_MEMORY = Marks(draining={"n0": "memory (dana)"})


def seen(story: Story) -> View:
    return look(story.desired, story.fleet, story.ledger, story.now, story.timers)


def of_model(story: Story, name: str = "qwen") -> Why:
    assert story.last is not None
    return why_model(seen(story), story.last.unplaced, name, None)


def served(replicas: int = 1, nodes: int = 2) -> Story:
    story = Story(*(a_node(f"n{i}") for i in range(nodes)), catalog=a_catalog(a_model(replicas=replicas)))
    story.gateway().runs()
    return story.after(400)


def test_without_a_place_each_node_and_rule_has_its_reason() -> None:
    """Two rules of one node are two reasons; a node with a single one is what would do."""
    story = Story(a_node("n0", gpus=0), a_node("n1", engines=()), catalog=a_catalog(a_model()))
    story.marks(Marks(cordoned={"n0": "disk (dana)"})).runs()
    why = of_model(story)
    assert why.state == "Pending"
    assert {each.node: [rule for rule, _ in each.reasons] for each in why.rejected} == {
        "n0": ["node_ready", "cards_free"],
        "n1": ["engine_installed"],
    }
    assert "on n1 were it not for this: no llamacpp (has no engine)" in why.would_fit


def test_a_back_off_says_how_often_when_and_why() -> None:
    """Failures, the next try, the last words, the node that is avoided; and what to run."""
    story = Story(a_node("n0"), a_node("n1"), catalog=a_catalog(a_model()))
    (assigned,) = [a for a in story.decides() if hasattr(a, "spec")]
    key = assigned.spec.key
    story.says(key, "failed", reason="exit 137 (memory)").decides()
    why = of_model(story)
    text = "\n".join(why.said)
    assert why.state == "Backoff"
    assert "failed to start 1 time, try 2 in " in text
    assert "last: rank 0: exit 137 (memory)" in text
    assert f"nodes avoided where others fit: {assigned.spec.node}" in text
    assert why.try_next == (
        "llmgw logs qwen --previous, then llmgw retry qwen; "
        "where it needs another profile: correct the profile, then llmgw apply"
    )


def test_an_engine_that_ends_after_it_served_did_not_fail_to_start() -> None:
    """Killed after minutes of serving: that is said, and neither then nor while a node is drained a roll-out halts."""
    story = served(nodes=2).after(180)
    (name,) = story.ready()
    key = (name, 0)
    ready = story.now - story.fleet.shards[key].since
    story.says(key, "failed", reason="killed by SIGKILL").decides()
    text = "\n".join(of_model(story).said)
    assert f"ended after {show_seconds(ready)} serving, try 2 in " in text
    assert "rank 0: killed by SIGKILL" in text
    assert "failed to start" not in text
    story.after(60).runs()
    (again,) = story.ready()
    assert story.ledger.troubles, "not forgiven yet"
    story.marks(Marks(draining={story.fleet.shards[again, 0].spec.node: "memory (dana)"})).decides()
    assert story.last is not None
    assert not [said for said in story.last.alarms if "roll-out" in said]
    assert "roll-out" not in "\n".join(of_model(story).said)


@pytest.mark.parametrize("how", ["shard", "memory"])
def test_a_new_control_plane_hears_that_it_served(how: str) -> None:
    """The first word that it hears of the engine is of its end: that is no failed start and halts no roll-out."""
    story = served(nodes=1).after(180)
    (name,) = story.ready()
    spec = story.fleet.shards[name, 0].spec
    status = ShardStatus(name, 0, "failed", age=3.0, reason="killed by SIGKILL", served=180.0)
    told = Failure("qwen", spec.generation, 1, 3.0, status.reason, served=180.0)
    later = Story(catalog=story.desired.catalog)
    shards = ((spec, status),) if how == "shard" else ()
    later.hears(events.Registered(a_node("n0"), shards, (told,) if how == "memory" else ())).decides()
    assert later.last is not None
    assert not [said for said in later.last.alarms if "roll-out" in said]
    text = "\n".join(of_model(later).said)
    assert "ended after 3m serving" in text
    assert "failed to start" not in text


def test_a_halted_roll_out_names_what_goes_on_serving() -> None:
    """The new generation fails: the old replica serves, and that is said."""
    story = served()
    (old,) = story.ready()
    story.adopts(a_catalog(a_model(source=a_model("other").source)))
    assigned = next(a for a in story.decides() if hasattr(a, "spec"))
    story.says(assigned.spec.key, "failed", reason="exit 1").decides()
    why = of_model(story)
    assert any(f"is halted: {old} of before go on serving" in said for said in why.said)
    assert why.try_next.endswith("or llmgw rollback")


def test_a_paused_model_says_who_and_why() -> None:
    """Its reason comes first, and how to end it."""
    story = served().marks(Marks(paused={"qwen": "driver (dana)"}))
    story.decides()
    why = of_model(story)
    assert (why.state, why.try_next) == ("Paused", "llmgw resume qwen")
    assert "paused: driver (dana)" in why.said


def test_a_replica_says_where_it_is_and_why_not_elsewhere() -> None:
    """Its ranks, nodes and cards; of the other nodes what refuses, and which would do as well."""
    story = served(nodes=3).marks(Marks(cordoned={"n1": "disk"}))
    story.decides()
    (name,) = story.ready()
    why = why_replica(seen(story), name)
    here = story.fleet.shards[name, 0].spec.node
    text = "\n".join(why.said)
    assert why.state == "Ready"
    assert f"rank 0 on {here} GPU {here}-gpu0: ready for " in text
    assert "not on n1: cordoned: disk" in text
    assert "would do now too" in text


def test_a_drain_says_for_whom_it_waits() -> None:
    """The gateway with requests in flight is named, with how many."""
    story = served()
    (name,) = story.ready()
    story.gateway("gw", **{name.replace("/", "__"): 3})
    story.adopts(a_catalog()).decides()
    why = why_replica(seen(story), name)
    assert why.state == "Draining"
    text = "\n".join(why.said)
    assert "waits for 3 requests in flight at gateway gw" in text
    assert "qwen is not in the catalog: it has to go" in text


def test_a_node_says_what_it_takes_and_what_runs_there() -> None:
    """Drained for whom, withdrawn cards, strangers on a card, and what does not fit on it by which rule."""
    cards = (
        Gpu("c0", "H100", 80 << 30),
        Gpu("c1", "H100", 80 << 30, foreign=3 << 30),
        Gpu("c2", "H100", 80 << 30, healthy=False, said="fell off the bus"),
    )
    model = a_model("wide", replicas=3)
    story = Story(dataclasses.replace(a_node("n0"), gpus=cards), catalog=a_catalog(model))
    story.runs()
    story.marks(NEW_MEMORY).decides()
    assert story.last is not None
    why = why_node(seen(story), story.last.unplaced, "n0")
    text = "\n".join(why.said)
    assert "draining: memory (dana)" in text
    assert "replicas left, each goes once its successor is ready" in text or "1 replica left" in text
    assert "GPU c2 is withdrawn: fell off the bus" in text
    assert "GPU c1: 3 GiB held by processes that are not llmgw's" in text
    assert "runs wide/" in text
    assert "does not take wide: " in text
    assert why.try_next == "llmgw node uncordon n0"


def test_a_silent_node_says_when_it_is_lost() -> None:
    """How long it has been silent, when that makes it Lost, and what a person may say of it."""
    story = served(nodes=3)
    (name,) = story.ready()
    here = story.fleet.shards[name, 0].spec.node
    story.silence(here).after(20).decides()
    assert story.last is not None
    why = why_node(seen(story), story.last.unplaced, here)
    assert why.state == "Unreachable"
    look = "systemctl status llmgw-agent on that machine; machine gone: "
    assert why.try_next == f"{look}llmgw node confirm-lost {here}"
    assert any(said.startswith("lost in 4m40s if it stays silent") for said in why.said)
    story.after(400).decides()
    why = why_node(seen(story), story.last.unplaced, here)
    assert (why.state, why.said[0]) == ("Lost", "spoke 7m ago")
    assert "lost for 2m: what ran there is rebuilt elsewhere" in why.said
    assert why.try_next == f"{look}llmgw node confirm-lost {here}, then llmgw node forget {here}"
    story.marks(Marks(confirmed_lost=frozenset({here}))).decides()
    why = why_node(seen(story), story.last.unplaced, here)
    assert why.try_next == f"{look}llmgw node forget {here}"


def test_during_a_roll_out_it_says_what_status_says() -> None:
    """None of the new ones yet, and that one of before serves: the same numbers at the same second."""
    story = served()
    story.adopts(a_catalog(a_model(source=a_model("other").source))).decides()
    why = of_model(story)
    (waits, *_) = outstanding(seen(story))
    assert why.state == "Starting"
    assert why.said[0].startswith("0 of 1 ready; 1 of the generation before serves; ")
    assert waits == "qwen: 0 of 1 ready; 1 of the generation before serves"


def test_a_model_on_a_silent_node_is_not_simply_ready() -> None:
    """Status does not count what serves there; why says the same, and that it is asked as before."""
    story = served(nodes=3)
    assert of_model(story).state == "Ready"
    (name,) = story.ready()
    story.silence(story.fleet.shards[name, 0].spec.node).after(20).decides()
    why = of_model(story)
    assert why.state == "Unreachable"
    assert why.said[0].startswith("1 of 1 ready, 1 of them on silent nodes; 1 is asked for")


def test_what_holds_up_everything_is_said_of_everything() -> None:
    """While most nodes are silent at once, a model and a node say so before anything else."""
    story = served(nodes=3)
    story.silence("n0", "n1", "n2").after(400).decides()
    assert story.last is not None
    dark = "most nodes fell silent together: nothing is placed and nothing is stopped"
    assert dark in of_model(story).said
    assert dark in why_node(seen(story), story.last.unplaced, "n0").said


def test_a_model_that_serves_again_is_ready_and_its_failure_is_history() -> None:
    """Until the back-off forgives, what failed last is told; nobody is sent to retry what serves."""
    story = served()
    (name,) = story.ready()
    story.says((name, 0), "failed", reason="killed by SIGKILL").decides()
    assert of_model(story).state == "Backoff"
    story.after(60).runs()
    story.after(5)
    assert of_model(story).state == "Retrying", "not proved yet"
    story.after(6).decides()
    assert story.ledger.troubles
    why = of_model(story)
    assert why.state == "Ready"
    assert why.said[-1].startswith("as many as are wanted serve again; 1m11s ago generation ")
    assert why.said[-1].endswith("serving: rank 0: killed by SIGKILL")
    assert why.try_next == "llmgw events --for qwen"


@pytest.mark.parametrize(
    ("reason", "field"),
    [
        ("cannot fetch http://weights/qwen.gguf: weights: HTTP 404", "source"),
        ("cannot fetch http://weights/qwen.gguf: weights: qwen.gguf has sha256 00, ab is wanted", "sha256"),
    ],
)
def test_what_could_not_be_fetched_points_to_its_own_line(reason: str, field: str) -> None:
    """No engine was run: there is no log and no profile to look at, but the line that names the weights."""
    catalog = load_files({"q.yaml": QWEN.encode(), "p.yaml": SMALL.encode()})
    story = Story(a_node("n0"), catalog=catalog)
    (assigned,) = [a for a in story.decides() if hasattr(a, "spec")]
    story.says(assigned.spec.key, "fetching").says(assigned.spec.key, "failed", reason=reason).decides()
    line = {"source": 3, "sha256": 4}[field]
    assert of_model(story).try_next.startswith(f"correct its {field} (q.yaml:{line}), then llmgw apply; ")
    assert "logs" not in of_model(story).try_next


def test_a_roll_out_whose_copies_are_ready_for_seconds_is_halted_here_too() -> None:
    """Ready for three seconds is no proof: what goes on serving is named."""
    story = served()
    (old,) = story.ready()
    story.adopts(a_catalog(a_model(source=a_model("other").source)))
    story.obeys(*(assigned := story.decides()))
    story.runs()
    key = next(a for a in assigned if hasattr(a, "spec")).spec.key
    story.after(3).says(key, "failed", reason="answers 503").decides()
    assert any(f"is halted: {old} of before go on serving" in said for said in of_model(story).said)


def test_a_silent_gateway_says_what_its_clients_get() -> None:
    """How long it is silent, what that may mean, which drains wait for it and where to look."""
    story = served()
    why = why_gateway(seen(story), "gw")
    assert (why.state, why.try_next) == ("Ready", "")
    assert why.said[1] == "serves by the newest table"
    story.gateways.clear()
    story.after(16).adopts(a_catalog()).decides()
    why = why_gateway(seen(story), "gw")
    assert (why.kind, why.state, why.said[0]) == ("gateway", "Silent", "spoke 16s ago")
    assert "where it is down, its clients are not served: their connections are refused" in why.said
    assert any("drains and waits for it, 2m at most" in said for said in why.said)
    assert why.try_next.startswith("systemctl status llmgw-gateway on its machine")
