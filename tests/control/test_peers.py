"""Who is connected, who may take whose place, and what is sent to whom: real channels, agents by hand."""

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator

import pytest

from llmgw.control import peers as peers_module
from llmgw.control.peers import Peer, Peers
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.routes import Routes
from llmgw.kit.clock import SystemClock
from llmgw.transport.channel import Channel
from llmgw.transport.client import connect
from llmgw.transport.limits import Limits
from llmgw.wire import messages as wire
from tests.support.cutter import Cutter
from tests.transport.harness import HOST, ended, listening, until


@dataclasses.dataclass
class Table:
    """A table of peers behind a listener, and what it was told."""

    peers: Peers
    port: int = 0
    heard: list[tuple[Peer, wire.Up]] = dataclasses.field(default_factory=list)
    closed: list[tuple[Peer, str]] = dataclasses.field(default_factory=list)

    def kinds(self, stream: int) -> list[str]:
        return [message.kind for peer, message in self.heard if peer.stream == stream]


@contextlib.asynccontextmanager
async def table(
    epoch: int = 3, limits: Limits | None = None, patience: float = 5.0, objection: str = ""
) -> AsyncIterator[Table]:
    peers = Peers(
        epoch,
        lambda: 7,
        lambda peer, message: made.heard.append((peer, message)),
        lambda peer, said: made.closed.append((peer, said)),
        SystemClock(),
        patience=patience,
        ping=0.2,
        objection=lambda *_: objection,
    )
    made = Table(peers)
    async with listening(peers.serve, limits=limits) as (_, made.port):
        yield made
    assert not list(peers)
    assert len(made.closed) == len({peer.stream for peer, _ in made.heard})


async def hear(channel: Channel) -> wire.Down | wire.Unknown:
    return wire.decode_down(await asyncio.wait_for(channel.receive(), 5.0))


async def agent(port: int, instance: str, *, id: str = "n1", name: str = "gpu-1", epoch: int = 0) -> Channel:  # noqa: A002 - the node's word
    channel = await connect(HOST, port, "/agent")
    register = wire.Register(info=NodeInfo(id, name, instance), epoch=epoch)
    await channel.send(wire.encode(register))
    return channel


async def gateway(port: int, name: str = "door-1", instance: str = "first") -> Channel:
    channel = await connect(HOST, port, "/gateway")
    await channel.send(wire.encode(wire.Subscribe(gateway=name, instance=instance)))
    return channel


def stop(epoch: int, seq: int) -> wire.Stop:
    return wire.Stop(epoch=epoch, seq=seq, replica="m/x", rank=0, generation="g")


def test_a_node_can_be_asked_to_say_everything_again() -> None:
    """Its stream ends with the reason; the next registration is heard like the first."""

    async def story() -> None:
        async with table() as fleet:
            channel = await agent(fleet.port, "first")
            await hear(channel)
            fleet.peers.begin_again("n1", "say all again")
            fleet.peers.begin_again("n2", "nobody")
            assert await ended(channel)
            await until(lambda: bool(fleet.closed), "its end is told")
            await hear(await agent(fleet.port, "first"))
            assert [message.kind for _, message in fleet.heard] == ["register", "register"]

    asyncio.run(story())


def test_who_gave_up_in_the_queue_is_not_let_in() -> None:
    """A registration whose sender left while others had their turn costs nobody anything: it comes again."""

    async def story() -> None:
        async with table() as fleet:
            fleet.peers._turns = asyncio.Semaphore(0)
            channel = await agent(fleet.port, "first")
            await asyncio.sleep(0.05)
            await channel.close()
            await asyncio.sleep(0.05)
            fleet.peers._turns.release()
            await hear(await agent(fleet.port, "first"))
            assert [peer.stream for peer, _ in fleet.heard] == [1], "the first one was registered too"

    asyncio.run(story())


def test_introductions_take_turns() -> None:
    """A round of the loop has a few of them: others get a turn, and nobody waits for as many rounds as agents came."""

    async def story() -> None:
        async with table() as fleet:
            came = [asyncio.create_task(fleet.peers._turn()) for _ in range(10 * peers_module.AT_ONCE)]
            rounds: list[int] = []
            while not all(task.done() for task in came):
                await asyncio.sleep(0)
                rounds.append(sum(task.done() for task in came))
            steps = [after - before for before, after in itertools.pairwise([0, *rounds])]
            assert 1 < max(steps) <= peers_module.AT_ONCE
            assert len(rounds) < len(came)

    asyncio.run(story())


def test_a_peer_to_whom_nothing_is_said_is_one_task() -> None:
    """What is there and well holds as little as can be: somebody who writes is there while there is something to say."""

    async def story() -> None:
        async with table() as fleet:
            before = len(asyncio.all_tasks())
            channels = [await agent(fleet.port, "one", id=f"n{n}", name=f"gpu-{n}") for n in range(8)]
            for channel in channels:
                await hear(channel)
            await until(lambda: len(asyncio.all_tasks()) == before + 8, "one task each")
            assert fleet.peers.send("n3", stop)
            assert fleet.peers.send("n3", stop)
            assert [await hear(channels[3]), await hear(channels[3])] == [stop(3, 1), stop(3, 2)]
            await until(lambda: len(asyncio.all_tasks()) == before + 8, "the writer is gone")

    asyncio.run(story())


def test_conversation() -> None:
    """An agent is welcomed, commanded in sequence, heard, and its end is told once."""

    async def story() -> None:
        async with table() as fleet:
            channel = await agent(fleet.port, "first")
            assert await hear(channel) == wire.Registered(epoch=3, revision=7, heartbeat=5.0)

            assert fleet.peers.send("n1", stop)
            assert fleet.peers.send("n1", stop)
            assert not fleet.peers.send("n2", stop)
            assert [await hear(channel), await hear(channel)] == [stop(3, 1), stop(3, 2)]

            await channel.send(wire.encode(wire.Heartbeat()))
            await until(lambda: len(fleet.heard) == 2, "the heartbeat")
            await channel.close()
            await until(lambda: fleet.closed, "the end")

            assert fleet.kinds(1) == ["register", "heartbeat"]
            assert [(peer.id, said) for peer, said in fleet.closed] == [
                ("n1", f"{fleet.heard[0][0].address} closed the channel")
            ]
            assert not fleet.peers.send("n1", stop)

    asyncio.run(story())


def test_same_instance_supersedes() -> None:
    """An agent that comes back before its old stream has died takes its own place at once."""

    async def story() -> None:
        async with table() as fleet:
            cutter = Cutter(HOST, fleet.port)
            await cutter.start()
            old = await agent(cutter.port, "first")
            await hear(old)
            assert cutter.swallow() == 1

            new = await agent(fleet.port, "first")
            assert isinstance(await hear(new), wire.Registered)
            assert [(peer.stream, said[:15]) for peer, said in fleet.closed] == [(1, "superseded from")]

            await cutter.close()
            assert await ended(old)
            assert fleet.peers.send("n1", stop)
            assert await hear(new) == stop(3, 1)
            assert [peer.stream for peer in fleet.peers] == [2]
            assert len(fleet.closed) == 1
            assert (cutter.accepted, cutter.streams) == (1, 1)
            await old.close()
            await new.close()
            await until(lambda: len(fleet.closed) == 2, "the end of the new one")

    asyncio.run(story())


@pytest.mark.parametrize(("id_", "name"), [("n1", "gpu-1"), ("n1", "other"), ("n2", "gpu-1")])
def test_second_instance(id_: str, name: str) -> None:
    """Another process with the same id or name is refused while the first answers; both are named."""

    async def story() -> None:
        async with table() as fleet:
            first = await agent(fleet.port, "first")
            await hear(first)
            second = await agent(fleet.port, "second", id=id_, name=name)
            refused = await hear(second)

            assert isinstance(refused, wire.Refused)
            assert f"connected from {fleet.heard[0][0].address} and answers" in refused.said
            assert "is refused" in refused.said
            assert await ended(second)
            assert [peer.instance for peer in fleet.peers] == ["first"]
            assert fleet.closed == []
            await first.close()
            await second.close()
            await until(lambda: fleet.closed, "the end of the first")

    asyncio.run(story())


def test_unnamed_instance() -> None:
    """A gateway that does not tell its instance cannot push out its namesake."""

    async def story() -> None:
        async with table() as fleet:
            first, second = await gateway(fleet.port, instance=""), await gateway(fleet.port, instance="")
            assert isinstance(await hear(second), wire.Refused)
            assert fleet.closed == []
            await first.close()
            await second.close()
            await until(lambda: not list(fleet.peers), "all have gone")

    asyncio.run(story())


def test_first_instance_dead() -> None:
    """A restarted agent whose old stream is half open waits for one ping, then is in."""

    async def story() -> None:
        async with table() as fleet:
            cutter = Cutter(HOST, fleet.port)
            await cutter.start()
            old = await agent(cutter.port, "first")
            await hear(old)
            cutter.swallow()

            new = await agent(fleet.port, "second")
            assert isinstance(await hear(new), wire.Registered)
            assert cutter.passages[0].swallowed > 0
            assert [peer.instance for peer in fleet.peers] == ["second"]
            assert [peer.instance for peer, _ in fleet.closed] == ["first"]
            await cutter.close()
            for channel in (old, new):
                await channel.close()
            await until(lambda: not list(fleet.peers), "all have gone")

    asyncio.run(story())


def test_two_new_instances() -> None:
    """Of two processes that come at once for one place exactly one gets it."""

    async def story() -> None:
        async with table() as fleet:
            channels = [await agent(fleet.port, f"i{n}") for n in range(4)]
            answers = [await hear(channel) for channel in channels]

            assert sorted(answer.kind for answer in answers) == ["refused"] * 3 + ["registered"]
            assert len(list(fleet.peers)) == 1
            for channel in channels:
                await channel.close()
            await until(lambda: not list(fleet.peers), "all have gone")

    asyncio.run(story())


def test_outranked() -> None:
    """A control plane that meets a newer epoch commands nobody any more, and says so on both sides."""

    async def story() -> None:
        async with table() as fleet:
            mine = await agent(fleet.port, "first")
            await hear(mine)
            other = await agent(fleet.port, "other", id="n2", name="gpu-2", epoch=9)
            refused = await hear(other)

            assert isinstance(refused, wire.Refused)
            assert refused.said == "epoch 9 commands this node, and this control plane is of epoch 3"
            assert fleet.peers.outranked == 9
            assert not fleet.peers.send("n1", stop)
            await mine.close()
            await other.close()
            await until(lambda: not list(fleet.peers), "all have gone")

    asyncio.run(story())


def test_routes() -> None:
    """Gateways get the newest table: at once when it is published, at once when they come; agents get none."""

    async def story() -> None:
        async with table() as fleet:
            node, early = await agent(fleet.port, "first"), await gateway(fleet.port)
            await hear(node)
            await until(lambda: len(list(fleet.peers)) == 2, "both are in")
            fleet.peers.publish(Routes(version=1))
            assert await hear(early) == wire.RoutesUpdate(routes=Routes(version=1))
            late = await gateway(fleet.port, "door-2")
            assert await hear(late) == wire.RoutesUpdate(routes=Routes(version=1))

            for version in range(2, 2000):
                fleet.peers.publish(Routes(version=version))
            assert await hear(early) == wire.RoutesUpdate(routes=Routes(version=1999))
            assert await hear(late) == wire.RoutesUpdate(routes=Routes(version=1999))

            await early.send(wire.encode(wire.Load(acked=1999)))
            await early.send(wire.encode(wire.Leave()))
            await until(lambda: fleet.kinds(2) == ["subscribe", "load", "leave"], "the load")
            fleet.peers.send("n1", stop)
            assert await hear(node) == stop(3, 1)
            for channel in (node, early, late):
                await channel.close()
            await until(lambda: not list(fleet.peers), "all have gone")

    asyncio.run(story())


def test_gateway_and_node_of_one_name() -> None:
    """A gateway may be called like a node: they are no rivals."""

    async def story() -> None:
        async with table() as fleet:
            node, door = await agent(fleet.port, "a", name="box"), await gateway(fleet.port, "box", "b")
            await until(lambda: len(list(fleet.peers)) == 2, "both are in")
            await node.close()
            await door.close()
            await until(lambda: not list(fleet.peers), "all have gone")

    asyncio.run(story())


@pytest.mark.parametrize("first", [b"", b"nonsense", b'{"kind":"heartbeat"}'])
def test_no_introduction(first: bytes) -> None:
    """Whoever does not say in time who it is, is let go, and nobody hears of it."""

    async def story() -> None:
        async with table(patience=0.1) as fleet:
            channel = await connect(HOST, fleet.port, "/agent")
            if first:
                await channel.send(first)
            assert await ended(channel)
            await channel.close()

            assert (fleet.heard, fleet.closed) == ([], [])

    asyncio.run(story())


def test_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for one peer is bounded: one that does not read loses its stream, not the control plane its memory."""
    monkeypatch.setattr(peers_module, "BACKLOG", 16)
    big = "x" * 200_000

    async def story() -> None:
        async with table() as fleet:
            channel = await agent(fleet.port, "first")
            await hear(channel)
            sent = 0
            while fleet.peers.send("n1", lambda e, s: stop(e, s).model_copy(update={"because": big})):
                sent += 1
                await asyncio.sleep(0)

            assert 16 <= sent < 100
            await until(lambda: fleet.closed, "it was let go")
            assert "reads too slowly: 16 messages wait" in fleet.closed[0][1]
            assert await ended(channel)
            await channel.close()

    asyncio.run(story())


def test_stretched_heartbeats() -> None:
    """A big fleet is asked to beat more slowly: fifty a second are enough."""

    async def story() -> None:
        async with table() as fleet:
            fleet.peers._heartbeat = 0.02
            channels = [await agent(fleet.port, f"i{n}", id=f"n{n}", name=f"gpu-{n}") for n in range(3)]
            welcomes = [await hear(channel) for channel in channels]

            assert sorted(w.heartbeat for w in welcomes if isinstance(w, wire.Registered)) == [
                0.02,
                0.04,
                0.06,
            ]
            for channel in channels:
                await channel.close()
            await until(lambda: not list(fleet.peers), "all have gone")

    asyncio.run(story())


def test_stopping() -> None:
    """When the listener stops, every peer's end is told."""

    async def story() -> None:
        async with table() as fleet:
            channel = await agent(fleet.port, "first")
            await hear(channel)
        assert [peer.id for peer, _ in fleet.closed] == ["n1"]
        await channel.close()

    asyncio.run(story())


def test_an_objection_keeps_a_peer_out(caplog: pytest.LogCaptureFixture) -> None:
    """Who claims what another one holds hears why, the log has it, and the fleet never hears of it."""

    async def story() -> None:
        async with table(objection="it claims what gpu-2 holds") as fleet:
            channel = await agent(fleet.port, "first")
            assert await hear(channel) == wire.Refused(said="it claims what gpu-2 holds")
            assert await ended(channel)
            await channel.close()
            assert (fleet.heard, fleet.closed) == ([], [])

    asyncio.run(story())
    assert "was not let in: it claims what gpu-2 holds" in caplog.text


def test_a_bad_word_ends_its_own_stream_only() -> None:
    """The other peers go on, and the bad one hears what was wrong."""

    async def story() -> None:
        async with table() as fleet:
            good = await agent(fleet.port, "first", id="n1", name="gpu-1")
            await hear(good)
            bad = await connect(HOST, fleet.port, "/agent")
            register = wire.Register(info=NodeInfo("n2", "gpu-2", ports=(1, 10**12)))
            await bad.send(wire.encode(register))
            said = "cannot believe this register: ports 1 to 1000000000000 are none"
            assert await hear(bad) == wire.Refused(said=said)
            assert await ended(bad)
            assert fleet.peers.send("n1", stop)
            assert await hear(good) == stop(3, 1)
            for channel in (good, bad):
                await channel.close()
            await until(lambda: not list(fleet.peers), "all have gone")

    asyncio.run(story())
