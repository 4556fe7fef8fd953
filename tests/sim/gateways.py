"""Simulated gateways and the requests of their clients: each request truly runs on one engine.

A gateway serves by the newest table it was given and keeps it while the control plane is away. It
acknowledges by saying what it has in flight: at once for a new table, at once when a draining replica
came to nothing, and every few seconds.
"""

import collections
import dataclasses
import functools
from typing import Protocol

from llmgw.fleet.routes import Endpoint, Routes
from llmgw.wire import messages
from tests.sim.clockwork import Clockwork, Life
from tests.sim.links import End, Path, Stream
from tests.sim.machines import Engine
from tests.sim.requests import Requests as Desk

LOAD_EVERY = 4.0
CROWD, MOST_WAITING = 3, 20
"""Clients more at a time in a rush, and how many wait for one model at most."""


class Backends(Protocol):
    """What a gateway reaches: the control plane, and rank 0 of replicas."""

    def dial(self, path: Path, end: End) -> Stream | None:
        """A stream to the control plane, or None while nobody answers."""
        ...

    def behind(self, endpoint: Endpoint) -> Engine | None:
        """The engine that answers at an endpoint, or None if nothing serves there."""
        ...

    def whole(self, replica: str) -> bool:
        """Whether every rank of a replica does its part."""
        ...

    def rushed(self) -> tuple[str, ...]:
        """The models to which clients flock just now."""
        ...

    def elastic(self, model: str) -> bool:
        """Whether the count of a model's replicas follows its clients."""
        ...

    def struck(self, kind: str, name: str) -> None:
        """A fault that lay in wait found its moment."""
        ...

    def adopting(self, gateway: "Gateway", routes: Routes) -> None:
        """A gateway is about to serve by a newer table."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Clients:
    """What clients are like: seconds between their requests, and which share takes minutes."""

    pace: float
    long: float


@dataclasses.dataclass(slots=True)
class Request:
    """One request under way on one engine, answered at `due`."""

    replica: str
    engine: Engine
    due: float
    noted: bool = False


class Gateway:
    """One gateway process."""

    def __init__(self, clock: Clockwork, name: str, path: Path, world: Backends, clients: Clients) -> None:
        self.clock = clock
        self.name = name
        self.path = path
        self.life = Life()
        self.routes = Routes()
        self.silent = 0
        self.requests: list[Request] = []
        self.green: dict[str, float] = {}
        self.dark: dict[str, float] = {}
        self.waiting: collections.Counter[str] = collections.Counter()
        self._home = False
        self._pace = clients.pace
        self._long = clients.long
        self._stream: Stream | None = None
        self._world = world
        self._chance = clock.chance(f"gateway/{name}")
        self.desk = Desk(clock, name, self.life, world, 2.0 * clients.pace)

    def start(self) -> None:
        """Subscribe, and let clients come."""
        self._dial()
        self._client()
        self.desk.start()
        self._report()

    @property
    def speaks(self) -> bool:
        """What it says arrives about now."""
        carries = self._stream is not None and self._stream.carries("up")
        return carries and not self.silent and self.path.slow < 10.0

    @property
    def steady(self) -> bool:
        """Nothing but loads and requests will come of it by itself."""
        return self._stream is None or self._stream.still

    @property
    def connected(self) -> bool:
        """It has a stream, as far as it knows."""
        return self._stream is not None

    def leapt(self, delay: float) -> None:
        """Clients went on as before: whoever serves has answered as lately as then."""
        for request in self.requests:
            request.due += 0.0 if request.noted else delay
        if self.speaks:
            for replica in self.green:
                self.green[replica] += delay if self._world.whole(replica) else 0.0

    def in_flight(self, replica: str) -> int:
        """How many requests it has on a replica."""
        mine = sum(request.replica == replica for request in self.requests)
        return mine + self.desk.in_flight.get(replica, 0)

    def drains(self) -> bool:
        """Whether it has requests on a replica that drains."""
        return any(e.draining and self.in_flight(e.replica) for e in self.routes.endpoints)

    # --- the control plane --------------------------------------------------------------------

    def _dial(self) -> None:
        self._stream = self._world.dial(self.path, End(self._hear, self._closed))
        if self._stream is None:
            self.clock.steadily(self._chance.uniform(1.0, 4.0), self._dial, self.life)
        else:
            self._say(messages.Subscribe(gateway=self.name, version=self.routes.version, host=self.name))
            self._load()

    def _closed(self) -> None:
        self._stream = None
        self.clock.after(self._chance.uniform(0.1, 2.0), self._dial, self.life)

    def _say(self, message: messages.Message) -> None:
        if self._stream is not None:
            self._stream.send("up", messages.encode(message), quietly=isinstance(message, messages.Load))

    def _hear(self, data: bytes) -> None:
        message = messages.decode_down(data)
        if isinstance(message, messages.RoutesUpdate) and message.routes.version > self.routes.version:
            self._world.adopting(self, message.routes)
            self.routes = _merged(self.routes, message.routes)
            offered = {endpoint.replica for endpoint in self.routes.endpoints}
            self.dark = {replica: at for replica, at in self.dark.items() if replica in offered}
            self.desk.adopt(message.routes)
            self._load()
            self._drain()

    def _drain(self) -> None:
        """Each request on what drains is of note now: no leap moves its end."""
        draining = {endpoint.replica for endpoint in self.routes.endpoints if endpoint.draining}
        for request in self.requests:
            if request.replica in draining:
                self._note(request)

    def _note(self, request: Request) -> None:
        if not request.noted:
            request.noted = True
            self.clock.at(request.due, functools.partial(self._answered, request), self.life)

    def _report(self) -> None:
        self._load()
        self.clock.steadily(LOAD_EVERY * self._chance.uniform(0.8, 1.2), self._report, self.life)

    def _load(self) -> None:
        if self._stream is None or self.silent:
            return
        counts = dict(self.desk.in_flight)
        for request in self.requests:
            counts[request.replica] = counts.get(request.replica, 0) + 1
        ages = {replica: self.clock.now - at for replica, at in self.green.items()}
        load = messages.Load(
            acked=self.routes.version,
            in_flight=tuple(counts.items()),
            green=tuple((replica, age) for replica, age in ages.items() if age < 60.0),
            queued=tuple((model, count) for model, count in self.waiting.items() if count),
            dark=tuple((replica, self.clock.now - at) for replica, at in self.dark.items()),
        )
        self._say(load)

    # --- the clients --------------------------------------------------------------------------

    def _client(self) -> None:
        self.clock.steadily(self._chance.expovariate(1.0 / self._pace), self._client, self.life)
        open_ = [
            endpoint
            for endpoint in self.routes.endpoints
            if not endpoint.draining and not (self._home and self._world.elastic(endpoint.model))
        ]
        if open_:
            self._ask(self._chance.choice(open_))
        for model in self._world.rushed() if not self._home else ():
            there = [endpoint for endpoint in open_ if endpoint.model == model]
            for _ in range(CROWD):
                if there:
                    self._ask(self._chance.choice(there))
                else:
                    self._wait(model)

    def send_home(self) -> None:
        """Whoever could ask for more replicas goes away; the others go on."""
        self._home = True
        self.desk.go_home()
        self.waiting.clear()
        for request in self.requests:
            if self._world.elastic(request.replica.rpartition("/")[0]):
                self._note(request)
        self._load()  # no leap may take those who went for still there

    def _wait(self, model: str) -> None:
        """A client waits for a model that nothing serves, and gives up in the end."""
        if self.waiting[model] >= MOST_WAITING:
            return
        self.waiting[model] += 1

        def leaves() -> None:
            self.waiting[model] = max(0, self.waiting[model] - 1)

        self.clock.steadily(self._chance.uniform(5.0, 40.0), leaves, self.life)

    def _ask(self, endpoint: Endpoint) -> None:
        engine = self._world.behind(endpoint)
        if engine is None:
            self.dark[endpoint.replica] = self.clock.now
        else:
            self.dark.pop(endpoint.replica, None)
            long = self._chance.random() < self._long
            took = self._chance.uniform(30.0, 240.0) if long else self._chance.uniform(0.5, 15.0)
            request = Request(endpoint.replica, engine, self.clock.now + took)
            self.requests.append(request)
            self.clock.steadily(took, functools.partial(self._in_time, request), self.life)

    def _in_time(self, request: Request) -> None:
        if not request.noted:
            self._answered(request)

    def _answered(self, request: Request) -> None:
        self.requests.remove(request)
        if self._world.whole(request.replica):
            self.green[request.replica] = self.clock.now
        draining = any(e.draining and e.replica == request.replica for e in self.routes.endpoints)
        if request.noted or (draining and not self.in_flight(request.replica)):
            self._load()


def _merged(old: Routes, new: Routes) -> Routes:
    """What to serve by: a partial table adds to what is known and takes nothing away."""
    if not new.partial:
        return new
    said = {endpoint.replica for endpoint in new.endpoints}
    kept = tuple(endpoint for endpoint in old.endpoints if endpoint.replica not in said)
    return dataclasses.replace(new, endpoints=kept + new.endpoints)
