"""`llmgw up` from the first line to the last pid: it serves, answers, and leaves nothing behind."""

import contextlib
import os
import pathlib
import signal
from collections.abc import Iterator, Sequence

import pytest

from tests.support import proc
from tests.support.clients import client, plain
from tests.support.processes import Process
from tests.support.stage import Stage
from tests.support.waiting import wait_for

SAID = "I am alpha, on this machine."


@pytest.fixture
def stage(tmp_path: pathlib.Path) -> Iterator[Stage]:
    """A catalog of one scripted model, whose weights are served at once."""
    with Stage(tmp_path, {"alpha": SAID}) as fleet:
        fleet.profile()
        fleet.model("alpha", aliases=["default"])
        fleet.commit("one model")
        fleet.server.gate.set()
        yield fleet


def up_with(stage: Stage, name: str = "up", wrapper: Sequence[str] = (), more: Sequence[str] = ()) -> Process:
    """`llmgw up`, just begun."""
    listen = ("--listen", f"127.0.0.1:{stage.gateway_port}", "--metrics", f"127.0.0.1:{stage.metrics_port}")
    where = ("--control", stage.server_address, *listen, "--state-dir", str(stage.directory / "up"))
    catalog = str(stage.repository / "catalog")
    return stage.processes.llmgw(name, "up", catalog, *where, *more, wrapper=wrapper)


def up(stage: Stage, name: str = "up") -> Process:
    """`llmgw up`, once it has answered its own question through its gateway."""
    started = up_with(stage, name)

    def serves() -> bool:
        started.must_run()
        return "Ctrl-C drains" in started.out.read_text()

    wait_for(serves, "it says how to stop it", within=60.0)
    return started


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_up_serves_and_leaves_nothing_behind(stage: Stage, number: signal.Signals) -> None:
    """One command serves the catalog; Ctrl-C stops engines and all, and the weights stay for the next time."""
    started = up(stage)
    with client(stage.gateway_port) as asked:
        assert plain(asked, "default") == SAID
    assert SAID in started.out.read_text()
    (engine,) = stage.engines()

    started.signal(number)

    wait_for(lambda: not started.running, "it ends", within=30.0)
    assert not proc.alive(engine.pid), started.said()
    assert stage.engines() == []
    assert len(stage.cached("alpha")) == 1


def test_a_screen_that_closes_first_does_not_end_the_drain(stage: Stage, tmp_path: pathlib.Path) -> None:
    """`up 2>&1 | tee`: Ctrl-C ends tee as well, and the lines of the farewell have nobody to read them."""
    pipe = tmp_path / "screen"
    os.mkfifo(pipe)
    screen, shown = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), bytearray()
    started = up_with(stage, "up", ("sh", "-c", 'exec "$@" > "$0" 2>&1', str(pipe)), ("-v",))

    def serves() -> bool:
        started.must_run()
        with contextlib.suppress(BlockingIOError):
            shown.extend(os.read(screen, 65536))
        return b"Ctrl-C drains" in shown

    wait_for(serves, "it says how to stop it", within=60.0)
    (engine,) = stage.engines()

    os.close(screen)
    started.signal(signal.SIGINT)

    wait_for(lambda: not started.running, "it ends", within=30.0)
    assert started.stop() == 0
    assert not proc.alive(engine.pid)
    assert stage.engines() == []


def test_up_again_fetches_nothing(stage: Stage) -> None:
    """The second time the weights are there: not a byte is fetched, and it serves as before."""
    started = up(stage)
    served = dict(stage.server.served)
    assert started.stop(within=30.0) in (0, 130)

    up(stage, "again")

    assert stage.server.served == served
    with client(stage.gateway_port) as asked:
        assert plain(asked, "alpha") == SAID
