"""What placement's rules refuse, with which words; what is not known refuses nothing."""

import pytest

from llmgw.fleet.node import InstalledEngine
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile


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
