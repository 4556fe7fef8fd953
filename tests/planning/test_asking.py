"""A plan as it was asked for: what is pending already, what is only supposed, what is left out."""

import dataclasses

import pytest

from llmgw.catalog.model import Catalog
from llmgw.errors import Failed
from llmgw.kit.chance import seeded
from llmgw.planning.asking import Asked, Given, answer
from llmgw.planning.desired import Desired
from llmgw.planning.markdown import comment
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile


def ask(story: Story, new: Catalog, asked: Asked | None = None, base: Catalog | None = None) -> Plan:
    """The answer to it in this story."""
    given = Given(story.desired, story.fleet, story.ledger, story.now, story.timers, 1, cluster="prod")
    return answer(given, Desired(new), lambda: seeded(5), lambda _: (), asked, base)


def served(*names: str, gpus: int = 4) -> Story:
    """These models, ready on two nodes."""
    story = Story(a_node("n0", gpus=gpus), a_node("n1", gpus=gpus), catalog=a_catalog(*map(a_model, names)))
    story.runs()
    return story


def test_what_the_base_has_pending_is_told_apart() -> None:
    """Main waits to add b; the branch adds c: one is pending, the other is this change."""
    story = served("a")
    base = a_catalog(a_model("a"), a_model("b"))
    plan = ask(story, a_catalog(a_model("a"), a_model("b"), a_model("c")), base=base)
    assert {(row.model, row.origin) for row in plan.rows} == {("b", "pending"), ("c", "change")}
    lines = plan_lines(plan)
    assert lines.index("This change") < lines.index("Already pending, with or without this change")


def test_pending_and_change_are_both_what_an_apply_does() -> None:
    """The apply after the merge knows no base: its plan is the one that was reviewed."""
    story = served("a")
    merged = a_catalog(a_model("a"), a_model("b"), a_model("c"))
    reviewed = ask(story, merged, base=a_catalog(a_model("a"), a_model("b")))
    assert reviewed.digest == ask(story, merged).digest


def test_the_same_row_twice_is_pending_once() -> None:
    """Main waits for two more replicas, the branch wants three: one of them is new."""
    story = served("a")
    base = a_catalog(a_model("a"), a_model("b", replicas=2))
    plan = ask(story, a_catalog(a_model("a"), a_model("b", replicas=3)), base=base)
    assert sorted(row.origin for row in plan.rows) == ["change", "pending", "pending"]


def test_what_finds_no_place_either_way_is_not_new() -> None:
    """The last line says how much of what cannot be placed is this change's."""
    story = served("a")
    big = a_profile("big", gpus_per_node=8)
    stuck = a_model("stuck", profiles=("big",))
    base = a_catalog(a_model("a"), stuck, profiles=[big])
    plan = ask(story, a_catalog(a_model("a"), a_model("c"), stuck, profiles=[big]), base=base)
    (item,) = plan.unplaced
    assert item.origin == "pending"
    assert plan_lines(plan)[-1].endswith("1 cannot be placed (not new).")


def test_without_a_node_its_replicas_are_rebuilt_elsewhere() -> None:
    """What-if: the plan says what it supposes, and the real fleet is as it was."""
    story = served("a")
    node = next(shard.spec.node for shard in story.fleet.shards.values())
    plan = ask(story, a_catalog(a_model("a")), Asked(without_nodes=(node,)))
    (row,) = plan.rows
    (replica,) = {shard.spec.replica for shard in story.fleet.shards.values()}
    assert (row.symbol, row.origin, row.replica, row.left) == ("=>", "healing", replica, (node,))
    assert (row.code, row.said) == ("node_lost", f"node {node} is supposed away")
    assert row.nodes != (node,)
    lines = plan_lines(plan)
    assert f"what if: without node {node}" in lines
    assert "Self-healing, as it would be then" in lines
    assert "Self-healing, with or without this change" not in "\n".join([*lines, comment(plan)])
    assert node in story.fleet.nodes


def test_what_happens_anyway_is_not_put_down_to_a_supposition() -> None:
    """Only as many rebuilds as replicas were on the node; another that waits for a place has waited before."""
    big = a_profile("big", gpus_per_node=8)
    stuck = a_model("stuck", profiles=("big",))
    story = served("a")
    (node,) = {shard.spec.node for shard in story.fleet.shards.values()}
    catalog = a_catalog(a_model("a"), stuck, profiles=[big])
    story.adopts(catalog)
    plan = ask(story, catalog, Asked(without_nodes=(node,)))
    assert [row.model for row in plan.rows if row.code == "node_lost"] == ["a"]
    (item,) = plan.unplaced
    assert (item.model, item.origin, item.because) == ("stuck", "pending", "")


def test_with_a_node_that_does_not_exist_yet() -> None:
    """What fits nowhere fits on the machine that was ordered."""
    story = served("a")
    big = a_profile("big", gpus_per_node=8)
    new = a_catalog(a_model("a"), a_model("b", profiles=("big",)), profiles=[big])
    assert ask(story, new).unplaced
    plan = ask(story, new, Asked(with_nodes=(a_node("n9", gpus=8),)))
    assert not plan.unplaced
    assert [row.nodes for row in plan.rows] == [("n9",)]
    with pytest.raises(Failed, match="there is one of this name"):
        ask(story, new, Asked(with_nodes=(dataclasses.replace(a_node("n8"), name="n0"),)))


@pytest.mark.parametrize("by", ["model", "replica"])
def test_a_rebuild_is_planned_new_first(by: str) -> None:
    """A replica that somebody wants rebuilt is replaced as any other, and the row says that it was asked for."""
    story = served("a")
    (name,) = story.ready("a")
    plan = ask(story, a_catalog(a_model("a")), Asked(replace=(name if by == "replica" else "a",)))
    (row,) = plan.rows
    assert (row.symbol, row.code, row.replica, row.said) == ("+/-", "requested", name, "asked for")
    assert [(each.now, each.lowest, each.after) for each in plan.service] == [(1, 1, 1)]


def test_only_some_models_are_shown_and_the_plan_says_so() -> None:
    """The identity stays that of the whole plan."""
    story = served("a")
    new = a_catalog(a_model("a"), *(a_model(name) for name in ("llama-8b", "llama-70b", "phi")))
    plan = ask(story, new, Asked(only=("llama-*",)))
    assert {row.model for row in plan.rows} == {"llama-8b", "llama-70b"}
    assert plan.digest == ask(story, new).digest
    assert "what if: only llama-70b, llama-8b; left out: 1 action of 1 model" in plan_lines(plan)


@pytest.mark.parametrize(
    "asked", [Asked(only=("nobody",)), Asked(without_nodes=("n7",)), Asked(replace=("nobody/abcd",))]
)
def test_names_that_are_nobodys_are_refused(asked: Asked) -> None:
    """A typo supposes nothing in silence."""
    with pytest.raises(Failed, match="cannot"):
        ask(served("a"), a_catalog(a_model("a")), asked)


def test_what_is_only_supposed_is_another_plan() -> None:
    """Nobody applies a plan of a fleet that is not so by an id that stands for the real one."""
    story = served("a")
    new = a_catalog(a_model("a"), a_model("b"))
    real = ask(story, new)
    without, more = (
        ask(story, new, asked) for asked in (Asked(without_nodes=("n0",)), Asked(with_nodes=(a_node("n9"),)))
    )
    assert len({real.digest, without.digest, more.digest}) == 3
    assert ask(story, new, Asked(without_nodes=("n0",))).digest == without.digest


def test_without_its_only_node_a_model_is_out() -> None:
    """The table counts to nothing, and the reason is the supposition."""
    story = Story(a_node("local"), catalog=a_catalog(a_model("a")))
    story.runs()
    plan = ask(story, a_catalog(a_model("a")), Asked(without_nodes=("local",)))
    assert [(each.now, each.lowest, each.after) for each in plan.service] == [(1, 0, 0)]
    lines = plan_lines(plan)
    (item,) = plan.unplaced
    assert (item.origin, item.because) == ("healing", "node local is supposed away")
    assert lines[-1].endswith("1 cannot be placed.")
    assert "Already pending, with or without this change" not in lines
    assert "      node local is supposed away" in lines
    assert not [line for line in lines if "llmgw apply" in line or "has registered" in line]
