"""An engine whose cards had too little memory is tried on others first."""

import pytest

from llmgw.engines.base import explained
from llmgw.fleet.causes import ran_out_of_memory
from llmgw.planning.actions import Assign
from llmgw.planning.ledger import MOST_CARDS
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile

OOM = "exit 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def fails(story: Story, reason: str) -> tuple[str, ...]:
    """The next try is made and fails for `reason`; the cards it had."""
    while not (new := [action for action in story.decides() if isinstance(action, Assign)]):
        story.after(1)
    (assign,) = new
    story.obeys(assign).says(assign.spec.key, "failed", reason=reason)
    story.runs()
    return assign.spec.gpus


def test_cards_that_were_too_small_are_left_for_others() -> None:
    """Every try is on a card that has not failed for memory yet, while there is one; then again on any."""
    story = Story(a_node("n0", gpus=2), a_node("n1", gpus=2), catalog=a_catalog(a_model()))
    tried = [fails(story, OOM) for _ in range(6)]
    assert len(set(tried[:4])) == 4
    assert set(tried[4:]) <= set(tried[:4])


def test_other_failures_blame_no_card() -> None:
    """A wrong flag is wrong on every card: the node is avoided once, and no card is remembered."""
    story = Story(a_node("n0", gpus=4), catalog=a_catalog(a_model()))
    assert len({fails(story, "exit 2: unknown flag") for _ in range(4)}) == 1
    assert [trouble.cards for trouble in story.ledger.troubles.values()] == [()]


def test_the_reason_is_where_people_look() -> None:
    """The order says why it goes elsewhere, and a refusal that for these cards it did not fit last time."""
    story = Story(a_node("n0", gpus=2), catalog=a_catalog(a_model()))
    fails(story, OOM)
    while not (new := [action for action in story.decides() if isinstance(action, Assign)]):
        story.after(1)
    assert new[0].because == f"try 2 after: rank 0: {OOM}; rather not on the 1 card where memory ran out"
    two = a_profile("two", gpus_per_node=2)
    story = Story(a_node("n0", gpus=2), catalog=a_catalog(a_model(profiles=("two",)), profiles=[two]))
    fails(story, OOM)
    story.adopts(a_catalog(a_model(profiles=("two",)), a_model("zed"), profiles=[two])).runs()
    story.after(20).decides()
    assert story.last is not None
    (unplaced,) = story.last.unplaced
    told = f"0 GPUs free, 2 needed; {story.ready('zed')[0]} holds 1; on 1 more its memory ran out last time"
    assert told in [reason.said for reason in unplaced.reasons]


def test_what_is_remembered_is_bounded_and_forgiven() -> None:
    """No list of cards grows for ever, and minutes of Ready forget it."""
    story = Story(*(a_node(f"n{i:02}", gpus=4) for i in range(20)), catalog=a_catalog(a_model()))
    for _ in range(MOST_CARDS + 6):
        fails(story, OOM)
    (trouble,) = story.ledger.troubles.values()
    assert len(trouble.cards) == len(set(trouble.cards)) == MOST_CARDS
    story.after(400).runs()
    story.after(301).decides()
    assert story.ledger.troubles == {}


@pytest.mark.parametrize(
    ("log", "short"),
    [
        ("ValueError: Free memory on device cuda:0 (60.33/79.19 GiB) on startup is less than desired", True),
        (
            "torch.OutOfMemoryError: CUDA out of memory.\nRuntimeError: Engine core initialization failed",
            True,
        ),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9 MiB on device 0: cudaMalloc failed", True),
        ("RuntimeError: Engine core initialization failed", False),
        ("error: no such file: out-of-memory.gguf", False),
        ("", False),
    ],
)
def test_an_engine_says_that_memory_ran_out(log: str, short: bool) -> None:
    """Whatever an engine says after it; a process that was killed says nothing of its cards."""
    assert ran_out_of_memory(explained("exit 1", log)) is short
    assert not ran_out_of_memory(explained("killed by SIGKILL", ""))
