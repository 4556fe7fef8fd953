"""HTTP/1.1 on one socket, by h11: requests whole, one after the other, answers whole or in pieces.

`transport.listener` starts it for a client that does not open with the HTTP/2 preface. Deadlines
are for receiving only: an answer may take, and follow, as long as its handler likes. Who is turned away
is told so at the head, and not a byte of the body is kept.
"""

import asyncio
import contextlib
import dataclasses
import logging
import urllib.parse
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar, cast

import h11

from llmgw.transport.http import Request, Response, anybody, problem
from llmgw.transport.limits import Limits
from llmgw.transport.sockets import finish_writing, peer_of, tune_requests

log = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]
Door = Callable[[Request], Response | None]
"""Judges a request by its head, its body still empty: the refusal, or None where it is welcome."""


class _Left(Exception):
    """The client is gone, or waited long enough between two requests."""


class _Refused(Exception):
    """The request is answered before it is here, and the connection ends with it."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


class Room:
    """What the bodies of one listener take together. A body that finds none is refused, nobody waits."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0

    def take(self, size: int) -> None:
        """Raises _Refused where that would be too much."""
        if self.taken + size > self.most:
            raise _refused(
                503, f"cannot take this now: bodies of {self.taken} bytes are here, {self.most} is the most"
            )
        self.taken += size

    def give_back(self, size: int) -> None:
        """A body of this size is no longer needed."""
        self.taken -= size


def _refused(status: int, said: str) -> _Refused:
    return _Refused(problem(status, said))


class Http1(asyncio.Protocol):
    """One socket's HTTP/1.1. `serve` is its task; the listener owns it."""

    def __init__(
        self, limits: Limits, handler: Handler, door: Door = anybody, room: Room | None = None
    ) -> None:
        self.peer = ""
        self._limits = limits
        self._handler = handler
        self._door = door
        self._room = room or Room(limits.bodies)
        self._held = 0
        self._deaf = False
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._answering = False
        self._early = 0
        self._streaming: asyncio.Task[None] | None = None

    # --- asyncio's side ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = peer_of(transport)
        tune_requests(transport, self._limits)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._answering:
            self._early += len(data)
            if self._early > self._limits.head:
                self._transport.abort()
                return
        self._h11.receive_data(data)
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._lost.set()
        self._news.set()
        self._writable.set()
        if self._streaming is not None:
            self._streaming.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # --- requests ----------------------------------------------------------------------------

    async def serve(self) -> None:
        """Answer requests until the client leaves, breaks the rules, or asks to close."""
        try:
            await self._serve()
        except _Left:
            pass
        except _Refused as refused:
            await self._refuse(refused.response)
        except h11.RemoteProtocolError as error:
            await self._refuse(problem(error.error_status_hint, f"cannot read the request: {error}"))
        finally:
            self._forget_body()
            self._transport.close()

    async def _serve(self) -> None:
        patience = self._limits.head_timeout
        while True:
            request = await self._request(patience)
            self._answering, self._early = True, 0
            response, bodiless = await self._handled(request), request.method == "HEAD"
            del request
            self._forget_body()
            await self._answer(response, bodiless=bodiless)
            if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
                return
            self._h11.start_next_cycle()
            self._answering = False
            patience = self._limits.idle

    async def _request(self, patience: float) -> Request:
        head = await self._within(patience, self._head(), "the head of the request")
        request = self._request_of(head)
        if (refusal := self._door(request)) is not None:
            raise _Refused(refusal)
        body = await self._within(self._limits.body_timeout, self._body(head), "the body of the request")
        return dataclasses.replace(request, body=body)

    def _request_of(self, head: h11.Request) -> Request:
        path, _, query = head.target.decode("ascii").partition("?")
        return Request(
            method=head.method.decode("ascii"),
            path=urllib.parse.unquote(path),
            query=dict(urllib.parse.parse_qsl(query, keep_blank_values=True)),
            headers={name.decode("ascii"): value.decode("latin-1") for name, value in head.headers},
            body=b"",
            peer=self.peer,
        )

    async def _within(self, seconds: float, work: Awaitable[T], what: str) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            begun, _ = self._h11.trailing_data
            if self._h11.their_state is h11.IDLE and not begun:
                raise _Left from None
            raise _refused(408, f"cannot wait longer than {seconds:g} s for {what}") from None

    async def _head(self) -> h11.Request:
        event = await self._event()
        assert isinstance(event, h11.Request)
        self._check(event)
        return event

    def _check(self, head: h11.Request) -> None:
        """What h11 lets pass: it counts only heads that come in pieces, and lets one length win over another."""
        size = len(head.target) + sum(len(name) + len(value) for name, value in head.headers)
        if size > self._limits.head:
            raise _refused(431, f"cannot take a head of more than {self._limits.head} bytes")
        names = {name for name, _ in head.headers}
        if {b"content-length", b"transfer-encoding"} <= names:
            raise _refused(
                400, "cannot tell where the body ends: Content-Length and Transfer-Encoding are both there"
            )

    async def _body(self, head: h11.Request) -> bytes:
        announced = next((int(value) for name, value in head.headers if name == b"content-length"), 0)
        body = bytearray()
        while True:
            if max(announced, len(body)) > self._limits.body:
                raise _refused(413, f"cannot take a body of more than {self._limits.body} bytes")
            event = await self._event()
            if not isinstance(event, h11.Data):
                return bytes(body)
            body += event.data
            self._hold(len(body))

    def _hold(self, size: int) -> None:
        """The body of this request takes `size` bytes by now. Raises _Refused where there is no room."""
        if size > self._held:
            self._room.take(size - self._held)
            self._held = size

    def _forget_body(self) -> None:
        self._room.give_back(self._held)
        self._held = 0

    async def _event(self) -> object:
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            if self._lost.is_set():
                raise _Left
            if self._h11.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._news.clear()
            await self._news.wait()
        return event

    async def _handled(self, request: Request) -> Response:
        try:
            return await self._handler(request)
        except Exception:
            log.exception("cannot answer %s %s", request.method, request.path)
            said = f"cannot answer {request.method} {request.path}: internal error"
            return problem(500, said, help="read the log of the server at this time")

    # --- answers -----------------------------------------------------------------------------

    async def _answer(self, response: Response, *, bodiless: bool = False) -> None:
        headers = [("content-type", response.content_type), *response.headers]
        if isinstance(response.body, bytes):
            headers.append(("content-length", str(len(response.body))))
            await self._send(h11.Response(status_code=response.status, headers=headers))
            if not bodiless:
                await self._send(h11.Data(data=response.body))
        else:
            async with contextlib.aclosing(response.body) as pieces:
                await self._send(h11.Response(status_code=response.status, headers=headers))
                if not bodiless:
                    await self._stream(pieces)
        await self._send(h11.EndOfMessage())

    async def _stream(self, pieces: AsyncGenerator[bytes, None]) -> None:
        self._streaming = asyncio.current_task()
        try:
            async for piece in pieces:
                await self._send(h11.Data(data=piece))
        except Exception:
            # The client must not take what it has for the whole: no last chunk, no orderly end.
            log.exception("an answer to %s broke off", self.peer)
            self._transport.abort()
            raise _Left from None
        finally:
            self._streaming = None

    async def _send(self, event: h11.Event) -> None:
        if self._lost.is_set():
            raise _Left
        if data := self._h11.send(event):
            self._transport.write(data)
        await self._writable.wait()

    async def _refuse(self, response: Response) -> None:
        """Answer and close so that the answer arrives: what the client still sends is read, and dropped."""
        self._deaf = True
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        with contextlib.suppress(_Left):
            await self._answer(dataclasses.replace(response, headers=(("connection", "close"),)))
        finish_writing(self._transport)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.linger):
                await self._lost.wait()
