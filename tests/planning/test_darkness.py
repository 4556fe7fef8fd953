"""Most nodes silent together: ours to doubt, until gateways elsewhere cannot reach what serves there either."""

import pytest

from llmgw.fleet import events
from llmgw.planning.actions import Assign
from llmgw.planning.rehearse import rehearse
from tests.planning.story import Story, a_catalog, a_model, a_node

AWAY = ("n0", "n1", "n2")


def dark(silence: float = 400.0, *, apart: bool = True) -> Story:
    """Three of four nodes, each with a replica, silent for so long; a gateway, on another machine or not."""
    story = Story(*(a_node(f"n{i}") for i in range(4)), catalog=a_catalog(a_model(replicas=4))).gateway()
    story.runs()
    story.after(400).hears(events.GatewayArrived("gw", apart=apart))
    return story.silence(*AWAY).after(silence)


def on(story: Story, *nodes: str) -> tuple[str, ...]:
    """The replicas that these nodes serve."""
    return tuple(
        sorted({shard.spec.replica for shard in story.fleet.shards.values() if shard.spec.node in nodes})
    )


def finds(story: Story, *replicas: str, name: str = "gw", age: float = 1.0) -> Story:
    """The gateway could not connect to these so long ago, and not since."""
    version = story.ledger.routes.version
    return story.hears(events.GatewaySeen(name, version, dark=tuple((each, age) for each in replicas)))


def suspected(story: Story) -> bool:
    """Whether we suspect ourselves: nothing is decided, and people are told."""
    actions = story.decides()
    assert story.last is not None
    told = any("fell silent together" in alarm for alarm in story.last.alarms)
    assert not (told and actions)
    return told


def test_a_gateway_elsewhere_that_finds_them_dark_too_lifts_it() -> None:
    """Two witnesses who share no machine: what ran there is rebuilt, and stays so when the gateway falls silent."""
    story = dark()
    assert suspected(story)
    finds(story, *on(story, *AWAY))
    actions = story.decides()
    assert len([action for action in actions if isinstance(action, Assign)]) == 3
    assert {action.spec.node for action in actions if isinstance(action, Assign)} == {"n3"}
    story.gateways.clear()
    story.after(16)
    assert not suspected(story)


def test_below_lost_it_lifts_the_doubt_and_tears_nothing_down() -> None:
    """A blip is a blip whoever sees it: what runs there is asked as before."""
    story = dark(60)
    served = story.ready()
    assert suspected(story)
    finds(story, *on(story, *AWAY))
    assert not suspected(story)
    assert story.ready() == served


@pytest.mark.parametrize(
    "doubt", ["same machine", "one answers", "answered after", "older", "not lately", "another silent"]
)
def test_whatever_leaves_a_doubt_lifts_nothing(doubt: str) -> None:
    """A gateway beside us shares our cable; one replica that answers, an old failure, a door that is mute: we wait."""
    story = dark(20 if doubt == "older" else 400, apart=doubt != "same machine")
    replicas = on(story, *AWAY)
    if doubt == "another silent":
        story.hears(events.GatewaySeen("other", 0)).after(16)
    if doubt == "one answers":
        replicas = on(story, "n0")
    finds(story, *replicas, age={"older": 25.0, "not lately": 31.0}.get(doubt, 1.0))
    if doubt == "answered after":
        green = tuple((each, 0.5) for each in replicas)
        version = story.ledger.routes.version
        story.hears(
            events.GatewayArrived("near"),
            events.GatewaySeen("near", version, green=green),
        )
    assert suspected(story)


def test_a_plan_sees_it_lifted_as_the_loop_does() -> None:
    """The rehearsal keeps the evidence while its own time passes, so that it rehearses what an apply does."""
    story = dark(60)
    finds(story, *on(story, *AWAY))
    story.adopts(a_catalog(a_model(replicas=4), a_model("new")))
    played = rehearse(story.desired, story.fleet, story.ledger, story.now, story.chance, story.timers)
    assert played.after["new"] == 1
    assert [action.spec.node for action in story.decides() if isinstance(action, Assign)] == ["n3"]


@pytest.mark.parametrize("doubt", ["another silent", "answered after"])
def test_a_plan_stays_in_doubt_as_the_loop_does(doubt: str) -> None:
    """In a rehearsal every gateway speaks: what kept the loop from lifting the doubt is kept, too."""
    story = dark(60)
    if doubt == "another silent":
        story.hears(events.GatewaySeen("other", 0)).after(16)
    replicas = on(story, *AWAY)
    finds(story, *replicas)
    if doubt == "answered after":
        green = tuple((each, 0.5) for each in replicas)
        version = story.ledger.routes.version
        story.hears(events.GatewayArrived("near"), events.GatewaySeen("near", version, green=green))
    story.adopts(a_catalog(a_model(replicas=4), a_model("new")))
    played = rehearse(story.desired, story.fleet, story.ledger, story.now, story.chance, story.timers)
    assert [step for step in played.steps if isinstance(step.action, Assign)] == []
    assert story.decides() == ()
