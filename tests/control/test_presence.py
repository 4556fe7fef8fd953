"""What silence makes of nodes and gateways is journaled when it happens, and so is its end."""

import pathlib

from llmgw.fleet import events
from tests.control.plane import Plane
from tests.control.test_hands import act, home, served


def told(plane: Plane, kind: str, after: int) -> list[tuple[str, str]]:
    """What the journal says of this kind since then: about whom, and what."""
    return [(entry.about, entry.said) for entry in plane.journal.after(after) if entry.kind == kind]


def goes_on(plane: Plane, seconds: float, *silent: str) -> None:
    """Time passes while every other node speaks; then the loop decides, as its wake-up would have it."""
    plane.passes(seconds)
    for name in plane.loop.fleet.nodes:
        if name not in silent:
            plane.hears(events.Heartbeat(name))
    plane.loop.decide()


def test_a_node_that_goes_is_lost_and_comes_back_is_an_event_each(tmp_path: pathlib.Path) -> None:
    """Each once, with how long it was silent; a look in between adds nothing."""
    plane = served(tmp_path, "n0", "n1", "n2")
    node, before = home(plane), plane.journal.last
    goes_on(plane, 16, node)
    plane.call("GET", "/v1/status")
    goes_on(plane, 16, node)
    goes_on(plane, 300, node)
    plane.hears(events.Heartbeat(node))
    plane.loop.decide()
    goes_on(plane, 1)
    assert told(plane, "node", before) == [
        (node, "Unreachable: silent for 16s; it gets nothing new, what serves there is asked as before"),
        (node, "Lost: silent for 5m32s; what ran there is rebuilt elsewhere"),
        (node, "Ready again after 5m32s of silence"),
    ]


def test_a_node_that_is_confirmed_lost_says_so(tmp_path: pathlib.Path) -> None:
    """Somebody said it: the event tells why it was no sooner and no later."""
    plane = served(tmp_path, "n0", "n1", "n2")
    node = home(plane)
    plane.hears(events.Disconnected(node))
    goes_on(plane, 16, node)
    before = plane.journal.last
    assert act(plane, "confirm-lost", node)[0] == 200
    plane.loop.decide()
    assert told(plane, "node", before) == [
        (node, "Lost: somebody confirmed it, silent for 16s; what ran there is rebuilt elsewhere")
    ]


def test_an_alarm_that_is_over_is_an_event(tmp_path: pathlib.Path) -> None:
    """Whoever reads the events later knows how long it was."""
    plane = served(tmp_path, "n0", "n1", "n2")
    node, before = home(plane), plane.journal.last
    goes_on(plane, 16, node)
    plane.hears(events.Heartbeat(node))
    plane.loop.decide()
    (_, began), (_, over) = told(plane, "alarm", before)
    assert began.startswith(f"no word from {node}: ")
    assert over == f"over: {began}"


def test_evidence_that_lifts_our_doubt_is_decided_upon_at_once(tmp_path: pathlib.Path) -> None:
    """While most nodes are silent, the word of a gateway that cannot connect to them is news; otherwise it is none."""
    plane = served(tmp_path, "n0", "n1", "n2")
    (replica,) = {shard.spec.replica for shard in plane.loop.fleet.shards.values()}
    found = events.GatewaySeen("door", 0, dark=((replica, 1.0),))
    plane.hears(events.GatewayArrived("door", apart=True))
    plane.loop._news.clear()
    plane.hears(found)
    assert not plane.loop._news.is_set()
    plane.passes(16)
    plane.hears(events.GatewaySeen("door", 0))
    plane.loop.decide()
    plane.loop._news.clear()
    plane.hears(found)
    assert plane.loop._news.is_set()


def test_a_gateway_falls_silent_without_anybody_else_saying_anything(tmp_path: pathlib.Path) -> None:
    """The loop wakes up for it, says so once, and its first word ends it at once."""
    plane = served(tmp_path)
    plane.hears(events.GatewaySeen("door", 0))
    plane.loop.decide()
    before, began = plane.journal.last, plane.clock.now()
    assert plane.loop._wake_at is not None
    assert plane.loop._wake_at <= began + plane.loop.timers.gateway_silent
    goes_on(plane, 16)
    goes_on(plane, 16)
    plane.loop._news.clear()
    plane.hears(events.GatewaySeen("door", 0))
    assert plane.loop._news.is_set()
    plane.loop.decide()
    assert [said.partition(":")[0] for _, said in told(plane, "alarm", before)] == [
        "no word from gateway door",
        "over",
    ]
