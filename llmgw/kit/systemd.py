"""What a service tells systemd: that it is up, that its loop still turns, that it goes. Nothing elsewhere.

One datagram each to the socket that `NOTIFY_SOCKET` names. Used by the verbs that run a process.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping


def tell(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Say `READY=1` or the like. Harmless where nobody listens: the service goes on without being heard."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    name = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(state.encode(), name)


def watchdog_every(environment: Mapping[str, str] = os.environ) -> float | None:
    """Seconds between two signs of life, half of what systemd waits; None where it waits for none of ours."""
    microseconds, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not (microseconds.isascii() and microseconds.isdecimal()) or pid not in ("", str(os.getpid())):
        return None
    return int(microseconds) / 2_000_000 or None


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[None]:
    """Signs of life from this event loop until the block ends, then word that the service goes."""
    every = watchdog_every()
    beats = asyncio.ensure_future(_beat(every)) if every is not None else None
    try:
        yield
    finally:
        if beats is not None:
            beats.cancel()
        tell("STOPPING=1")


async def _beat(every: float) -> None:
    while True:
        tell("WATCHDOG=1")
        await asyncio.sleep(every)
