"""The serving end: one port for channels (HTTP/2 with prior knowledge) and for requests (HTTP/1.1).

The control plane's `serve.py` makes it, with `Peers.serve` for channels and its API for requests.
Every handler runs as a task of the listener and ends with it.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from llmgw.errors import Failed
from llmgw.kit.tasks import Tasks
from llmgw.transport.accepting import Accepting
from llmgw.transport.channel import Channel, ChannelClosed
from llmgw.transport.connection import PREFACE, Connection
from llmgw.transport.http import anybody
from llmgw.transport.http1 import Door, Handler, Http1, Room
from llmgw.transport.limits import Limits, Seldom
from llmgw.transport.sockets import peer_of, reason

log = logging.getLogger(__name__)


class Listener:
    """Listens from `start` to `close`. `on_channel` gets each channel and may keep it as long as it runs:
    the channel is closed when it returns. `on_request` answers each HTTP/1.1 request that the `door` lets in.
    """

    def __init__(
        self,
        on_channel: Callable[[Channel], Awaitable[None]],
        on_request: Handler,
        *,
        door: Door = anybody,
        paths: Iterable[str] = ("/agent", "/gateway"),
        limits: Limits | None = None,
    ) -> None:
        self._on_channel = on_channel
        self._on_request, self._door = on_request, door
        self._paths = frozenset(paths)
        self._limits = limits or Limits()
        self._room = Room(self._limits.bodies)
        self._tasks = Tasks()
        self._abuses = Seldom()
        self._open: set[_Greeter] = set()
        self._accepting = Accepting(self._limits, lambda: _Greeter(self), lambda: len(self._open))

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Listen; port 0 picks a free one. Returns where. Raises errors.Failed when it cannot.

        With `tls` nothing else is spoken here.
        """
        try:
            return await self._accepting.start(host, port, tls)
        except OSError as error:
            raise Failed(
                f"cannot listen on {host}:{port}: {reason(error)}",
                help="choose another address, or end what holds this one",
            ) from error

    async def close(self) -> None:
        """Accept nobody, end every handler, say goodbye on every connection."""
        await self._accepting.close()
        leaving = list(self._open)
        for greeter in leaving:
            greeter.say_goodbye()
        await self._tasks.close()
        await asyncio.gather(*(greeter.closed() for greeter in leaving))

    @property
    def connections(self) -> int:
        """How many sockets are open now."""
        return len(self._open) + self._accepting.coming

    @property
    def handshakes(self) -> int:
        """How many of them are at their TLS handshake."""
        return self._accepting.handshakes

    def admit(self, greeter: "_Greeter") -> None:
        """One more socket: that there is room was asked when it came."""
        self._open.add(greeter)

    def forget(self, greeter: "_Greeter") -> None:
        """Its socket is gone."""
        self._open.discard(greeter)

    def speak(self, preface: bytes, peer: str) -> asyncio.Protocol | None:
        """The protocol that a client's first bytes ask for, or None: more are needed."""
        if preface.startswith(PREFACE):
            return Connection(
                self._limits, on_channel=self._channel_opened, paths=self._paths, abused=self._abused
            )
        if PREFACE.startswith(preface):
            return None
        http1 = Http1(self._limits, self._on_request, self._door, self._room)
        self._tasks.start(f"requests of {peer}", http1.serve())
        return http1

    def _abused(self, said: str) -> None:
        if line := self._abuses.said(said, asyncio.get_running_loop().time()):
            log.warning("%s", line)

    def _channel_opened(self, channel: Channel) -> None:
        self._tasks.start(f"channel {channel.path} of {channel.peer}", self._serve(channel))

    async def _serve(self, channel: Channel) -> None:
        try:
            await self._on_channel(channel)
        except ChannelClosed as closed:
            log.info("channel %s of %s ended: %s", channel.path, channel.peer, closed.said)
        except Exception:
            log.exception("the handler of channel %s of %s failed", channel.path, channel.peer)
        finally:
            await channel.close()

    @property
    def limits(self) -> Limits:
        """What is allowed here."""
        return self._limits


class _Greeter(asyncio.Protocol):
    """Stands in front of a socket until its first bytes tell the protocol, then passes everything on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._first = b""
        self._speaker: asyncio.Protocol | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._listener.admit(self)
        patience = self._listener.limits.head_timeout
        self._deadline = asyncio.get_running_loop().call_later(patience, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._speaker is not None:
            self._speaker.data_received(data)
            return
        self._first += data
        self._speaker = self._listener.speak(self._first, peer_of(self._transport))
        if self._speaker is not None:
            if self._deadline is not None:
                self._deadline.cancel()
            self._speaker.connection_made(self._transport)
            self._speaker.data_received(self._first)

    def pause_writing(self) -> None:
        if self._speaker is not None:
            self._speaker.pause_writing()

    def resume_writing(self) -> None:
        if self._speaker is not None:
            self._speaker.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.forget(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._speaker is not None:
            self._speaker.connection_lost(exc)

    def say_goodbye(self) -> None:
        """Tell a client that waits for nothing in particular; a request under way is broken off."""
        if isinstance(self._speaker, Connection):
            self._speaker.shut("the server is stopping")
        else:
            self._transport.abort()

    async def closed(self) -> None:
        """Until the socket is gone. Bounded."""
        if isinstance(self._speaker, Connection):
            await self._speaker.closed()
