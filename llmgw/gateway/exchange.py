"""One request on its way: attempts until an engine's answer begins, then that answer to its end.

Made by `gateway.front` for each request that is sent on; driven by `gateway.upstream` (what the
engine does), by the front (the client leaves, or does not keep up) and by the sweep (the deadline).
Nothing is sent to the client before an engine's status and first byte are known; behind that,
nothing is tried again. Each exchange has one end, and gives back what it took there.
"""

import asyncio
import dataclasses
from typing import Literal, Protocol

from llmgw.fleet.routes import Endpoint
from llmgw.gateway import answers, outgoing, refusals
from llmgw.gateway.access import AccessLog
from llmgw.gateway.admission import Forward
from llmgw.gateway.answers import Refusal
from llmgw.gateway.endpoints import Endpoints
from llmgw.gateway.metrics import Metrics
from llmgw.gateway.relay import End, Head, Relay
from llmgw.gateway.upstream import EngineConnection, NotReached, Pool
from llmgw.gateway.waiting import Wait, Waiting
from llmgw.kit.clock import Clock
from llmgw.kit.tasks import Tasks
from llmgw.routing import retry
from llmgw.routing.retry import Attempt, Journey, Nothing

CLIENT_LEFT = 499
"""What the metrics and the log say of a request whose client left; nobody is sent this."""


Outcome = End | Literal["refused", "left"]
BROKEN = frozenset({"cut", "error", "abort"})


class Client(Protocol):
    """The client's side of one request."""

    @property
    def keep(self) -> bool:
        """Whether the connection may be used again."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes of the answer."""
        ...

    def finished(self, *, cut: bool) -> None:
        """The answer is over; `cut` = it has no end, and the connection must show it."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Desk:
    """What every exchange works with."""

    endpoints: Endpoints
    pool: Pool
    tasks: Tasks
    clock: Clock
    metrics: Metrics
    access: AccessLog
    waiting: Waiting


class Exchange:
    """`start` it once; it calls `client.finished` once, unless the client left first."""

    __slots__ = (
        "_attempt", "_client", "_connection", "_counted", "_desk", "_dialling", "_harmed", "_id", "_last",
        "_order", "_paused", "_relay", "_retry_after", "_sent_at", "_stale", "_started", "_status", "_wait", "deadline",
    )  # fmt: skip

    def __init__(self, desk: Desk, client: Client, order: Forward, request_id: bytes) -> None:
        self._desk = desk
        self._client = client
        self._order = order
        self._id = request_id
        self._attempt: Attempt | None = None
        self._counted = ""
        self._connection: EngineConnection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._relay: Relay | None = None
        self._harmed = False
        self._stale = False
        self._paused = False
        self._last = ""
        self._retry_after = 0.0
        self._status = 0
        self._sent_at = 0.0
        self._wait: Wait | None = None

    # --- attempts -------------------------------------------------------------------------------

    def start(self) -> None:
        """Make the first attempt."""
        now = self._started = self._desk.clock.now()
        journey = retry.set_out(self._order.model, self._desk.endpoints.policy, now)
        self.deadline = journey.deadline
        found = self._desk.endpoints.take(journey, now)
        if isinstance(found, Nothing) or found.endpoint.model != self._order.model:
            self._wake(now, served=isinstance(found, Attempt))
        if self._wait is None:
            self._follow(found, now)

    def _wake(self, now: float, *, served: bool) -> None:
        """Ask for a replica of a model that sleeps, and wait for it where nobody else answers."""
        route, waiting = self._desk.endpoints.table.route(self._order.model), self._desk.waiting
        if route is not None and route.sleeps:
            waiting.asked(route.model, now)
            self._wait = None if served else waiting.enter(route.model, self._resume, now)

    def _resume(self) -> None:
        """A table came that may have a replica for this request."""
        self._wait = None
        now, endpoints = self._desk.clock.now(), self._desk.endpoints
        journey = retry.set_out(self._order.model, endpoints.policy, now)
        self._follow(endpoints.take(dataclasses.replace(journey, deadline=self.deadline), now), now)

    def _wait_no_longer(self) -> None:
        if self._wait is not None:
            self._desk.waiting.leave(self._wait)
            self._wait = None

    def _follow(self, found: Attempt | Nothing, now: float) -> None:
        if isinstance(found, Nothing):
            self._give_up(found)
            return
        before, self._attempt = self._attempt, found
        self._counted = found.endpoint.replica
        self._stale = False
        if before is not None:
            self._desk.metrics.retries[self._order.model,] += 1
        if found.endpoint.model != (before.endpoint.model if before else self._order.model):
            self._desk.metrics.fallbacks[self._order.model,] += 1
        connection = self._desk.pool.idle(found.endpoint, now)
        if connection is None:
            self._dial(found.endpoint)
        else:
            self._ask(connection, now)

    def _dial(self, endpoint: Endpoint) -> None:
        self._dialling = self._desk.tasks.start(f"dial {endpoint.replica}", self._reach(endpoint))

    async def _reach(self, endpoint: Endpoint) -> None:
        try:
            connection = await self._desk.pool.dial(endpoint)
        except NotReached as error:
            self._dialling = None
            self._desk.endpoints.connected(endpoint.replica, self._desk.clock.now(), made=False)
            # A connection that went stale hides a death: its engine is gone now, so it may have been then.
            self._failed(str(error), died=self._stale)
        else:
            self._dialling = None
            self._desk.endpoints.connected(endpoint.replica, self._desk.clock.now(), made=True)
            self._ask(connection, self._desk.clock.now())

    def _ask(self, connection: EngineConnection, now: float) -> None:
        self._connection = connection
        self._sent_at = now
        if self._paused:
            connection.pause()
        connection.ask(self, outgoing.request(self._order, connection.endpoint, self._id))

    def _failed(self, said: str, *, died: bool) -> None:
        """An attempt came to nothing, and no byte of it reached the client."""
        assert self._attempt is not None
        now = self._desk.clock.now()
        self._last = said
        journey = self._after(died=died)
        self._desk.endpoints.unreachable(self._attempt.endpoint.replica, now)
        found = self._desk.endpoints.take(journey, now)
        self._leave_engine()
        self._follow(found, now)

    def _after(self, *, died: bool) -> Journey:
        """The journey behind the attempt under way, which failed."""
        assert self._attempt is not None
        if not died:
            return self._attempt.journey
        self._harmed = True
        return retry.after_death(self._attempt.journey)

    # --- the engine's side ----------------------------------------------------------------------

    def arrived(self, head: Head, piece: bytes, *, complete: bool) -> None:
        """Bytes of the engine's answer."""
        out = b""
        if self._relay is None:
            if not (piece or complete):
                return
            if self._goes_elsewhere(head):
                return
            self._status = head.status
            self._relay = Relay(head, self._order.path)
            out = self._relay.head(self._id, keep=self._client.keep)
        if piece:
            out += self._relay.feed(piece)
        if complete:
            self._complete(self._relay, out)
        elif out:
            self._client.write(out)

    def _goes_elsewhere(self, head: Head) -> bool:
        """Whether this answer is left for another attempt. If there is none to make, it is the answer."""
        assert self._attempt is not None
        verdict = retry.verdict(head.status) if head.delimited else "broke"
        if verdict == "relay":
            return False
        now = self._desk.clock.now()
        journey = self._after(died=verdict == "broke")
        self._last = f"the engine answered {head.status}{'' if head.delimited else ' without an end'}"
        self._retry_after = max(self._retry_after, _seconds(head.value(b"retry-after")))
        found = self._desk.endpoints.take(journey, now)
        if isinstance(found, Nothing) and head.delimited:
            return False
        self._leave_engine()
        self._follow(found, now)
        return True

    def _complete(self, relay: Relay, out: bytes) -> None:
        end, last = relay.complete()
        if end == "cut":
            self._break("the engine ended its stream too early", out)
            return
        assert self._attempt is not None
        now = self._desk.clock.now()
        if self._status < 500:
            self._desk.endpoints.answered(self._attempt.endpoint.replica, now)
        self._keep_engine(now)
        self._client.write(out + last)
        self._over(end, now)
        self._client.finished(cut=False)

    def lost(self, said: str) -> None:
        """The engine's connection ended before its answer did."""
        assert self._attempt is not None
        assert self._connection is not None
        if self._relay is not None:
            self._desk.endpoints.unreachable(self._attempt.endpoint.replica, self._desk.clock.now())
            self._break(said, b"")
            return
        connection, self._connection = self._connection, None
        elapsed = self._desk.clock.now() - self._sent_at
        if retry.was_stale(reused=connection.reused, heard=connection.heard, elapsed=elapsed):
            self._stale = True
            self._dial(self._attempt.endpoint)
        else:
            self._failed(said, died=True)

    def _break(self, said: str, out: bytes) -> None:
        """The answer had begun and has no end: say so, and cut."""
        assert self._relay is not None
        self._leave_engine()
        out += self._relay.broken(f"cannot finish this answer: {said}")
        if out:
            self._client.write(out)
        self._over("cut", self._desk.clock.now())
        self._client.finished(cut=True)

    # --- the client's side ----------------------------------------------------------------------

    def client_left(self) -> None:
        """Cancel what is under way for nobody."""
        self._wait_no_longer()
        self._leave_engine()
        self._status = CLIENT_LEFT
        self._over("left", self._desk.clock.now())

    def pause(self) -> None:
        """The client does not keep up: read no more from the engine."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """The client takes bytes again."""
        self._paused = False
        if self._connection is not None:
            self._connection.resume()

    def sweep(self, now: float) -> None:
        """End a wait that has lasted too long: for a model that sleeps, for the first byte."""
        if self._wait is not None and now >= self._wait.until:
            self._wait_no_longer()
            self._give_up(Nothing("none_ready"))
        elif self._relay is None and now >= self.deadline:
            self._wait_no_longer()
            self._leave_engine()
            self._give_up(Nothing("late"))

    def cut(self, said: str) -> None:
        """End it now: with an error event where a stream has begun, else with a 503."""
        if self._relay is not None:
            self._break(said, b"")
            return
        self._wait_no_longer()
        self._leave_engine()
        self._refuse(Refusal(503, f"cannot answer this request: {said}", "stopping", 1.0))

    # --- ends -----------------------------------------------------------------------------------

    def _give_up(self, nothing: Nothing) -> None:
        route = self._desk.endpoints.table.route(self._order.model)
        wait = self._retry_after or (route.retry_after if route else 0.0)
        asked = self._order.body.model
        sleeps = route is not None and route.sleeps
        refusal = refusals.of(nothing, asked, wait, last=self._last, harmed=self._harmed, sleeps=sleeps)
        self._refuse(refusal)

    def _refuse(self, refusal: Refusal) -> None:
        self._status = refusal.status
        self._client.write(answers.refused(refusal, self._id, keep=self._client.keep))
        self._over("refused", self._desk.clock.now())
        self._client.finished(cut=False)

    def _leave_engine(self) -> None:
        """Give up the attempt under way, its connection first: nothing of it is left when it is not counted."""
        if self._dialling is not None:
            if self._dialling is not asyncio.current_task():
                self._dialling.cancel()
            self._dialling = None
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        self._uncount()

    def _keep_engine(self, now: float) -> None:
        assert self._connection is not None
        self._connection.release(now)
        self._connection = None
        self._uncount()

    def _uncount(self) -> None:
        if self._counted:
            replica, self._counted = self._counted, ""
            self._desk.endpoints.give_back(replica)

    def _over(self, end: Outcome, now: float) -> None:
        model = self._order.model
        attempt = self._attempt
        self._desk.metrics.requests[model, str(self._status)] += 1
        if end in BROKEN:
            self._desk.metrics.broken[model, end] += 1
        self._desk.access.note(
            self._id,
            model,
            self._order.path,
            self._status,
            took=now - self._started,
            sent=self._relay.sent if self._relay else 0,
            attempts=len(attempt.journey.tried) if attempt else 0,
            replica=attempt.endpoint.replica if attempt else "-",
            end=end,
        )


def _seconds(value: bytes | None) -> float:
    """A Retry-After in seconds; one that is a date says nothing."""
    return float(value) if value is not None and value.isdigit() else 0.0
