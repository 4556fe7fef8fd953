"""Applies as the control plane keeps them: what they are held to, what they did, who holds what is followed."""

import asyncio
import dataclasses
import datetime
import pathlib
from typing import Any

import pytest

from llmgw.control import recording
from llmgw.control.adoption import Proposal
from llmgw.control.commits import Commits
from llmgw.control.expecting import Expecting, Wish
from llmgw.control.holding import Rules
from llmgw.control.store import KEPT_REVISIONS, Revision, Store
from llmgw.errors import Stale
from llmgw.fleet import events
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import ShardStatus
from llmgw.planning.actions import Assign, Start, Stop
from llmgw.planning.promise import promise
from tests.control.following import Followed
from tests.control.plane import MODEL, PROFILE, Clock, Plane, files
from tests.control.repository import Repository
from tests.planning.story import a_catalog, a_model
from tests.planning.test_plan import plan as planned
from tests.planning.test_plan import served

NODE = NodeInfo("n0", "n0", engines=None)


def plane(root: pathlib.Path) -> Plane:
    """A plane with one large node."""
    made = Plane(root)
    made.hears(events.Registered(NODE))
    return made


def obeys(made: Plane) -> None:
    """The loop decides and the node does it, until nothing is left."""
    done = 0
    for _ in range(20):
        made.loop.decide()
        for action in made.sent[done:]:
            match action:
                case Assign(spec=spec):
                    status = ShardStatus(*spec.key, "held")
                case Start(key=key):
                    status = ShardStatus(*key, "ready")
                case Stop(key=key):
                    status = ShardStatus(*key, "gone")
                case _:
                    continue
            made.hears(events.Reported("n0", (status,)))
        if done == len(made.sent):
            return
        done = len(made.sent)


def apply(made: Plane, texts: dict[str, str], **more: Any) -> tuple[int, Any]:
    """Somebody applies these files."""
    return made.call("POST", "/v1/apply", {"files": texts, "who": "ada", **more})


def test_a_plan_that_was_applied_is_used_up(tmp_path: pathlib.Path) -> None:
    """Its revision stands: no work. Something else stands since: stale, naming that and who; also after a restart."""
    made = plane(tmp_path)
    digest = made.call("POST", "/v1/plan", {"files": files("qwen")})[1]["digest"]
    assert apply(made, files("qwen"), expect=digest)[1]["new"] is True
    assert apply(made, files("qwen"), expect=digest)[1] == {
        "revision": 1, "event": made.journal.last, "plan": made.adoption.rehearse(made.adoption.catalog).digest, "new": False,
    }  # fmt: skip
    assert apply(made, files("qwen", "phi"), who="dana", message="phi too")[0] == 200
    for again in (made, Plane(tmp_path)):
        again.adoption.resume()
        status, said = apply(again, files("qwen"), expect=digest)
        assert status == 409
        assert "applied as revision 1 and is superseded by revision 2 by dana" in said["error"]["said"]
        assert "phi too" in said["error"]["said"]
        assert said["error"]["help"] == "llmgw rollback 1"
    assert made.adoption.number == 2


def test_what_somebody_applied_since_is_in_the_difference(tmp_path: pathlib.Path) -> None:
    """Line by line: what nobody was shown, and each revision since, with who."""
    made = plane(tmp_path)
    apply(made, files("qwen"))
    mine = files("qwen", "phi")
    shown = made.call("POST", "/v1/plan", {"files": mine})[1]["digest"]
    apply(made, files("qwen", "gemma"), who="dana", commit="51be0aa1", message="gemma")
    status, said = apply(made, mine, expect=f"p-{shown[:6]}")
    assert status == 409
    lines = said["error"]["said"].splitlines()
    assert lines[0].startswith(f"cannot apply p-{shown[:6]}: the plan is now p-")
    assert any("not in yours   - " in line or "not in yours   ~ " in line for line in lines)
    assert lines[-1] == "  applied since  revision 2 by dana, 0ms ago (51be0aa1): gemma"
    assert made.adoption.number == 2


def test_a_plan_that_nobody_remembers_is_held_to_its_digest(tmp_path: pathlib.Path) -> None:
    """After a restart the same plan may go; another one is stale, and says that it cannot tell more."""
    made = plane(tmp_path)
    digest = made.call("POST", "/v1/plan", {"files": files("qwen")})[1]["digest"]
    again = plane(tmp_path / "again")
    status, said = apply(again, files("qwen", "phi"), expect=digest)
    assert status == 409
    assert "it was shown by no plan since this control plane started" in said["error"]["said"]
    assert apply(again, files("qwen"), expect=digest)[0] == 200


def test_a_short_name_that_several_plans_share_names_none() -> None:
    """Twenty-four bits can be forged: what is ambiguous is refused."""
    expecting = Expecting()
    made = planned(served(), a_catalog(a_model(replicas=2)))
    expecting.showed(made)
    expecting._promises[f"{made.digest[:8]}{'0' * 56}"] = expecting._promises[made.digest]
    now = Clock().wall()
    with pytest.raises(Stale, match="short for 2 plans"):
        expecting.check(Wish(made.id), made, now)
    expecting.check(Wish(made.digest), made, now)
    with pytest.raises(Stale, match="shown by no plan"):
        expecting.check(Wish("p-1"), made, now)


def test_a_saved_plan_is_for_the_cluster_that_made_it() -> None:
    """Two clusters that ask for the same could take each other's plans; the name tells them apart."""
    here = dataclasses.replace(planned(served(), a_catalog(a_model(replicas=2))), cluster="production")
    saved = promise(dataclasses.replace(here, cluster="staging"))
    now = Clock().wall()
    with pytest.raises(Stale, match="made for cluster staging, this is production"):
        Expecting().check(Wish(here.digest, saved), here, now)
    for told in (
        promise(here),
        dataclasses.replace(saved, cluster=""),
    ):  # who saved it with an older release told none
        Expecting().check(Wish(here.digest, told), here, now)


def test_a_guard_stops_an_apply_and_says_what_lets_it_pass(tmp_path: pathlib.Path) -> None:
    """423 with the numbers; exactly the override passes, and the record keeps it."""
    made = plane(tmp_path)
    apply(made, files("qwen", "phi"))
    status, said = apply(made, files())
    assert status == 423
    assert "it would remove 2 models and leave nothing to ask. Nothing was changed" in said["error"]["said"]
    assert said["error"]["help"].endswith("--allow-empty")
    assert apply(made, files(), allowed=[["mass_stop", "2"]])[0] == 423
    assert apply(made, files(), allowed=[["no_such_guard", ""]])[0] == 400
    assert apply(made, files(), allowed=[["empty", ""]])[0] == 200
    assert made.call("GET", "/v1/history")[1][0]["allowed"] == [["empty", ""]]


def test_a_record_has_every_action_and_ends(tmp_path: pathlib.Path) -> None:
    """From the first order to the last word; other models' events are not its own; the newest comes first."""
    made = plane(tmp_path)
    apply(made, files("qwen"), message="first")
    obeys(made)
    told = made.call("GET", "/v1/apply")[1]
    assert (told["number"], told["result"], told["waiting"]) == (1, "done", [])
    apply(made, files("qwen", "phi", replicas=1))
    assert made.call("GET", "/v1/apply")[1]["waiting"] == ["phi: 0 of 1 ready"]
    obeys(made)
    kept = made.call("GET", "/v1/revision", number="2")[1]
    said = [(entry["about"].partition("/")[0], entry["said"]) for entry in kept["record"]["actions"]]
    assert {about for about, _ in said} == {"phi"}
    assert [words.partition(":")[0] for _, words in said] == [
        "assign rank 0 to n0", "rank 0 held", "start rank 0 on n0", "rank 0 ready",
    ]  # fmt: skip
    assert kept["revision"]["files"] == files("qwen", "phi")
    assert [row["code"] for row in kept["plan"]["rows"]] == ["model_added"]
    rows = made.call("GET", "/v1/history")[1]
    assert [(row["number"], row["stands"], row["result"], row["message"]) for row in rows] == [
        (2, True, "done", ""),
        (1, False, "done", "first"),
    ]


def test_what_had_no_place_before_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    """Another model's replica that fits nowhere, before as after, is none of this apply; one that it adds is."""
    made = plane(tmp_path)
    vast = PROFILE.format(length=512).replace("name: small", "name: vast").replace("1GiB", "1000TiB")
    huge = {
        "huge.yaml": MODEL.format(name="huge", sha="ef" * 32, replicas=1).replace("small", "vast"),
        "vast.yaml": vast,
    }
    made.hears(
        events.Registered(dataclasses.replace(NODE, cpu_cores=8, memory_total=64 << 30, memory_free=64 << 30))
    )
    apply(made, {**files("qwen"), **huge})
    obeys(made)
    assert made.call("GET", "/v1/apply")[1]["waiting"] == ["huge: 0 of 1 ready"]
    apply(made, {**files("qwen", "phi"), **huge})
    assert made.call("GET", "/v1/apply")[1]["waiting"] == ["phi: 0 of 1 ready"]
    obeys(made)
    assert made.call("GET", "/v1/apply")[1]["result"] == "done"
    more = {**huge, "huge.yaml": huge["huge.yaml"].replace("min: 1", "min: 2")}
    apply(made, {**files("qwen", "phi"), **more})
    assert made.call("GET", "/v1/apply")[1]["waiting"] == ["huge: 0 of 2 ready"]


def test_a_record_goes_on_after_a_restart_and_says_so(tmp_path: pathlib.Path) -> None:
    """The next process goes on with it; who applies meanwhile ends it, and is named."""
    made = plane(tmp_path)
    apply(made, files("qwen"))
    made.loop.decide()
    made.recording.read_on()
    again = Plane(tmp_path)
    again.adoption.resume()
    again.recording.resume()
    again.hears(events.Registered(NODE))
    record = again.call("GET", "/v1/revision")[1]["record"]
    assert record["result"] == ""
    assert record["actions"][-1]["said"].startswith("it was started again")
    apply(again, files("qwen", "phi"), who="dana")
    assert again.store.record(1).result == "superseded by revision 2 by dana"  # type: ignore[union-attr]


def test_after_a_restart_what_is_left_to_stop_is_not_taken_for_stopped(tmp_path: pathlib.Path) -> None:
    """Only its node knows of it: until that has spoken the apply goes on, whatever is not there."""
    made = plane(tmp_path)
    apply(made, files("qwen", "phi"))
    obeys(made)
    shards = made.loop.fleet.shards
    assert apply(made, files("qwen"))[0] == 200
    made.loop.decide()
    again = Plane(tmp_path, roster=frozenset({"n0"}))
    again.adoption.resume()
    again.recording.resume()
    away = [shard for key, shard in shards.items() if key[0].startswith("phi/")]
    again.loop.adopt(dataclasses.replace(again.loop.desired, catalog=again.adoption.catalog))
    assert again.call("GET", "/v1/apply")[1]["waiting"] == ["n0: has not spoken yet"]
    again.hears(events.Registered(NODE, shards=tuple((each.spec, each.status) for each in away)))
    left = again.call("GET", "/v1/apply")[1]["waiting"]
    assert f"{away[0].spec.replica}: ready, to be stopped" in left


def test_a_record_is_bounded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first actions are kept, the others counted."""
    monkeypatch.setattr(recording, "MOST", 2)
    made = plane(tmp_path)
    apply(made, files("qwen"))
    obeys(made)
    record = made.call("GET", "/v1/revision")[1]["record"]
    assert (len(record["actions"]), record["dropped"]) == (2, 2)


def test_what_is_kept_of_applies_is_bounded(tmp_path: pathlib.Path) -> None:
    """With the oldest revision go its plan and its record."""
    made = plane(tmp_path)
    apply(made, files("qwen"))
    assert {path.name for path in (tmp_path / "applies").iterdir()} == {
        "00000001.plan.json",
        "00000001.record.json",
    }
    store = Store(tmp_path)
    for number in range(2, KEPT_REVISIONS + 2):
        store.add(Revision(number=number, files={}, digest="d", at=Clock().wall()))
    assert store.revisions()[0] == 2
    assert list((tmp_path / "applies").iterdir()) == []
    assert store.plan(1) is store.record(1) is None


def test_what_cannot_be_read_of_history_is_passed_over(tmp_path: pathlib.Path) -> None:
    """Half a record or a broken old revision stops no start; the rest is listed."""
    made = plane(tmp_path)
    apply(made, files("qwen"))
    apply(made, files("qwen", "phi"))
    (tmp_path / "revisions" / "00000001.json").write_text("{")
    (tmp_path / "applies" / "00000002.record.json").write_text("{")
    (tmp_path / "applies" / "00000002.plan.json").write_text("[]")
    again = Plane(tmp_path)
    again.adoption.resume()
    again.recording.resume()
    assert [row["number"] for row in again.call("GET", "/v1/history")[1]] == [2]
    shown = again.call("GET", "/v1/revision")[1]
    assert (shown["record"], shown["plan"]) == (None, None)
    assert again.call("GET", "/v1/apply")[0] == 500


def test_nothing_is_kept_before_the_first_apply(tmp_path: pathlib.Path) -> None:
    """Sentences, not tracebacks."""
    made = plane(tmp_path)
    assert made.call("GET", "/v1/history") == (200, [])
    for path in ("/v1/revision", "/v1/apply"):
        assert made.call("GET", path)[1]["error"]["said"].startswith("cannot ")
    assert made.call("GET", "/v1/revision", number="7")[1]["error"]["help"] == "see `llmgw history`"


# --- the switch -------------------------------------------------------------------------------


def test_on_hold_nothing_followed_is_adopted_and_people_apply(tmp_path: pathlib.Path) -> None:
    """While somebody holds it a commit waits, unjudged; a person applies all the same; released, it is taken."""
    repository = Repository(tmp_path / "fleet")
    repository.commit(files("qwen"))
    followed = Followed(tmp_path / "state", Commits(repository.catalog), Rules("commits", "auto"))
    made = followed.plane
    followed.settles()
    assert made.call("POST", "/v1/hold", {"who": "dana", "reason": "incident"})[0] == 200
    repository.commit(files("qwen", "phi"))
    followed.settles()
    followed.settles()
    assert (followed.number, followed.why) == (1, "")
    status = made.call("GET", "/v1/hold")[1]
    assert (status["who"], status["reason"], status["until"]) == ("dana", "incident", None)
    assert apply(made, files("qwen", "gemma"))[0] == 200
    woken: list[bool] = []
    made.switch.released = lambda: woken.append(True)
    assert made.call("POST", "/v1/release", {"who": "ada"})[1]["who"] == "dana"
    assert woken == [True]
    assert made.call("POST", "/v1/release", {})[1] is None
    followed.settles()
    assert followed.models == ["phi", "qwen"]


def test_a_hold_ends_by_itself_and_outlives_a_restart(tmp_path: pathlib.Path) -> None:
    """Two hours are two hours, whoever restarts in between."""
    made = plane(tmp_path)
    made.call("POST", "/v1/hold", {"who": "dana", "reason": "incident", "seconds": 7200})
    again = Plane(tmp_path)
    again.switch.resume()
    again.clock.at += 7199
    assert again.switch.held is not None
    assert again.switch.held.until == Clock().wall() + datetime.timedelta(seconds=7200)
    again.clock.at += 1
    assert again.switch.held is None
    again.switch.expire()
    assert again.journal.after(0)[-1].said == "the hold of dana is over: incident"
    assert Store(tmp_path).on_hold() is None


@pytest.mark.parametrize(
    "body", [{"who": "x"}, {"reason": ""}, {"reason": "x", "seconds": 0}, {"reason": "x" * 2000}]
)
def test_a_hold_has_a_reason(body: dict[str, object], tmp_path: pathlib.Path) -> None:
    """Nothing that cannot be meant is kept."""
    made = plane(tmp_path)
    assert made.call("POST", "/v1/hold", body)[0] == 400
    assert made.switch.held is None


def test_a_hold_that_cannot_be_kept_holds_nothing(tmp_path: pathlib.Path) -> None:
    """What stands is on disk before anybody is told."""
    made = plane(tmp_path)
    (tmp_path / "hold.json").mkdir()
    status, said = made.call("POST", "/v1/hold", {"reason": "incident"})
    assert status == 500
    assert "Nothing was changed" in said["error"]["said"]
    assert made.switch.held is None


def test_applies_beside_each_other_are_one_after_the_other(tmp_path: pathlib.Path) -> None:
    """Two plans of one moment: one stands, the other is told of it."""
    made = plane(tmp_path)
    apply(made, files("qwen"))
    theirs = [{**files("qwen"), "qwen.yaml": f"{files('qwen')['qwen.yaml']}aliases: [{x}]\n"} for x in "ab"]
    digests = [made.call("POST", "/v1/plan", {"files": each})[1]["digest"] for each in theirs]

    async def both() -> list[object]:
        calls = (made.adoption.apply(Proposal(f), Wish(d)) for f, d in zip(theirs, digests, strict=True))
        return list(await asyncio.gather(*calls, return_exceptions=True))

    ended = asyncio.run(both())
    assert sorted(type(each).__name__ for each in ended) == ["Stale", "tuple"]
    assert made.adoption.number == 2
