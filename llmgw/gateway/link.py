"""The gateway's line to its control plane: tables come down, acknowledgements and load go up.

Started by `gateway.serve`; it adopts tables into `gateway.endpoints` and reports from there. While
the control plane is away the newest table stays in effect, and this knocks with back-off.
"""

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import pydantic

from llmgw.fleet.routes import Routes
from llmgw.gateway.endpoints import Endpoints
from llmgw.gateway.store import RouteStore
from llmgw.gateway.waiting import Waiting
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import Chance
from llmgw.kit.clock import Clock
from llmgw.kit.tasks import Tasks
from llmgw.transport.channel import ChannelClosed
from llmgw.wire import messages

log = logging.getLogger(__name__)

BUILD = importlib.metadata.version("llmgw")


class Channel(Protocol):
    """What `transport.connect` gives. Its methods raise ChannelClosed."""

    async def send(self, message: bytes) -> None:
        """Send one message."""
        ...

    async def receive(self) -> bytes:
        """The next message."""
        ...

    async def close(self) -> None:
        """End it, delivering what was sent."""
        ...


KNOCKING = Backoff(base=0.2, cap=10.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """`report` = seconds between reports when nothing happens; `backoff` between attempts to connect."""

    report: float = 1.0
    backoff: Backoff = KNOCKING


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Who we are to the control plane. `instance` is drawn anew by each process of this `name`; `host` is its machine."""

    name: str
    instance: str
    host: str = ""


class Link:
    """`news` is set by the endpoints and by who waits when there is something to report at once."""

    def __init__(
        self,
        identity: Identity,
        connect: Callable[[], Awaitable[Channel]],
        *,
        endpoints: Endpoints,
        waiting: Waiting,
        news: asyncio.Event,
        store: RouteStore,
        tasks: Tasks,
        clock: Clock,
        chance: Chance,
        pace: Pace,
    ) -> None:
        self.connected = False
        self._identity = identity
        self._connect = connect
        self._endpoints = endpoints
        self._waiting = waiting
        self._news = news
        self._store = store
        self._tasks = tasks
        self._clock = clock
        self._chance = chance
        self._pace = pace
        self._channel: Channel | None = None
        self._refused = ""
        self._left = False

    async def run(self) -> None:
        """Keep the line up until this gateway leaves."""
        failures = 0
        while not self._left:
            try:
                channel = await self._connect()
            except ChannelClosed as error:
                failures += 1
                if failures == 1:
                    log.warning("no control plane, serving by table %d: %s", self._version, error.said)
            else:
                failures = 1 if await self._converse(channel) else failures + 1
            await asyncio.sleep(self._pace.backoff.delay(failures, self._chance))

    @property
    def _version(self) -> int:
        return self._endpoints.table.version

    async def _converse(self, channel: Channel) -> bool:
        """Until the line ends. Whether we were not refused on it."""
        self._channel = channel
        reports: asyncio.Task[None] | None = None
        try:
            await channel.send(messages.encode(self._hello()))
            self.connected = True
            if not self._refused:
                log.info("subscribed to the control plane, serving by table %d", self._version)
            reports = self._tasks.start("gateway reports", self._report(channel))
            while True:
                await self._heard(channel, await channel.receive())
        except (ChannelClosed, pydantic.ValidationError) as error:
            if self.connected and not self._left:
                log.warning("the control plane went away, serving by table %d: %s", self._version, error)
            return self.connected
        finally:
            self.connected = False
            self._channel = None
            if reports is not None:
                reports.cancel()
            await channel.close()

    def _hello(self) -> messages.Subscribe:
        return messages.Subscribe(
            gateway=self._identity.name,
            instance=self._identity.instance,
            build=BUILD,
            version=self._version,
            host=self._identity.host,
        )

    async def _heard(self, channel: Channel, data: bytes) -> None:
        match messages.decode_down(data):
            case messages.Refused(said=said):
                self.connected = False
                if said != self._refused:
                    log.error("%s", said)
                self._refused = said
            case messages.RoutesUpdate(routes=routes):
                self._refused = ""
                await self._told(routes)
            case messages.Clock(seq=seq):
                told = (seq, self._clock.wall().timestamp())
                await channel.send(messages.encode(self._load().model_copy(update={"clocks": (told,)})))

    async def _told(self, routes: Routes) -> None:
        if self._endpoints.adopt(routes):
            await self._keep(self._endpoints.routes)
        else:
            self._news.set()  # told again: say again by what is served

    async def _keep(self, routes: Routes) -> None:
        try:
            await asyncio.to_thread(self._store.keep, routes)
        except OSError as error:
            log.error("cannot keep the routing table at %s: %s", self._store.path, error)

    async def _report(self, channel: Channel) -> None:
        """Report at once when there is news, else every so often. Ends with the channel."""
        with contextlib.suppress(ChannelClosed):
            while True:
                self._news.clear()
                await channel.send(messages.encode(self._load()))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), self._pace.report)

    def _load(self) -> messages.Load:
        now = self._clock.now()
        standing = self._endpoints.standing(now)
        return messages.Load(
            acked=standing.version,
            in_flight=standing.in_flight,
            green=standing.green,
            queued=self._waiting.queued(now),
            dark=standing.dark,
        )

    async def leave(self) -> None:
        """Say good-bye: everything is drained, and this gateway holds no drain up any more."""
        self._left = True
        if self._channel is not None:
            with contextlib.suppress(ChannelClosed):
                await self._channel.send(messages.encode(messages.Load(acked=self._version)))
                await self._channel.send(messages.encode(messages.Leave()))
            await self._channel.close()
