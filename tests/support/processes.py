"""Real processes under test: started with their state in a directory, ended by pid, heard on failure.

Called by end-to-end tests and by the lab. A `Processes` owns what it starts: leaving it ends
everything in reverse order, and an error on the way out carries the last words of each.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, Self

from tests.support import proc
from tests.support.waiting import wait_for

LLMGW = pathlib.Path(sysconfig.get_path("scripts")) / "llmgw"


class Process:
    """One child. Its output goes to files, so that nothing of it is lost when it is killed."""

    def __init__(
        self, name: str, argv: Sequence[str], directory: pathlib.Path, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.out = directory / f"{name}.out"
        self.err = directory / f"{name}.err"
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self._child = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**os.environ, **env}
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def said(self, lines: int = 40) -> str:
        """The last lines of its standard error."""
        return "\n".join(self.err.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        """SIGKILL, as when the machine runs out of memory. Returns when it is dead."""
        self._child.kill()
        self._child.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and do not wait."""
        self._child.send_signal(number)

    def stop(self, within: float = 15.0) -> int:
        """SIGTERM, and SIGKILL after `within` seconds. Returns the exit code."""
        if self.running:
            self._child.terminate()
        try:
            return self._child.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._child.returncode

    def must_run(self) -> None:
        """AssertionError with its last words if it has ended."""
        assert self.running, f"{self.name} ended with {self._child.returncode}:\n{self.said()}"


class Processes(contextlib.AbstractContextManager["Processes"]):
    """The children of one test, by name. A name may be started again once its process has ended.

    A SIGTERM meanwhile is a Ctrl-C: whoever ends a lab ends what it started.
    """

    def __init__(self, directory: pathlib.Path, env: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.env = dict(env or {})
        self._children: dict[str, Process] = {}
        self._ended = False
        self._before: signal.Handlers | Callable[[int, FrameType | None], Any] | int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._unwind)
        return self

    def _unwind(self, number: int, _: FrameType | None) -> None:
        self._ended = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not end what cleans up
        raise KeyboardInterrupt(f"ended by signal {number}")

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        """Start `argv` and return at once."""
        assert name not in self._children or not self._children[name].running, f"{name} already runs"
        self._children.pop(name, None)
        child = Process(name, argv, self.directory, {**self.env, **(env or {})})
        self._children[name] = child
        return child

    def llmgw(
        self, name: str, *args: str, env: Mapping[str, str] | None = None, wrapper: Sequence[str] = ()
    ) -> Process:
        """Start `llmgw` with these arguments, by way of the program `wrapper` where one is given."""
        return self.start(name, [*wrapper, str(LLMGW), *args], env)

    def last_words(self) -> str:
        """What each child said last on its standard error."""
        return "\n".join(f"--- {child.name} said:\n{child.said()}" for child in self._children.values())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self._children.values()):
            child.stop()
        if self._before is not None and not self._ended:
            signal.signal(signal.SIGTERM, self._before)
        if error is not None:
            error.add_note(self.last_words())
        if self._ended and not isinstance(error, KeyboardInterrupt):
            # A command that ran in this process took it for its own Ctrl-C, and we were meant.
            raise KeyboardInterrupt("ended by a signal") from error


def run_llmgw(
    *args: str, env: Mapping[str, str] | None = None, cwd: pathlib.Path | None = None, within: float = 30.0
) -> subprocess.CompletedProcess[str]:
    """Run one `llmgw` command to its end, without a terminal. The caller looks at the exit code."""
    return subprocess.run(
        [str(LLMGW), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )


def end_by_pid(pid: int, within: float = 10.0) -> None:
    """Kill a process that is not our child (an engine that its agent left behind) and see it gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not proc.alive(pid), f"process {pid} dies of SIGKILL", within=within)
