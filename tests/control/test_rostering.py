"""Who a restart waits for: on disk before anything is decided, and not once for each who comes."""

import pathlib

import pytest

from llmgw.control.rostering import EVERY, Rostering
from llmgw.control.store import Roster, Store
from llmgw.fleet import events
from llmgw.fleet.node import NodeInfo
from llmgw.planning.actions import Action
from tests.control.plane import Plane, files

MANY = 50


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Roster]:
    """Every roster that was written."""
    written: list[Roster] = []
    right = Store.save_roster

    def save(self: Store, roster: Roster) -> None:
        written.append(roster)
        right(self, roster)

    monkeypatch.setattr(Store, "save_roster", save)
    return written


def made(tmp_path: pathlib.Path) -> tuple[Plane, Rostering]:
    """A control plane whose passes find the roster on disk."""
    plane = Plane(tmp_path)
    rostering = Rostering(plane.store, plane.keeping, plane.clock)
    plane.loop.prepare = rostering.write
    return plane, rostering


def comes(plane: Plane, rostering: Rostering, name: str) -> None:
    """A node registers, as `serve` hears it."""
    plane.hears(events.Registered(NodeInfo(name, f"gpu-{name}", engines=None)))
    rostering.met("agent", name, f"gpu-{name}")


def test_newcomers_of_one_pass_are_one_writing(tmp_path: pathlib.Path, saved: list[Roster]) -> None:
    """A new fleet that comes at once is written once, and before the first order is given."""
    plane, rostering = made(tmp_path)
    known: list[int] = []

    def dispatch(_: Action) -> bool:
        known.append(len(Store(tmp_path).roster().nodes))
        return True

    plane.loop._dispatch = dispatch
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    for number in range(MANY):
        comes(plane, rostering, f"n{number}")
    assert not saved
    plane.loop.decide()
    assert len(saved) == 1
    assert set(known) == {MANY}
    plane.loop.decide()
    assert len(saved) == 1


def test_who_is_known_is_written_for_all_that_came(tmp_path: pathlib.Path, saved: list[Roster]) -> None:
    """A fleet that comes back holds no pass up: its file is due, once for everybody."""
    plane, rostering = made(tmp_path)
    for number in range(MANY):
        comes(plane, rostering, f"n{number}")
    plane.loop.decide()
    saved.clear()
    for number in range(MANY):
        comes(plane, rostering, f"n{number}")
    plane.loop.decide()
    assert not saved
    assert rostering.owes(())
    rostering.keep(plane.loop.fleet, (), ())
    assert len(saved) == 1
    assert not rostering.owes(())
    plane.clock.at += EVERY + 1.0
    assert rostering.owes(())


def test_a_loss_that_was_acted_on_is_owed(tmp_path: pathlib.Path) -> None:
    """No restart waits for a node whose loss was acted on, until it is there again."""
    plane, rostering = made(tmp_path)
    comes(plane, rostering, "n0")
    plane.loop.decide()
    plane.hears(events.Disconnected("n0"))
    assert not rostering.owes(["elsewhere"])
    assert rostering.owes(["n0"])
    rostering.keep(plane.loop.fleet, ["n0"], ())
    assert Store(tmp_path).roster().nodes["n0"].lost
    assert not rostering.owes(["n0"])
    assert rostering.fleet().roster == frozenset()
    comes(plane, rostering, "n0")
    plane.loop.decide()
    assert not Store(tmp_path).roster().nodes["n0"].lost


def test_the_last_newcomer_is_kept_at_the_end(tmp_path: pathlib.Path) -> None:
    """Who came after the last pass is waited for as well; a gateway is known by its name."""
    plane, rostering = made(tmp_path)
    comes(plane, rostering, "n0")
    plane.hears(events.GatewayArrived("door"))
    rostering.met("gateway", "door", "door")
    rostering.close(plane.loop.fleet, (), ["door"])
    again = Store(tmp_path).roster()
    assert (set(again.nodes), set(again.gateways)) == ({"n0"}, {"door"})
    rostering.forget("n0")
    assert rostering.fleet().roster == frozenset()


def test_too_few_open_files_are_said(tmp_path: pathlib.Path) -> None:
    """A fleet that could not connect is told with its numbers; no limit is enough for everybody."""
    plane, rostering = made(tmp_path)
    for number in range(MANY):
        comes(plane, rostering, f"n{number}")
    rostering.met("gateway", "door", "door")
    assert rostering.too_many(300) == "50 nodes and 1 gateway need 307 open files here, and 300 are allowed"
    assert rostering.too_many(307) == rostering.too_many(None) == ""
