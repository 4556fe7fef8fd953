"""What every protocol here asks of its socket, and how it names the other end. Used all over `transport`."""

import asyncio
import os
import socket

from llmgw.transport.limits import Limits


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The other end's `host:port`, for people."""
    name = transport.get_extra_info("peername")
    if not name:
        return "a peer that left"
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"


def reason(error: OSError) -> str:
    """`connection refused`, without asyncio's own words around it."""
    return os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else str(error)


def finish_writing(transport: asyncio.Transport) -> None:
    """Nothing more is written; what the peer still sends is read, so that it gets all we wrote."""
    if not transport.can_write_eof():  # TLS has no half of a connection: its close delivers first
        transport.close()
        return
    try:
        transport.write_eof()
    except OSError:  # the socket is dead, and its loss not yet reported
        transport.abort()


def tune_channel(transport: asyncio.BaseTransport, limits: Limits) -> None:
    """No delay for small messages; give up on a path that acknowledges nothing before we call it dead."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    patience = max(limits.timeout - limits.ping, limits.ping)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(patience * 1000))


def tune_requests(transport: asyncio.BaseTransport, limits: Limits) -> None:
    """As for channels, but a person may pause what follows for an hour: only a machine that is gone is given up."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(limits.idle)))
