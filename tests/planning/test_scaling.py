"""Between the bounds, requests decide; absence of signals decides nothing."""

import dataclasses

from llmgw.catalog.model import Scaling
from llmgw.fleet import events
from llmgw.planning.actions import Assign, Drain
from llmgw.planning.ledger import Ledger
from tests.planning.story import Story, a_catalog, a_model, a_node, kinds


class Busy(Story):
    """A story whose one gateway tells how many requests wait for qwen."""

    waiting = 0

    def asks(self, waiting: int) -> "Busy":
        self.waiting = waiting
        self.gateways = {"gw": {}}
        self.hears(self._gateway_word("gw"))
        return self

    def _gateway_word(self, name: str) -> events.GatewaySeen:
        return dataclasses.replace(super()._gateway_word(name), queued=(("qwen", self.waiting),))


def elastic(least: int = 1, most: int = 4) -> Busy:
    """qwen with 10 requests a replica between these bounds, at rest."""
    story = Busy(
        *(a_node(f"n{i}") for i in range(3)), catalog=a_catalog(a_model(scaling=Scaling(least, most, 10)))
    )
    story.runs()
    assert len(story.ready()) == least
    return story


def test_requests_bring_replicas() -> None:
    """As many as the requests need at the target, at once, and never more than the upper bound."""
    story = elastic().asks(25)
    assert kinds(story.runs()) == ["assign", "assign", "start", "start"]
    assert len(story.ready()) == 3
    story.asks(1000).runs()
    assert len(story.ready()) == 4


def test_a_lull_costs_nothing() -> None:
    """Fewer requests for less than the window take no replica away; one busy moment begins it anew."""
    story = elastic().asks(40)
    story.runs()
    for _ in range(6):
        story.asks(0).after(200)
        assert story.decides() == ()
        assert story.asks(31).after(1).decides() == ()
    assert len(story.ready()) == 4


def test_fewer_requests_for_long_leave_what_they_needed() -> None:
    """After a window of quiet the count falls to the busiest moment of it, then further, by drains."""
    story = elastic().asks(40)
    story.runs()
    story.asks(12).after(1).decides()
    story.asks(0).after(301)
    assert kinds(story.runs()).count("drain") == 2
    assert len(story.ready()) == 2
    story.after(301).runs()
    assert len(story.ready()) == 1


def test_silence_is_no_quiet() -> None:
    """While a gateway does not tell, or none is there, the count stays as it is."""
    story = elastic().asks(40)
    story.runs()
    story.gateways = {}
    for _ in range(8):
        assert not [action for action in story.after(100).decides() if isinstance(action, Drain)]
    assert len(story.ready()) == 4


def test_zero_is_left_when_somebody_asks() -> None:
    """A lower bound of 0: nothing runs until a request waits, and nothing again after a quiet window."""
    story = elastic(0, 2)
    assert story.asks(0).runs() == []
    assert len([a for a in story.asks(1).runs() if isinstance(a, Assign)]) == 1
    story.asks(0).after(1).runs()
    story.after(301).runs()
    assert story.ready() == []


def test_a_new_control_plane_keeps_what_is_there() -> None:
    """The count is in nobody's memory after a restart: what runs stays until signals say otherwise."""
    story = elastic().asks(30)
    story.runs()
    story.ledger, story.gateways = Ledger(), {}
    story.fleet = dataclasses.replace(story.fleet, gateways={})
    assert not [action for action in story.after(50).runs() if isinstance(action, Drain)]
    assert len(story.ready()) == 3


def test_it_wakes_to_look_at_the_load() -> None:
    """Loads come with words that trigger no pass: time does, where a model has room between its bounds."""
    story = elastic().asks(5)
    story.after(400).decides()
    assert story.last is not None
    assert story.last.wake_at is not None
    assert story.now < story.last.wake_at <= story.now + story.timers.scale_every


def test_what_was_asked_for_in_the_dark_was_asked_for() -> None:
    """While most nodes are silent nothing moves; their requests of that time are in the window all the same."""
    story = elastic().asks(40)
    story.runs()
    story.asks(0).after(1).decides()
    story.silence("n0", "n1", "n2").after(60).decides()
    assert story.last is not None
    assert story.last.alarms
    story.asks(40).after(story.timers.scale_window - 100).decides()
    story.speaks("n0", "n1", "n2").asks(0).after(60).decides()
    assert story.runs() == []
    assert len(story.ready()) == 4


def test_a_count_goes_with_its_model() -> None:
    """Even while nothing is acted on because the roster has not spoken."""
    story = elastic().asks(25)
    story.runs()
    story.fleet = dataclasses.replace(story.fleet, since=story.now, roster=story.fleet.roster | {"other"})
    story.adopts(a_catalog(a_model("else"))).decides()
    assert not story.ledger.scales
