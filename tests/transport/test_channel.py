"""Channels between two real sockets: messages whole and in order, or an end with its reason."""

import asyncio
import contextlib
import random
import time
from typing import cast

import pytest

from llmgw.errors import Failed
from llmgw.transport.channel import Carrier, Channel, ChannelClosed
from llmgw.transport.client import connect
from llmgw.transport.connection import Connection
from llmgw.transport.limits import Limits
from llmgw.wire.framing import LIMIT, FramingError, frame
from tests.support.cutter import Cutter
from tests.transport.harness import HOST, QUICK, ended, listening, until

MIB = 1024 * 1024


def test_echo() -> None:
    """What goes in at one end comes out at the other, and each end knows the other."""
    seen: list[Channel] = []

    async def on_channel(channel: Channel) -> None:
        seen.append(channel)
        await channel.send(await channel.receive())

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            channel = await connect(HOST, port, "/agent", headers=[("authorization", "Bearer t")])
            await channel.send(b"hello")

            assert await channel.receive() == b"hello"
            assert channel.peer == f"{HOST}:{port}"
            assert seen[0].path == "/agent"
            assert seen[0].headers["authorization"] == "Bearer t"
            assert await ended(channel) == f"{HOST}:{port} closed the channel"
            await channel.close()

    asyncio.run(story())


def test_both_ways_at_once() -> None:
    """4 MiB up and 4 MiB down cross each other without waiting for each other."""
    up, down = random.Random(1).randbytes(4 * MIB), random.Random(2).randbytes(4 * MIB)
    heard: list[bytes] = []

    async def on_channel(channel: Channel) -> None:
        _, message = await asyncio.gather(channel.send(down), channel.receive())
        heard.append(message)

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            channel = await connect(HOST, port, "/agent")
            _, message = await asyncio.gather(channel.send(up), channel.receive())
            await until(lambda: heard, "the server has the message")

            assert message == down
            assert heard == [up]
            await channel.close()

    asyncio.run(story())


def test_longest_message() -> None:
    """A message many times the window passes; one that is longer still is refused before it is sent."""

    async def story() -> None:
        async with listening() as (_, port):
            channel = await connect(HOST, port, "/agent")
            await channel.send(bytes(LIMIT))
            assert await channel.receive() == bytes(LIMIT)

            with pytest.raises(FramingError):
                await channel.send(bytes(LIMIT + 1))
            await channel.send(b"still here")
            assert await channel.receive() == b"still here"
            await channel.close()

    asyncio.run(story())


def test_many_senders() -> None:
    """Messages of many tasks come whole and each task's in its order."""

    async def sender(channel: Channel, name: int) -> None:
        for number in range(20):
            await channel.send(bytes([name, number]) + bytes([name]) * 50_000)

    async def story() -> None:
        async with listening() as (_, port):
            channel = await connect(HOST, port, "/agent")
            tasks = [asyncio.create_task(sender(channel, name)) for name in range(5)]
            heard = [await channel.receive() for _ in range(100)]
            await asyncio.gather(*tasks)

            assert all(set(message[2:]) == {message[0]} for message in heard)
            for name in range(5):
                assert [m[1] for m in heard if m[0] == name] == list(range(20))
            await channel.close()

    asyncio.run(story())


def test_hundred_channels() -> None:
    """A hundred agents converse at once, and none is left when they have gone."""

    async def agent(port: int, number: int) -> None:
        channel = await connect(HOST, port, "/agent")
        for _ in range(5):
            await channel.send(b"%d" % number)
            assert await channel.receive() == b"%d" % number
        await channel.close()

    async def story() -> None:
        async with listening() as (listener, port):
            await asyncio.gather(*(agent(port, number) for number in range(100)))
            await until(lambda: listener.connections == 0, "every connection has gone")

    asyncio.run(story())


def test_unread_channel() -> None:
    """A channel that nobody reads stalls itself after its window, not its neighbour on the same socket."""
    waiting = asyncio.Event()

    async def on_channel(channel: Channel) -> None:
        if channel.path == "/gateway":
            await waiting.wait()
            return
        await channel.send(await channel.receive())

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            connection = await _connection(port)
            unread, read = await connection.open("/gateway", ()), await connection.open("/agent", ())
            flood = asyncio.create_task(unread.send(bytes(3 * MIB)))
            await _quiet(connection)
            assert not flood.done()

            await read.send(bytes(2 * MIB))
            assert len(await read.receive()) == 2 * MIB
            assert not flood.done()

            waiting.set()
            with pytest.raises(ChannelClosed):
                await flood
            connection.abort("done")

    asyncio.run(story())


def test_unread_for_ever() -> None:
    """A peer that takes no byte for `timeout` seconds loses the channel, and the sender is told."""

    async def on_channel(channel: Channel) -> None:
        assert await channel.receive() == b"hello"
        await asyncio.Event().wait()

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            channel = await connect(HOST, port, "/agent", ping=0.1, timeout=0.3)
            await channel.send(b"hello")
            with pytest.raises(ChannelClosed, match=r"took no byte for 0\.3 s"):
                await channel.send(bytes(3 * MIB))
            await channel.close()

    asyncio.run(story())


def test_cancelled_send() -> None:
    """A message that was given up half way ends the channel: the other end never sees a patched one."""
    ends: list[str] = []
    read_on = asyncio.Event()

    async def on_channel(channel: Channel) -> None:
        await read_on.wait()
        ends.append(await ended(channel))

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            channel = await connect(HOST, port, "/agent")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(channel.send(bytes(3 * MIB)), 0.1)
            with pytest.raises(ChannelClosed, match="cut off"):
                await channel.send(b"next")
            read_on.set()
            await until(lambda: ends, "the server was told")

            assert ends[0].endswith("gave the channel up, in the middle of a message")
            await channel.close()

    asyncio.run(story())


def test_last_words() -> None:
    """What was said before the end arrives, though nobody was reading yet."""

    async def on_channel(channel: Channel) -> None:
        await channel.send(b"refused: another one is here")

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            channel = await connect(HOST, port, "/agent")
            await until(lambda: "closed" in repr(channel) or "gave" in repr(channel), "the end came")

            assert await channel.receive() == b"refused: another one is here"
            with pytest.raises(ChannelClosed):
                await channel.receive()
            await channel.close()

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(12))
def test_cut_anywhere(seed: int) -> None:
    """Wherever the path is cut, both ends are told, and what was heard is a whole beginning of what was said."""
    chance = random.Random(seed)
    said = [chance.randbytes(chance.choice([1, 300, 20_000, 200_000])) for _ in range(60)]
    heard: list[bytes] = []
    ends: list[str] = []

    async def on_channel(channel: Channel) -> None:
        try:
            while True:
                heard.append(await channel.receive())
        except ChannelClosed as closed:
            ends.append(closed.said)

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            cutter = Cutter(HOST, port)
            await cutter.start()
            cutter.cut_after = chance.randrange(200, sum(map(len, said)))
            channel = await connect(HOST, cutter.port, "/agent")
            with contextlib.suppress(ChannelClosed):
                for message in said:
                    await channel.send(message)
            assert await ended(channel)
            await channel.close()
            await until(lambda: ends, "the server was told")

            assert (cutter.accepted, cutter.streams, len(cutter.open)) == (1, 1, 0)
            assert heard == said[: len(heard)]
            await cutter.close()

    asyncio.run(story())


def test_words_are_acknowledged_together() -> None:
    """A word is far below what makes the peer wait: an acknowledgement is given for many of them."""
    given: list[int] = []

    class Counting:
        def acknowledge(self, _: int, size: int) -> None:
            given.append(size)

    async def story() -> None:
        carrier = cast("Carrier", Counting())
        channel = Channel(carrier, 1, peer="p", path="/agent", headers={}, stall=1.0, together=1000)
        for _ in range(100):
            channel.arrived(frame(b"a word of it"), 20)
            assert await channel.receive() == b"a word of it"
        assert given == [1000, 1000]
        channel.arrived(frame(b"x"), 20)
        assert channel.owed() == 20, "at its end the rest is given back"

    asyncio.run(story())


def test_a_window_smaller_than_a_message() -> None:
    """What is acknowledged together is a part of the window, however small that is: nobody waits for ever."""

    async def story() -> None:
        async with listening(limits=Limits(window=5000)) as (_, port):
            channel = await connect(HOST, port, "/agent")
            for size in (10, 990, 4990, 100_000):
                await channel.send(bytes(size))
                assert len(await asyncio.wait_for(channel.receive(), 5.0)) == size
            await channel.close()

    asyncio.run(story())


def test_half_open() -> None:
    """A path that swallows everything without a word is noticed by both ends within ping + timeout."""
    ends: list[str] = []

    async def on_channel(channel: Channel) -> None:
        ends.append(await ended(channel))

    async def story() -> None:
        async with listening(on_channel, limits=QUICK) as (_, port):
            cutter = Cutter(HOST, port)
            await cutter.start()
            channel = await connect(HOST, cutter.port, "/agent", ping=0.1, timeout=0.3)
            assert await channel.ping(1.0)

            assert cutter.swallow() == 1
            assert not await channel.ping(0.05)
            start = time.perf_counter()
            said = await ended(channel)
            await until(lambda: ends, "the server noticed")
            took = time.perf_counter() - start

            assert cutter.passages[0].swallowed > 0
            assert said.endswith("did not answer for 0.3 s")
            assert ends[0].endswith("did not answer for 0.3 s")
            assert took < 1.0
            await channel.close()
            await cutter.close()

    asyncio.run(story())


def test_slow_path() -> None:
    """A path that is slow but alive is left alone."""

    async def story() -> None:
        async with listening(limits=QUICK) as (_, port):
            cutter = Cutter(HOST, port)
            await cutter.start()
            cutter.delay = 0.08
            channel = await connect(HOST, cutter.port, "/agent", ping=0.1, timeout=0.3)
            for _ in range(2):
                await channel.send(b"hello")
                assert await channel.receive() == b"hello"
            assert (cutter.accepted, cutter.streams) == (1, 1)
            await channel.close()
            await cutter.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("path", "said"), [("/nowhere", "HTTP 404"), ("/agent?x=1", "HTTP 404"), ("/", "HTTP 404")]
)
def test_no_such_path(path: str, said: str) -> None:
    """A channel opens only where the listener offers one."""

    async def story() -> None:
        async with listening() as (_, port):
            with pytest.raises(ChannelClosed, match=said):
                await connect(HOST, port, path)

    asyncio.run(story())


def test_nobody_there() -> None:
    """An address that nobody listens on is named, with the reason."""

    async def story() -> None:
        async with listening() as (_, port):
            pass
        with pytest.raises(ChannelClosed, match=f"cannot reach {HOST}:{port}: connection refused"):
            await connect(HOST, port, "/agent")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"", "no answer within 0.2 s"), (b"HTTP/1.1 400 \r\n\r\n", "sends a frame of 4740180 bytes")],
)
def test_no_http2_there(answer: bytes, said: str) -> None:
    """Something that listens but is no HTTP/2 server is found out in time."""

    left: list[bool] = []

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        left.append(True)

    async def story() -> None:
        server = await asyncio.start_server(other, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ChannelClosed, match=said):
            await connect(HOST, port, "/agent", ping=0.1, timeout=0.2)
        await until(lambda: left, "the client hung up")
        server.close()

    asyncio.run(story())


def test_port_held() -> None:
    """A port that is taken is named, and nothing else happens."""

    async def story() -> None:
        async with listening() as (_, port):
            with pytest.raises(Failed, match=f"cannot listen on {HOST}:{port}: address already in use"):
                async with listening() as (second, _):
                    await second.start(HOST, port)

    asyncio.run(story())


def test_stopping() -> None:
    """A server that stops says so to everybody, and waits for nobody."""

    async def story() -> None:
        async with listening() as (listener, port):
            channels = [await connect(HOST, port, "/agent") for _ in range(3)]
            await listener.close()

            for channel in channels:
                assert (await ended(channel)).endswith("said goodbye: the server is stopping")
                await channel.close()

    asyncio.run(story())


def test_failing_handler(caplog: pytest.LogCaptureFixture) -> None:
    """A handler that fails costs its own channel, and the log tells."""

    async def on_channel(channel: Channel) -> None:
        if await channel.receive() == b"fail":
            raise RuntimeError("as asked")
        await channel.send(b"fine")

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            bad, good = await connect(HOST, port, "/agent"), await connect(HOST, port, "/agent")
            await bad.send(b"fail")
            assert await ended(bad)
            await good.send(b"go on")
            assert await good.receive() == b"fine"
            await bad.close()
            await good.close()

    asyncio.run(story())
    assert "as asked" in caplog.text


async def _connection(port: int) -> Connection:
    """A client's connection that several channels share."""
    limits = Limits()
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(limits), HOST, port)
    return connection


async def _quiet(connection: Connection) -> None:
    """Until the peer has answered everything that was sent so far."""
    for _ in range(3):
        assert await connection.ping(2.0)


def test_what_this_end_says_against_a_channel_wins_over_its_end() -> None:
    """The peer explained itself and left at once: the explanation is the reason, not that it left."""

    async def on_channel(channel: Channel) -> None:
        await channel.send(b"you are not welcome")

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            channel = await connect(HOST, port, "/agent")
            assert await channel.receive() == b"you are not welcome"
            await until(lambda: "gave the channel up" in repr(channel), "it is gone")
            channel.abort("it does not want us")
            channel.abort("something else")
            assert await ended(channel) == "it does not want us"
            await channel.close()

    asyncio.run(story())


def test_what_is_heard_at_once_wakes_nobody() -> None:
    """Words go to whoever hears them, in order; what he leaves is received; long ones come through the window."""
    heard: list[bytes] = []
    received: list[bytes] = []

    def hears(message: bytes) -> bool:
        if message.startswith(b"?"):
            return False
        heard.append(message)
        return True

    async def on_channel(channel: Channel) -> None:
        channel.hear(hears)
        while True:
            received.append(await channel.receive())
            await asyncio.sleep(0.01)
            await channel.send(b"answer to " + received[-1])

    async def story() -> None:
        long = random.Random(3).randbytes(4 * MIB).replace(b"?", b"!")
        async with listening(on_channel) as (_, port):
            channel = await connect(HOST, port, "/agent")
            await channel.send(b"?first")
            assert await channel.receive() == b"answer to ?first"
            for word in (b"one", b"two", long, b"?second"):
                await channel.send(word)
            assert await channel.receive() == b"answer to ?second"
            assert heard == [b"one", b"two", long]
            # These two come while the task is busy with the first: they are received, whatever they are.
            for word in (b"?third", b"?fourth", b"three"):
                await channel.send(word)
            assert await channel.receive() == b"answer to ?third"
            assert await channel.receive() == b"answer to ?fourth"
            await until(lambda: b"three" in [*heard, *received], "the last word has come")
            assert received[:4] == [b"?first", b"?second", b"?third", b"?fourth"]
            await channel.close()

    asyncio.run(story())


def test_a_message_that_cannot_be_ends_a_channel_that_hears() -> None:
    """A length out of all bounds is told to who receives, though nothing was received."""
    said: list[str] = []

    async def on_channel(channel: Channel) -> None:
        channel.hear(lambda _: True)
        said.append(await ended(channel))

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            channel = await connect(HOST, port, "/agent")
            await channel.send(b"word")
            await asyncio.sleep(0.05)
            await until(lambda: channel._carrier.write(channel._stream, memoryview(b"\0\0\0\0")), "sent")
            await until(lambda: said, "the channel is over")
            assert "a message of 0 bytes" in said[0]

    asyncio.run(story())
