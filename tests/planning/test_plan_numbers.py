"""Numbers that people add up add up, estimates say what they are from, and what would help was tried."""

import dataclasses
import re

from hypothesis import given
from hypothesis import strategies as st

from llmgw.catalog import hf_config
from llmgw.catalog.facts import ModelFacts, Weights
from llmgw.catalog.model import Catalog, Place, Profile
from llmgw.fleet.node import CachedWeights, Gpu, InstalledEngine, NodeInfo
from llmgw.kit.chance import seeded
from llmgw.planning.cards import spans
from llmgw.planning.costs import Known, Memory, Part, Sample, Seat, Seen, memory
from llmgw.planning.desired import Desired, Marks
from llmgw.planning.figures import disk_line, memory_line
from llmgw.planning.plan import Plan, make_plan
from llmgw.planning.render import plan_lines, summary_lines
from llmgw.planning.rows import Row
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile
from tests.support import models

GIB = 1 << 30
sizes = st.integers(0, 400 * GIB)


def tenths_in(text: str) -> list[int]:
    """Every `12.3` of a line, in tenths."""
    return [int(whole) * 10 + int(tenth) for whole, tenth in re.findall(r"(\d+)\.(\d)(?!\d)", text)]


@given(
    parts=st.lists(st.tuples(sizes, st.booleans()), min_size=1, max_size=7),
    kv=sizes,
    spare=st.integers(-4 * GIB, 40 * GIB),
    every=st.booleans(),
)
def test_the_sum_of_memory_is_a_sum_as_it_is_shown(
    parts: list[tuple[int, bool]], kv: int, spare: int, every: bool
) -> None:
    """Whoever adds up what is printed gets what is printed; what fits never looks too large."""
    terms = [Part("weights", parts[0][0], "exact")]
    terms += [
        Part(f"t{i}", size, "exact" if exact else "estimate") for i, (size, exact) in enumerate(parts[1:])
    ]
    whole = Memory((*terms, Part("KV", kv, "exact")), max(0, sum(p.size for p in terms) + kv + spare), 0, 1.0)
    line = memory_line(whole, every=every)
    added, _, result = line.partition(" = ")
    *_, total, budget = [0, *tenths_in(result.partition(" a card")[0])]
    assert sum(tenths_in(added)) == total
    assert (total <= budget) or whole.short > 0
    assert ("short" in line) == (whole.short > 0)


@given(fetch=st.integers(1, 10**12), free=st.integers(0, 10**13))
def test_the_disk_is_a_sum_as_it_is_shown(fetch: int, free: int) -> None:
    """Free less fetched is what is left, digit for digit."""
    row = Row("+", "m", "model_added", "new", seats=(Seat("n0", (), fetch, free),), fetch=fetch)
    (line,) = disk_line(row)
    if "->" in line:
        need, there, left = tenths_in(line)
        assert there - need == left
    else:
        assert fetch < 10**8 or free < fetch


def plan_of(story: Story, new: Catalog, known: Known | None = None, marks: Marks | None = None) -> Plan:
    """The plan of `new` in the story's fleet, with what is known beside it."""
    desired = Desired(new, marks or Marks())
    return make_plan(
        story.desired,
        desired,
        story.fleet,
        story.ledger,
        story.now,
        seeded(3),
        story.timers,
        base=1,
        known=known,
    )


FACTS = dataclasses.replace(
    hf_config.facts_of(models.QWEN3_14B, Weights(29_536_614_400)), download=29_536_614_400
)


def vllm_profile(name: str = "one", **more: object) -> Profile:
    """One large card with vLLM."""
    return a_profile(name, engine="vllm", max_model_len=16384, gpu_memory=80 * GIB, **more)


def vllm_node(name: str, memory: int = 80 * GIB) -> NodeInfo:
    """A node with vLLM and two cards of that much memory."""
    cards = tuple(Gpu(f"{name}-{i}", "H100", memory) for i in range(2))
    return dataclasses.replace(a_node(name), engines=(InstalledEngine("vllm"),), gpus=cards)


def test_a_replacement_is_estimated_by_what_the_same_weights_took_before() -> None:
    """A changed flag loads no other weights: the measured start of before beats a guess; other weights have none."""
    was, now = vllm_profile(), vllm_profile(args=(("max-num-seqs", 64),))
    model = a_model(profiles=("one",))
    other = dataclasses.replace(model, source=a_model("other").source)
    story = Story(vllm_node("n0"), catalog=a_catalog(model, profiles=[was]))
    story.runs()
    (before,) = a_catalog(model, profiles=[was]).generations(model)
    known = Known(seen=Seen({before: Sample(41.0, 12)}))
    (same,) = plan_of(story, a_catalog(model, profiles=[now]), known).rows
    assert same.generation != before
    assert same.starting is not None
    assert same.starting.basis == "measured before this change: 41s, 12 times"
    (else_,) = plan_of(story, a_catalog(other, profiles=[now]), known).rows
    assert else_.starting is None or "before" not in else_.starting.basis


def test_a_removal_says_where_the_model_was() -> None:
    """Nobody looks for a file that is gone: the line is told as the one that was."""
    placed = {("model/qwen", ""): Place("models/qwen.yaml", 3, 1)}
    model = a_model(profiles=("one",))
    old = dataclasses.replace(a_catalog(model, profiles=[vllm_profile()]), places=placed)
    story = Story(vllm_node("n0"), catalog=old)
    story.runs()
    plan = plan_of(story, a_catalog(profiles=[vllm_profile()]))
    (row,) = plan.rows
    assert row.place == "models/qwen.yaml:3"
    assert "was models/qwen.yaml:3" in "\n".join(plan_lines(plan))


def test_a_creation_has_its_sums_and_an_estimate_with_its_basis() -> None:
    """Measured where somebody measured, a guess that calls itself one where nobody did."""
    model = a_model(profiles=("one",))
    catalog = a_catalog(model, profiles=[vllm_profile()])
    story = Story(vllm_node("n0"), catalog=None)
    known = Known({model.cache_name: FACTS})
    desired = dataclasses.replace(story.desired, sizes={model.cache_name: FACTS.download})
    plan = make_plan(
        story.desired, dataclasses.replace(desired, catalog=catalog), story.fleet, story.ledger, story.now,
        seeded(1), story.timers, base=0, known=known,
    )  # fmt: skip
    (row,) = plan.rows
    assert row.memory is not None
    assert row.memory.short <= 0
    assert row.memory.total == row.memory.budget
    assert row.starting is not None
    assert row.starting.basis.startswith("guess: 2.0 GB/s")
    assert row.fetching is not None
    assert row.fetching.basis.startswith("guess:")
    seen = Seen({row.generation: Sample(41.0, 12)}, {"n0": Sample(1e9, 3)})
    measured = make_plan(
        story.desired, dataclasses.replace(desired, catalog=catalog), story.fleet, story.ledger, story.now,
        seeded(1), story.timers, base=0, known=Known(known.facts, seen),
    )  # fmt: skip
    text = "\n".join(plan_lines(measured))
    assert "fetch 30s (measured: 1.0 GB/s, 3 times) + start 41s (measured: 41s, 12 times)" in text
    assert "overhead (estimate)" in text
    assert "29.5 GB; 1099.6 GB free -> 1070.1 GB" in text or "29.6 GB; " in text
    assert measured.digest == plan.digest


def test_a_creation_without_an_estimate_says_why() -> None:
    """Whether its source could not be looked into, or told no length: never nothing at all."""
    model = a_model(profiles=("one",))
    catalog = a_catalog(model, profiles=[vllm_profile()])
    story = Story(vllm_node("n0"), catalog=None)
    text = "\n".join(plan_lines(plan_of(story, catalog)))
    assert "disk      <= size unknown (its source says no length)" in text
    why = "how large its weights are is not known, and no start of it has been measured"
    assert f"ready in  no estimate: {why}" in text
    known = Known(unread={model.cache_name: "example.org answered 404\x1b[2J"})
    text = "\n".join(plan_lines(plan_of(story, catalog, known)))
    assert "disk      <= size unknown; " in text
    assert "warning   its source cannot be looked into: example.org answered 404" in text
    assert "\x1b" not in text


def test_weights_that_a_node_has_are_as_large_as_they_are_there() -> None:
    """Whatever their source says: how long a load takes is guessed from what lies on the disk."""
    model = a_model(profiles=("one",))
    held = CachedWeights(model.cache_name, model.source.canonical, 40 * 10**9)
    story = Story(dataclasses.replace(vllm_node("n0"), weights=(held,)), catalog=None)
    (row,) = plan_of(story, a_catalog(model, profiles=[vllm_profile()])).rows
    assert row.held
    assert row.starting is not None
    assert row.starting.seconds == 20.0 + 20.0
    assert "ready in  about 40s: start 40s (guess: 2.0 GB/s)" in "\n".join(
        plan_lines(plan_of(story, a_catalog(model, profiles=[vllm_profile()])))
    )


def test_memory_is_that_of_the_card_that_was_chosen() -> None:
    """The same model on a smaller card has less room for KV, and the plan says so."""
    profile = vllm_profile(gpu_memory_utilization=0.9)
    specs = Story(vllm_node("n0"), catalog=a_catalog(a_model(profiles=("one",)), profiles=[profile]))
    specs.runs()
    (shard,) = specs.fleet.shards.values()
    small = dataclasses.replace(
        specs.fleet.nodes["n0"].info, gpus=tuple(Gpu(f"n0-{i}", "L40S", 48 * GIB) for i in range(2))
    )
    large = memory([shard.spec], [specs.fleet.nodes["n0"].info], FACTS)
    less = memory([shard.spec], [small], FACTS)
    assert large is not None
    assert less is not None
    assert (large.card, less.card) == (80 * GIB, 48 * GIB)
    assert less.parts[-1].size < large.parts[-1].size
    assert memory([shard.spec], [small], None) is None
    assert memory([shard.spec], [small], ModelFacts()) is None


def test_what_finds_no_place_is_told_what_would_help() -> None:
    """The replica that is in the way, another profile: each was tried by placement's own rules."""
    story = Story(a_node("n0", gpus=2), a_node("n1", gpus=2), catalog=a_catalog(a_model("a", replicas=2)))
    story.runs()
    two = a_profile("two", gpus_per_node=2)
    one = a_profile("one", nodes=2, gpus_per_node=1)
    new = a_catalog(a_model("a", replicas=2), a_model("b", profiles=("two",)), profiles=[two, one])
    plan = plan_of(story, new)
    (item,) = plan.unplaced
    on_n0 = [key[0] for key, shard in story.fleet.shards.items() if shard.spec.node == "n0"]
    assert (item.nodes, item.origin) == (2, "change")
    assert item.would_fit[0] == "profile one (2 nodes x 1 GPU)"
    assert item.would_fit[-1] == f"{', '.join(sorted(on_n0))} left n0"
    freed = plan_of(story, a_catalog(a_model("b", profiles=("two",)), profiles=[two]))
    assert not freed.unplaced
    text = "\n".join(plan_lines(plan))
    assert "would fit if: profile" in text
    assert text.count("GPUs free, 2 needed") == 2


def test_a_smaller_card_would_do_with_a_shorter_context() -> None:
    """Memory that a profile asks for and no card has: the longest context that the cards there hold."""
    model = a_model(profiles=("one",))
    profile = vllm_profile(gpu_memory_utilization=0.9)
    story = Story(vllm_node("n0", memory=48 * GIB), catalog=None)
    plan = plan_of(story, a_catalog(model, profiles=[profile]), Known({model.cache_name: FACTS}))
    (item,) = plan.unplaced
    (way,) = item.would_fit
    assert re.fullmatch(r"max_model_len \d+ on cards of 48 GiB \(gpu\.memory\)", way)


def test_a_drained_node_is_left_by_a_move() -> None:
    """The replica that goes and the one that comes for it are one row, and no stop is counted."""
    story = Story(a_node("n0"), a_node("n1"), catalog=a_catalog(a_model()))
    story.runs()
    (shard,) = story.fleet.shards.values()
    assert story.desired.catalog is not None
    plan = plan_of(story, story.desired.catalog, marks=Marks(draining={shard.spec.node: "new fans"}))
    (row,) = plan.rows
    other = {"n0": "n1", "n1": "n0"}[shard.spec.node]
    assert (row.symbol, row.code, row.origin) == ("=>", "node_draining", "healing")
    assert (row.left, row.nodes, row.replica) == ((shard.spec.node,), (other,), shard.spec.replica)
    assert "1 to move, 0 to stop" in plan_lines(plan)[-1]


def test_a_lost_node_is_left_by_a_move() -> None:
    """What is rebuilt elsewhere names the node that is lost."""
    story = Story(a_node("n0"), a_node("n1"), catalog=a_catalog(a_model()))
    story.runs()
    (shard,) = story.fleet.shards.values()
    story.silence(shard.spec.node).after(story.timers.lost + 60)
    assert story.desired.catalog is not None
    (row,) = plan_of(story, story.desired.catalog).rows
    assert (row.symbol, row.code, row.left) == ("=>", "node_lost", (shard.spec.node,))


def test_what_is_left_alone_says_why() -> None:
    """Silent nodes and paused models are no change, and are not passed over in silence."""
    story = Story(a_node("n0"), a_node("n1"), a_node("n2"), catalog=a_catalog(a_model(), a_model("p")))
    story.runs()
    assert story.desired.catalog is not None
    node = next(s.spec.node for s in story.fleet.shards.values() if s.spec.model == "qwen")
    story.silence(node).after(20)
    plan = plan_of(story, story.desired.catalog, marks=Marks(paused={"p": "dana: driver upgrade"}))
    assert plan.empty
    said = {(row.model, row.code): row.said for row in plan.alone}
    assert said["p", "paused"] == "paused: dana: driver upgrade"
    assert (
        said["qwen", "unreachable"]
        == f"{node} is silent for 20s; rebuilt elsewhere if it stays so for 4m40s more"
    )
    lines = plan_lines(plan)
    assert ". left alone on purpose" in lines
    assert lines[-1].startswith("No changes")


def test_three_depths() -> None:
    """The summary has a line an action, the plan its details, and `--explain` every command line."""
    story = Story(a_node("n0"), catalog=None)
    plan = plan_of(story, a_catalog(a_model("a"), a_model("b")))
    plan = dataclasses.replace(
        plan, rows=tuple(dataclasses.replace(r, commands=(("run", "x y"),)) for r in plan.rows)
    )
    brief, usual, whole = summary_lines(plan), plan_lines(plan), plan_lines(plan, explain=True)
    assert len(brief) == 3
    assert brief[-1] == usual[-1] == whole[-1]
    assert "      rank 0: run 'x y'" in whole
    assert not any("rank 0" in line for line in usual)


def test_cards_are_shown_as_spans() -> None:
    """Neighbours are one span."""
    assert spans((0, 1, 2, 3, 6)) == "0-3,6"
    assert spans(()) == ""


def test_what_would_help_is_tried_on_the_nodes_as_they_will_be() -> None:
    """One node is to be emptied, the other is lost: another profile finds no place there either."""
    mine, other = a_profile("one"), a_profile("two")
    model = a_model(profiles=("one",))
    catalog = a_catalog(model, profiles=[mine, other])
    story = Story(a_node("n0"), a_node("n1"), catalog=catalog)
    story.runs()
    story.silence("n1").after(30).runs()
    lost = Marks(draining={"n0": "memory (dana)"}, confirmed_lost=frozenset({"n1"}))
    (waiting,) = plan_of(story, catalog, marks=lost).unplaced
    assert {node for node, _, _ in waiting.reasons} == {"n0", "n1"}
    assert waiting.would_fit == ()
    more = a_catalog(model, dataclasses.replace(model, name="more"), profiles=[mine, other])
    (new,) = [each for each in plan_of(story, more, marks=lost).unplaced if each.model == "more"]
    assert new.would_fit == ("n0 took replicas again (llmgw node uncordon n0)",)
