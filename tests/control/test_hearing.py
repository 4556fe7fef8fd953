"""What the loop hears between two looks costs one copy of each map, and nobody's look changes afterwards."""

import pathlib

from llmgw.fleet import events
from llmgw.fleet.world import Fleet
from tests.control.plane import Plane
from tests.planning.story import a_node

NODES = [a_node(f"n{number}") for number in range(20)]


def test_events_between_two_looks_share_their_copies(tmp_path: pathlib.Path) -> None:
    """A thousand words are no thousand copies of the table of nodes; a fleet that was asked for stays as it was."""
    plane = Plane(tmp_path)
    for info in NODES:
        plane.hears(events.Registered(info))
    before, written = plane.loop.fleet, set()
    for info in NODES * 5:
        plane.clock.at += 0.01
        plane.hears(events.Heartbeat(info.id))
        written.add(id(plane.loop.glance.nodes))
    assert len(written) == 1
    assert {node.last_seen for node in before.nodes.values()} == {1000.0}
    after = plane.loop.fleet
    assert min(node.last_seen for node in after.nodes.values()) > 1000.0
    assert plane.loop.fleet is after
    plane.hears(events.Heartbeat("n0"))
    assert plane.loop.glance.nodes is not after.nodes


def test_the_fleet_is_what_each_event_makes_of_it(tmp_path: pathlib.Path) -> None:
    """Heard together they make the fleet that they make one by one."""
    plane = Plane(tmp_path)
    one_by_one = Fleet(since=plane.clock.now())
    happened: list[events.Event] = [
        *(events.Registered(info) for info in NODES),
        *(events.Heartbeat(info.id) for info in NODES),
        events.Disconnected("n3"),
        events.GatewaySeen("door", 1, (("m/x", 2),)),
        events.NodeForgotten("n4"),
    ]
    for event in happened:
        plane.clock.at += 0.5
        plane.hears(event)
        one_by_one = one_by_one.apply(event, plane.clock.now())
    assert plane.loop.fleet == one_by_one


def test_a_word_that_changes_nothing_copies_nothing(tmp_path: pathlib.Path) -> None:
    """A heartbeat of nobody leaves the very fleet."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODES[0]))
    fleet = plane.loop.fleet
    plane.hears(events.Heartbeat("nobody"))
    assert plane.loop.fleet is fleet
