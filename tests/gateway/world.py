"""A gateway that really runs, a control plane that says what a test wants, and raw clients."""

import asyncio
import contextlib
import dataclasses
import json
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from llmgw.fleet.routes import Endpoint, RoutedModel, Routes
from llmgw.gateway import serve
from llmgw.gateway.link import Pace
from llmgw.kit.backoff import Backoff
from llmgw.transport.channel import Channel
from llmgw.transport.http import Request, Response
from llmgw.transport.listener import Listener
from llmgw.wire import messages

SOON = 10.0


async def until(condition: Callable[[], object], what: str, within: float = SOON) -> None:
    """Wait for a condition; AssertionError that says `what` when it does not come."""
    deadline = asyncio.get_running_loop().time() + within
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.002)


class Control:
    """The control plane's end of the real transport. It sends `routes` to who subscribes."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.subscribed: list[messages.Subscribe] = []
        self.loads: list[messages.Load] = []
        self.left: list[str] = []
        self.refusal = ""
        self.port = 0
        self._channels: set[Channel] = set()

    async def start(self) -> None:
        """Listen, on the same port as before."""
        self._listener = Listener(self._serve, _no_requests)
        _, self.port = await self._listener.start("127.0.0.1", self.port)

    async def stop(self) -> None:
        """Go away."""
        await self._listener.close()

    async def publish(self, *endpoints: Endpoint) -> int:
        """Send a newer table with these endpoints; its version."""
        self.routes = dataclasses.replace(self.routes, version=self.routes.version + 1, endpoints=endpoints)
        await self.say(messages.encode(messages.RoutesUpdate(routes=self.routes)))
        return self.routes.version

    async def say(self, message: bytes) -> None:
        """Send this to everybody."""
        for channel in self._channels:
            await channel.send(message)

    @property
    def last(self) -> messages.Load:
        return self.loads[-1]

    def acked(self, version: int) -> bool:
        """Whether that table is in effect."""
        return bool(self.loads) and self.last.acked >= version

    async def _serve(self, channel: Channel) -> None:
        name = ""
        self._channels.add(channel)
        try:
            while True:
                message = messages.decode_up(await channel.receive())
                match message:
                    case messages.Subscribe():
                        name = message.gateway
                        self.subscribed.append(message)
                        if self.refusal:
                            await channel.send(messages.encode(messages.Refused(said=self.refusal)))
                            return
                        await channel.send(messages.encode(messages.RoutesUpdate(routes=self.routes)))
                    case messages.Load():
                        self.loads.append(message)
                    case messages.Leave():
                        self.left.append(name)
        finally:
            self._channels.discard(channel)


async def _no_requests(request: Request) -> Response:
    raise AssertionError(f"the gateway asked {request}")


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a client received. `ended` = the framing ended as it must; `pieces` = the chunks, if chunked."""

    status: int
    headers: dict[str, str]
    body: bytes
    ended: bool

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        return [part.removeprefix("data: ") for part in self.body.decode().split("\n\n") if part]


@dataclasses.dataclass
class World:
    """A running gateway."""

    port: int
    metrics_port: int
    control: Control
    stop: asyncio.Event
    running: asyncio.Task[None]
    log: list[str]

    async def ask(self, document: object, path: str = "/v1/chat/completions") -> Answer:
        """One POST on a connection of its own."""
        return parse(await self.raw(post(document, path, b"Connection: close")))

    async def raw(self, *pieces: bytes, port: int = 0) -> bytes:
        """Send these bytes, each in its own segment; everything until the other end closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.001)
            async with asyncio.timeout(SOON):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def metrics(self) -> str:
        """What Prometheus sees."""
        return (await self.raw(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", port=self.metrics_port)).decode()


def post(document: object, path: str = "/v1/chat/completions", *headers: bytes) -> bytes:
    """A POST as bytes; `document` may be bytes already."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    extra = b"".join(b"%b\r\n" % header for header in headers)
    return b"POST %b HTTP/1.1\r\nHost: gw\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b" % (
        path.encode(), len(body), extra, body,
    )  # fmt: skip


def parse(data: bytes) -> Answer:
    """The first answer in `data`."""
    assert data, "the connection was closed without an answer"
    head, _, rest = data.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
    status = int(line.split()[1])
    if headers.get("transfer-encoding") == "chunked":
        body, ended = _dechunked(rest)
        return Answer(status, headers, body, ended)
    length = int(headers.get("content-length", "0"))
    return Answer(status, headers, rest[:length], len(rest) >= length)


def _dechunked(rest: bytes) -> tuple[bytes, bool]:
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return body, True
        body += rest[:length]
        rest = rest[length + 2 :]
    return body, False


def routed(*endpoints: Endpoint, **fields: Any) -> Routes:
    """A table of these endpoints' models; `fields` by model name are RoutedModel's."""
    names = dict.fromkeys([endpoint.model for endpoint in endpoints] + list(fields))
    models = tuple(RoutedModel(name, **fields.get(name, {})) for name in names)
    return Routes(1, models=models, endpoints=endpoints)


@contextlib.asynccontextmanager
async def gateway(directory: pathlib.Path, routes: Routes, **settings: Any) -> AsyncIterator[World]:
    """A gateway that serves by `routes`, ended with the block."""
    control = Control(routes)
    await control.start()
    log: list[str] = []
    fields = {
        "state_dir": directory / "gateway", "port": 0, "metrics_port": 0, "control_port": control.port,
        "name": "gw-1", "sweep": 0.02, "pace": Pace(report=0.1, backoff=Backoff(base=0.02, cap=0.1)),
        "access": log.append,
    }  # fmt: skip
    try:
        async with running(serve.Settings(**{**fields, **settings})) as (bound, stop, task):
            await until(lambda: control.acked(routes.version), "the first table is in effect")
            yield World(bound.port, bound.metrics_port, control, stop, task, log)
    finally:
        await control.stop()


@contextlib.asynccontextmanager
async def running(
    settings: serve.Settings,
) -> AsyncIterator[tuple[serve.Bound, asyncio.Event, asyncio.Task[None]]]:
    """`serve.run` in this loop."""
    ready: asyncio.Future[serve.Bound] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    task = asyncio.ensure_future(serve.run(settings, ready=ready.set_result, stop=stop))
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield ready.result(), stop, task
    finally:
        stop.set()
        async with asyncio.timeout(SOON):
            await task


loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
"""What stories run on; `conftest` sets it."""


def story(tell: Callable[[], Awaitable[None]]) -> None:
    """Run an async test."""

    async def limited() -> None:
        async with asyncio.timeout(30):
            await tell()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(limited())
