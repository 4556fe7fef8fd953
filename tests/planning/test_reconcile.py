"""Stories of the reconciler: each docstring is the moral."""

import dataclasses
import pathlib
import re

import llmgw
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import Gpu
from llmgw.fleet.shard import Failure, ShardStatus
from llmgw.fleet.world import Fleet
from llmgw.planning.actions import Assign, Drain, Start, Stop
from llmgw.planning.desired import Marks
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile, kinds


def served(replicas: int = 1, nodes: int = 2, **more: object) -> Story:
    """A story that begins with `replicas` of qwen ready on `nodes` nodes."""
    story = Story(
        *(a_node(f"n{i}") for i in range(nodes)), catalog=a_catalog(a_model(replicas=replicas, **more))
    )
    story.runs()
    assert len(story.ready()) == replicas
    return story


def test_from_nothing_to_ready() -> None:
    """A wanted model is assigned, started once its weights are held, and routed once it is ready."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model()))
    assert kinds(story.runs()) == ["assign", "start"]
    assert len(story.ready()) == 1


def test_steady_state_is_silent() -> None:
    """Desired equals reported: zero actions, however long it lasts."""
    story = served(3)
    for _ in range(50):
        assert story.after(7).decides() == ()


def test_siblings_live_apart() -> None:
    """Two replicas of a model go to two nodes."""
    story = served(2)
    assert {shard.spec.node for shard in story.fleet.shards.values()} == {"n0", "n1"}


def test_a_pass_places_one_replica_and_the_next_sees_it() -> None:
    """Four replicas on one node get four different cards and four different port blocks."""
    story = served(4, nodes=1)
    specs = [shard.spec for shard in story.fleet.shards.values()]
    assert len({spec.gpus for spec in specs}) == 4
    assert len({spec.port for spec in specs}) == 4


def test_what_does_not_fit_says_why_on_every_node() -> None:
    """A replica that fits nowhere is not placed, and each node's reason has its numbers."""
    story = Story(a_node("n0", gpus=1), a_node("n1", gpus=0), catalog=a_catalog(a_model(replicas=2)))
    story.runs()
    assert story.last is not None
    (unplaced,) = story.last.unplaced
    assert {str(reason) for reason in unplaced.reasons} == {
        f"n0: 0 GPUs free, 1 needed; {story.ready()[0]} holds 1",
        "n1: 0 GPUs free, 1 needed",
    }


def test_memory_of_a_card_is_meant_as_it_is_sold() -> None:
    """An 80 GiB card reports 79.2: a profile that asks for 80 gets it, and no 48 GiB card."""
    cards = tuple(Gpu(f"g{i}", "H100", round(size * 2**30)) for i, size in enumerate((45.0, 79.2)))
    big = a_profile(gpu_memory=80 << 30)
    story = Story(
        dataclasses.replace(a_node("n0"), gpus=cards), catalog=a_catalog(a_model(replicas=2), profiles=[big])
    )
    story.runs()
    assert [shard.spec.gpus for shard in story.fleet.shards.values()] == [("g1",)]


def test_a_blink_changes_nothing() -> None:
    """A node that is silent for less than Lost keeps its replica, and it stays routed."""
    story = served()
    (replica,) = story.ready()
    story.silence(story.fleet.shards[replica, 0].spec.node)
    for _ in range(9):
        assert story.after(30).decides() == ()
        assert story.ready() == [replica]


def test_a_lost_node_is_replaced() -> None:
    """After Lost its replica is rebuilt elsewhere and no longer routed."""
    story = served(nodes=3)
    (replica,) = story.ready()
    story.silence(story.fleet.shards[replica, 0].spec.node).after(301)
    actions = story.runs()
    assert kinds(actions) == ["assign", "start"]
    assert story.ready() != [replica]
    assert len(story.ready()) == 1


def test_a_green_data_plane_outlives_a_silent_agent() -> None:
    """A replica that answers clients is not lost because its agent is silent."""
    story = served(nodes=3)
    (replica,) = story.ready()
    story.silence(story.fleet.shards[replica, 0].spec.node).after(400)
    story.hears(events.GatewaySeen("gw", story.ledger.routes.version, green=((replica, 1.0),)))
    assert story.decides() == ()
    assert story.ready() == [replica]


def test_mass_silence_is_our_own_fault_until_proved_otherwise() -> None:
    """When most nodes fall silent together nothing is stopped or placed, and the alarm is loud."""
    story = served(3, nodes=4)
    story.silence("n0", "n1", "n2").after(400)
    assert story.decides() == ()
    assert len(story.ready()) == 3
    assert story.last is not None
    assert "3 of 4 nodes fell silent together" in story.last.alarms[0]


def test_a_stall_of_ours_expires_nobody() -> None:
    """Silence while we could not listen does not count."""
    story = served()
    story.now += 1000
    story.hears(events.Stalled(1000))
    assert story.decides() == ()
    assert len(story.ready()) == 1


def test_a_failed_engine_is_swept_and_rebuilt_after_its_delay() -> None:
    """A failed shard is stopped at once; the model is tried again only after the back-off."""
    story = served(nodes=1)
    (replica,) = story.ready()
    story.says((replica, 0), "failed", reason="exit 1: out of memory")
    assert kinds(story.runs()) == ["stop"]
    assert story.ready() == []
    assert kinds(story.after(3).runs()) == []
    assert kinds(story.after(4).runs()) == ["assign", "start"]


def test_the_delay_grows_and_minutes_of_ready_forgive_it() -> None:
    """Back-off doubles per failure of a generation and is reset by five minutes of Ready."""
    story = served(nodes=1)
    for failures in (1, 2, 3):
        (replica,) = story.ready()
        story.says((replica, 0), "failed", reason="exit 1")
        story.runs()
        (trouble,) = story.ledger.troubles.values()
        assert trouble.failures == failures
        wait = trouble.until - story.now
        assert 5 * 2 ** (failures - 1) * 0.75 <= wait <= 5 * 2 ** (failures - 1) * 1.25
        story.after(wait + 0.1).runs()
    story.after(301).decides()
    assert story.ledger.troubles == {}


def test_a_new_generation_does_not_inherit_the_delay() -> None:
    """The fix in the catalog is tried at once."""
    story = served(nodes=1)
    story.says((story.ready()[0], 0), "failed", reason="exit 1")
    story.runs()
    story.adopts(a_catalog(a_model(), profiles=[a_profile(args=(("threads", 2),))]))
    assert kinds(story.runs()) == ["assign", "start"]


def test_agents_remember_failures_for_a_new_control_plane() -> None:
    """A restart of the control plane does not forget the delay."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model()))
    assert story.desired.catalog is not None
    (generation,) = story.desired.catalog.generations(story.desired.catalog.models["qwen"])
    story.hears(events.Registered(a_node("n0"), failures=(Failure("qwen", generation, 4, 2.0, "exit 1"),)))
    assert story.runs() == []
    assert kinds(story.after(60).runs()) == ["assign", "start"]


def test_scaling_up_and_down() -> None:
    """One more is placed; one too many drains before it stops."""
    story = served(1)
    story.gateway()
    story.adopts(a_catalog(a_model(replicas=2)))
    assert kinds(story.runs()) == ["assign", "start"]
    story.adopts(a_catalog(a_model(replicas=1)))
    assert kinds(story.runs()) == ["drain", "stop"]
    assert len(story.ready()) == 1


def test_a_removed_model_drains_and_stops() -> None:
    """What left the catalog is drained, stopped, and gone."""
    story = served(2)
    assert sorted(kinds(story.adopts(a_catalog()).runs())) == ["drain", "drain", "stop", "stop"]
    assert story.fleet.shards == {}


def test_nothing_stops_with_requests_in_flight() -> None:
    """A drain waits for the gateway's last request, and for its acknowledgement of the table."""
    story = served()
    (replica,) = story.ready()
    story.gateway("gw", **{replica.replace("/", "__"): 1})
    story.adopts(a_catalog())
    assert kinds(story.decides()) == ["drain"]
    assert kinds(story.after(60).decides()) == []
    story.gateway("gw")
    assert kinds(story.decides()) == ["stop"]


def test_a_silent_gateway_costs_the_drain_limit() -> None:
    """A gateway that does not acknowledge is waited for until the limit, and no longer."""
    story = served()
    story.hears(events.GatewaySeen("gw", story.ledger.routes.version))
    story.adopts(a_catalog())
    assert kinds(story.decides()) == ["drain"]
    assert kinds(story.after(119).decides()) == []
    assert kinds(story.after(2).decides()) == ["stop"]


def test_a_table_of_another_control_plane_is_no_acknowledgement() -> None:
    """A gateway that serves by somebody else's table has not heard of our drain."""
    story = served()
    story.hears(events.GatewaySeen("gw", 99 << 32))
    assert kinds(story.adopts(a_catalog()).decides()) == ["drain"]
    assert kinds(story.after(20).decides()) == []
    assert kinds(story.gateway().decides()) == ["stop"]


def test_a_busy_engine_is_not_stopped() -> None:
    """The engine's own counters have a word too: somebody may use it past the gateway."""
    story = served()
    (replica,) = story.ready()
    story.adopts(a_catalog()).hears(events.Heartbeat("n0", (((replica, 0), False),)))
    assert kinds(story.decides()) == ["drain"]
    assert kinds(story.after(5).decides()) == []
    node = story.fleet.shards[replica, 0].spec.node
    story.hears(events.Heartbeat(node, (((replica, 0), True),)))
    assert kinds(story.decides()) == ["stop"]


def test_a_rolling_update_surges_and_never_dips() -> None:
    """The new one is ready for min_ready before the old one drains; ready never falls below wanted."""
    story = served(2, nodes=2)
    old = set(story.ready())
    story.gateway()
    story.adopts(a_catalog(a_model(replicas=2), profiles=[a_profile(args=(("threads", 2),))]))
    for _ in range(12):
        story.runs()
        assert len(story.ready()) >= 2
        story.after(11)
    assert len(story.ready()) == 2
    assert not old & set(story.ready())


def test_a_failing_generation_halts_the_roll_out() -> None:
    """The new generation fails: the old one keeps serving, and nothing of it drains."""
    story = served(1)
    old = story.ready()
    story.adopts(a_catalog(a_model(), profiles=[a_profile(args=(("threads", 2),))]))
    (assign,) = story.decides()
    assert isinstance(assign, Assign)
    story.says(assign.spec.key, "failed", reason="exit 1")
    for _ in range(20):
        assert not any(isinstance(action, Drain) for action in story.decides())
        story.after(2)
    assert story.ready() == old


def test_a_ready_that_does_not_last_drains_nothing() -> None:
    """One ready sample is no gate: the successor dies within min_ready and the old one never drained."""
    story = served(1)
    old = story.ready()
    story.adopts(a_catalog(a_model(), profiles=[a_profile(args=(("threads", 2),))]))
    story.runs()
    (new,) = set(story.ready()) - set(old)
    story.after(5).says((new, 0), "failed", reason="exit 1")
    story.runs()
    assert story.ready() == old


def test_without_room_the_old_one_goes_first() -> None:
    """No card for a surge: one old replica drains first, and only one at a time."""
    big = a_profile("big", gpus_per_node=4)
    story = Story(
        a_node("n0"), a_node("n1"), catalog=a_catalog(a_model(replicas=2, profiles=("big",)), profiles=[big])
    )
    story.runs()
    changed = dataclasses.replace(big, args=(("threads", 2),))
    story.adopts(a_catalog(a_model(replicas=2, profiles=("big",)), profiles=[changed]))
    for _ in range(10):
        story.runs()
        assert len(story.ready()) >= 1
        story.after(11)
    generations = {shard.spec.generation for shard in story.fleet.shards.values()}
    assert len(story.ready()) == 2
    assert len(generations) == 1


def test_a_drain_is_taken_back_when_the_model_returns() -> None:
    """Draining is revocable until the stop is sent."""
    story = served()
    (replica,) = story.ready()
    catalog = story.desired.catalog
    story.gateway("gw", **{replica.replace("/", "__"): 1})
    assert kinds(story.adopts(a_catalog()).decides()) == ["drain"]
    assert story.ready() == []
    assert kinds(story.adopts(catalog).decides()) == ["undrain"]
    assert story.ready() == [replica]


def restarted(story: Story, *nodes: str) -> Story:
    """The same fleet before a control plane that remembers only the roster; `nodes` register again."""
    shards = dict(story.fleet.shards)
    infos = {name: node.info for name, node in story.fleet.nodes.items()}
    again = Story(catalog=story.desired.catalog)
    again.fleet = Fleet(since=again.now, roster=frozenset(infos))
    for name in nodes:
        mine = [
            (s.spec, ShardStatus(*s.spec.key, s.status.state, 50.0))
            for s in shards.values()
            if s.spec.node == name
        ]
        again.registers(infos[name], *mine)
    return again


def test_a_restarted_control_plane_waits_for_its_roster() -> None:
    """Nothing starts or stops before every node of the roster spoke or the grace ran out."""
    story = restarted(served(2, nodes=2), "n0")
    assert story.decides() == ()
    assert story.ledger.routes.partial
    assert story.after(30).decides() == ()


def test_a_restarted_control_plane_finds_everything_as_it_was() -> None:
    """The reports rebuild the replicas: zero commands, and the whole table."""
    story = restarted(served(2, nodes=2), "n0", "n1")
    assert story.decides() == ()
    assert len(story.ready()) == 2
    assert not story.ledger.routes.partial


def test_an_unheard_node_is_not_doubled() -> None:
    """While a node is unheard, a model that serves is not topped up until that node is Lost."""
    story = restarted(served(2, nodes=2), "n0")
    assert story.after(100).decides() == ()
    assert kinds(story.after(250).runs()) == ["assign", "start"]


def test_a_returning_node_keeps_what_serves() -> None:
    """The original is back while its replacement only starts: the original stays, the other is cancelled."""
    story = served(1, nodes=3)
    (old,) = story.ready()
    home = story.fleet.shards[old, 0].spec
    info = story.fleet.nodes[home.node].info
    story.silence(home.node).after(301)
    (assign,) = story.decides()
    assert isinstance(assign, Assign)
    story.says(assign.spec.key, "held")
    story.decides()
    story.silent.clear()
    story.registers(info, (home, ShardStatus(old, 0, "ready", 900.0)))
    actions = story.decides()
    assert [a.replica for a in actions if isinstance(a, Drain)] == [assign.spec.replica]
    assert [a.key for a in actions if isinstance(a, Stop)] == [assign.spec.key]
    assert story.ready() == [old]


def gang_story() -> Story:
    """A model over two nodes, assigned and nothing more."""
    pair = a_profile("pair", nodes=2, gpus_per_node=2, tensor_parallel=4)
    story = Story(a_node("n0"), a_node("n1"), catalog=a_catalog(a_model(profiles=("pair",)), profiles=[pair]))
    assert kinds(story.decides()) == ["assign", "assign"]
    return story


def test_no_rank_runs_before_every_rank_holds_the_weights() -> None:
    """A rendezvous deadline must not run while a neighbour downloads."""
    story = gang_story()
    first, second = sorted(story.fleet.shards)
    story.says(second, "held")
    assert story.decides() == ()
    story.says(first, "held")
    assert [a.key for a in story.decides() if isinstance(a, Start)] == [second]


def test_rank_0_waits_for_its_workers() -> None:
    """Rank 0 is started when every worker is, and the replica is routed when all are ready."""
    story = gang_story()
    first, second = sorted(story.fleet.shards)
    story.says(first, "held").says(second, "held").decides()
    story.says(second, "starting")
    assert story.decides() == ()
    story.says(second, "started")
    assert [a.key for a in story.decides() if isinstance(a, Start)] == [first]
    story.says(second, "ready").says(first, "started").decides()
    assert story.ready() == []
    story.says(first, "ready").decides()
    assert story.ready() == [first[0]]


def test_one_failed_shard_fails_its_replica_once() -> None:
    """A worker dies: rank 0 is stopped too, nothing is routed, and it counts as one failure."""
    story = gang_story()
    first, second = sorted(story.fleet.shards)
    story.says(first, "held").says(second, "held")
    story.runs()
    story.says(second, "failed", reason="exit 137")
    stops = story.decides()
    assert {a.key for a in stops if isinstance(a, Stop)} == {first, second}
    assert story.ready() == []
    assert [trouble.failures for trouble in story.ledger.troubles.values()] == [1]


def test_half_a_gang_is_never_placed() -> None:
    """One node short: nothing is assigned anywhere."""
    pair = a_profile("pair", nodes=2, gpus_per_node=2, tensor_parallel=4)
    story = Story(a_node("n0"), catalog=a_catalog(a_model(profiles=("pair",)), profiles=[pair]))
    assert story.decides() == ()


def test_a_gang_drains_rank_0_first() -> None:
    """Workers that go first look like a crash to rank 0."""
    story = gang_story()
    first, second = sorted(story.fleet.shards)
    story.says(first, "held").says(second, "held").runs()
    story.adopts(a_catalog())
    assert [a.key for a in story.decides() if isinstance(a, Stop)] == [first]
    story.says(first, "stopping").says(first, "gone")
    assert [a.key for a in story.decides() if isinstance(a, Stop)] == [second]


def test_an_unconfirmed_assignment_is_sent_again_and_then_given_up() -> None:
    """Orders can be lost: they are repeated, and a node that never confirms loses the replica."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model()), timers=Timers(ack=1.0))
    assert kinds(story.decides()) == ["assign"]
    assert kinds(story.after(1.1).decides()) == ["assign"]
    assert kinds(story.after(2.1).decides()) == ["stop"]


def test_a_cordoned_node_takes_nothing_new() -> None:
    """Cordon stops placement and moves nothing."""
    story = served(1, nodes=2)
    node = story.fleet.shards[story.ready()[0], 0].spec.node
    story.marks(Marks(cordoned={node: "disk"})).adopts(a_catalog(a_model(replicas=3)))
    new = [a.spec.node for a in story.runs() if isinstance(a, Assign)]
    assert len(new) == 2
    assert node not in new


def test_a_paused_model_that_leaves_the_catalog_drains() -> None:
    """A pause holds what the catalog asks for of a model; it keeps none that is asked for no more."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model("a"), a_model("b")))
    story.runs()
    story.marks(Marks(paused={"a": "looked at"}))
    story.adopts(a_catalog(a_model("a", replicas=3), a_model("b"))).runs()
    assert len(story.ready("a")) == 1
    story.adopts(a_catalog(a_model("b"))).runs()
    assert story.ready("a") == []
    assert {shard.spec.model for shard in story.fleet.shards.values()} == {"b"}


def test_a_paused_model_is_left_alone() -> None:
    """Pause: neither placed nor drained until it is resumed."""
    story = served(1)
    story.marks(Marks(paused={"qwen": "driver"})).adopts(a_catalog(a_model(replicas=2)))
    assert story.decides() == ()


def test_no_catalog_is_not_an_empty_catalog() -> None:
    """Without a valid catalog everything that runs goes on, and stays routed."""
    story = served(2)
    assert story.adopts(None).decides() == ()
    assert len(story.ready()) == 2


def test_a_node_that_lost_the_failure_is_avoided_while_another_fits() -> None:
    """The next try goes elsewhere when it can."""
    story = served(1)
    (replica,) = story.ready()
    node = story.fleet.shards[replica, 0].spec.node
    story.says((replica, 0), "failed", reason="exit 1").runs()
    (assign, *_) = story.after(10).runs()
    assert isinstance(assign, Assign)
    assert assign.spec.node != node


def test_a_slow_replica_is_told_to_gateways_and_nothing_else_happens() -> None:
    """Slow is a grade of its own: the table says it, no action follows, and it is taken back the same way."""
    story = served(2)
    (one, other) = sorted(story.ready())
    for slow in (True, False):
        before = story.ledger.routes.version
        story.says((one, 0), "ready", slow=slow)
        assert story.decides() == ()
        assert {end.replica: end.slow for end in story.ledger.routes.endpoints} == {one: slow, other: False}
        assert story.ledger.routes.version == before + 1


def test_a_control_plane_without_a_catalog_takes_no_names_from_gateways() -> None:
    """Its state is lost, the nodes are back and the catalog is not read yet: the table is a part, and whole afterwards."""
    before = Story(a_node("n0"), catalog=a_catalog(a_model()))
    before.runs()
    (shard,) = before.fleet.shards.values()
    after = Story(catalog=None)
    after.registers(a_node("n0"), (shard.spec, shard.status)).decides()
    told = after.ledger.routes
    assert ([each.replica for each in told.endpoints], told.models, told.partial) == (
        [shard.spec.replica],
        (),
        True,
    )
    after.adopts(before.desired.catalog).decides()
    assert not after.ledger.routes.partial
    assert after.ledger.routes.models


def test_a_worker_that_does_not_start_ends_its_gang_and_rank_0_is_never_run() -> None:
    """Its agent's `start_deadline` is the bound: the whole replica goes, with that reason, and waits its back-off."""
    gang = a_profile("gang", nodes=2)
    story = Story(a_node("n0"), a_node("n1"), catalog=a_catalog(a_model(profiles=("gang",)), profiles=[gang]))
    ranks = [action.spec.key for action in story.decides() if isinstance(action, Assign)]
    for key in ranks:
        story.says(key, "held")
    assert [action.key for action in story.decides() if isinstance(action, Start)] == [ranks[1]]
    story.says(ranks[1], "starting").after(1200)
    assert story.decides() == ()
    said = "not ready 20m after its start (start_deadline); it was starting"
    story.says(ranks[1], "failed", reason=said)
    stops = story.decides()
    assert set(kinds(stops)) == {"stop"}
    assert {action.because for action in stops if isinstance(action, Stop)} == {f"rank 1: {said}"}
    (trouble,) = story.ledger.troubles.values()
    assert (trouble.failures, trouble.reason) == (1, f"rank 1: {said}")


def test_every_timer_is_read_by_something() -> None:
    """One that can be set and changes nothing is a promise that nobody keeps."""
    package = pathlib.Path(llmgw.__file__).parent
    sources = [path.read_text() for path in package.rglob("*.py") if path.name != "expiry.py"]
    used = {name for text in sources for name in re.findall(r"timers\.(\w+)", text)}
    used |= set(re.findall(r"timers\.(\w+)", (package / "fleet" / "expiry.py").read_text()))
    assert {field.name for field in dataclasses.fields(Timers)} <= used
