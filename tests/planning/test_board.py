"""What passes remember makes them faster and never different."""

import dataclasses
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.catalog.model import Catalog
from llmgw.fleet import events
from llmgw.fleet.replica import Replica
from llmgw.fleet.routes import Endpoint
from llmgw.fleet.shard import ShardStatus
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import Chance, seeded
from llmgw.planning import routes, screen
from llmgw.planning.actions import Action, Assign, Start, Stop
from llmgw.planning.board import Board
from llmgw.planning.changes import changed
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.reconcile import reconcile
from llmgw.planning.rehearse import Rehearsal, rehearse
from llmgw.planning.settle import Settled, settle
from llmgw.planning.view import View, look
from tests.planning.fleets import NOW, big
from tests.planning.history import TIMERS, Day
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile

DAYS, STEPS = 60, 40
REHEARSED = 40


def forgetful(desired: Desired, fleet: Fleet, ledger: Ledger, now: float, chance: Chance) -> Settled:
    """`settle` as it reads without a memory: every pass sees the fleet for the first time."""
    actions: list[Action] = []
    while True:
        step = reconcile(desired, fleet, ledger, now, chance, TIMERS)
        ledger = step.ledger
        actions += step.actions
        for event in orders(fleet, step.actions):
            fleet = fleet.apply(event, now)
        if not step.again:
            return Settled(fleet, ledger, tuple(actions), step.wake_at, step.unplaced, step.alarms)


def orders(fleet: Fleet, actions: Iterable[Action]) -> Iterable[events.Event]:
    """What the dispatcher tells the fleet of these actions."""
    known = set(fleet.shards)
    for action in actions:
        match action:
            case Assign(spec=spec):
                yield events.Ordered(spec.key, "assign") if spec.key in known else events.Assigned(spec)
            case Start(key=key):
                yield events.Ordered(key, "start")
            case Stop(key=key):
                yield events.Ordered(key, "stop")


def test_a_memory_changes_nothing() -> None:
    """Carried over whatever happens, it leads to the same actions, ledger, wake-up and refusals as none."""
    placed = stopped = refused = 0
    for seed in range(DAYS):
        day, board = Day(seed), Board()
        one, other = seeded(seed), seeded(seed)
        for step in range(STEPS):
            day.happens()
            asked = (day.desired, day.fleet, day.ledger, day.now)
            with_it = settle(*asked, one, TIMERS, board)
            without = forgetful(*asked, other)
            for field in dataclasses.fields(Settled):
                told, expected = getattr(with_it, field.name), getattr(without, field.name)
                assert told == expected, f"day {seed}, step {step}: {field.name}"
            day.fleet, day.ledger = with_it.fleet, with_it.ledger
            placed += sum(isinstance(action, Assign) for action in with_it.actions)
            stopped += sum(isinstance(action, Stop) for action in with_it.actions)
            refused += len(with_it.unplaced)
    assert min(placed, stopped, refused) > 5 * DAYS


def test_a_pass_that_nobody_obeyed_can_be_asked_again() -> None:
    """The same question with the same memory gets the same answer: a memory is no state."""
    for seed in range(10):
        day, board = Day(seed), Board()
        for _ in range(10):
            day.happens()
            asked = (day.desired, day.fleet, day.ledger, day.now)
            first = settle(*asked, seeded(seed), TIMERS, board)
            assert settle(*asked, seeded(seed), TIMERS, board) == first
            day.fleet, day.ledger = first.fleet, first.ledger


def serving(view: View) -> dict[str, int]:
    """Replicas by model that clients are sent to, counted by looking at each."""
    ready = dict.fromkeys(view.desired.catalog.models if view.desired.catalog is not None else (), 0)
    for replica in view.replicas.values():
        if replica.model in ready and replica.serves and replica.id not in view.ledger.drains:
            ready[replica.model] += 1
    return ready


def test_screens_may_look_between_passes() -> None:
    """Somebody who only looks, with the same memory, takes nothing from the next pass and sees what a fresh look sees."""
    for seed in range(12):
        day, board = Day(seed), Board()
        one, other = seeded(seed), seeded(seed)
        for _ in range(20):
            day.happens()
            asked = (day.desired, day.fleet, day.ledger, day.now, TIMERS)
            seen, fresh = look(*asked, board), look(*asked)
            board.rest(acted=False)
            assert screen.replica_rows(seen, ()) == screen.replica_rows(fresh, ())
            assert screen.node_rows(seen) == screen.node_rows(fresh)
            assert screen.outstanding(seen) == screen.outstanding(fresh)
            assert screen.model_rows(seen) == screen.model_rows(fresh)
            assert {row.model: row.ready for row in screen.model_rows(seen)} == serving(seen)
            done = settle(*asked[:4], one, TIMERS, board)
            assert done == forgetful(*asked[:4], other)
            day.fleet, day.ledger = done.fleet, done.ledger


def test_a_fleet_that_comes_back_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """While others are waited for, a pass works out the routes of those that came since the last one, and no more."""
    asked: list[str] = []
    right = routes._endpoint

    def endpoint(replica: Replica, draining: bool) -> Endpoint:
        asked.append(replica.id)
        return right(replica, draining)

    monkeypatch.setattr(routes, "_endpoint", endpoint)
    nodes = [a_node(f"n{number}", gpus=1) for number in range(12)]
    before = Story(*nodes, catalog=a_catalog(a_model(replicas=len(nodes))))
    before.runs()
    again = Story(catalog=before.desired.catalog)
    again.fleet = dataclasses.replace(again.fleet, roster=frozenset(node.id for node in nodes))
    asked.clear()
    for node in nodes:
        there = tuple((s.spec, s.status) for s in before.fleet.shards.values() if s.spec.node == node.id)
        again.registers(node, *there).decides()
    assert len(again.ledger.routes.endpoints) == len(nodes)
    assert sorted(asked) == sorted(again.board.roll.replicas)


def test_a_rehearsal_with_a_lent_memory_is_the_one_from_nothing() -> None:
    """Its transcript is the same, and so is every pass that follows over the fleet as it truly is."""
    steps = 0
    for seed in range(REHEARSED):
        day, board = Day(seed), Board()
        one, other, chance = seeded(seed), seeded(seed), random.Random(seed)
        for step in range(12):
            day.happens()
            catalog = day.desired.catalog
            wanted = dataclasses.replace(day.desired, catalog=catalog and edited(catalog, chance))
            asked = (wanted, day.fleet, day.ledger, day.now)
            lent = rehearse(*asked, seeded(step), TIMERS, board=board)
            alone = rehearse(*asked, seeded(step), TIMERS)
            for field in dataclasses.fields(Rehearsal):
                told, expected = getattr(lent, field.name), getattr(alone, field.name)
                assert told == expected, f"day {seed}, step {step}: {field.name}"
            steps += len(lent.steps)
            adopted = wanted if chance.random() < 0.5 else day.desired
            day.desired = adopted
            done = settle(adopted, day.fleet, day.ledger, day.now, one, TIMERS, board)
            assert done == forgetful(adopted, day.fleet, day.ledger, day.now, other)
            day.fleet, day.ledger = done.fleet, done.ledger
    assert steps > 10 * REHEARSED


def edited(catalog: Catalog, chance: random.Random) -> Catalog:
    """The catalog with one model other than it was, or gone; everything else is the same values."""
    models, profiles = dict(catalog.models), dict(catalog.profiles)
    if not models:
        return catalog
    name = chance.choice(sorted(models))
    model = models[name]
    match chance.randrange(4):
        case 0 if len(models) > 1:
            models = {
                each: dataclasses.replace(m, fallbacks=()) for each, m in models.items() if each != name
            }
        case 1:
            more = dataclasses.replace(model.scaling, min=model.scaling.min + 1, max=model.scaling.max + 1)
            models[name] = dataclasses.replace(model, scaling=more)
        case 2:
            first = model.profiles[0]
            profiles[first] = dataclasses.replace(profiles[first], args=(("seed", chance.randrange(99)),))
        case _:  # one name that goes from model to model
            models = {
                each: dataclasses.replace(m, aliases=("other",) if each == name else ())
                for each, m in models.items()
            }
    new = Catalog(models, profiles)
    new.remember(catalog)
    return new


def test_a_pass_that_broke_off_leaves_nothing_behind() -> None:
    """An error in the middle of a pass costs a memory, and no decision."""
    day, board = Day(3), Board()
    for step in range(30):
        day.happens()
        asked = (day.desired, day.fleet, day.ledger, day.now)
        if step % 3 == 0:
            board.look(day.desired, day.fleet, day.ledger, day.now, TIMERS)
        done = settle(*asked, seeded(step), TIMERS, board)
        assert done == forgetful(*asked, seeded(step))
        day.fleet, day.ledger = done.fleet, done.ledger


def test_a_pass_asks_only_for_what_changed() -> None:
    """One report among hundreds of replicas: one replica is looked at again, and no node is counted anew."""
    catalog, fleet = big(50, 200)
    board, ledger, desired = Board(), Ledger(), Desired(catalog)
    done = settle(desired, fleet, ledger, NOW, seeded(1), TIMERS, board)
    settle(desired, done.fleet, done.ledger, NOW, seeded(1), TIMERS, board)
    key, shard = next(iter(done.fleet.shards.items()))
    before = dict(board.roll.replicas)
    version = board.stock.version
    status = dataclasses.replace(shard.status, state="fetching")
    fleet = done.fleet.apply(events.Reported(shard.spec.node, (status,)), NOW)
    settle(desired, fleet, done.ledger, NOW, seeded(1), TIMERS, board)
    assert [name for name, replica in board.roll.replicas.items() if replica is not before[name]] == [key[0]]
    assert board.stock.version == version


def test_a_memory_keeps_nothing_that_is_over() -> None:
    """Days of roll-outs leave a memory as large as the fleet: no instant, model or node of the past stays."""
    story = Story(*(a_node(f"n{i}") for i in range(3)), catalog=a_catalog(a_model()))
    for number in range(8):
        profile = a_profile("p", args=(("threads", number),), node_labels=(("rack", str(number)),))
        node = a_node(f"r{number}", labels=(("rack", str(number)),))
        story.registers(node).adopts(a_catalog(a_model(f"m{number}", profiles=("p",)), profiles=[profile]))
        story.runs()
        story.after(400).runs()
        story.hears(events.NodeForgotten(node.id))
    story.adopts(a_catalog()).runs()
    story.after(400).decides()
    board, stock = story.board, story.board.stock
    assert not board.roll.replicas
    assert not board.roll.timed
    assert not any((board.endpoints, board.needs.of, board.needs.searches, stock._apart))
    assert stock.sites.keys() == story.fleet.nodes.keys() == stock._filed.keys()
    assert stock._shelves.keys() == stock._keys.keys()
    assert {kind for kind, _ in stock._shelves} == {"H100", "cpu"}
    assert len(stock._shelves) == 2


def test_evidence_of_the_same_instant_is_seen() -> None:
    """A gateway's word counts at once, though neither the clock nor a node moved."""
    story = Story(*(a_node(f"n{i}") for i in range(3)), catalog=a_catalog(a_model()))
    story.runs()
    (replica,) = story.ready()
    story.silence(story.fleet.shards[replica, 0].spec.node).after(400).decides()
    assert story.ready() == []
    story.hears(events.GatewaySeen("gw", story.ledger.routes.version, green=((replica, 1.0),))).decides()
    assert story.ready() == [replica]


def test_an_old_generation_that_comes_leaves_the_new_one_missing() -> None:
    """A node brings a replica that the catalog does not ask for any more: nothing less is to be created."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model()))
    (assign,) = (action for action in story.runs() if isinstance(action, Assign))
    story.adopts(a_catalog(a_model(), profiles=[a_profile(args=(("threads", 2),))]))
    story.hears(events.NodeForgotten("n0")).registers(a_node("n1", gpus=0))
    assert unplaced(story) == ["qwen"]
    full = a_node("n0", engines=())
    story.registers(full, (assign.spec, ShardStatus(*assign.spec.key, "held")))
    assert unplaced(story) == ["qwen"]


def test_half_a_gang_that_comes_is_no_replica() -> None:
    """A node brings one rank and the other is gone: the whole of it is missing still."""
    pair = a_profile("pair", nodes=2, gpus_per_node=2, tensor_parallel=4)
    story = Story(a_node("n0"), a_node("n1"), catalog=a_catalog(a_model(profiles=("pair",)), profiles=[pair]))
    first, _ = (action.spec for action in story.runs() if isinstance(action, Assign))
    story.hears(events.NodeForgotten("n0"), events.NodeForgotten("n1")).registers(a_node("n2", gpus=0))
    assert unplaced(story) == ["qwen"]
    story.registers(a_node("n1", engines=()))
    story.registers(a_node("n0", engines=()), (first, ShardStatus(*first.key, "ready", 50.0)))
    assert unplaced(story) == ["qwen"]


def unplaced(story: Story) -> list[str]:
    """The models that a decision now leaves without a place."""
    story.decides()
    assert story.last is not None
    return [item.model for item in story.last.unplaced]


@given(
    st.dictionaries(st.integers(0, 9), st.integers(0, 3)),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4))),
)
def test_changes_are_found(old: dict[int, int], edits: list[tuple[int, int]]) -> None:
    """Whatever is put into a copy of a map or taken out of it, in any order, is told."""
    values = {(key, value): object() for key in range(10) for value in range(4)}
    before = {key: values[key, value] for key, value in old.items()}
    after = dict(before)
    for key, value in edits:
        if value == 4:
            after.pop(key, None)
        else:
            after[key] = values[key, value]
    expected = {key for key in before.keys() | after.keys() if before.get(key) is not after.get(key)}
    assert sorted(changed(before, after)) == sorted(expected)
