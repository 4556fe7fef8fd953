"""The gateway's line to its control plane: tables come down, acknowledgements and load go up.

Started by `gateway.serve`; it adopts tables into `gateway.endpoints` and reports from there. While
the control plane is away the newest table stays in effect, and this knocks with back-off.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import pydantic

from llmgw.fleet.routes import Routes
from llmgw.gateway.endpoints import Endpoints
from llmgw.gateway.store import RouteStore
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import Chance
from llmgw.kit.clock import Clock
from llmgw.kit.tasks import Tasks
from llmgw.transport.channel import ChannelClosed
from llmgw.wire import messages

log = logging.getLogger(__name__)


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


class Link:
    """`news` is set by the endpoints when there is something to report at once."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Awaitable[Channel]],
        *,
        endpoints: Endpoints,
        news: asyncio.Event,
        store: RouteStore,
        tasks: Tasks,
        clock: Clock,
        chance: Chance,
        pace: Pace,
    ) -> None:
        self.connected = False
        self._name = name
        self._connect = connect
        self._endpoints = endpoints
        self._news = news
        self._store = store
        self._tasks = tasks
        self._clock = clock
        self._chance = chance
        self._pace = pace
        self._channel: Channel | None = None
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
                await self._converse(channel)
                failures = 1
            await asyncio.sleep(self._pace.backoff.delay(failures, self._chance))

    @property
    def _version(self) -> int:
        return self._endpoints.table.version

    async def _converse(self, channel: Channel) -> None:
        self._channel = channel
        reports: asyncio.Task[None] | None = None
        try:
            hello = messages.Subscribe(gateway=self._name, version=self._version)
            await channel.send(messages.encode(hello))
            reports = self._tasks.start("gateway reports", self._report(channel))
            self.connected = True
            log.info("subscribed to the control plane, serving by table %d", self._version)
            while True:
                await self._heard(await channel.receive())
        except (ChannelClosed, pydantic.ValidationError) as error:
            if not self._left:
                log.warning("the control plane went away, serving by table %d: %s", self._version, error)
        finally:
            self.connected = False
            self._channel = None
            if reports is not None:
                reports.cancel()
            await channel.close()

    async def _heard(self, data: bytes) -> None:
        message = messages.decode_down(data)
        if not isinstance(message, messages.RoutesUpdate):
            return
        if self._endpoints.adopt(message.routes):
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
        standing = self._endpoints.standing(self._clock.now())
        return messages.Load(acked=standing.version, in_flight=standing.in_flight, green=standing.green)

    async def leave(self) -> None:
        """Say good-bye: everything is drained, and this gateway holds no drain up any more."""
        self._left = True
        if self._channel is not None:
            with contextlib.suppress(ChannelClosed):
                await self._channel.send(messages.encode(messages.Load(acked=self._version)))
                await self._channel.send(messages.encode(messages.Leave()))
            await self._channel.close()
