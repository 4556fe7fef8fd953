"""Starting an engine's leader and holding on to it: launched here or found alive, by a pidfd.

`agent.supervisor` calls `launch` between its two durable records, or `hold` when it adopts; the tree
below the leader is `agent.sweep`'s. Nothing an engine holds depends on the agent: it has a session of
its own, /dev/null, and its log file, and outlives us.
"""

import asyncio
import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Mapping

from llmgw.agent import marks, procfs
from llmgw.agent.kernel import LINUX, Kernel, live
from llmgw.agent.marks import Identity
from llmgw.engines.base import CommandLine
from llmgw.errors import Failed
from llmgw.kit import children
from llmgw.kit.files import open_regular

_SCRUBBED = re.compile(
    r"VLLM_|SGLANG_|SGL_|LLAMA_ARG_|LLAMA_API_KEY|LD_PRELOAD|LD_AUDIT|PYTHON|VIRTUAL_ENV|LLMGW_"
    r"|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NVIDIA_VISIBLE_DEVICES|RAY_"
    r"|NOTIFY_SOCKET|LISTEN_|WATCHDOG_|INVOCATION_ID|JOURNAL_STREAM"
)
"""What an engine must not inherit beside secrets: flags in disguise, foreign code, another supervisor's handles."""
_ENTER = f'echo 0 >"$0"; export {marks.LEADER}=$$; exec "$@"'
"""The shell that becomes the engine after it moved itself into the group and wrote its pid: same pid, no window."""


class Leader:
    """The first process of a shard, held by a pidfd: it cannot become somebody else in our hands."""

    def __init__(
        self,
        identity: Identity,
        pidfd: int,
        child: "subprocess.Popen[bytes] | None" = None,
        kernel: Kernel = LINUX,
    ) -> None:
        self.identity = identity
        self._kernel = kernel
        self._pidfd = pidfd
        self._child = child
        self._gone: asyncio.Event | None = None

    @property
    def adopted(self) -> bool:
        """Found, not started: nobody will tell us its exit status."""
        return self._child is None

    async def ended(self) -> int | None:
        """Until it has ended. Its exit status (negative: the signal), None where that cannot be known.

        Any number may wait. It is not reaped yet: its zombie keeps its session's number from meaning
        somebody else.
        """
        if self._gone is None:
            self._gone = asyncio.Event()
            asyncio.get_running_loop().add_reader(self._pidfd, self._ended)
        await self._gone.wait()
        return self._status()

    def _ended(self) -> None:
        assert self._gone is not None
        self._gone.set()
        asyncio.get_running_loop().remove_reader(self._pidfd)

    def _status(self) -> int | None:
        if self._child is None:
            return None
        try:
            found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # the kernel has reaped it, or somebody in this process has
            return None
        assert found is not None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def terminate(self) -> None:
        """SIGTERM, if it is still there."""
        self._kernel.send(self._pidfd, signal.SIGTERM)

    def close(self) -> None:
        """Let go of it. Call this after its sweep: a child that has ended is reaped here."""
        if self._child is not None:
            self._child.poll()
            # One that lives on is meant to: it belongs to the next agent.
            self._child.returncode = 0 if self._child.returncode is None else self._child.returncode
        if self._gone is not None and not self._gone.is_set():
            asyncio.get_running_loop().remove_reader(self._pidfd)
        self._kernel.let_go(self._pidfd)


def hear_of_children() -> None:
    """Undo an inherited SIGCHLD=ignore: the kernel would keep no exit status for us, nor for the engines' own children."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def launch(
    line: CommandLine, env: Mapping[str, str], identity: Identity, log: pathlib.Path, group: str = ""
) -> Leader:
    """Execute `line` with exactly `env`. `group` is the directory of its cgroup, or empty.

    Raises OSError where it cannot be executed. `log` is appended to, by the engine alone.
    """
    argv = ("/bin/sh", "-c", _ENTER, f"{group}/cgroup.procs" if group else os.devnull, *line.argv)
    must_be_executable(line.argv[0])
    boot = procfs.boot_id()
    output = open_regular(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        child = subprocess.Popen(
            argv,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(env),
            start_new_session=True,
            umask=0o077,
            close_fds=True,
        )
    finally:
        os.close(output)
    try:
        return _led(child, identity, boot)
    except OSError:
        child.kill()
        child.wait()
        raise


def must_be_executable(program: str) -> None:
    """Raises PermissionError where this user may not execute it. Waits for the mount that it lies on."""
    if not os.access(program, os.X_OK):
        raise PermissionError(f"{program} is no program that this user may execute")


def _led(child: "subprocess.Popen[bytes]", identity: Identity, boot: str) -> Leader:
    # Not reaped by anybody else, so the pid is still its own.
    pidfd = os.pidfd_open(child.pid)
    try:
        found = procfs.stat(child.pid)
        if found is None:
            raise OSError(f"pid {child.pid} cannot be looked at in {procfs.PROC}")
    except OSError:
        os.close(pidfd)
        raise
    known = Identity(identity.cookie, identity.cgroup, boot, child.pid, found.ticks, LINUX.inode(pidfd))
    return Leader(known, pidfd, child)


def hold(identity: Identity, kernel: Kernel = LINUX) -> Leader | None:
    """The live leader that `identity` names, or None where that process is gone or is another one now.

    Raises Failed where this process may hold no more, OSError where it can look at none: what cannot be held is not
    therefore gone.
    """
    try:
        handle = kernel.hold(identity.pid)
    except OSError as error:
        if error.errno in procfs.LACKING:
            raise Failed(
                f"cannot hold pid {identity.pid}: {error.strerror}",
                help="let the agent have more open files (ulimit -n, LimitNOFILE=); its engines run on",
            ) from error
        return None
    # Opened before the check: what we check is what we hold.
    held = False
    try:
        found = marks.behind(handle, identity, kernel) if identity.boot == kernel.boot_id() else None
        held = found is not None and not found.dead
    finally:
        if not held:
            kernel.let_go(handle)
    return Leader(identity, handle, kernel=kernel) if held else None


def kill(stat: procfs.Stat, identity: Identity, session: int, kernel: Kernel = LINUX) -> None:
    """SIGKILL one process of a tree, checked again through a handle that was opened before the check.

    `session` is that of the tree, 0 where none is known.
    """
    try:
        handle = kernel.hold(stat.pid)
    except OSError:
        return
    try:
        now = live(kernel, stat.pid)
        same = now is not None and now.ticks == stat.ticks
        if now is not None and same and marks.belongs(now, identity, session, kernel):
            kernel.send(handle, signal.SIGKILL)
    finally:
        kernel.let_go(handle)


def environment(
    inherited: Mapping[str, str], line: CommandLine, mark: Mapping[str, str], gpus: tuple[str, ...]
) -> dict[str, str]:
    """What the engine sees: what we inherited without what is not its business, its own, its GPUs, our mark."""
    kept = {n: value for n, value in children.environment(inherited).items() if not _SCRUBBED.match(n)}
    cards = {marks.CARDS: ",".join(gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if gpus else {}
    return {**kept, **dict(line.env), **cards, **mark}
