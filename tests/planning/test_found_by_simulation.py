"""What the simulation found in the reconciler, each as the smallest story that shows it."""

from llmgw.control.translate import gateway_event
from llmgw.fleet import events
from llmgw.fleet.shard import Failure, ShardKey, ShardStatus
from llmgw.fleet.world import Fleet
from llmgw.planning.actions import Assign, Drain, Start, Stop
from llmgw.wire import messages
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile, kinds

OTHER = a_profile(args=(("threads", 2),))


def served(replicas: int, nodes: int, gpus: int = 4) -> Story:
    """Replicas of qwen that have been Ready for long."""
    story = Story(
        *(a_node(f"n{i}", gpus=gpus) for i in range(nodes)), catalog=a_catalog(a_model(replicas=replicas))
    )
    story.runs()
    return story.after(400)


def gang() -> tuple[Story, ShardKey, ShardKey]:
    """One replica over two nodes, Ready for long; its two shards."""
    pair = a_profile("pair", nodes=2, gpus_per_node=2, tensor_parallel=4)
    story = Story(a_node("n0"), a_node("n1"), catalog=a_catalog(a_model(profiles=("pair",)), profiles=[pair]))
    story.runs()
    head, worker = sorted(story.fleet.shards)
    return story.after(400), head, worker


def restarted(story: Story, *nodes: str, age: float = 400.0) -> Story:
    """A new control plane that remembers the roster; `nodes` register again, and nobody else yet."""
    again = Story(catalog=story.desired.catalog, timers=story.timers)
    again.fleet = Fleet(since=again.now, roster=frozenset(story.fleet.nodes))
    for name in nodes:
        shards = [(s.spec, ShardStatus(*s.spec.key, s.status.state, age)) for s in story.fleet.on_node(name)]
        again.registers(story.fleet.nodes[name].info, *shards)
    return again


def test_a_sibling_that_serves_for_hours_forgives_nothing() -> None:
    """A replica that cannot start beside one that runs for hours is not tried in a hot loop."""
    story = served(2, nodes=1)
    broken, _ = story.ready()
    story.says((broken, 0), "failed", reason="exit 1")
    assert kinds(story.runs()) == ["stop"]
    assert kinds(story.after(3).runs()) == []
    assert kinds(story.after(4).runs()) == ["assign", "start"]


def test_what_was_forgiven_is_not_remembered_again() -> None:
    """An agent's memory counts once per registration, and the next failure starts at the base delay."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model()))
    assert story.desired.catalog is not None
    (generation,) = story.desired.catalog.generations(story.desired.catalog.models["qwen"])
    story.hears(events.Registered(a_node("n0"), failures=(Failure("qwen", generation, 4, 2.0, "exit 1"),)))
    story.runs()
    story.after(60).runs()
    story.after(301).decides()
    assert story.ledger.troubles == {}
    (replica,) = story.ready()
    story.says((replica, 0), "failed", reason="exit 1").decides()
    (trouble,) = story.ledger.troubles.values()
    assert trouble.failures == 1
    assert trouble.until > story.now


def test_an_old_memory_shortens_no_delay() -> None:
    """A node that remembers more failures, all long ago, does not make the newest one forgotten."""
    story = served(1, nodes=1)
    ((key, shard),) = story.fleet.shards.items()
    story.says(key, "failed", reason="exit 1").decides()
    (trouble,) = story.ledger.troubles.values()
    many = Failure(shard.spec.model, shard.spec.generation, 9, 600.0, "exit 1")
    story.hears(events.Registered(a_node("n1"), failures=(many,))).decides()
    (later,) = story.ledger.troubles.values()
    assert later.failures == 9
    assert later.until >= trouble.until


def test_a_replica_that_was_given_up_and_came_back_can_fail_again() -> None:
    """An assignment confirmed too late was one failure; when its engine then fails, that is another."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model()))
    (assign,) = [action for action in story.decides() if isinstance(action, Assign)]
    story.silence("n0").after(31).decides()
    assert [trouble.failures for trouble in story.ledger.troubles.values()] == [1]
    story.registers(a_node("n0"), (assign.spec, ShardStatus(*assign.spec.key, "held"))).decides()
    story.says(assign.spec.key, "failed", reason="exit 1").decides()
    assert [trouble.failures for trouble in story.ledger.troubles.values()] == [2]


def test_fewer_replicas_and_a_new_generation_at_once() -> None:
    """The old ones above the new count leave first, or they hold the room that the roll-out needs."""
    story = served(3, nodes=3)
    story.adopts(a_catalog(a_model(replicas=2), profiles=[OTHER]))
    for _ in range(10):
        story.runs()
        assert len(story.ready()) >= 2
        story.after(11)
    assert {shard.spec.profile.args for shard in story.fleet.shards.values()} == {OTHER.args}


def test_a_stop_that_could_not_be_sent_is_no_stop() -> None:
    """A drain on a node out of reach stays revocable: what it stood above may be gone when it returns."""
    story = served(2, nodes=2)
    first, second = story.ready()
    story.gateway("gw", **{name.replace("/", "__"): 1 for name in (first, second)})
    story.adopts(a_catalog(a_model(replicas=1)))
    (drain,) = [action for action in story.decides() if isinstance(action, Drain)]
    node = story.fleet.shards[drain.replica, 0].spec.node
    assert story.silence(node).after(20).after(120).decides() == ()
    story.says((second if drain.replica == first else first, 0), "failed", reason="exit 1").runs()
    story.speaks(node).runs()
    assert story.ready() == [drain.replica]


def test_what_serves_is_kept_while_its_sibling_only_starts() -> None:
    """A node returns with one that drains and serves: it is taken back, for nothing else serves yet."""
    story = served(2, nodes=1)
    story.registers(a_node("n1"))
    story.gateway("gw", **{name.replace("/", "__"): 1 for name in story.ready()})
    story.adopts(a_catalog(a_model(replicas=1)))
    (drain,) = [action for action in story.decides() if isinstance(action, Drain)]
    (other,) = story.ready()
    shards = {shard.spec.replica: shard.spec for shard in story.fleet.shards.values()}
    (assign,) = [a for a in story.silence("n0").after(400).decides() if isinstance(a, Assign)]
    story.says(assign.spec.key, "starting")
    story.registers(
        a_node("n0"),
        (shards[drain.replica], ShardStatus(drain.replica, 0, "ready", 800.0)),
        (shards[other], ShardStatus(other, 0, "failed", 100.0, reason="exit 1")),
    )
    assert "undrain" in kinds(story.decides())
    assert story.ready() == [drain.replica]


def test_a_restarted_control_plane_lets_gateways_come_back_before_it_stops() -> None:
    """Gateways that have not subscribed again are not gateways that have nothing in flight."""
    story = restarted(served(2, nodes=2), "n0", "n1")
    story.adopts(a_catalog(a_model(replicas=1)))
    assert kinds(story.decides()) == ["drain"]
    assert story.after(14).decides() == ()
    assert kinds(story.after(2).decides()) == ["stop"]


def test_a_gateway_that_reconnects_has_acknowledged_nothing() -> None:
    """A gateway's new stream says nothing of its requests: a drain waits until it does."""
    story = served(1, nodes=1)
    (replica,) = story.ready()
    story.gateway("gw", **{replica.replace("/", "__"): 1})
    story.adopts(a_catalog())
    assert kinds(story.decides()) == ["drain"]
    event = gateway_event("gw", messages.Subscribe(gateway="gw", version=story.ledger.routes.version))
    assert event is not None
    assert story.hears(event).decides() == ()
    story.gateway("gw")
    assert kinds(story.decides()) == ["stop"]


def test_clients_prove_a_rank_whose_node_has_not_spoken() -> None:
    """A gang that answers clients lives, though one of its nodes is silent since before a restart."""
    before, head, worker = gang()
    story = restarted(before, before.fleet.shards[head].spec.node)
    for _ in range(12):
        story.after(30).hears(events.GatewaySeen("gw", 0, green=((head[0], 2.0),)))
        assert not [a for a in story.decides() if isinstance(a, Stop | Assign | Start)]
        assert story.ready() == [head[0]]
    assert worker not in story.fleet.shards


def test_a_replica_that_waits_for_an_unheard_node_is_drained_like_any_other() -> None:
    """Gateways may still route to it, so they are told of the drain and asked before it stops."""
    before, head, _ = gang()
    story = restarted(before, before.fleet.shards[head].spec.node).gateway(
        "gw", **{head[0].replace("/", "__"): 1}
    )
    story.adopts(a_catalog())
    story.after(61)
    assert kinds(story.decides()) == ["drain"]
    assert [(e.replica, e.draining) for e in story.ledger.routes.endpoints] == [(head[0], True)]
    story.gateway("gw", **{head[0].replace("/", "__"): 0})
    assert kinds(story.decides()) == ["stop"]


def test_what_was_ready_before_a_stall_of_ours_forgives_nothing_before_its_node_spoke() -> None:
    """We stood still while it failed: minutes in which nobody could tell us so are no minutes of Ready."""
    story = served(1, nodes=2)
    (first,) = story.ready()
    story.says((first, 0), "failed", reason="exit 1")
    story.runs()
    story.after(20).runs()
    (key,) = story.ledger.troubles
    story.after(290)
    story.fleet = story.fleet.apply(events.Stalled(250.0), story.now)
    story.ledger = story.ledger.later(250.0, story.now)
    story.after(12).decides()
    assert story.ledger.troubles[key].failures == 1
    (second,) = story.ready()
    story.says((second, 0), "failed", reason="exit 1")
    story.decides()
    assert story.ledger.troubles[key].failures == 2
