"""An engine that does exactly what a test tells it to do to the socket: split, stall, die, refuse.

It speaks raw bytes over loopback, so what the gateway sees is what a broken engine would send.
"""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from llmgw.fleet.routes import Endpoint


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A request as it arrived. `connection` numbers the connections of this engine."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """The engine's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number

    async def send(self, *pieces: bytes) -> None:
        """Each piece in a segment of its own, as far as the kernel lets us."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    def die(self) -> None:
        """As after kill -9."""
        self.writer.transport.abort()

    async def left(self) -> None:
        """Until the gateway has closed its end."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1024):
                pass


Behaviour = Callable[[Asked, Wire], Awaitable[None]]


class Engine:
    """Listens on a free port. `behave` may be replaced at any time; `asked` keeps every request."""

    def __init__(self, replica: str, behave: Behaviour) -> None:
        self.replica = replica
        self.behave = behave
        self.asked: list[Asked] = []
        self.connections = 0
        self.open: set[Wire] = set()
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def model(self) -> str:
        return self.replica.rpartition("/")[0]

    def endpoint(self, *, draining: bool = False) -> Endpoint:
        """This engine as the control plane names it."""
        return Endpoint(self.replica, self.model, "127.0.0.1", self.port, draining)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Close the listening socket and every connection: connections are refused from now on."""
        self._server.close()
        for wire in self.open:
            wire.die()

    async def close(self) -> None:
        """End it."""
        self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        wire = Wire(reader, writer, self.connections)
        self.open.add(wire)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(wire)
        finally:
            self.open.discard(wire)
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, wire: Wire) -> None:
        while not wire.writer.is_closing():
            head = (await wire.reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.strip().split("\r\n")
            headers = dict(part.split(": ", 1) for part in rest)
            body = await wire.reader.readexactly(int(headers.get("content-length", "0")))
            asked = Asked(line, headers, body, wire.number)
            self.asked.append(asked)
            await self.behave(asked, wire)


@contextlib.asynccontextmanager
async def engines(**behaviours: Behaviour) -> AsyncIterator[list[Engine]]:
    """Engines by name: `a1` is the replica `a/1` of model `a`."""
    made = [Engine(f"{name[0]}/{name[1:]}", behave) for name, behave in behaviours.items()]
    try:
        for engine in made:
            await engine.start()
        yield made
    finally:
        for engine in made:
            await engine.close()


# --- behaviours ------------------------------------------------------------------------------------


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str) -> bytes:
    """One event of a chat stream."""
    return b"data: %b\n\n" % json.dumps({"choices": [{"delta": {"content": text}}]}).encode()


DONE = b"data: [DONE]\n\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def plain(status: int, document: object, *headers: bytes) -> bytes:
    """A whole JSON answer."""
    body = json.dumps(document).encode()
    extra = b"".join(b"%b\r\n" % header for header in headers)
    return b"HTTP/1.1 %d Said\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b" % (
        status, len(body), extra, body,
    )  # fmt: skip


def says(text: str) -> Behaviour:
    """Answers: streamed where asked so, else plain."""

    async def behave(asked: Asked, wire: Wire) -> None:
        if asked.json.get("stream"):
            words = [chunk(event(word)) for word in text.split()]
            await wire.send(STREAM, *words, chunk(DONE), b"0\r\n\r\n")
        else:
            await wire.send(plain(200, {"said": text}))

    return behave


def sends(*pieces: bytes) -> Behaviour:
    """Sends exactly these bytes and keeps the connection."""

    async def behave(asked: Asked, wire: Wire) -> None:
        await wire.send(*pieces)

    return behave


def sends_and_dies(*pieces: bytes) -> Behaviour:
    """Sends these bytes, then is gone."""

    async def behave(asked: Asked, wire: Wire) -> None:
        await wire.send(*pieces)
        await asyncio.sleep(0.01)  # an abort throws away what the kernel has not sent
        wire.die()

    return behave


def hangs(*pieces: bytes) -> Behaviour:
    """Sends these bytes, then nothing for as long as the gateway stays."""

    async def behave(asked: Asked, wire: Wire) -> None:
        await wire.send(*pieces)
        await wire.left()

    return behave


def waits_for(gate: asyncio.Event, then: Behaviour) -> Behaviour:
    """Does nothing before `gate` is set."""

    async def behave(asked: Asked, wire: Wire) -> None:
        await gate.wait()
        await then(asked, wire)

    return behave
