"""A node that people want empty gives its replicas away one by one, new first."""

from llmgw.planning.actions import Assign, Drain
from llmgw.planning.desired import Marks
from tests.planning.story import Story, a_catalog, a_model, a_node, kinds

DRAIN = Marks(draining={"n0": "new memory"})


def served(replicas: int = 2, nodes: int = 3) -> Story:
    """Replicas of qwen on their nodes, Ready for long, and a gateway."""
    story = Story(*(a_node(f"n{i}") for i in range(nodes)), catalog=a_catalog(a_model(replicas=replicas)))
    story.gateway().runs()
    return story.after(400)


def test_replicas_move_away_new_first() -> None:
    """The successor is ready for min_ready before the old one drains; never fewer than wanted serve."""
    story = served()
    story.marks(DRAIN)
    actions = story.runs()
    assert [a.spec.node for a in actions if isinstance(a, Assign)] == ["n2"]
    assert {a.because for a in actions if isinstance(a, Assign)} == {"node n0 is drained: new memory"}
    assert not [a for a in actions if isinstance(a, Drain)]
    actions = story.after(11).runs()
    assert kinds(actions) == ["drain", "stop"]
    assert len(story.ready()) == 2
    assert not story.fleet.on_node("n0")
    assert story.after(400).runs() == []


def test_without_another_place_the_last_one_stays() -> None:
    """Nowhere to go: it serves on, for a drained node is a wish and an outage is not."""
    story = served(replicas=1, nodes=1)
    (replica,) = story.ready()
    story.marks(DRAIN)
    for _ in range(5):
        assert story.after(100).runs() == []
    assert story.ready() == [replica]


def test_every_one_that_has_nowhere_to_go_is_named() -> None:
    """Both replicas stay, and neither is said to be missing."""
    story = served(replicas=2, nodes=1)
    story.marks(DRAIN).runs()
    assert story.last is not None
    (item,) = story.last.unplaced
    assert item.stay == tuple(story.ready())
    assert len(item.stay) == 2


def test_a_wish_taken_back_leaves_what_is_there() -> None:
    """The mark goes before the old one drained: it stays, and the one too many leaves."""
    story = served(replicas=1)
    (replica,) = story.ready()
    story.marks(DRAIN).runs()
    story.marks(Marks()).runs()
    assert story.ready() == [replica]
