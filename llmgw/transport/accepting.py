"""Accepts sockets, with TLS or without, and counts them from the first moment. Used by `transport.listener`.

asyncio's own server tells of a socket only after its handshake, and at the limit of open files it logs a
stack trace for each place in its backlog. A client that says nothing costs a file here, and no TLS yet.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from llmgw.kit.descriptors import limit
from llmgw.kit.tasks import Tasks
from llmgw.transport.limits import Limits, Seldom
from llmgw.transport.sockets import reason

log = logging.getLogger(__name__)

BACKLOG = 1024
"""Sockets that the kernel keeps while others are accepted: a fleet that comes at once."""

PAUSE = 0.1
"""Seconds for which nobody is accepted after somebody could not be."""

SPARE = 32
"""Open files that sockets leave to everything else: what is decided has to be written down."""


class Accepting:
    """From `start` to `close` every socket that comes becomes a `protocol`, or is closed.

    `connected` says how many are protocols already: with those under way there are `limits.connections` at most.
    """

    def __init__(
        self, limits: Limits, protocol: Callable[[], asyncio.Protocol], connected: Callable[[], int]
    ) -> None:
        self.handshakes = 0
        self._limits, self._protocol, self._connected = limits, protocol, connected
        self._places = asyncio.Semaphore(limits.handshakes)
        self._coming: set[socket.socket] = set()
        self._sockets: list[socket.socket] = []
        self._tasks = Tasks()
        self._refusals = Seldom()

    @property
    def coming(self) -> int:
        """How many sockets are no protocols yet."""
        return len(self._coming)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> tuple[str, int]:
        """Listen; returns where. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, address in dict.fromkeys((family, address) for family, *_, address in found):
                self._sockets.append(_listening(family, address))
        except OSError:
            self._close_sockets()
            raise
        for listening in self._sockets:
            self._tasks.start(f"accept at {host}:{port}", self._accept(listening, tls))
        address = self._sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def close(self) -> None:
        """Accept nobody any more; who is under way is let go of."""
        await self._tasks.close()
        self._close_sockets()

    def _close_sockets(self) -> None:
        while self._sockets:
            self._sockets.pop().close()

    # --- one socket --------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            said = ""
            try:
                sock, _ = await loop.sock_accept(listening)
            except ConnectionError:
                pass  # it left while it waited
            except OSError as error:
                said = reason(error)
            else:
                if said := self._full(sock):
                    sock.close()
                else:
                    self._coming.add(sock)
                    self._tasks.start("welcome", self._welcome(sock, tls))
            if said:
                self._tell(said)
            await asyncio.sleep(PAUSE if said else 0)

    def _full(self, sock: socket.socket) -> str:
        """Why there is no room for one more, or nothing."""
        if self._connected() + len(self._coming) >= self._limits.connections:
            return f"{self._limits.connections} are the most"
        most = limit()  # numbers are given from the lowest: a high one says how many files are open
        return f"{most} open files are the most" if most and sock.fileno() >= most - SPARE else ""

    def _tell(self, said: str) -> None:
        many = self._connected() + len(self._coming)
        line = (
            f"cannot accept a connection: {said}; {many} are open, which stay. Accepting goes on once there is"
            f" room: end some, or raise the limit of files (LimitNOFILE=, ulimit -n)"
        )
        if line := self._refusals.said(line, asyncio.get_running_loop().time()):
            log.warning("%s", line)

    async def _welcome(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        handed = False
        try:
            if tls is not None:
                async with asyncio.timeout(self._limits.head_timeout):
                    await _spoke(sock)
                    await self._places.acquire()
                self.handshakes += 1
            handed = True
            await self._connect(sock, tls)
        except OSError as error:  # of a handshake, or out of time: the client sees it too
            log.debug("a connection came to nothing: %s", error)
        finally:
            self._coming.discard(sock)
            if not handed:
                sock.close()

    async def _connect(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        patience = self._limits.handshake_timeout if tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, sock, ssl=tls, ssl_handshake_timeout=patience
            )
        finally:
            if tls is not None:
                self.handshakes -= 1
                self._places.release()


async def _spoke(sock: socket.socket) -> None:
    """Until there is something to read from the socket, or its end."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
