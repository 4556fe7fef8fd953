"""The client's side: connections, the requests on them in order, and the gateway's own stop.

`gateway.serve` makes one `Front` and listens with `Front.connection`. What is to be sent on becomes
an `Exchange`; everything else is answered here. A connection is read for as long as it lives, so a
client that leaves is noticed whatever its request is waiting for. A large body is read in steps, one
body at a time: however it is made, other requests wait for one step of it and no more.
"""

import asyncio
import collections
import itertools
import select
from typing import cast

from llmgw.gateway import answers
from llmgw.gateway.admission import MODELS, PATHS, Forward, Listed, admit
from llmgw.gateway.answers import Refusal
from llmgw.gateway.body import AT_ONCE
from llmgw.gateway.exchange import Desk, Exchange
from llmgw.gateway.metrics import OTHER
from llmgw.gateway.outline import Steps, to_end
from llmgw.gateway.receive import Expected, Limits, Receiver, Request

NEVER = float("inf")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
Order = Refusal | Listed | Forward


class Front:
    """Every client connection of this gateway. `mark` begins each request id: unique to this process."""

    def __init__(self, desk: Desk, limits: Limits, mark: str) -> None:
        self.desk = desk
        self.limits = limits
        self.stopping = False
        self.connections: set[Connection] = set()
        self.reading = asyncio.Lock()
        self._ids = map(f"{mark}-{{:x}}".format, itertools.count(1))

    def connection(self) -> "Connection":
        """A protocol for a connection that was accepted."""
        return Connection(self)

    def next_id(self) -> bytes:
        """The id of the next request."""
        return next(self._ids).encode()

    @property
    def busy(self) -> int:
        """Requests under way."""
        return sum(connection.busy for connection in self.connections)

    def stop(self) -> None:
        """Answer every new request 503 and close behind it; what is under way goes on."""
        self.stopping = True

    def sweep(self, now: float) -> None:
        """Hold every deadline."""
        for connection in list(self.connections):
            connection.sweep(now)

    def cut(self, said: str) -> None:
        """End what is under way, each with an error that says why."""
        for connection in list(self.connections):
            connection.cut(said)

    def close(self) -> None:
        """End every connection."""
        for connection in list(self.connections):
            connection.close()


class Connection(asyncio.Protocol):
    """One client. `deadline` is of what it owes us: a head, a body, the next request, its goodbye."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._receiver = Receiver(front.limits)
        self._waiting: collections.deque[Request | Refusal] = collections.deque()
        self._exchange: Exchange | None = None
        self._reading: asyncio.Task[None] | None = None
        self._request_keep = True
        self._serving = False
        self._closing = False
        self._ahead = False
        self._stalled_at = NEVER
        self._deadline = front.desk.clock.now() + front.limits.head_within

    @property
    def busy(self) -> bool:
        """Whether a request is under way, or an answer is not yet taken."""
        return self._under_way or self._transport.get_write_buffer_size() > 0

    @property
    def _under_way(self) -> bool:
        return self._exchange is not None or self._reading is not None

    @property
    def keep(self) -> bool:
        """Whether the client may send another request on this connection."""
        return self._request_keep and not self._front.stopping

    # --- called by the event loop ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._front.connections) >= self._front.limits.connections:
            self._transport.abort()
            return
        self._front.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        before = self._receiver.stage
        for received in self._receiver.feed(data):
            if not isinstance(received, Expected):
                self._waiting.append(received)
            elif self._receiver.stage == "body" and not self._under_way and not self._waiting:
                self._transport.write(CONTINUE)
        self._serve()
        if self._receiver.stage != before:
            self._expect()
        if self._waiting and not self._ahead:
            self._ahead = True  # it asks before it is answered: hear no more of it until it is
            self._transport.pause_reading()

    def _serve(self) -> None:
        """Serve what waits, one after the other, until one is under way."""
        if self._serving:
            return
        self._serving = True
        while self._waiting and not self._under_way and not self._closing:
            self._begin(self._waiting.popleft())
        self._serving = False

    def _begin(self, received: Request | Refusal) -> None:
        if isinstance(received, Refusal):
            self._linger(received)
            return
        self._request_keep = received.keep
        table = self._front.desk.endpoints.table
        if self._front.stopping:
            said = "cannot take a new request: this gateway is stopping (connect again)"
            self._answer(received, Refusal(503, said, "stopping", 1.0))
            return
        steps = admit(received.method, received.target, received.headers, received.body, table)
        if len(received.body) <= AT_ONCE:
            self._go(received, to_end(steps))
        else:
            self._reading = self._front.desk.tasks.start("read a body", self._read(received, steps))

    async def _read(self, request: Request, steps: Steps[Order]) -> None:
        async with self._front.reading:
            order = await _paced(steps)
        self._reading = None
        self._go(request, order)

    def _go(self, request: Request, order: Order) -> None:
        if isinstance(order, Forward):
            self._exchange = Exchange(self._front.desk, self, order, self._front.next_id())
            if self._stalled_at != NEVER:
                self._exchange.pause()
            self._exchange.start()
        else:
            self._answer(request, order)

    def _answer(self, request: Request, answer: Refusal | Listed) -> None:
        """Answer here."""
        request_id = self._front.next_id()
        if isinstance(answer, Refusal):
            data, status = answers.refused(answer, request_id, keep=self.keep), answer.status
        else:
            data, status = answers.whole(200, answer.document, request_id, keep=self.keep), 200
        self._note(request_id, status, _known(request.target))
        self._transport.write(data)
        self.finished(cut=False)

    def _linger(self, refusal: Refusal) -> None:
        """Say why, then listen a little: a reset would take the answer out of the client's hands."""
        request_id = self._front.next_id()
        self._note(request_id, refusal.status, "-")
        self._transport.write(answers.refused(refusal, request_id, keep=False))
        self._close_after(self._front.limits.lingering)

    def _note(self, request_id: bytes, status: int, path: str) -> None:
        self._front.desk.metrics.requests[OTHER, str(status)] += 1
        self._front.desk.access.note(request_id, OTHER, path, status)

    def _close_after(self, seconds: float) -> None:
        self._closing = True
        self._waiting.clear()
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()
        self._hear()
        self._deadline = self._front.desk.clock.now() + seconds

    def _hear(self) -> None:
        self._ahead = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _expect(self) -> None:
        """Set the deadline of what the client owes now; it owes nothing while a request is under way."""
        if self._closing:
            return
        limits = self._front.limits
        within = {"idle": limits.idle, "head": limits.head_within, "body": limits.body_within}
        self._deadline = self._front.desk.clock.now() + within.get(self._receiver.stage, limits.lingering)

    def pause_writing(self) -> None:
        self._stalled_at = self._front.desk.clock.now()
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        self._stalled_at = NEVER
        if self._exchange is not None:
            self._exchange.resume()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._closing = True
        self._waiting.clear()
        self._front.connections.discard(self)
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            exchange.client_left()
        self._read_no_further()

    def _read_no_further(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    # --- called by the exchange -----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Bytes of the answer under way."""
        self._transport.write(data)

    def finished(self, *, cut: bool) -> None:
        """The request under way is over."""
        self._exchange = None
        if cut or not self.keep:
            self._closing = True
            self._waiting.clear()
            self._transport.close()
            self._deadline = self._front.desk.clock.now() + self._front.limits.stalled
            return
        self._expect()
        if self._waiting:
            self._serve()
        elif self._ahead:
            self._hear()

    # --- called by the front --------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Hold this connection's deadlines."""
        stalled = now - self._stalled_at >= self._front.limits.stalled
        if stalled or (self._ahead and _hung_up(self._transport)):
            self.abort()
        elif self._exchange is not None:
            self._exchange.sweep(now)
        elif self._reading is None and now >= self._deadline:
            self._overdue()

    def _overdue(self) -> None:
        if self._closing or self._receiver.stage == "idle":
            self.abort()
        else:
            self._linger(Refusal(408, "cannot wait any longer for the rest of the request", "too_slow"))

    def cut(self, said: str) -> None:
        """End the request under way with an error."""
        self._waiting.clear()
        if self._exchange is not None:
            self._exchange.cut(said)
        elif self._reading is not None:
            self._read_no_further()
            self._linger(Refusal(503, f"cannot answer this request: {said}", "stopping", 1.0))

    def close(self) -> None:
        """End the connection: in good order if nothing is under way."""
        if self.busy:
            self.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Cut it now."""
        self._transport.abort()


def _hung_up(transport: asyncio.Transport) -> bool:
    """Whether the client has left, which a transport that reads nothing is not told."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


async def _paced(steps: Steps[Order]) -> Order:
    """The result of `steps`, with everybody else's turn between two of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            order: Order = end.value
            return order
        await asyncio.sleep(0)


def _known(target: bytes) -> str:
    """The path of a request for the log: only one of ours, for what a client writes there is its own."""
    path = target.partition(b"?")[0].decode("latin-1")
    return path if path == MODELS or path in PATHS else "-"
