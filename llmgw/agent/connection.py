"""The agent's link to its control plane: one stream at a time, found again whenever it is lost.

`agent.serve` makes it and runs it; the supervisor reports through it and gets its commands from it.
What may be said and obeyed is decided by `wire.session.AgentSession`; this is its hands. A stream
that ends takes everything of its own with it: nothing it held is touched by the next one.
"""

import asyncio
import collections
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import Progress, ShardKey, ShardStatus
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import Chance
from llmgw.kit.clock import Clock
from llmgw.transport.channel import Channel, ChannelClosed
from llmgw.wire import messages as wire
from llmgw.wire import session as say

log = logging.getLogger(__name__)

BACKOFF = Backoff(base=0.5, cap=15.0, share=0.5)
"""The wide share spreads a fleet whose control plane came back."""

ANSWERS = 256


class Outbox:
    """What is still to say. Bounded: the newest status of a shard wins, and so does the newest progress."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._statuses: dict[ShardKey, ShardStatus] = {}
        self._info: NodeInfo | None = None
        self._progress: tuple[Progress, ...] | None = None
        self._heartbeat: wire.Heartbeat | None = None
        self._answers: collections.deque[wire.Result] = collections.deque(maxlen=ANSWERS)

    def report(self, statuses: Iterable[ShardStatus], info: NodeInfo | None = None) -> None:
        self._statuses.update({status.key: status for status in statuses})
        self._info = info or self._info
        self.news.set()

    def progress(self, progress: tuple[Progress, ...]) -> None:
        self._progress = progress
        self.news.set()

    def heartbeat(self, heartbeat: wire.Heartbeat) -> None:
        self._heartbeat = heartbeat
        self.news.set()

    def answer(self, result: wire.Result) -> None:
        self._answers.append(result)
        self.news.set()

    def registered(self) -> None:
        """Forget what the registration that is about to be sent says whole."""
        self._statuses, self._info, self._progress, self._heartbeat = {}, None, None, None

    def take(self) -> list[wire.Up]:
        """Everything, in the order to say it; afterwards there is nothing."""
        taken: list[wire.Up] = []
        if self._statuses or self._info:
            taken.append(wire.Report(statuses=tuple(self._statuses.values()), info=self._info))
        if self._progress is not None:
            taken.append(wire.ProgressReport(progress=self._progress))
        taken.extend(self._answers)
        if self._heartbeat is not None:
            taken.append(self._heartbeat)
        self.registered()
        self._answers.clear()
        return taken


class Link:
    """Runs until it is cancelled. `report`, `progress` and `answer` may be called at any time.

    `connect` opens a channel; `snapshot` describes the node whole, now; `heartbeat` makes the next
    heartbeat. `adopt(epoch, revision)` must have the epoch on disk when it returns, where the disk takes it; `obey` gets each
    command once. `patience` is how long the control plane may take to answer a registration.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Channel]],
        *,
        snapshot: Callable[[], wire.Register],
        heartbeat: Callable[[], wire.Heartbeat],
        adopt: Callable[[int, int], None],
        obey: Callable[[say.Command], None],
        clock: Clock,
        chance: Chance,
        epoch: int = 0,
        patience: float = 15.0,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self.said = "not connected yet"
        self._connect = connect
        self._snapshot = snapshot
        self._heartbeat = heartbeat
        self._adopt = adopt
        self._obey = obey
        self._clock = clock
        self._chance = chance
        self._patience = patience
        self._backoff = backoff
        self._session = say.AgentSession(epoch=epoch)
        self._outbox = Outbox()

    @property
    def registered(self) -> bool:
        """Whether the control plane knows this node now; if not, `said` is why."""
        return self._session.phase == "registered"

    def report(self, statuses: Iterable[ShardStatus], info: NodeInfo | None = None) -> None:
        """Tell transitions, and what the node is and holds where that changed."""
        self._outbox.report(statuses, info)

    def progress(self, progress: tuple[Progress, ...]) -> None:
        """Tell how far the fetches are; empty = none is running any more."""
        self._outbox.progress(progress)

    def answer(self, result: wire.Result) -> None:
        """Answer a command."""
        self._outbox.answer(result)

    async def run(self) -> None:
        """Connect, converse, wait, again. A registration that succeeded resets the back-off."""
        failures = 0
        while True:
            was_registered, said = await self._stream()
            failures = 1 if was_registered else failures + 1
            if said != self.said:
                log.warning("no control plane: %s", said)
            self.said = said
            await asyncio.sleep(self._backoff.delay(failures, self._chance))

    async def _stream(self) -> tuple[bool, str]:
        """One stream from beginning to end: whether it was registered, and why it ended."""
        try:
            channel = await self._connect()
        except ChannelClosed as closed:
            return False, closed.said
        try:
            said = await self._converse(channel)
            return self.registered, said
        finally:
            self._session = self._session.ended(self._session.stream)
            await channel.close()

    async def _converse(self, channel: Channel) -> str:
        self._outbox.registered()
        now = self._clock.now()
        self._session, register = self._session.opened(self._snapshot(), now, self._patience)
        number = self._session.stream
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(self._write(channel, register))
            said = await self._read(channel, number)
            writer.cancel()
        return said

    async def _read(self, channel: Channel, number: int) -> str:
        try:
            while True:
                data = await channel.receive()
                self._do(channel, self._session.received(number, data, self._clock.now(), self._chance))
        except ChannelClosed as closed:
            return closed.said

    async def _write(self, channel: Channel, register: wire.Register) -> None:
        with contextlib.suppress(ChannelClosed):  # the reader is told as well
            await channel.send(wire.encode(register))
            while True:
                await self._news_or_due()
                self._do(channel, self._session.ticked(self._clock.now(), self._chance))
                if self.registered:
                    for message in self._outbox.take():
                        await channel.send(wire.encode(message))

    async def _news_or_due(self) -> None:
        left = self._session.due - self._clock.now()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left if left < 3600 else None):
                await self._outbox.news.wait()
        self._outbox.news.clear()

    def _do(self, channel: Channel, step: say.AgentStep) -> None:
        self._session, outputs = step
        for output in outputs:
            match output:
                case say.Adopt(epoch=epoch, revision=revision):
                    self._adopt(epoch, revision)
                    self.said = ""
                    log.info("registered at %s, epoch %d", channel.peer, epoch)
                    self._outbox.news.set()
                case say.Obey(command=command):
                    if isinstance(command, wire.Clock):
                        wall = self._clock.wall().timestamp()
                        self._outbox.answer(wire.Result(seq=command.seq, data={"wall": wall}))
                    else:
                        self._obey(command)
                case say.Beat():
                    self._outbox.heartbeat(self._heartbeat())
                case say.Send(message=wire.Result() as result):
                    self._outbox.answer(result)
                case say.End(said=said):
                    channel.abort(said)
