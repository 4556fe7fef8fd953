"""A channel: one long-lived full-duplex HTTP/2 stream of whole messages.

Both ends hold the same class: `transport.client.connect` gives one, `transport.listener.Listener`
hands one to its handler. `transport.connection` carries it and tells it what arrived.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol

from llmgw.wire.framing import Deframer, FramingError, frame


class ChannelClosed(Exception):
    """The channel cannot be opened, or is over; `said` is why, as a person would say it."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


class Carrier(Protocol):
    """What a channel needs of the connection under it."""

    def write(self, stream: int, data: memoryview) -> int:
        """Send the first bytes of `data`; how many. 0 = no room now: wait for `changed`."""
        ...

    async def changed(self) -> None:
        """Until there may be room again, or the channel is over."""
        ...

    def acknowledge(self, stream: int, size: int) -> None:
        """`size` received bytes were consumed: the peer may send as many more."""
        ...

    def finish(self, stream: int) -> None:
        """Say that nothing more comes from this end."""
        ...

    def reset(self, stream: int, said: str) -> None:
        """Give the stream up at once."""
        ...

    async def ping(self, within: float) -> bool:
        """Whether the peer's transport answers."""
        ...

    async def released(self) -> None:
        """Until what the stream alone used is given back. Bounded."""
        ...


class Channel:
    """Messages both ways. One task may receive; any number may send, and messages never mix.

    `peer` is the other end's address and `path` what was asked for, both for people; `headers` are
    those of the request, names in lower case. So many bytes are acknowledged `together`: a small part of the
    window, and more than a word.
    """

    def __init__(
        self,
        carrier: Carrier,
        stream: int,
        *,
        peer: str,
        path: str,
        headers: Mapping[str, str],
        stall: float,
        together: int,
    ) -> None:
        self.peer = peer
        self.path = path
        self.headers = headers
        self._carrier = carrier
        self._stream = stream
        self._stall = stall
        self._together = together
        self._sending = asyncio.Lock()
        self._deframer = Deframer()
        self._unacknowledged = 0
        self._reader: asyncio.Future[None] | None = None
        self._hears: Callable[[bytes], bool] | None = None
        self._left: bytes | None = None
        self._ended = ""
        self._closed = ""
        self._said = ""

    def __repr__(self) -> str:
        return f"<Channel {self.path} {self.peer} {self._closed or self._ended or 'open'}>"

    @property
    def gone(self) -> str:
        """Why nothing goes either way any more, or nothing."""
        return self._closed

    async def send(self, message: bytes) -> None:
        """Until the last byte is on its way. Raises ChannelClosed; FramingError if it is too long."""
        framed = frame(message)
        async with self._sending:
            rest = memoryview(framed)
            try:
                while rest:
                    rest = rest[await self._write(rest) :]
            finally:
                if 0 < len(rest) < len(framed):
                    self.abort("a message was cut off while it was sent")

    async def _write(self, rest: memoryview) -> int:
        if sent := self._try(rest):
            return sent
        try:
            async with asyncio.timeout(self._stall):
                while not (sent := self._try(rest)):
                    await self._carrier.changed()
                return sent
        except TimeoutError:
            self.abort(f"{self.peer} took no byte for {self._stall:g} s")
            raise ChannelClosed(self._closed) from None

    def _try(self, rest: memoryview) -> int:
        if self._closed:
            raise ChannelClosed(self._closed)
        return self._carrier.write(self._stream, rest)

    def hear(self, hears: Callable[[bytes], bool]) -> None:
        """While `receive` waits, `hears` gets each message at once: of a thousand channels each would wake a task for a
        word. `receive` gives those for which it returns False.
        """
        self._hears = hears

    async def receive(self) -> bytes:
        """The next message. What came whole before the end is still given; then raises ChannelClosed."""
        while (message := self._next()) is None:
            await self._more()
        return message

    def _next(self) -> bytes | None:
        """The next message that came whole. Raises ChannelClosed where nothing can follow."""
        if self._left is not None:
            left, self._left = self._left, None
            return left
        try:
            message = self._deframer.next()
        except FramingError as error:
            self.abort(f"{self.peer} sent {error}")
            raise ChannelClosed(self._closed) from error
        if message is not None and not self._deframer.partial:
            self._consumed()
        return message

    async def _more(self) -> None:
        """Until more has come: what came before is consumed."""
        self._consumed()
        if over := self._said or self._ended or self._closed:
            raise ChannelClosed(f"{over}, in the middle of a message" if self._deframer.partial else over)
        # A future and no Event: an Event is 700 bytes more, for each of a thousand channels.
        self._reader = asyncio.get_running_loop().create_future()
        await self._reader

    def _consumed(self) -> None:
        """Everything that came, but for a part of a message."""
        if self._unacknowledged >= self._together:
            self._carrier.acknowledge(self._stream, self.owed())

    async def ping(self, within: float) -> bool:
        """Whether the other end's transport answers within so many seconds; its application may be busy."""
        return not self._closed and await self._carrier.ping(within)

    async def close(self) -> None:
        """Deliver what was sent, end the channel. Harmless when it is over."""
        if not self._closed:
            self.over("this end closed the channel")
            self._carrier.finish(self._stream)
        await self._carrier.released()

    def abort(self, said: str) -> None:
        """End the channel now, whatever is still on its way.

        `said` is then why it is over, even where the peer has hung up meanwhile: it knows more.
        """
        self._said = self._said or said
        if not self._closed:
            self.over(said)
            self._carrier.reset(self._stream, said)

    def arrived(self, data: bytes, size: int) -> None:
        """The connection got `data`, which used `size` bytes of the window."""
        self._deframer.feed(data)
        self._unacknowledged += size
        if self._hears is None or self._reader is None or self._reader.done():
            self._stir()
            return
        with contextlib.suppress(ChannelClosed):  # whoever receives is told
            while (message := self._next()) is not None:
                if not self._hears(message):
                    self._left = message
                    self._stir()
                    return
            self._consumed()

    def owed(self) -> int:
        """Bytes to acknowledge from now on: consumed, or of a channel that is over."""
        size, self._unacknowledged = self._unacknowledged, 0
        return size

    def ended(self, said: str) -> None:
        """The peer sends nothing more; it may still listen."""
        self._ended = self._ended or said
        self._stir()

    def over(self, said: str) -> None:
        """Nothing goes either way any more. The first reason stays."""
        self._closed = self._closed or said
        self._stir()

    def _stir(self) -> None:
        """There is news for whoever receives."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
