"""The helpers that judge processes are right about them: a wrong witness would make every test green."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.support import proc
from tests.support.ports import bindable, free_block, free_port
from tests.support.processes import Processes, end_by_pid
from tests.support.waiting import wait_for

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_mark_is_seen_from_outside(processes: Processes) -> None:
    """A process that carries our mark is found by it, one without it is not."""
    ours = processes.start("ours", SLEEP, {"LLMGW_COOKIE": "c", "LLMGW_SHARD": "house-test/0"})
    other = processes.start("other", SLEEP)

    found = wait_for(lambda: proc.marked("house-test"), "the marked process shows")

    assert [seen.pid for seen in found] == [ours.pid]
    assert other.pid in {seen.pid for seen in proc.children(os.getpid())}


def test_a_zombie_is_dead() -> None:
    """A child that was killed and not yet waited for is no live process."""
    child = subprocess.Popen(SLEEP)
    assert proc.alive(child.pid)
    child.send_signal(signal.SIGKILL)

    wait_for(lambda: not proc.alive(child.pid), "the zombie counts as dead")

    assert child.wait() == -signal.SIGKILL


def test_start_ticks_tell_two_processes_apart(processes: Processes) -> None:
    """The start of a process never changes while it lives, so pid and ticks name it."""
    child = processes.start("one", SLEEP)
    ticks = proc.start_ticks(child.pid)

    assert proc.start_ticks(child.pid) == ticks
    assert proc.start_ticks(os.getpid()) <= ticks


DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("so it goes", file=sys.stderr, flush=True)
time.sleep(60)
"""


def test_a_deaf_child_is_killed(processes: Processes) -> None:
    """A child that ignores SIGTERM is killed after its grace, and its last words stay."""
    child = processes.start("deaf", [sys.executable, "-c", DEAF])
    wait_for(lambda: child.said() == "so it goes", "the child speaks")

    assert child.stop(within=0.1) == -signal.SIGKILL
    assert "so it goes" in processes.last_words()


def test_children_end_with_their_owner(tmp_path: pathlib.Path) -> None:
    """Leaving the block by an error ends what it started, and the error names each child."""
    started = Processes(tmp_path)
    child = started.start("sleeper", SLEEP)

    def fail() -> None:
        with started:
            raise RuntimeError("the test fails here")

    with pytest.raises(RuntimeError) as caught:
        fail()

    assert not proc.alive(child.pid)
    assert "sleeper said" in "".join(caught.value.__notes__)


def test_a_stranger_is_ended_by_its_pid(processes: Processes) -> None:
    """What is no child of ours is killed by pid and seen gone; killing it twice is no error."""
    child = processes.start("stranger", SLEEP)

    end_by_pid(child.pid)
    end_by_pid(child.pid)

    assert not proc.alive(child.pid)


def test_ports_are_free_and_never_given_twice() -> None:
    """Two blocks from one process do not overlap, and every port in them can be bound."""
    first, second, single = free_block(25), free_block(25), free_port()

    assert not set(first) & set(second)
    assert single not in {*first, *second}
    assert all(map(bindable, first))


def test_waiting_in_vain_says_for_what() -> None:
    """A condition that never holds ends in an error that names it and the last value."""
    with pytest.raises(AssertionError, match=r"waited 0.05 s in vain: pigs fly \(last: 0\)"):
        wait_for(lambda: 0, "pigs fly", within=0.05)


STAGED = """
import os, pathlib, subprocess, sys, time
from tests.support.stage import Stage
here = pathlib.Path(sys.argv[1])
sleep = [sys.executable, "-c", "import time; time.sleep(60)", str(here)]
mark = {**os.environ, "LLMGW_COOKIE": "c", "LLMGW_SHARD": "house-test/0"}
with Stage(here, {}) as stage:
    child = stage.processes.start("child", sleep)
    engine = subprocess.Popen(sleep, env=mark, start_new_session=True)
    print(child.pid, engine.pid, flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        pass  # as a command does that is run in this process
print("it went on", flush=True)
time.sleep(60)
"""


def test_a_lab_that_is_ended_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """SIGTERM, as a time limit sends it: its processes end, and engines that are nobody's child too."""
    lab = subprocess.Popen(
        [sys.executable, "-c", STAGED, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert lab.stdout is not None
    pids = [int(word) for word in lab.stdout.readline().split()]
    assert [proc.alive(pid) for pid in pids] == [True, True]
    lab.terminate()
    said, _ = lab.communicate(timeout=30)
    assert (said, lab.returncode != 0) == ("", True)
    assert [proc.alive(pid) for pid in pids] == [False, False]
