"""Ports that nobody holds, for tests that must name one before they start what listens on it."""

import contextlib
import itertools
import os
import socket

FIRST, LAST = 12000, 29999
"""Below the range that the kernel hands out by itself, so a client's socket cannot take one meanwhile."""

_next = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """A port of the loopback address that can be bound now."""
    return free_block(1)[0]


def free_block(length: int) -> range:
    """That many consecutive ports which can all be bound now. Never the same twice from one process."""
    for _ in range(1000):
        block = _block(length)
        if block.stop <= LAST and all(map(bindable, block)):
            return block
    raise RuntimeError(f"cannot find {length} consecutive free ports in {FIRST}-{LAST}")


def bindable(port: int) -> bool:
    """Whether the port could be bound on loopback at this moment."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _block(length: int) -> range:
    steps = -(-length // 10)
    start = FIRST + next(_next) * 10 % (LAST - FIRST)
    for _ in range(steps - 1):
        next(_next)
    return range(start, start + length)
