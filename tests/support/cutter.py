"""A TCP proxy of the tests' own: it counts what opened, and cuts, swallows or delays what passes.

It stands between an agent and its control plane. Everything it claims to have done it has counted:
`accepted` sockets, `streams` of HTTP/2 that a client really opened, bytes that passed.
"""

import asyncio
import contextlib
import dataclasses

_PREFACE = 24
_FRAME_HEAD = 9
_HEADERS = 1


class _Frames:
    """Reads HTTP/2 frame heads as they pass, from a client."""

    def __init__(self) -> None:
        self._skip = _PREFACE
        self._head = b""
        self.streams: set[int] = set()

    def feed(self, data: bytes) -> None:
        while data:
            if self._skip:
                taken = min(self._skip, len(data))
                self._skip -= taken
                data = data[taken:]
                continue
            wanted = _FRAME_HEAD - len(self._head)
            self._head, data = self._head + data[:wanted], data[wanted:]
            if len(self._head) == _FRAME_HEAD:
                self._skip = int.from_bytes(self._head[:3], "big")
                if self._head[3] == _HEADERS:
                    self.streams.add(int.from_bytes(self._head[5:9], "big"))
                self._head = b""


@dataclasses.dataclass(eq=False)
class Passage:
    """One accepted socket and its twin behind the proxy. `up` and `down` count bytes that passed."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    frames: _Frames = dataclasses.field(default_factory=_Frames)
    up: int = 0
    down: int = 0
    swallowed: int = 0
    swallowing: bool = False
    cut: bool = False


class Cutter:
    """Listens on `port` from `start` on and passes to the target until told otherwise.

    `cut_after` = each passage is cut, both ways, when so many bytes have passed up, `cut_down_after` down;
    with `once` only the first of all. `cuts` counts them. `delay` is seconds each piece waits.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.passages: list[Passage] = []
        self.cut_after: int | None = None
        self.cut_down_after: int | None = None
        self.once = False
        self.cuts = 0
        self.delay = 0.0
        self.port = 0

    @property
    def accepted(self) -> int:
        """Sockets that clients opened through here."""
        return len(self.passages)

    @property
    def streams(self) -> int:
        """HTTP/2 streams that clients opened through here, on all sockets."""
        return sum(len(passage.frames.streams) for passage in self.passages)

    @property
    def open(self) -> list[Passage]:
        """Passages that nobody has ended."""
        return [passage for passage in self.passages if not passage.cut]

    async def start(self) -> int:
        """Listen on a free port of 127.0.0.1 and return it."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def close(self) -> None:
        """Cut everything and stop listening."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> int:
        """Reset every open passage on both sides. Returns how many really were open."""
        open_ = self.open
        for passage in open_:
            self._cut(passage)
        return len(open_)

    def swallow(self) -> int:
        """From now on the open passages swallow every byte, and nobody is told. Returns how many."""
        for passage in self.open:
            passage.swallowing = True
        return len(self.open)

    def _cut(self, passage: Passage) -> None:
        passage.cut = True
        passage.client.transport.abort()
        passage.server.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        passage = Passage(writer, far_writer)
        self.passages.append(passage)
        for work in (self._up(passage, reader, far_writer), self._down(passage, far_reader, writer)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _up(self, passage: Passage, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        async for data in _pieces(reader):
            if self._due(self.cut_after, passage.up, data, to):
                self._cut(passage)
                return
            passage.frames.feed(data)
            passage.up += await self._pass(passage, data, to)
        self._hung_up(passage, to)

    async def _down(self, passage: Passage, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        async for data in _pieces(reader):
            if self._due(self.cut_down_after, passage.down, data, to):
                self._cut(passage)
                return
            passage.down += await self._pass(passage, data, to)
        self._hung_up(passage, to)

    def _due(self, limit: int | None, passed: int, data: bytes, to: asyncio.StreamWriter) -> bool:
        """Whether the cut is within `data`; then what comes before it has been written."""
        if limit is None or passed + len(data) < limit:
            return False
        to.write(data[: max(0, limit - passed)])
        self.cuts += 1
        if self.once:
            self.cut_after = self.cut_down_after = None
        return True

    async def _pass(self, passage: Passage, data: bytes, to: asyncio.StreamWriter) -> int:
        if self.delay:
            await asyncio.sleep(self.delay)
        if passage.swallowing:
            passage.swallowed += len(data)
            return 0
        with contextlib.suppress(OSError):
            to.write(data)
            await to.drain()
        return len(data)

    def _hung_up(self, passage: Passage, to: asyncio.StreamWriter) -> None:
        if passage.swallowing:
            return
        passage.cut = True
        to.close()


async def _pieces(reader: asyncio.StreamReader):
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            yield data
