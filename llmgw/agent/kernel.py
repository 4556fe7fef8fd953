"""What the agent asks the kernel about processes, and the one way to send a signal: by a handle.

`agent.marks`, `agent.process` and `agent.sweep` decide by it. `LINUX` is the real one; another one,
with processes of its own, is how these decisions are tried by the thousand.
"""

import functools
import os
import signal
from collections.abc import Iterable, Mapping
from typing import Protocol

from llmgw.agent import procfs


class Kernel(Protocol):
    """One machine's processes. A handle names one process for good, whoever has its pid later."""

    def me(self) -> int:
        """The pid of this agent."""
        ...

    def boot_id(self) -> str:
        """The id of this boot."""
        ...

    def pids(self) -> Iterable[int]:
        """Every process id there is now."""
        ...

    def stat(self, pid: int) -> procfs.Stat | None:
        """The process `pid` now, zombies included; None where there is none."""
        ...

    def environ(self, pid: int) -> Mapping[str, str]:
        """The environment it was executed with; empty where it may not be read."""
        ...

    def cgroup(self, pid: int) -> str:
        """Its cgroup v2 path; empty where there is none."""
        ...

    def hold(self, pid: int) -> int:
        """A handle of the process that has `pid` now. Raises OSError where there is none."""
        ...

    def inode(self, handle: int) -> int:
        """A number that no other process of this boot has or had; 0 where this kernel gives none."""
        ...

    def send(self, handle: int, number: signal.Signals) -> None:
        """A signal to the process behind `handle`; nothing where it has ended."""
        ...

    def let_go(self, handle: int) -> None:
        """Close a handle."""
        ...


class Linux:
    """This machine: /proc, and pidfds for handles."""

    def me(self) -> int:
        return os.getpid()

    def boot_id(self) -> str:
        return procfs.boot_id()

    def pids(self) -> Iterable[int]:
        return procfs.pids()

    def stat(self, pid: int) -> procfs.Stat | None:
        return procfs.stat(pid)

    def environ(self, pid: int) -> Mapping[str, str]:
        return procfs.environ(pid)

    def cgroup(self, pid: int) -> str:
        return procfs.cgroup(pid)

    def hold(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def inode(self, handle: int) -> int:
        found = os.fstat(handle)
        return 0 if found.st_dev == _anonymous() else found.st_ino

    def send(self, handle: int, number: signal.Signals) -> None:
        try:
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return

    def let_go(self, handle: int) -> None:
        os.close(handle)


LINUX: Kernel = Linux()


@functools.cache
def _anonymous() -> int:
    """The file system of descriptors that share one inode: before Linux 6.9 pidfds are among them."""
    handle = os.eventfd(0)
    try:
        return os.fstat(handle).st_dev
    finally:
        os.close(handle)


def live(kernel: Kernel, pid: int) -> procfs.Stat | None:
    """As `Kernel.stat`, without zombies."""
    found = kernel.stat(pid)
    return None if found is None or found.dead else found
