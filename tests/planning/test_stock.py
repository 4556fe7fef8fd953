"""The stock finds what trying every node would find, and walks past few to find it."""

import dataclasses
import itertools
import random
import sys

from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import Gpu
from llmgw.fleet.shard import Peer, ShardSpec
from llmgw.kit.chance import seeded
from llmgw.planning.board import Board
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.placement import CPU, Choice, Request, fits, preference, preference_of_all
from llmgw.planning.settle import settle
from llmgw.planning.stock import Stock
from llmgw.planning.wants import allows
from tests.lab.place import compare
from tests.planning.fleets import NOW, big, mixed, openb
from tests.planning.history import TIMERS, Day
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile


def tried(stock: Stock, request: Request, pressure: dict[str, float]) -> Choice | None:
    """What `Stock.choose` means: every node of every type, by preference."""
    kinds = {
        kind for site in stock.sites.values() for kind in site.room.free if allows(request.profile, kind)
    }
    found: list[Choice] = []
    for kind in kinds if request.profile.gpus_per_node else {CPU}:
        sites = [site for site in stock.sites.values() if fits(site, request, kind)]
        sites.sort(key=lambda site, kind=kind: preference(site, request, kind, pressure))
        if len(sites) >= request.profile.nodes:
            found.append(Choice(kind, tuple(sites[: request.profile.nodes])))
    return min(
        found, key=lambda c: (preference_of_all(c.sites, request, c.kind, pressure), c.kind), default=None
    )


def test_the_best_node_is_found_without_trying_all() -> None:
    """Whatever the day brought, the search names the nodes that trying every one of them names."""
    asked = found = 0
    for seed in range(40):
        day, board = Day(seed), Board()
        for _ in range(25):
            day.happens()
            done = settle(day.desired, day.fleet, day.ledger, day.now, seeded(seed), TIMERS, board)
            day.fleet, day.ledger = done.fleet, done.ledger
            board.look(day.desired, day.fleet, day.ledger, day.now, TIMERS)
            board.rest(acted=False)
            for want in board.wants.models.values() if board.wants is not None else ():
                for generation, profile in want.generations.items():
                    request = Request(want.model, profile, generation, want.cache_name, 1 << 33)
                    choice = board.stock.choose(request, board.pressure)
                    assert choice == tried(board.stock, request, dict(board.pressure))
                    asked += 1
                    found += choice is not None
    assert 200 < found < asked - 200


def test_a_gang_of_no_other_nodes_stands_further_apart() -> None:
    """Three types of cards, siblings here and there: of all sets of nodes of one type, the search takes the best."""
    seen = set()
    for seed in range(300):
        chance = random.Random(seed)
        stock, request = _crowded(chance)
        pressure = {kind: chance.choice((0.0, 0.5, 1.0)) for kind in "ABC"}
        choice = stock.choose(request, pressure)
        others = [
            (preference_of_all(sites, request, kind, pressure), kind)
            for kind in "ABC"
            for sites in itertools.permutations(
                [site for site in stock.sites.values() if fits(site, request, kind)], request.profile.nodes
            )
        ]
        if choice is None:
            assert not others
            continue
        rank = preference_of_all(choice.sites, request, choice.kind, pressure)
        assert (rank[:6], choice.kind) == min((other[:6], kind) for other, kind in others)
        seen.add((rank[0], choice.kind))
    assert len(seen) == 9


def _crowded(chance: random.Random) -> tuple[Stock, Request]:
    """A stock in which a gang of two or three already has siblings on some nodes."""
    profile = a_profile("gang", nodes=chance.choice((2, 3)))
    request = Request(a_model(profiles=("gang",)), profile, "g", "c")
    stock = Stock()
    for number in range(chance.randint(2, 7)):
        kind, name = chance.choice("ABC"), f"n{number}"
        cards = tuple(Gpu(f"{name}-{i}", kind, 80 << 30) for i in range(chance.randint(1, 4)))
        stock.put(dataclasses.replace(a_node(name), gpus=cards), (), "Ready", "")
        for sibling in range(chance.choice((0, 0, 1, 2))):
            free = stock.sites[name].room.free_gpus()
            if len(free) > 1:
                peer = Peer(0, name, "127.0.0.1", 20000 + 10 * sibling)
                gpus = (free[0].uuid,)
                stock.take(
                    ShardSpec(f"qwen/{sibling}", "qwen", 0, "g", profile, request.model.source, (peer,), gpus)
                )
    return stock, request


def test_siblings_of_a_gang_live_apart_too() -> None:
    """Where the type that is wanted least has one node left without a sibling, the second gang takes another type."""
    nodes = [
        dataclasses.replace(a_node(f"{kind}{i}"), gpus=tuple(Gpu(f"{kind}{i}-{j}", kind) for j in range(4)))
        for kind, count in (("A", 3), ("B", 4))
        for i in range(count)
    ]
    gang, picky = a_profile("gang", nodes=2), a_profile("picky", gpu_types=("B",))
    models = (a_model("g", replicas=2, profiles=("gang",)), a_model("z", profiles=("picky",)))
    story = Story(*nodes, catalog=a_catalog(*models, profiles=[gang, picky]))
    story.runs()
    homes = [shard.spec.node for shard in story.fleet.shards.values() if shard.spec.model == "g"]
    assert len(set(homes)) == 4
    assert [home[0] for home in sorted(homes)] == ["A", "A", "B", "B"]


def test_weights_that_are_there_decide_between_equal_nodes() -> None:
    """Among equally full nodes the one that holds the weights is taken, whatever its name."""
    story = Story(*(a_node(f"n{i}") for i in range(4)), catalog=a_catalog(a_model("first")))
    story.runs()
    (home,) = [shard.spec.node for shard in story.fleet.shards.values()]
    story.adopts(a_catalog()).runs()
    assert home == "n0"
    story.adopts(a_catalog(a_model("other"))).runs()
    story.adopts(a_catalog(a_model("other"), a_model("third"))).runs()
    held = {name: len(node.info.weights or ()) for name, node in story.fleet.nodes.items()}
    assert held == {"n0": 3, "n1": 0, "n2": 0, "n3": 0}


def test_labels_are_asked_for_by_the_profile() -> None:
    """A profile that names labels runs only where they are; the others do not care."""
    rack = a_profile("rack", node_labels=(("rack", "b"),))
    nodes = [a_node("n0"), a_node("n1", labels=(("rack", "b"),)), a_node("n2", labels=(("rack", "a"),))]
    story = Story(*nodes, catalog=a_catalog(a_model()))
    story.runs()
    story.adopts(
        a_catalog(a_model(), a_model("pinned", replicas=5, profiles=("rack",)), profiles=[rack])
    ).runs()
    assert {s.spec.node for s in story.fleet.shards.values() if s.spec.model == "pinned"} == {"n1"}
    assert story.last is not None
    (unplaced,) = story.last.unplaced
    assert "n2: label rack=b is missing" in map(str, unplaced.reasons)


def test_a_node_with_two_types_of_cards_serves_both() -> None:
    """A gang finds the type that all its nodes have, though one of them has fewer of another."""
    pair = a_profile("pair", nodes=2, gpus_per_node=2, tensor_parallel=4)
    more = (Gpu("a0", "A100", 80 << 30), Gpu("a1", "A100", 80 << 30))
    plain, both = a_node("n0"), a_node("n1")
    both = dataclasses.replace(both, gpus=(*(both.gpus or ()), *more))
    story = Story(plain, both, catalog=a_catalog(a_model(profiles=("pair",)), profiles=[pair]))
    story.runs()
    assert len(story.ready()) == 1


def test_ports_of_every_shard_are_a_block_of_its_own() -> None:
    """The lowest free block is taken, a foreign port spoils its block only, and a full range refuses."""
    small = a_profile("tiny", gpus_per_node=0)
    node = a_node("n0", ports=(20000, 20045), ports_taken=(20013, 30000))
    story = Story(node, catalog=a_catalog(a_model(replicas=4, profiles=("tiny",)), profiles=[small]))
    story.runs()
    assert sorted(shard.spec.port for shard in story.fleet.shards.values()) == [20000, 20020, 20030]
    assert story.last is not None
    assert [r.rule for item in story.last.unplaced for r in item.reasons] == ["ports_free"]


def test_placement_is_near_the_optimum() -> None:
    """Biggest first and the least wanted type first: within a hundredth of what an integer programme finds."""
    ratios = [compare(*mixed(seed)).ratio for seed in range(12)]
    assert sum(ratios) / len(ratios) >= 0.99
    assert compare(*openb(0, 0.05)).ratio >= 0.98


def test_a_placement_costs_the_same_in_a_larger_fleet() -> None:
    """Four times the nodes and the replicas: as many steps for each replica."""
    small, large = (steps(nodes, 4 * nodes) for nodes in (40, 160))
    assert large < 1.15 * small


def steps(nodes: int, replicas: int) -> float:
    """Calls of Python functions for each replica that a settling from nothing places."""
    catalog, fleet = big(nodes, replicas)
    calls = itertools.count()
    before = sys.getprofile()
    sys.setprofile(lambda *_: next(calls) and None)
    try:
        done = settle(Desired(catalog), fleet, Ledger(), NOW, seeded(1), Timers())
    finally:
        sys.setprofile(before)
    assert len(done.actions) == replicas
    return next(calls) / replicas
