"""Which ports an engine could not have, asked of the kernel by binding them; and who holds them.

Called by `agent.launcher` for a shard's ports, by `agent.inventory` for the node's. No table shows a socket that is
only bound, and one of an outgoing connection that listens nowhere keeps an engine from its port as well. What SO_REUSEADDR
lets pass is free: engines set it, and what their own last connections left behind is in nobody's way.
"""

import errno
import socket
from collections.abc import Iterable

from llmgw.agent import procfs

_CLOSING = frozenset({"04", "05", "06", "0B"})
"""A connection that nobody holds any more, by the kernel's codes: FIN-WAIT, TIME-WAIT, CLOSING."""


def taken(ports: Iterable[int]) -> tuple[int, ...]:
    """Those of `ports` that could not be bound on every address of this machine. Raises OSError."""
    family = _family()
    return tuple(port for port in ports if _taken(port, family))


def holder(port: int) -> str:
    """Who holds a port that is taken, in words."""
    found = [each for each in procfs.sockets() if each.local_port == port]
    if pid := next((pid for each in found if each.inode and (pid := procfs.holder(each.inode))), 0):
        return f"pid {pid}"
    if found and all(each.state in _CLOSING for each in found):
        return "a connection that is closing: wait a minute"
    return "a process that this user may not see" if found else "a process that bound it and does not listen"


def _taken(port: int, family: socket.AddressFamily) -> bool:
    with _socket(family) as attempt:
        try:
            attempt.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return True
    return False


def _socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return made


def _family() -> socket.AddressFamily:
    """IPv6 stands for both; where this kernel has none, IPv4."""
    try:
        with _socket(socket.AF_INET6) as attempt:
            attempt.bind(("", 0))
    except OSError as error:
        if error.errno in procfs.LACKING:
            raise
        return socket.AF_INET
    return socket.AF_INET6
