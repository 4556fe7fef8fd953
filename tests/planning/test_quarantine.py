"""Several models that fail on one node are the node's fault, for a while."""

from llmgw.planning.actions import Assign
from llmgw.planning.screen import node_rows
from llmgw.planning.view import look
from tests.planning.story import Story, a_catalog, a_model, a_node

NAMES = ("a", "b", "c")


def broken(models: int = 3, nodes: int = 2) -> Story:
    """The first models of a full catalog fail on n0, all at once."""
    catalog = a_catalog(*(a_model(name) for name in NAMES))
    story = Story(a_node("n0"), catalog=catalog)
    story.runs()
    for number in range(1, nodes):
        story.registers(a_node(f"n{number}"))
    for name in NAMES[:models]:
        story.says((story.ready(name)[0], 0), "failed", reason="exit 1")
    story.runs()
    return story


def placed(story: Story) -> set[str]:
    """The nodes of what is assigned now."""
    return {action.spec.node for action in story.runs() if isinstance(action, Assign)}


def test_a_node_where_three_models_failed_takes_nothing_new() -> None:
    """Other models, which never failed, are kept away from it too; people see why."""
    story = broken()
    story.adopts(a_catalog(*(a_model(name) for name in NAMES), a_model("new", replicas=3)))
    assert placed(story) == {"n1"}
    rows = node_rows(look(story.desired, story.fleet, story.ledger, story.now, story.timers))
    assert [row.cordoned for row in rows] == ["3 models failed to start here (a, b, c)", ""]


def test_two_models_blame_no_node() -> None:
    """Two failures may be two bad models: the node goes on."""
    story = broken(models=2)
    story.adopts(a_catalog(*(a_model(name) for name in NAMES), a_model("new", replicas=3)))
    assert "n0" in placed(story)


def test_a_quarantine_ends_by_itself() -> None:
    """With no other node to go to, everything is tried here again after the longest back-off."""
    story = broken(nodes=1)
    assert placed(story.after(20)) == set()
    assert story.last is not None
    assert story.last.wake_at is not None
    assert placed(story.after(story.timers.backoff_cap - 20)) == {"n0"}
