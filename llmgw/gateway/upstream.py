"""Connections to engines: one request at a time each, kept while they are fresh, given out newest first.

`gateway.exchange` asks on them and hears the answer; `gateway.endpoints` retires a replica's.
"""

import asyncio
import dataclasses
import os
import socket
from typing import Protocol, cast

import httptools

from llmgw.fleet.routes import Endpoint
from llmgw.gateway.relay import Head


class Hearer(Protocol):
    """Who asked. Called from the connection's reads, in order; after `complete` or `lost` no more."""

    def arrived(self, head: Head, piece: bytes, *, complete: bool) -> None:
        """The engine's head is known, and these bytes of its body (perhaps none) came."""
        ...

    def lost(self, said: str) -> None:
        """The connection ended before the answer did."""
        ...


class NotReached(Exception):
    """The engine takes no connection; its text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """`connect` = seconds to reach an engine. `kept` = seconds an idle connection is used again: below the
    5 s after which engines close theirs. `spare` = how many are kept a replica; `head` in bytes.
    """

    connect: float = 2.0
    kept: float = 4.0
    spare: int = 256
    head: int = 64 * 1024


class EngineConnection(asyncio.Protocol):
    """One connection. `reused` and `heard` are about the request under way."""

    def __init__(self, pool: "Pool", endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.reused = False
        self.heard = False
        self.idle_since = 0.0
        self._pool = pool
        self._hearer: Hearer | None = None
        self._asked = False
        self._parser = httptools.HttpResponseParser(self)
        self._clear()

    def _clear(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._head: Head | None = None
        self._pieces: list[bytes] = []
        self._complete = False
        self._keep = False
        self._before_head = 0
        self.heard = False

    def ask(self, hearer: Hearer, request: bytes) -> None:
        """Send a whole request; `hearer` hears what becomes of it."""
        self._hearer = hearer
        self.reused, self._asked = self._asked, True
        self._transport.write(request)

    def release(self, now: float) -> None:
        """The answer is complete: keep the connection for the next request, if it may be."""
        self._hearer = None
        if (
            not self._keep
            or not self.open
            or self._transport.get_write_buffer_size()  # it answered before it had read the request
        ):
            self._transport.abort()
            return
        self._clear()
        self._transport.resume_reading()
        self.idle_since = now
        self._pool.keep(self)

    def abort(self) -> None:
        """Drop it at once: an engine that sees its client gone stops generating."""
        self._hearer = None
        self._transport.abort()

    def pause(self) -> None:
        """Read nothing more: the client does not keep up."""
        if self.open:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self.open:
            self._transport.resume_reading()

    @property
    def open(self) -> bool:
        """Whether the engine has not closed it, as far as we have heard."""
        return not self._transport.is_closing()

    # --- called by the event loop ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        _notice_death(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        hearer = self._hearer
        if hearer is None:
            self._transport.abort()  # nobody asked
            return
        self.heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._lose("the engine sent what is not HTTP/1.1")
            return
        if self._head is None:
            self._before_head += len(data)
            if self._before_head > self._pool.reach.head:
                self._lose("the engine sent a head without an end")
            return
        pieces, self._pieces = self._pieces, []
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        hearer.arrived(self._head, piece, complete=self._complete)

    def connection_lost(self, error: Exception | None) -> None:
        self._pool.forget(self)
        self._lose("the engine closed the connection" if error is None else "the engine went away")

    def _lose(self, said: str) -> None:
        hearer, self._hearer = self._hearer, None
        self._transport.abort()
        if hearer is not None:
            hearer.lost(said)

    # --- called by llhttp -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self._keep = False  # more than was asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._head is None:
            self._head = Head.of(status, self._headers)
        self._headers = []

    def on_body(self, piece: bytes) -> None:
        if not self._complete:
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        if self._head is not None and not self._complete:
            self._complete = True
            self._keep = self._parser.should_keep_alive()


class Pool:
    """The connections of every replica."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._idle: dict[str, list[EngineConnection]] = {}

    def idle(self, endpoint: Endpoint, now: float) -> EngineConnection | None:
        """A kept connection that is still fresh, the newest first."""
        kept = self._idle.get(endpoint.replica)
        if not kept:
            return None
        connection = kept.pop()
        fresh = now - connection.idle_since < self.reach.kept
        if fresh and connection.open and connection.endpoint == endpoint:
            return connection
        connection.abort()
        self.retire(endpoint.replica)
        return None

    async def dial(self, endpoint: Endpoint) -> EngineConnection:
        """A new connection. Raises NotReached."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.reach.connect):
                _, connection = await loop.create_connection(
                    lambda: EngineConnection(self, endpoint), endpoint.address, endpoint.port
                )
        except TimeoutError:
            raise NotReached(f"no connection within {self.reach.connect:g} s") from None
        except (OSError, ValueError, OverflowError) as error:  # the last two: of an address that is none
            raise NotReached(_why(error)) from error
        if not connection.open:
            raise NotReached("the engine closed the connection")
        return connection

    def keep(self, connection: EngineConnection) -> None:
        """Keep `connection` for the next request to its replica."""
        kept = self._idle.setdefault(connection.endpoint.replica, [])
        kept.append(connection)
        if len(kept) > self.reach.spare:
            kept.pop(0).abort()

    def forget(self, connection: EngineConnection) -> None:
        """`connection` is closed."""
        kept = self._idle.get(connection.endpoint.replica, [])
        if connection in kept:
            kept.remove(connection)

    def retire(self, replica: str) -> None:
        """Close what is idle of a replica that gets no more requests; what is in use goes on."""
        for connection in self._idle.pop(replica, ()):
            connection.abort()

    def sweep(self, now: float) -> None:
        """Close what has been idle for too long."""
        for replica, kept in list(self._idle.items()):
            stale = [c for c in kept if now - c.idle_since >= self.reach.kept]
            fresh = [c for c in kept if now - c.idle_since < self.reach.kept]
            if fresh:
                self._idle[replica] = fresh
            else:
                del self._idle[replica]
            for connection in stale:
                connection.abort()

    def close(self) -> None:
        """Close everything that is idle."""
        for replica in list(self._idle):
            self.retire(replica)


def _why(error: Exception) -> str:
    """Without the address: clients read this."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number and number > 0 else "its address cannot be reached"


def _notice_death(sock: socket.socket) -> None:
    """Let the kernel find out within half a minute that a machine lost its power: no FIN comes then."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
