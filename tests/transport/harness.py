"""A listener that echoes, a raw HTTP/2 client, and waiting: what the tests of the transport share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import h2.config
import h2.connection
import h2.events

from llmgw.transport.channel import Channel, ChannelClosed
from llmgw.transport.http import Request, Response, anybody
from llmgw.transport.http1 import Door
from llmgw.transport.limits import Limits
from llmgw.transport.listener import Listener

HOST = "127.0.0.1"
QUICK = Limits(ping=0.1, timeout=0.3, head_timeout=0.3, body_timeout=0.3, idle=0.5)


async def until(condition: Callable[[], object], what: str, within: float = 5.0) -> None:
    """Wait for `condition`; AssertionError that says `what` when it does not come."""
    try:
        async with asyncio.timeout(within):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited {within:g} s in vain: {what}") from None


async def echo(channel: Channel) -> None:
    """Say everything back."""
    while True:
        await channel.send(await channel.receive())


async def hello(request: Request) -> Response:
    """Answer with the path."""
    return Response(200, request.path.encode(), "text/plain")


async def ended(channel: Channel) -> str:
    """Why the channel is over, once it is; messages before that are read and dropped."""
    try:
        async with asyncio.timeout(5):
            while True:
                await channel.receive()
    except ChannelClosed as closed:
        return closed.said


@contextlib.asynccontextmanager
async def listening(
    on_channel: Callable[[Channel], Awaitable[None]] = echo,
    on_request: Callable[[Request], Awaitable[Response]] = hello,
    limits: Limits | None = None,
    door: Door = anybody,
) -> AsyncIterator[tuple[Listener, int]]:
    """A listener and its port; closed afterwards, with nothing left open."""
    listener = Listener(on_channel, on_request, limits=limits, door=door)
    _, port = await listener.start(HOST, 0)
    try:
        yield listener, port
    finally:
        await listener.close()
        await until(lambda: listener.connections == 0, "the listener's sockets are closed")


class Raw:
    """HTTP/2 without manners: sends what a test wants sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.events: list[h2.events.Event] = []

    @classmethod
    async def open(cls, port: int) -> "Raw":
        raw = cls(*await asyncio.open_connection(HOST, port))
        raw.h2.initiate_connection()
        await raw.flush()
        return raw

    def request(self, path: str = "/agent", *, method: str = "POST", end: bool = False) -> int:
        stream = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "http"), (":authority", "test"), (":path", path)]
        self.h2.send_headers(stream, head, end_stream=end)
        return stream

    async def flush(self, extra: bytes = b"") -> None:
        with contextlib.suppress(ConnectionError):
            self.writer.write(self.h2.data_to_send() + extra)
            await self.writer.drain()

    async def read(self, wanted: type[h2.events.Event], within: float = 5.0) -> h2.events.Event:
        """The next event of this type; ConnectionError when the server hung up before it."""
        async with asyncio.timeout(within):
            while True:
                for event in self.events:
                    if isinstance(event, wanted):
                        self.events.remove(event)
                        return event
                if not (data := await self.reader.read(65_536)):
                    raise ConnectionResetError("the server hung up")
                self.events += self.h2.receive_data(data)
                await self.flush()

    async def goodbye(self, within: float = 5.0) -> str:
        """What the server's GOAWAY says."""
        event = await self.read(h2.events.ConnectionTerminated, within)
        assert isinstance(event, h2.events.ConnectionTerminated)
        return (event.additional_data or b"").decode()

    def close(self) -> None:
        self.writer.transport.abort()
