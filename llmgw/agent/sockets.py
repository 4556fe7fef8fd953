"""The kernel's table of TCP sockets as values. Read by `agent.procfs`, asked by `health` and `supervisor`."""

import dataclasses

LISTEN = "0A"
ESTABLISHED = "01"


@dataclasses.dataclass(frozen=True, slots=True)
class Socket:
    """One TCP socket. `state` is the kernel's hexadecimal code; an inode of 0 belongs to nobody any more."""

    local_port: int
    remote_port: int
    state: str
    inode: int


def parse(table: str) -> list[Socket]:
    """The sockets of a `/proc/net/tcp` table."""
    found: list[Socket] = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10:
            continue
        local, remote = (int(address.rpartition(":")[2], 16) for address in fields[1:3])
        found.append(Socket(local, remote, fields[3], int(fields[9])))
    return found
