"""What placement's rules refuse, with which words; what is not known refuses nothing."""

import dataclasses
import random

import pytest

from llmgw.catalog.model import Catalog
from llmgw.fleet.inventory import Room, room
from llmgw.fleet.node import Gpu, InstalledEngine, NodeInfo
from llmgw.kit.chance import seeded
from llmgw.planning import cards
from llmgw.planning.desired import Desired
from llmgw.planning.markdown import comment
from llmgw.planning.plan import Plan, make_plan
from llmgw.planning.render import plan_lines, summary_lines
from llmgw.planning.screen import replica_rows
from llmgw.planning.view import look
from llmgw.planning.why import why_model
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile

GIB = 1 << 30


def reasons(story: Story) -> list[str]:
    """Decide; why what found no place fits nowhere, node by node."""
    story.decides()
    assert story.last is not None
    return [str(reason) for item in story.last.unplaced for reason in item.reasons]


def vllm(version: str = "", *, works: bool | None = None, checked: str = "") -> tuple[InstalledEngine, ...]:
    return (InstalledEngine("vllm", version, works=works, checked=checked),)


NEWER = a_profile(engine="vllm", engine_version=">=0.30")


@pytest.mark.parametrize("told", [vllm("0.11.0"), vllm(works=True, checked="0.11.0")])
def test_an_engine_that_is_too_old_takes_no_shard(told: tuple[InstalledEngine, ...]) -> None:
    """Whoever told the version: the metadata beside the program, or its own version command."""
    story = Story(a_node("n0", engines=told), catalog=a_catalog(a_model(), profiles=[NEWER]))
    assert reasons(story) == ["n0: its vllm is 0.11.0, >=0.30 is asked"]


@pytest.mark.parametrize("told", [vllm(), vllm("0.30.1"), vllm(works=False, checked="exit 1: 0.11.0"), None])
def test_a_version_that_nobody_knows_refuses_nothing(told: tuple[InstalledEngine, ...] | None) -> None:
    """No version, no version command that worked, no engines reported: each is tried, like one that will do."""
    story = Story(a_node("n0", engines=told), catalog=a_catalog(a_model(), profiles=[NEWER]))
    story.runs()
    assert len(story.ready()) == 1


def test_the_node_with_the_right_version_is_found_behind_the_others() -> None:
    """Nodes of the same cards with another version are none of those that are walked."""
    old = [a_node(f"n{i}", engines=vllm("0.29.0")) for i in range(3)]
    story = Story(*old, a_node("new", engines=vllm("0.30.0")), catalog=a_catalog(a_model(), profiles=[NEWER]))
    story.runs()
    assert {shard.spec.node for shard in story.fleet.shards.values()} == {"new"}


def a_card(
    uuid: str = "g0", name: str = "H100", total: float = 80, foreign: float = 0, **more: object
) -> Gpu:
    """A card; its memory in GiB."""
    return Gpu(uuid, name, round(total * GIB), None, round(foreign * GIB), **more)  # type: ignore[arg-type]


def of_cards(*gpus: Gpu, **profile: object) -> Story:
    """One node with these cards, and a model that asks for some."""
    node = dataclasses.replace(a_node("n0"), gpus=gpus)
    return Story(node, catalog=a_catalog(a_model(), profiles=[a_profile(**profile)]))


CAUSES: list[tuple[tuple[Gpu, ...], dict[str, object], str]] = [
    (
        (a_card(foreign=79),),
        {},
        "n0: 0 GPUs free, 1 needed; GPU 0: 79 GiB of 80 GiB held by others, 72 GiB asked",
    ),
    (
        (a_card(total=40), a_card("g1", total=24)),
        {"gpu_memory": 80 * GIB},
        "n0: 0 GPUs free, 1 needed; GPUs 0-1 have 24 GiB to 40 GiB, 80 GiB asked",
    ),
    (
        (a_card(), a_card("g1")),
        {"gpu_types": ("A100*",)},
        "n0: 0 GPUs of A100* free, 1 needed; GPUs 0-1 are of type H100",
    ),
    (
        (a_card(), a_card("g1", healthy=False, said="GPU is lost"), a_card("g2", foreign=40)),
        {"gpus_per_node": 2},
        "n0: 1 GPUs free, 2 needed; GPU 1 is withdrawn: GPU is lost; "
        "GPU 2: 40 GiB of 80 GiB held by others, 72 GiB asked",
    ),
    (
        (a_card(), a_card("g1", "A100")),
        {"gpus_per_node": 2},
        "n0: 1 A100 and 1 H100 free, 2 of one type needed",
    ),
    (
        (a_card("MIG-0", "H100 MIG 3g.40gb", 39), a_card("MIG-1", "H100 MIG 3g.40gb", 39)),
        {"gpus_per_node": 2, "tensor_parallel": 2},
        "n0: 0 GPUs free, 2 needed; GPUs 0-1 are MIG slices, over which no model can be split",
    ),
]


@pytest.mark.parametrize(("gpus", "profile", "said"), CAUSES)
def test_every_cause_is_told_with_its_numbers(
    gpus: tuple[Gpu, ...], profile: dict[str, object], said: str
) -> None:
    """How many are free is no answer to why the others are not."""
    assert reasons(of_cards(*gpus, **profile)) == [said]


@pytest.mark.parametrize("card", [a_card(total=0), a_card(total=0, foreign=5)])
def test_memory_that_nobody_knows_refuses_nothing(card: Gpu) -> None:
    """Whatever a stranger holds of it, and whatever the profile asks for."""
    story = of_cards(card, gpu_memory=80 * GIB)
    story.runs()
    assert len(story.ready()) == 1


@pytest.mark.parametrize(("sold", "found"), [(24, 23.55), (40, 39.5), (48, 44.42), (80, 79.18), (141, 139.8)])
def test_a_card_is_what_it_is_sold_as(sold: int, found: float) -> None:
    """Whatever part of that its driver and its error correction leave; and nothing smaller is."""
    story = of_cards(a_card("less", total=found * 0.9), a_card("it", total=found), gpu_memory=sold * GIB)
    story.runs()
    assert [shard.spec.gpus for shard in story.fleet.shards.values()] == [("it",)]


def test_one_slice_serves_what_is_not_split() -> None:
    """A MIG slice is a card of its own for a profile of one process."""
    story = of_cards(a_card("MIG-0", "H100 MIG 3g.40gb", 39), a_card("MIG-1", "H100 MIG 3g.40gb", 39))
    story.runs()
    assert [shard.spec.gpus for shard in story.fleet.shards.values()] == [("MIG-0",)]


def test_a_gang_is_not_split_over_slices() -> None:
    """One slice on each of two nodes makes no tensor parallel pair either."""
    nodes = [
        dataclasses.replace(a_node(name), gpus=(a_card(f"MIG-{name}", "H100 MIG 7g.80gb", 79),))
        for name in "ab"
    ]
    pair = a_profile("pair", nodes=2, tensor_parallel=2)
    story = Story(*nodes, catalog=a_catalog(a_model(profiles=("pair",)), profiles=[pair]))
    slices = "0 GPUs free, 1 needed; GPU 0 is a MIG slice, over which no model can be split"
    assert reasons(story) == [f"{name}: {slices}" for name in "ab"]


def test_a_card_is_usable_or_there_is_a_cause() -> None:
    """Drawn nodes, one card after the other: what the search would take is what the words do not name."""
    chance = random.Random(34)
    both = 0
    for _ in range(3000):
        gpu = _drawn(chance)
        profile = a_profile(
            gpu_types=chance.choice(((), ("H*",), ("A100",))),
            gpu_memory=chance.choice((0, 0, 48 * GIB, 80 * GIB)),
            gpu_memory_utilization=chance.choice((0.5, 0.9, 1.0)),
            tensor_parallel=chance.choice((1, 2)),
        )
        spare = frozenset(chance.choice(((), (), (gpu.uuid,))))
        there = _with(gpu, held=chance.random() < 0.2)
        found = cards.usable(there, profile, spare, gpu.name)
        told = cards.few(there, profile, spare)
        assert bool(found) == (not told), (gpu, profile, told)
        assert not told or told.count(";") == 1, told
        both |= 1 << bool(found)
    assert both == 3


def _drawn(chance: random.Random) -> Gpu:
    total = chance.choice((0, 44.42, 79.2))
    return a_card(
        chance.choice(("g0", "MIG-0")),
        chance.choice(("H100", "A100")),
        total,
        chance.choice((0, 0, total / 20, total / 2, 3)),
        healthy=chance.random() < 0.8,
    )


def _with(gpu: Gpu, *, held: bool) -> Room:
    """The room of a node with this card, where somebody of ours may be on it."""
    there = room(NodeInfo("n0", "n0", gpus=(gpu,)), ())
    if held:
        there.held_by[gpu.uuid] = "qwen/x7qf"
        there.free = {}
    return there


GANG = a_profile("gang", nodes=2)


def shown(story: Story) -> list[str]:
    """What a plan from nothing, its markdown, the list of replicas and `why` say of a gang without a place."""
    catalog = a_catalog(a_model(profiles=("gang",)), profiles=[GANG])
    plan = _plan(story, catalog)
    story.adopts(catalog).decides()
    assert story.last is not None
    view = look(story.desired, story.fleet, story.ledger, story.now, story.timers)
    (row,) = replica_rows(view, story.last.unplaced)
    text = comment(plan)
    why = why_model(view, story.last.unplaced, "qwen", None)
    return [*plan_lines(plan), *summary_lines(plan), *text.splitlines(), row.detail, *why.said]


def _plan(story: Story, catalog: Catalog) -> Plan:
    new = Desired(catalog)
    return make_plan(
        story.desired, new, story.fleet, story.ledger, story.now, seeded(1), story.timers, base=0
    )


GANGS: list[tuple[list[NodeInfo], str, list[str]]] = [
    (
        [a_node("a"), a_node("b", engines=())],
        "needs 2 nodes, 1 eligible (a)",
        ["b: no llamacpp (has no engine)"],
    ),
    ([a_node("a")], "needs 2 nodes, 1 eligible (a)", []),
    (
        [a_node("a"), dataclasses.replace(a_node("b"), gpus=(a_card("b0", "A100"),))],
        "needs 2 nodes with GPUs of one type, eligible are 1 with A100 (b), 1 with H100 (a)",
        [],
    ),
]


@pytest.mark.parametrize(("nodes", "said", "others"), GANGS)
def test_a_gang_says_how_many_nodes_it_needs_and_finds(
    nodes: list[NodeInfo], said: str, others: list[str]
) -> None:
    """Every screen says it, and why the others do not do; none says that nobody registered, or of none of 0 nodes."""
    lines = shown(Story(*nodes))
    assert f"  ! qwen under profile gang {said}" in lines
    assert sum(said in line for line in lines) >= 5
    assert {line.strip() for line in lines if line.startswith("      b: ")} == set(others)
    assert f"no place for one replica under profile gang, which {said}: 0 of 1 replicas" in lines
    assert not [line for line in lines if "none of" in line or "no node has registered" in line]


def test_what_would_have_to_leave_for_a_gang_leaves_cards_of_one_type() -> None:
    """Of two replicas in the way, the one beside whose cards no others of their type are free is not named."""
    nodes = [
        dataclasses.replace(a_node(name), gpus=(a_card(f"{name}0", kind),))
        for name, kind in (("a", "A100"), ("b", "H100"), ("c", "H100"))
    ]
    on_a100, on_h100 = a_profile("on-a100", gpu_types=("A100",)), a_profile("on-h100", gpu_types=("H100",))
    there = [a_model("small", profiles=("on-a100",)), a_model("other", profiles=("on-h100",))]
    story = Story(*nodes, catalog=a_catalog(*there, profiles=[on_a100, on_h100]))
    story.runs()
    (in_the_way,), (home,) = (
        story.ready("other"),
        {shard.spec.node for shard in story.fleet.shards.values() if shard.spec.model == "other"},
    )
    gang = a_model(profiles=("gang",))
    (item,) = _plan(story, a_catalog(*there, gang, profiles=[on_a100, on_h100, GANG])).unplaced
    assert f"{in_the_way} left {home}" in item.would_fit


def test_a_gang_that_no_node_takes_fits_on_none() -> None:
    """Where each node has its own reason, or there is none, it is said as of any other replica."""
    lines = shown(Story(a_node("a", engines=()), a_node("b", engines=())))
    assert "  ! qwen under profile gang fits on none of 2 nodes" in lines
    assert "      no node has registered" in shown(Story())
