"""The gateway process: reads its settings, builds everything, listens, and drains at the end.

Called by `llmgw gateway`, and by `llmgw up` inside its own process.
"""

import asyncio
import dataclasses
import logging
import os
import pathlib
import signal
import socket
import ssl
from collections.abc import Callable, Collection, Iterator

from llmgw.errors import Failed
from llmgw.gateway.access import AccessLog
from llmgw.gateway.endpoints import Endpoints
from llmgw.gateway.exchange import Desk
from llmgw.gateway.front import Front
from llmgw.gateway.link import Identity, Link, Pace
from llmgw.gateway.metrics import Gauge, Metrics
from llmgw.gateway.receive import Limits
from llmgw.gateway.store import Damaged, RouteStore
from llmgw.gateway.upstream import Pool, Reach
from llmgw.gateway.waiting import Patience, Waiting
from llmgw.kit.chance import unseeded
from llmgw.kit.clock import SystemClock
from llmgw.kit.hosts import this_host
from llmgw.kit.tasks import Tasks
from llmgw.kit.threads import use_threads
from llmgw.routing.retry import Policy
from llmgw.routing.table import RoutingTable
from llmgw.transport.channel import Channel
from llmgw.transport.client import bearer, connect
from llmgw.transport.scrape import Scrape

log = logging.getLogger(__name__)

BACKLOG = 4096
FLUSH = 1.0
"""Seconds for the last bytes of requests that were cut."""
LIMITS, POLICY, REACH, PACE, PATIENCE = Limits(), Policy(), Reach(), Pace(), Patience()


def own_name(port: int, *, shared: bool) -> str:
    """A name for the gateway at `port` of this machine: its next process takes its place by it.

    Where processes share the port, each has its own.
    """
    return f"{socket.gethostname()}:{port}" + (f"-{os.getpid()}" if shared else "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where it listens, whom it asks, what it keeps; times in seconds. Port 0 takes a free one, None listens nowhere.

    `name` must be this gateway's own: the control plane counts acknowledgements by it; "" takes
    `own_name`. `drain` is
    how long a stop waits for what is under way, `sweep` how often deadlines are looked at. `access`
    takes the lines of the access log; None = nobody wants them.
    """

    state_dir: pathlib.Path
    host: str = "127.0.0.1"
    port: int = 8000
    control_host: str = "127.0.0.1"
    control_port: int = 7600
    control_tls: ssl.SSLContext | None = None
    token: str = dataclasses.field(default="", repr=False)
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = 9602
    name: str = ""
    reuse_port: bool = False
    drain: float = 120.0
    sweep: float = 0.25
    limits: Limits = LIMITS
    policy: Policy = POLICY
    reach: Reach = REACH
    pace: Pace = PACE
    patience: Patience = PATIENCE
    access: Callable[[str], object] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """The ports that are listened on; 0 = no metrics."""

    port: int
    metrics_port: int


async def run(
    settings: Settings,
    *,
    ready: Callable[[Bound], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set, then drain. Without a `stop`, SIGTERM and SIGINT are it.

    `ready` is called once it listens. Raises Failed where it cannot listen.
    """
    use_threads()
    stop = stop or _signalled()
    gateway = Gateway(settings)
    try:
        bound = await gateway.listen()
        if ready is not None:
            ready(bound)
        await _stopped(stop, gateway.tasks)
        await gateway.drain()
    finally:
        await gateway.close()


class Gateway:
    """All the parts, built and joined."""

    def __init__(self, settings: Settings) -> None:
        self.tasks = Tasks()
        self._settings = settings
        self._clock = SystemClock()
        chance = unseeded()
        news = asyncio.Event()
        self._pool = Pool(settings.reach)
        self._metrics = Metrics()
        self._endpoints = Endpoints(settings.policy, chance, news=news.set, adopted=self._adopted)
        self._access = AccessLog(settings.access or _unwanted)
        self._waiting = Waiting(settings.patience, news=news.set)
        desk = Desk(
            self._endpoints, self._pool, self.tasks, self._clock, self._metrics, self._access, self._waiting
        )
        self._front = Front(desk, settings.limits, os.urandom(4).hex())
        self._store = RouteStore(settings.state_dir)
        self._link = Link(
            Identity(
                settings.name or own_name(settings.port, shared=settings.reuse_port),
                os.urandom(8).hex(),
                this_host(),
            ),
            self._connect,
            endpoints=self._endpoints,
            waiting=self._waiting,
            news=news,
            store=self._store,
            tasks=self.tasks,
            clock=self._clock,
            chance=chance,
            pace=settings.pace,
        )
        self._servers: list[asyncio.Server] = []

    async def _connect(self) -> Channel:
        s = self._settings
        headers = bearer(s.token)
        return await connect(s.control_host, s.control_port, "/gateway", headers=headers, tls=s.control_tls)

    def _adopted(self, table: RoutingTable, gone: Collection[str]) -> None:
        self._metrics.keep(table.models)
        for replica in gone:
            self._pool.retire(replica)
        self._waiting.adopted(table)

    async def listen(self) -> Bound:
        """Take the kept table, listen, and begin to talk to the control plane."""
        self._settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._recall()
        s = self._settings
        front = await self._serve(self._front.connection, s.host, s.port, "--listen", reuse_port=s.reuse_port)
        metrics = 0
        if s.metrics_port is not None:
            scrape = await self._serve(
                lambda: Scrape(self._page),
                s.metrics_host,
                s.metrics_port,
                "--metrics",
                reuse_port=s.reuse_port,
            )
            metrics = _port(scrape)
        self._listener = front
        self.tasks.start("gateway link", self._link.run())
        self.tasks.start("gateway sweep", self._sweep())
        return Bound(_port(front), metrics)

    def _recall(self) -> None:
        try:
            kept = self._store.load()
        except Damaged as error:
            log.warning("cannot use the routing table that was kept, waiting for a new one: %s", error)
            return
        if kept is not None:
            self._endpoints.adopt(kept)

    async def _serve(
        self,
        protocol: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        option: str,
        *,
        reuse_port: bool,
    ) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                protocol, host, port, backlog=BACKLOG, reuse_port=reuse_port or None
            )
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
            raise Failed(
                f"cannot listen on {host}:{port}: {why}", help=f"choose another address with {option}"
            ) from error
        self._servers.append(server)
        return server

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep)
            now = self._clock.now()
            self._front.sweep(now)
            self._pool.sweep(now)
            self._endpoints.sweep(now)
            self._access.flush()

    def _page(self) -> bytes:
        return self._metrics.text(self._gauges())

    def _gauges(self) -> Iterator[Gauge]:
        table = self._endpoints.table
        yield Gauge("in_flight", "Requests at engines.", _by_model(self._endpoints.in_flight))
        waiting: dict[tuple[str, ...], float] = {(m,): count for m, count in self._waiting.counts.items()}
        yield Gauge("queued", "Requests that wait for a model that sleeps.", waiting)
        yield Gauge("ready", "Replicas that take requests.", _by_model(dict.fromkeys(table.ready, 1)))
        yield Gauge("connections", "Client connections.", {(): len(self._front.connections)})
        yield Gauge("table_version", "The routing table in effect.", {(): table.version})
        yield Gauge("control_connected", "1 = the control plane is heard.", {(): self._link.connected})

    async def drain(self) -> None:
        """Accept nothing more, let what is under way end, then say good-bye."""
        self._listener.close()
        self._front.stop()
        if not await self._settled(self._settings.drain):
            log.warning("the drain limit has passed, cutting %d requests", self._front.busy)
            self._front.cut("this gateway is stopping")
            await self._settled(FLUSH)
        await self._link.leave()

    async def _settled(self, within: float) -> bool:
        """Whether nothing is under way any more, within so many seconds."""
        deadline = self._clock.now() + within
        while self._front.busy:
            if self._clock.now() >= deadline:
                return False
            # Asked again and again: a write buffer tells nobody when it is empty.
            await asyncio.sleep(0.02)
        return True

    async def close(self) -> None:
        """End everything that is left."""
        for server in self._servers:
            server.close()
        self._front.close()
        self._pool.close()
        await self.tasks.close()
        self._access.flush()


def _unwanted(text: str) -> None:
    del text


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


def _by_model(replicas: dict[str, int]) -> dict[tuple[str, ...], float]:
    """Numbers by replica, added up by the model that their ids begin with."""
    sums: dict[tuple[str, ...], float] = {}
    for replica, number in replicas.items():
        key = (replica.rpartition("/")[0],)
        sums[key] = sums.get(key, 0) + number
    return sums


def _signalled() -> asyncio.Event:
    """Set by the first SIGTERM, SIGINT or, unless it is to be ignored, SIGHUP; the second has its usual effect."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)

    def told() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, told)
    return stop


async def _stopped(stop: asyncio.Event, tasks: Tasks) -> None:
    """Until `stop` is set. A background task that failed ends the wait with its error."""
    asked, failed = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(tasks.wait())
    try:
        await asyncio.wait({asked, failed}, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
    finally:
        asked.cancel()
        failed.cancel()
        await asyncio.gather(asked, failed, return_exceptions=True)
