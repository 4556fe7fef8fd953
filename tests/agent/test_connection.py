"""The agent's link: found again whenever it is lost. Every test that claims a reconnect counts the streams."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest

from llmgw.agent.connection import ANSWERS, Link, Outbox
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import Progress, ShardStatus
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import seeded
from llmgw.kit.clock import SystemClock
from llmgw.transport.channel import Channel, ChannelClosed
from llmgw.transport.client import connect
from llmgw.transport.listener import Listener
from llmgw.wire import messages as wire
from tests.support.cutter import Cutter
from tests.transport.harness import HOST, QUICK, hello, listening, until


def status(state: str = "ready", replica: str = "m/x", rank: int = 0) -> ShardStatus:
    return ShardStatus(replica, rank, state)  # type: ignore[arg-type]


def stop(epoch: int, seq: int) -> wire.Stop:
    return wire.Stop(epoch=epoch, seq=seq, replica="m/x", rank=0, generation="g")


@dataclasses.dataclass
class Control:
    """A control plane of the test's own: welcomes, remembers what it heard on each stream."""

    epoch: int = 3
    silent: bool = False
    heartbeat: float = 60.0
    streams: list[list[wire.Up]] = dataclasses.field(default_factory=list)
    channels: list[Channel] = dataclasses.field(default_factory=list)

    async def serve(self, channel: Channel) -> None:
        heard: list[wire.Up] = []
        self.streams.append(heard)
        self.channels.append(channel)
        heard.append(wire.decode_up(await channel.receive()))
        if not self.silent:
            welcome = wire.Registered(epoch=self.epoch, revision=7, heartbeat=self.heartbeat)
            await channel.send(wire.encode(welcome))
        while True:
            heard.append(wire.decode_up(await channel.receive()))

    def kinds(self) -> list[str]:
        """What the newest stream said."""
        return [message.kind for message in self.streams[-1]]


@dataclasses.dataclass
class Node:
    """A link and everything it called."""

    link: Link
    cutter: Cutter
    adopted: list[tuple[int, int]]
    obeyed: list[wire.Message]
    shards: list[ShardStatus]


@contextlib.asynccontextmanager
async def node(control: Control, *, patience: float = 5.0, epoch: int = 0) -> AsyncIterator[Node]:
    async with listening(control.serve, limits=QUICK) as (_, port):
        cutter = Cutter(HOST, port)
        await cutter.start()
        made = Node(None, cutter, [], [], [])  # type: ignore[arg-type]
        info = NodeInfo("n1", "gpu-1", "first")
        made.link = Link(
            lambda: connect(HOST, cutter.port, "/agent", ping=0.1, timeout=0.3),
            snapshot=lambda: wire.Register(info=info, revision=len(made.shards)),
            heartbeat=wire.Heartbeat,
            adopt=lambda *adopted: made.adopted.append(adopted),
            obey=made.obeyed.append,
            clock=SystemClock(),
            chance=seeded(1),
            epoch=epoch,
            patience=patience,
            backoff=Backoff(base=0.02, cap=0.1),
        )
        running = asyncio.create_task(made.link.run())
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.wait({running})
            await cutter.close()


def test_registers_and_reports() -> None:
    """Register is the first word; then what was reported meanwhile, commands obeyed, answers given."""
    control = Control()

    async def story() -> None:
        async with node(control) as agent:
            await until(lambda: agent.link.registered, "the registration")
            assert agent.adopted == [(3, 7)]
            assert agent.link.said == ""

            agent.link.report([status()])
            agent.link.progress((Progress("c", 5),))
            await until(lambda: len(control.kinds()) == 3, "the reports")
            assert control.streams[0][1:] == [
                wire.Report(statuses=(status(),)),
                wire.ProgressReport(progress=(Progress("c", 5),)),
            ]
            for command in (stop(3, 1), stop(3, 1), stop(2, 9)):
                await control.channels[0].send(wire.encode(command))
            await control.channels[0].send(b'{"kind":"dance","epoch":3,"seq":2}')
            await until(lambda: len(control.kinds()) == 4, "the answer")

            assert agent.obeyed == [stop(3, 1)]
            assert control.kinds()[-1] == "result"
            assert (agent.cutter.accepted, agent.cutter.streams) == (1, 1)

    asyncio.run(story())


def test_cut() -> None:
    """A link that is cut again and again registers again each time, on a stream of its own."""
    control = Control()

    async def story() -> None:
        async with node(control) as agent:
            for cuts in range(1, 6):
                await until(lambda: agent.link.registered, "the registration")
                assert agent.cutter.cut() == 1
                await until(lambda cuts=cuts: len(control.streams) == cuts + 1, "the next stream")
            await until(lambda: agent.link.registered, "the registration")

            assert (agent.cutter.accepted, agent.cutter.streams) == (6, 6)
            assert [stream[0].kind for stream in control.streams] == ["register"] * 6
            assert len(agent.cutter.open) == 1

    asyncio.run(story())


def test_black_hole() -> None:
    """A half-open link is left for a new one; what its old end hears later touches nothing."""
    control = Control()

    async def story() -> None:
        async with node(control) as agent:
            await until(lambda: agent.link.registered, "the registration")
            assert agent.cutter.swallow() == 1
            await until(lambda: len(control.streams) == 2 and agent.link.registered, "the second stream")
            assert agent.cutter.passages[0].swallowed > 0

            with contextlib.suppress(ChannelClosed):
                await control.channels[0].send(wire.encode(stop(3, 1)))
            agent.cutter.passages[0].client.transport.abort()
            await control.channels[1].send(wire.encode(stop(3, 2)))
            await until(lambda: agent.obeyed, "the command")

            assert agent.obeyed == [stop(3, 2)]
            assert agent.link.registered
            assert (agent.cutter.accepted, agent.cutter.streams) == (2, 2)

    asyncio.run(story())


def test_snapshot_replaces_reports() -> None:
    """What happened while nobody listened is in the next Register, not told beside it."""
    control = Control()

    async def story() -> None:
        async with node(control) as agent:
            await until(lambda: agent.link.registered, "the registration")
            control.silent = True
            agent.cutter.cut()
            await until(lambda: len(control.streams) == 2, "the second stream")
            agent.cutter.cut()
            agent.shards.append(status("failed"))
            agent.link.report([status("failed")])
            agent.link.answer(wire.Result(seq=1))
            control.silent = False
            await until(lambda: agent.link.registered, "the registration")
            await until(lambda: len(control.kinds()) == 2, "the answer")

            assert isinstance(control.streams[-1][0], wire.Register)
            assert control.streams[-1][0].revision == 1
            assert control.kinds() == ["register", "result"]

    asyncio.run(story())


def test_unanswered() -> None:
    """A registration that is not answered ends its stream before the next is tried: never two at once."""
    control = Control(silent=True)

    async def story() -> None:
        async with node(control, patience=0.05) as agent:
            await until(lambda: len(control.streams) == 4, "the fourth try")

            assert len(agent.cutter.open) <= 1
            assert agent.link.said == "the control plane did not answer the registration"
            assert not agent.link.registered
            assert agent.adopted == []

    asyncio.run(story())


def test_older_epoch() -> None:
    """A control plane of an older epoch is left, asked again, and followed once it is the newest."""
    control = Control(epoch=3)

    async def story() -> None:
        async with node(control, epoch=5) as agent:
            await until(lambda: len(control.streams) >= 2, "the second try")
            assert agent.adopted == []
            assert agent.link.said == "the control plane is of epoch 3, and epoch 5 commands this node"

            control.epoch = 6
            await until(lambda: agent.link.registered, "the registration")
            assert agent.adopted == [(6, 7)]

    asyncio.run(story())


def test_restarts() -> None:
    """A control plane that restarts five times hears each agent whole each time, once, under its new epoch."""
    adopted: dict[str, list[int]] = {name: [] for name in ("n1", "n2", "n3")}

    def link(port: int, name: str) -> Link:
        return Link(
            lambda: connect(HOST, port, "/agent"),
            snapshot=lambda: wire.Register(info=NodeInfo(name, name, "first")),
            heartbeat=wire.Heartbeat,
            adopt=lambda epoch, _: adopted[name].append(epoch),
            obey=lambda _: None,
            clock=SystemClock(),
            chance=seeded(name),
            backoff=Backoff(base=0.02, cap=0.05),
        )

    async def story() -> None:
        async with listening() as (_, port):
            pass
        running = [asyncio.create_task(link(port, name).run()) for name in adopted]
        for epoch in range(1, 6):
            control = Control(epoch=epoch)
            listener = Listener(control.serve, hello)
            await listener.start(HOST, port)
            await until(lambda epoch=epoch: all(a[-1:] == [epoch] for a in adopted.values()), "all are back")
            assert [[said.kind for said in stream] for stream in control.streams] == [["register"]] * 3
            await listener.close()
        for task in running:
            task.cancel()
        await asyncio.wait(running)

        assert all(epochs == [1, 2, 3, 4, 5] for epochs in adopted.values())

    asyncio.run(story())


def test_heartbeats() -> None:
    """Heartbeats come by themselves, at the pace that the control plane asked for."""
    control = Control(heartbeat=0.02)

    async def story() -> None:
        async with node(control) as agent:
            await until(lambda: control.streams and control.kinds().count("heartbeat") >= 5, "five beats")
            assert agent.cutter.streams == 1

    asyncio.run(story())


def test_nobody_there() -> None:
    """Without a control plane the link waits longer and longer, says why, and never ends."""
    tries: list[int] = []

    async def refuse() -> Channel:
        tries.append(1)
        raise ChannelClosed("cannot reach 10.0.0.1:7600: connection refused")

    async def story() -> None:
        link = Link(
            refuse,
            snapshot=lambda: pytest.fail("nobody asked"),
            heartbeat=wire.Heartbeat,
            adopt=lambda *_: None,
            obey=lambda _: None,
            clock=SystemClock(),
            chance=seeded(1),
            backoff=Backoff(base=0.001, cap=0.01),
        )
        running = asyncio.create_task(link.run())
        await until(lambda: len(tries) > 10, "ten tries")

        assert link.said == "cannot reach 10.0.0.1:7600: connection refused"
        assert not running.done()
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(story())


def test_outbox_coalesces() -> None:
    """The newest status of a shard and the newest progress win; answers are all kept, up to a bound."""
    outbox = Outbox()
    outbox.report([status("starting"), status("ready", rank=1)])
    outbox.report([status("ready")], NodeInfo("n1", "gpu-1"))
    outbox.progress((Progress("c", 1),))
    outbox.progress((Progress("c", 2),))
    outbox.heartbeat(wire.Heartbeat())
    for seq in range(ANSWERS + 10):
        outbox.answer(wire.Result(seq=seq))
    report, progress, *answers, heartbeat = outbox.take()

    assert report == wire.Report(
        statuses=(status("ready"), status("ready", rank=1)), info=NodeInfo("n1", "gpu-1")
    )
    assert progress == wire.ProgressReport(progress=(Progress("c", 2),))
    assert [answer.seq for answer in answers] == list(range(10, ANSWERS + 10))  # type: ignore[union-attr]
    assert heartbeat == wire.Heartbeat()
    assert outbox.take() == []
