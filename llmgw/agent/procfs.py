"""What /proc says of processes and sockets: the ground truth that adoption, sweeps and health stand on.

A process that ended while it was being read is None, never an error; zombies are dead. Whom we cannot look at for
want of an open file or of memory is not therefore gone: that raises OSError.
"""

import dataclasses
import errno
import os
import pathlib
from collections.abc import Iterator

from llmgw.agent.sockets import Socket, parse

PROC = pathlib.Path("/proc")
LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What says something about us, and nothing about whoever we look at."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True, slots=True)
class Stat:
    """One process. `ticks` is field 22 as it stands there: with boot id and pid it names a process.

    `cpu` is the processor time it has used, in ticks.
    """

    pid: int
    state: str
    parent: int
    session: int
    ticks: int
    cpu: int = dataclasses.field(default=0, compare=False)

    @property
    def dead(self) -> bool:
        return self.state in "ZX"


def text(path: pathlib.Path) -> str:
    """A file of the kernel. Names in it are bytes that somebody chose: as in paths, those that are no text stay."""
    return os.fsdecode(path.read_bytes())


def _of(pid: int, name: str) -> str:
    """One file of a process; empty where it is gone or not for us. Raises OSError where we lack something."""
    try:
        return text(PROC / str(pid) / name)
    except OSError as error:
        if error.errno in LACKING:
            raise
        return ""


def stat(pid: int) -> Stat | None:
    """The process `pid` now, zombies included; None where there is none. Raises OSError."""
    said = _of(pid, "stat")
    # The name stands in parentheses and may hold anything, parentheses too.
    fields = said.rpartition(")")[2].split()
    if len(fields) < 20:
        return None
    cpu = int(fields[11]) + int(fields[12])
    return Stat(pid, fields[0], int(fields[1]), int(fields[3]), int(fields[19]), cpu)


def name(pid: int) -> str:
    """What a process calls itself; empty where there is none. Raises OSError."""
    return _of(pid, "comm").removesuffix("\n")


def command(pid: int) -> tuple[str, ...]:
    """Its command line; empty where there is none, or it has none any more. Raises OSError."""
    return tuple(_of(pid, "cmdline").split("\0")[:-1])


def live(pid: int) -> Stat | None:
    """As `stat`, without zombies. Raises OSError."""
    found = stat(pid)
    return None if found is None or found.dead else found


def pids() -> Iterator[int]:
    """Every process id there is now."""
    return (int(name) for name in os.listdir(PROC) if name.isdigit())


def environ(pid: int) -> dict[str, str]:
    """The environment `pid` was executed with; empty where it may not be read. Raises OSError."""
    pairs = (item.partition("=") for item in _of(pid, "environ").split("\0"))
    return {name: value for name, found, value in pairs if found}


def cgroup(pid: int) -> str:
    """Its cgroup v2 path below the root of that hierarchy; empty where there is none. Raises OSError."""
    return next((line[3:] for line in _of(pid, "cgroup").split("\n") if line.startswith("0::")), "")


def boot_id() -> str:
    """The id of this boot: pids and ticks of another one mean nothing."""
    return text(PROC / "sys/kernel/random/boot_id").strip()


def age(ticks: int) -> float:
    """Seconds since a process with these start ticks was forked, on the clock that ticks count on."""
    return max(0.0, _uptime() - ticks / TICKS_PER_SECOND)


def ticks() -> int:
    """Now, on the clock of `age`."""
    return int(_uptime() * TICKS_PER_SECOND)


def _uptime() -> float:
    return float(text(PROC / "uptime").split()[0])


def sockets() -> list[Socket]:
    """Every TCP socket of this network namespace, IPv4 and IPv6."""
    found: list[Socket] = []
    for name in ("tcp", "tcp6"):
        try:
            found += parse(text(PROC / "net" / name))
        except OSError:
            continue  # a kernel without IPv6 has no tcp6
    return found


def socket_inodes(pid: int) -> set[int]:
    """The sockets that `pid` holds open, by inode; empty where it may not be looked into."""
    found: set[int] = set()
    try:
        names = os.listdir(PROC / str(pid) / "fd")
    except OSError:
        return found
    for name in names:
        try:
            target = os.readlink(PROC / str(pid) / "fd" / name)
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found


def holder(inode: int) -> int:
    """A process that holds the socket `inode` open; 0 where none can be seen."""
    return next((pid for pid in pids() if inode in socket_inodes(pid)), 0)
