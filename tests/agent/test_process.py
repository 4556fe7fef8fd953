"""Launching, holding and ending processes: the promises below the supervisor."""

import asyncio
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from llmgw.agent import marks, process, procfs
from llmgw.agent.marks import Identity
from llmgw.agent.sweep import Sweeping, SweepTimers, Tree
from llmgw.engines.base import CommandLine
from tests.agent.house import alive, until

NODE, KEY = "node-process", ("alpha/x7qf", 0)
FAST = SweepTimers(look=0.01, patience=0.1, slow_look=0.02)


def begin(tmp_path: pathlib.Path, code: str) -> process.Leader:
    """A marked Python process that runs `code`."""
    cookie = marks.new_cookie()
    env = {**marks.environment(NODE, KEY, cookie), "PATH": "/bin:/usr/bin"}
    line = CommandLine((sys.executable, "-S", "-c", code))
    leader = process.launch(line, env, Identity(cookie), tmp_path / "log")
    # A shell becomes the program. In the instant after an exec /proc shows no environment.
    while alive(leader.identity.pid) and marks.LEADER not in procfs.environ(leader.identity.pid):
        time.sleep(0.001)
    return leader


@pytest.fixture(autouse=True)
def _nobody_is_left() -> Iterator[None]:
    """Whatever a test leaves is ended, and was a fault of the test."""
    yield
    left = marks.scan(NODE)
    for mark in left:
        os.kill(mark.pid, signal.SIGKILL)
    assert left == ()


async def swept(leader: process.Leader) -> list[str]:
    """Sweep the leader's tree; what was said about who lingers."""
    said: list[str] = []
    await Tree(leader.identity, None, leader).sweep(FAST, no_card, said.append)
    return said


async def no_card(_: object) -> str:
    """No card charges anybody."""
    return ""


@pytest.mark.parametrize(
    ("code", "status"),
    [("pass", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 6)", -6)],
)
def test_the_exit_of_a_child_is_known(tmp_path: pathlib.Path, code: str, status: int) -> None:
    """Exit codes as they are, signals negative, and any number of waiters."""

    async def story() -> None:
        leader = begin(tmp_path, code)
        assert await asyncio.gather(leader.ended(), leader.ended()) == [status, status]
        await swept(leader)

    asyncio.run(story())


@pytest.fixture
def deaf() -> Iterator[None]:
    """A parent that ignored SIGCHLD: its children inherit that over exec, and the kernel reaps theirs."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("deaf")
def test_an_exit_that_the_kernel_did_not_keep_is_unknown(tmp_path: pathlib.Path) -> None:
    """The end is seen all the same, and nobody is ended for want of a number."""

    async def story() -> None:
        leader = begin(tmp_path, "import time; time.sleep(0.3); raise SystemExit(7)")
        assert await leader.ended() is None
        assert procfs.stat(leader.identity.pid) is None  # no zombie: it was reaped for us
        await swept(leader)

    asyncio.run(story())


@pytest.mark.usefixtures("deaf")
def test_an_inherited_deafness_is_undone(tmp_path: pathlib.Path) -> None:
    """Exits are known again, and the engine does not inherit it either."""

    async def story() -> None:
        process.hear_of_children()
        leader = begin(tmp_path, "import signal as s; raise SystemExit(7 + (s.getsignal(s.SIGCHLD) != 0))")
        assert await leader.ended() == 7
        await swept(leader)

    asyncio.run(story())


def test_a_child_is_not_reaped_before_its_sweep(tmp_path: pathlib.Path) -> None:
    """Its zombie keeps its session's number; after the sweep it is gone."""

    async def story() -> None:
        leader = begin(tmp_path, "pass")
        await leader.ended()
        zombie = procfs.stat(leader.identity.pid)
        assert zombie is not None
        assert zombie.dead
        await swept(leader)
        assert procfs.stat(leader.identity.pid) is None

    asyncio.run(story())


def test_a_zombie_is_dead(tmp_path: pathlib.Path) -> None:
    """`kill -0` calls it alive; we do not."""

    async def story() -> None:
        leader = begin(tmp_path, "pass")
        await leader.ended()
        os.kill(leader.identity.pid, 0)
        assert not alive(leader.identity.pid)
        assert marks.members(leader.identity) == ()
        await swept(leader)

    asyncio.run(story())


def test_what_is_held_is_what_was_checked(tmp_path: pathlib.Path) -> None:
    """An identity that is wrong in any part is held by nobody."""

    async def story() -> None:
        leader = begin(tmp_path, "import time; time.sleep(600)")
        right = leader.identity
        held = process.hold(right)
        assert held is not None
        assert held.adopted
        held.close()
        for wrong in (
            dataclasses.replace(right, ticks=right.ticks + 1),
            dataclasses.replace(right, boot="another"),
            dataclasses.replace(right, cookie="another"),
            dataclasses.replace(right, pid=os.getpid()),
        ):
            assert process.hold(wrong) is None
        await swept(leader)

    asyncio.run(story())


def test_an_adopted_leaders_end_is_seen_and_its_status_is_unknown(tmp_path: pathlib.Path) -> None:
    """A pidfd tells that a process ended, to whoever holds it; the status is its parent's alone."""

    async def story() -> None:
        leader = begin(tmp_path, "import time; time.sleep(600)")
        held = process.hold(leader.identity)
        assert held is not None
        waiting = asyncio.ensure_future(held.ended())
        await asyncio.sleep(0)
        assert not waiting.done()
        os.kill(leader.identity.pid, signal.SIGKILL)
        assert await waiting is None
        held.close()
        await swept(leader)

    asyncio.run(story())


def test_a_fork_storm_ends(tmp_path: pathlib.Path) -> None:
    """Children that are born while others are killed are found by the next look."""
    storm = (
        "import os, time, signal\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end:\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        time.sleep(0.05)\n"
        "    else:\n"
        "        time.sleep(0.05)\n"
    )

    async def story() -> None:
        leader = begin(tmp_path, storm)
        await until(lambda: len(marks.members(leader.identity)) >= 4, "the storm")
        await swept(leader)
        assert marks.members(leader.identity) == ()

    asyncio.run(story())


def test_memory_that_is_still_charged_holds_the_sweep_up(tmp_path: pathlib.Path) -> None:
    """Everybody is dead, a card still charges one of them: not over, and said so, until it is paid back."""

    async def story() -> None:
        leader = begin(tmp_path, "import time; time.sleep(600)")
        asked: list[frozenset[int]] = []
        said: list[str] = []

        async def holds(pids: frozenset[int]) -> str:
            asked.append(pids)
            return "" if said else "GPU 0 still charges 512 MiB"

        await Tree(leader.identity, None, leader).sweep(FAST, holds, said.append)
        assert said == ["GPU 0 still charges 512 MiB"]
        assert asked[0] == {leader.identity.pid}

    asyncio.run(story())


def test_what_cannot_be_killed_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL without effect: the sweep goes on, and says which pid is left."""

    async def story() -> None:
        leader = begin(tmp_path, "import time; time.sleep(600)")
        kill, said = process.kill, list[str]()
        monkeypatch.setattr(process, "kill", lambda *_: None)

        def lingers(words: str) -> None:
            said.append(words)
            monkeypatch.setattr(process, "kill", kill)

        await Tree(leader.identity, None, leader).sweep(FAST, no_card, lingers)
        assert said[0].startswith(f"cannot end pid {leader.identity.pid} (state S)")

    asyncio.run(story())


def test_no_signal_reaches_a_process_without_our_mark(tmp_path: pathlib.Path) -> None:
    """The neighbours of a swept tree live on, one with another node's mark among them."""

    async def story() -> None:
        neighbour = bystander({})
        other = bystander(marks.environment("node-other", KEY, marks.new_cookie()))
        leader = begin(tmp_path, "import time; time.sleep(600)")
        try:
            await swept(leader)
            assert (neighbour.poll(), other.poll()) == (None, None)
            assert other.pid not in [mark.pid for mark in marks.scan(NODE)]
        finally:
            for each in (neighbour, other):
                each.kill()
                each.wait()

    asyncio.run(story())


def bystander(env: dict[str, str]) -> "subprocess.Popen[bytes]":
    """A process that is none of our business."""
    return subprocess.Popen(["/bin/sleep", "600"], env=env)


def test_a_program_that_cannot_be_executed_is_said_to_be_so(tmp_path: pathlib.Path) -> None:
    """An error in words, and no process."""
    line = CommandLine((str(tmp_path / "missing"),))
    with pytest.raises(OSError, match="is no program that this user may execute"):
        process.launch(line, {}, Identity("c"), tmp_path / "log")


def test_an_engine_inherits_what_is_harmless() -> None:
    """Flags in disguise, foreign code and secrets stay with the agent; the profile's words come through."""
    inherited = dict.fromkeys(
        [
            "PATH",
            "HOME",
            "LD_LIBRARY_PATH",
            "NCCL_DEBUG",
            "LLAMA_ARG_PORT",
            "VLLM_PORT",
            "SGLANG_X",
            "LD_PRELOAD",
            "PYTHONPATH",
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "LLMGW_TOKEN",
            "CUDA_VISIBLE_DEVICES",
            "NOTIFY_SOCKET",
            "MY_API_KEY",
        ],
        "x",
    )
    line = CommandLine(("engine",), (("VLLM_LOGGING_LEVEL", "WARNING"),))
    env = process.environment(inherited, line, {"LLMGW_SHARD": "s"}, ())
    assert set(env) == {"PATH", "HOME", "LD_LIBRARY_PATH", "NCCL_DEBUG", "VLLM_LOGGING_LEVEL", "LLMGW_SHARD"}


def test_a_sweep_ends_with_two_clean_looks_in_a_row() -> None:
    """One can fall between a death and a fork; what takes long is looked at less often."""
    timers = SweepTimers(look=0.05, patience=60.0, slow_look=1.0)
    one = Sweeping(begun=100.0).looked("", 100.0, timers)
    assert not one.over
    assert not one.looked("pid 7", 100.1, timers).looked("", 100.2, timers).over
    assert one.looked("", 100.1, timers).over
    late = one.looked("pid 7", 160.0, timers)
    assert (late.late, late.wait(timers), one.wait(timers)) == (True, 1.0, 0.05)
