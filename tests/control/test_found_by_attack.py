"""Histories that an attack on the control plane found, each told as a story."""

import asyncio
import datetime
import errno
import pathlib

import pytest

from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.sources import Source
from llmgw.control.holding import Rules
from llmgw.control.knowledge import Knowledge
from llmgw.control.store import Store
from llmgw.control.trees import Directory
from llmgw.fleet import events
from llmgw.kit.clock import SystemClock
from llmgw.planning.actions import Assign
from llmgw.transport.ranges import CannotRead
from tests.control.following import PACE, Followed, write
from tests.control.plane import Clock, Plane, files
from tests.control.test_hands import act, home, node, served

AUTO = Rules("files", "auto")
DAY = 86_400.0


class Jumpy(Clock):
    """A clock whose wall somebody sets; what nobody sets goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.off = 0.0

    def wall(self) -> datetime.datetime:
        return super().wall() + datetime.timedelta(seconds=self.off)


# --- the switch -------------------------------------------------------------------------------


def test_whoever_was_told_that_it_is_held_was_told_the_truth(tmp_path: pathlib.Path) -> None:
    """Held while a tree is being looked into: it is not adopted, and taken once the hold ends."""
    looked: list[bool] = []
    go_on = asyncio.Event()

    async def slow(source: Source) -> ModelFacts:
        looked.append(True)
        await go_on.wait()
        raise CannotRead(source.canonical)

    clock, root = Clock(), tmp_path / "catalog"
    write(root, files("qwen"))
    made = Plane(tmp_path / "state", clock=clock, knowledge=Knowledge(slow, clock))
    followed = Followed(tmp_path / "state", Directory(root, SystemClock()), AUTO, plane=made)

    async def day() -> None:
        await followed.watch.look()
        clock.at += PACE.settle
        looking = asyncio.create_task(followed.watch.look())
        async with asyncio.timeout(5):
            while not looked:
                await asyncio.sleep(0.001)
        made.switch.hold("dana", "incident", None)
        go_on.set()
        await looking
        assert followed.number == 0
        made.switch.release("dana")
        await followed.watch.look()
        assert followed.number == 1

    asyncio.run(day())


def test_a_hold_and_a_mark_last_as_long_as_they_were_asked_for(tmp_path: pathlib.Path) -> None:
    """The wall clock jumps a day ahead: four hours are four hours, also after another hand set a mark."""
    clock = Jumpy()
    made = Plane(tmp_path, clock=clock)
    for name in ("n0", "n1"):
        made.hears(events.Registered(node(name)))
    made.switch.hold("dana", "incident", 4 * 3600)
    act(made, "drain", "n0", seconds=4 * 3600)
    clock.off = DAY
    act(made, "cordon", "n1", seconds=2 * 3600)
    clock.at += 2 * 3600
    made.loop.decide()
    assert made.switch.held is not None
    assert list(made.loop.desired.marks.draining) == ["n0"]
    assert not made.loop.desired.marks.cordoned
    clock.at += 2 * 3600
    made.loop.decide()
    assert made.switch.held is None
    assert not made.loop.desired.marks.draining


def test_a_jump_back_makes_no_hold_longer(tmp_path: pathlib.Path) -> None:
    """The wall clock goes back a day; the hold ends when its hours are over, and what waited is looked at."""
    clock = Jumpy()
    made = Plane(tmp_path, clock=clock)
    woken: list[bool] = []
    made.switch.released = lambda: woken.append(True)
    made.switch.hold("dana", "incident", 3600)
    clock.off = -DAY
    clock.at += 3600
    assert made.switch.held is None
    made.switch.expire()
    made.switch.expire()
    assert woken == [True]
    assert Store(tmp_path).on_hold() is None


def test_asking_who_holds_it_writes_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold ended on a disk that refuses: the answer is nobody; forgetting it is tried until it is kept."""
    made = Plane(tmp_path)
    made.switch.hold("dana", "incident", 10)
    made.clock.at += 11

    def refuses(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path / "hold.json"))

    with monkeypatch.context() as broken:
        broken.setattr(Store, "save_on_hold", refuses)
        assert made.call("GET", "/v1/hold") == (200, None)
        made.switch.expire()
        assert made.journal.after(0)[-1].kind == "alarm"
        assert Store(tmp_path).on_hold() is not None
    made.keeping.again()
    assert Store(tmp_path).on_hold() is None


# --- hands ------------------------------------------------------------------------------------


def test_what_a_restart_has_not_heard_is_not_forgotten_unconfirmed(tmp_path: pathlib.Path) -> None:
    """Nothing is known of a node that has not spoken yet: its model would be started a second time."""
    before = served(tmp_path, "n0", "n1")
    away = home(before)
    other = ({"n0", "n1"} - {away}).pop()
    made = Plane(tmp_path, roster=frozenset({"n0", "n1"}), clock=before.clock)
    made.adoption.resume()
    made.hears(events.Registered(node(other)))
    status, said = act(made, "forget", away)
    assert status == 423
    assert "has not spoken since this control plane started" in said
    made.loop.decide()
    assert not [action for action in made.sent if isinstance(action, Assign)]
    assert act(made, "confirm-lost", away)[0] == 200
    assert act(made, "forget", away)[0] == 200


def test_an_id_wins_over_a_name(tmp_path: pathlib.Path) -> None:
    """A node calls itself by another one's id: every hand still reaches that one, and the other by its own id."""
    made = Plane(tmp_path)
    made.hears(events.Registered(node("n0", "gpu-a")))
    made.hears(events.Registered(node("n9", "n0")))
    assert act(made, "cordon", "n9")[0] == 200
    assert act(made, "cordon", "n0") == (200, "gpu-a is cordoned: nothing new is placed on it")
    assert act(made, "uncordon", "n0")[0] == 200
    assert list(made.loop.desired.marks.cordoned) == ["n9"]
    assert act(made, "uncordon", "n0")[1] == "gpu-a was not cordoned anyhow"
