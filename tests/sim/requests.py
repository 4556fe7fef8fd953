"""Requests on the gateway's real exchanges: each has one end, whatever its engines do to it.

`Requests` is one gateway's desk: the product's `Endpoints`, `Exchange` and `routing` decide, by the tables
that this gateway holds; connections are simulated, and lead to engines that answer, refuse, break, die
before their first byte or behind it. Fallbacks are drawn here, rings and unknown names among them.
"""

import dataclasses
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, cast

from llmgw.fleet.routes import Endpoint, Routes
from llmgw.gateway.access import AccessLog
from llmgw.gateway.admission import Forward
from llmgw.gateway.body import read
from llmgw.gateway.endpoints import Endpoints
from llmgw.gateway.exchange import Desk, Exchange
from llmgw.gateway.metrics import Metrics
from llmgw.gateway.relay import Head
from llmgw.gateway.upstream import Hearer, NotReached
from llmgw.gateway.waiting import Patience, Waiting
from llmgw.routing.retry import Policy
from tests.sim.clockwork import Clockwork, Life
from tests.sim.machines import Engine
from tests.sim.verdict import require

POLICY = Policy(attempts=2, first_byte=60.0)
LONGEST = 400.0
"""Seconds in which a request has come to its end, however."""

STATUS = {"engine-rests": 503, "engine-breaks": 500}


class Reached(Protocol):
    """What is behind an endpoint, and who counts faults."""

    def behind(self, endpoint: Endpoint) -> Engine | None:
        """The engine that answers there, or None."""
        ...

    def struck(self, kind: str, name: str) -> None:
        """A fault found its moment."""
        ...


class Caller:
    """A client of one request, and what it was promised: S22."""

    keep = True

    def __init__(self, asked: str) -> None:
        self.asked = asked
        self.began = False
        self.over = False
        self.tried: list[tuple[str, str]] = []

    def write(self, data: bytes) -> None:
        """Bytes of the answer."""
        require(not self.over, "S22", f"a request for {self.asked} is answered behind its end")
        self.began = self.began or bool(data)

    def finished(self, *, cut: bool) -> None:  # noqa: ARG002 - both are ends
        """The answer is over."""
        require(not self.over, "S22", f"a request for {self.asked} ends twice")
        self.over = True

    def attempt(self, endpoint: Endpoint, routes: Routes) -> None:
        """It is about to be sent to an engine."""
        pair, what = (endpoint.model, endpoint.replica), f"a request for {self.asked}"
        require(not self.over, "S22", f"{what} is sent on behind its end")
        require(not self.began, "S22", f"{what} is tried again behind its first byte")
        require(pair not in self.tried, "S22", f"{what} is sent to {endpoint.replica} again")
        require(len(self.tried) < POLICY.attempts, "S22", f"{what} is tried {len(self.tried) + 1} times")
        require(endpoint.model in reachable(self.asked, routes), "S22", f"{what} goes to {endpoint.model}")
        there = [each for each in routes.endpoints if each.replica == endpoint.replica]
        require(bool(there), "S8", f"{what} goes to {endpoint.replica}, which is in no table")
        require(not there[0].draining, "S5", f"{what} goes to {endpoint.replica}, which drains")
        self.tried.append(pair)


def reachable(asked: str, routes: Routes) -> set[str]:
    """The models that a request may end at, by the table's own words."""
    models = {model.name: model for model in routes.models}
    named = {alias: model.name for model in routes.models for alias in model.aliases}
    first = asked if asked in models else named[asked]
    found, new = {first}, [first]
    while new:
        more = [name for name in models[new.pop()].fallbacks if name in models and name not in found]
        found.update(more)
        new += more
    return found


class _Unlogged(AccessLog):
    def note(self, *_: Any, **__: Any) -> None:
        """Nobody reads it here."""


class _Now:
    """The clock of a desk, and its tasks: a dial is over when it begins."""

    def __init__(self, clock: Clockwork) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now

    def start(self, _name: str, dial: Coroutine[Any, Any, None]) -> None:
        try:
            dial.send(None)
        except StopIteration:
            return
        raise AssertionError("a simulated dial waits")


@dataclasses.dataclass(slots=True, eq=False)
class Connection:
    """One connection to an engine, with one request on it."""

    endpoint: Endpoint
    engine: Engine
    desk: "Requests"
    caller: Caller
    reused: bool = False
    heard: bool = False
    over: bool = False
    hearer: Hearer | None = None

    def ask(self, hearer: Hearer, _request: bytes) -> None:
        """The request is sent; an answer begins some time later, if at all."""
        self.caller.attempt(self.endpoint, self.desk.told)
        self.hearer = hearer
        self.desk.later(self._first)

    def _first(self) -> None:
        if self.over or self.hearer is None:
            return
        if not self.engine.leader:
            self._lose()
        elif not self.engine.ready:
            self.desk.later(self._first)  # it hangs
        else:
            status = self.desk.status()
            head = Head.of(status, [(b"content-length", b"10")])
            self.heard = True
            self.hearer.arrived(head, b"12345", complete=False)
            self.desk.later(lambda: self._last(head))

    def _last(self, head: Head) -> None:
        if self.over or self.hearer is None:
            return
        if not self.engine.leader or self.desk.moody("answer-cut"):
            self._lose()
        else:
            self.hearer.arrived(head, b"67890", complete=True)

    def _lose(self) -> None:
        self.over = True
        assert self.hearer is not None
        self.hearer.lost("the engine closed the connection")

    def release(self, _now: float) -> None:
        """The answer is whole."""
        self.over = True

    def abort(self) -> None:
        """The gateway gives it up."""
        self.over = True

    def pause(self) -> None:
        """The client does not keep up."""

    def resume(self) -> None:
        """It does again."""


class _Pool:
    """Connections of one request: none is kept."""

    def __init__(self, desk: "Requests", caller: Caller) -> None:
        self._desk, self._caller = desk, caller

    def idle(self, _endpoint: Endpoint, _now: float) -> None:
        return None

    async def dial(self, endpoint: Endpoint) -> Connection:
        engine = self._desk.behind(endpoint)
        if engine is None:
            raise NotReached("connection refused")
        return Connection(endpoint, engine, self._desk, self._caller)


class Requests:
    """The exchanges of one gateway."""

    def __init__(self, clock: Clockwork, name: str, life: Life, world: Reached, pace: float) -> None:
        self.told = Routes()
        self.ends = 0
        self.home = False
        self._clock = clock
        self._name = name
        self._life = life
        self._world = world
        self._pace = pace
        self._chance = clock.chance(f"requests/{name}")
        self._now = _Now(clock)
        self._fallbacks: dict[str, tuple[str, ...]] = {}
        self._mood, self._lasts, self._shown = "", 0.0, False
        self._endpoints = Endpoints(POLICY, self._chance, news=lambda: None, adopted=lambda *_: None)
        self._metrics, self._access = Metrics(), _Unlogged(lambda _: None)
        self._waiting = Waiting(Patience(), news=lambda: None)
        self._number = 0
        self._open: list[tuple[Caller, Exchange]] = []

    def go_home(self) -> None:
        """Nobody comes any more, and whoever waits goes away."""
        self.home = True
        for caller, exchange in self._open:
            _leave(caller, exchange)
        self._open.clear()

    def start(self) -> None:
        """Let clients come."""
        self._clock.steadily(self._chance.expovariate(1.0 / self._pace), self._come, self._life)

    @property
    def in_flight(self) -> Mapping[str, int]:
        """Requests by replica."""
        return self._endpoints.in_flight

    def adopt(self, routes: Routes) -> None:
        """Serve by a newer table; its fallbacks are drawn here."""
        names = [model.name for model in routes.models]
        for name in names:
            if name not in self._fallbacks:
                drawn = self._chance.sample(
                    ["m0", "m1", "m2", "m3", "gone", name], self._chance.randint(0, 3)
                )
                self._fallbacks[name] = tuple(drawn)
        models = tuple(
            dataclasses.replace(model, fallbacks=self._fallbacks[model.name]) for model in routes.models
        )
        if self._endpoints.adopt(dataclasses.replace(routes, models=models)):
            self.told = self._endpoints.routes
            self._waiting.adopted(self._endpoints.table)

    def feels(self, mood: str, lasts: float = 0.0) -> None:
        """What engines do to requests, until it has shown for so long; empty = they answer."""
        self._mood, self._lasts, self._shown = mood, lasts, False

    def moody(self, mood: str) -> bool:
        """Whether that happens now; it is counted when it first shows."""
        if self._mood != mood:
            return False
        if not self._shown:
            self._shown = True
            self._world.struck(mood, self._name)
            self._clock.after(self._lasts, lambda: self.feels("") if self._mood == mood else None)
        return True

    def status(self) -> int:
        """What an engine answers now."""
        return next((status for mood, status in STATUS.items() if self.moody(mood)), 200)

    def behind(self, endpoint: Endpoint) -> Engine | None:
        """The engine that takes a connection there."""
        return self._world.behind(endpoint)

    def later(self, step: Any) -> None:
        """Some time passes, as it does by itself."""
        self._clock.steadily(self._chance.uniform(0.05, 6.0), step, self._life)

    def _come(self) -> None:
        self.start()
        names = self._endpoints.table.names
        if not names or self.home:
            return
        asked = self._chance.choice(names)
        caller = Caller(asked)
        desk = Desk(
            self._endpoints,
            cast("Any", _Pool(self, caller)),
            cast("Any", self._now),
            cast("Any", self._now),
            self._metrics,
            self._access,
            self._waiting,
        )
        order = Forward("/v1/completions", b"*/*", read(b'{"model":"%b","n":1}' % asked.encode()), asked)
        self._number += 1
        exchange = Exchange(desk, caller, order, b"%d" % self._number)
        exchange.start()
        if caller.over:
            return
        self._open = [(other, its) for other, its in self._open if not other.over]
        self._open.append((caller, exchange))

        def deadline() -> None:
            if not caller.over:
                exchange.sweep(self._clock.now)

        def leaves() -> None:
            _leave(caller, exchange)

        def ended() -> None:
            require(caller.over, "S22", f"a request for {asked} has no end after {LONGEST:g}s")

        self._clock.steadily(POLICY.first_byte + 0.1, deadline, self._life)
        self._clock.steadily(LONGEST, ended, self._life)
        if self._chance.random() < 0.1:
            self._clock.steadily(self._chance.uniform(0.1, 9.0), leaves, self._life)


def _leave(caller: Caller, exchange: Exchange) -> None:
    if not caller.over:
        caller.over = True
        exchange.client_left()
