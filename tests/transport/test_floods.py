"""Peers that abuse HTTP/2: the abuser is cut with its reason, a neighbour does not notice."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import h2.errors
import h2.settings
import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
)

from llmgw.transport.client import connect
from llmgw.transport.frames import LONGEST, PER_SECOND, FrameHeads
from tests.transport.harness import HOST, QUICK, Raw, ended, listening, until

COUNT = 1500


async def _resets(raw: Raw) -> None:
    for _ in range(COUNT):
        stream = raw.request()
        raw.h2.reset_stream(stream)
    await raw.flush()


async def _resets_of_one(raw: Raw) -> None:
    stream = raw.request()
    await raw.flush(RstStreamFrame(stream, error_code=h2.errors.ErrorCodes.CANCEL).serialize() * COUNT)


async def _pings(raw: Raw) -> None:
    await raw.flush(PingFrame(0, b"12345678").serialize() * COUNT)


async def _settings(raw: Raw) -> None:
    await raw.flush(SettingsFrame(0, settings={h2.settings.SettingCodes.ENABLE_PUSH: 0}).serialize() * COUNT)


async def _empty_data(raw: Raw) -> None:
    stream = raw.request()
    await raw.flush(DataFrame(stream, b"").serialize() * COUNT)


async def _priorities(raw: Raw) -> None:
    await raw.flush(PriorityFrame(1, depends_on=3).serialize() * COUNT)


async def _unknown(raw: Raw) -> None:
    await raw.flush(b"\0\0\0\x7f\0\0\0\0\0" * COUNT)


async def _overlong(raw: Raw) -> None:
    await raw.flush((LONGEST + 1).to_bytes(3, "big") + b"\0\0\0\0\0\1")


async def _continuations(raw: Raw) -> None:
    head = HeadersFrame(1, b"\x82").serialize()
    await raw.flush(head + ContinuationFrame(1, b"").serialize() * COUNT)


def test_heads_in_any_pieces() -> None:
    """Frame heads are found however the bytes are cut, and each second counts for itself."""
    ping = PingFrame(0, b"12345678").serialize()
    heads = FrameHeads({"PING": 3}, preface=4)
    said = [heads.feed(bytes([byte]), 1.5) for byte in b"PRI " + ping * 3]

    assert set(said) == {""}
    assert heads.feed(ping * 3, 2.0) == ""
    assert heads.feed(ping, 2.9) == "floods with PING frames"


def test_good_faith() -> None:
    """What an honest peer with the shortest timers of the tests sends stays far below every limit."""
    pings = 1 / 0.02

    assert pings * 5 < PER_SECOND["PING"]


@pytest.mark.parametrize(
    ("flood", "said"),
    [
        (_resets, "floods with RST_STREAM frames"),
        (_resets_of_one, "floods with RST_STREAM frames"),
        (_pings, "floods with PING frames"),
        (_settings, "floods with SETTINGS frames"),
        (_empty_data, "floods with empty DATA frames"),
        (_priorities, "floods with PRIORITY frames"),
        (_unknown, "floods with unknown frames"),
        (_continuations, "floods with CONTINUATION frames"),
        (_overlong, f"sends a frame of {LONGEST + 1} bytes"),
    ],
)
def test_flood(flood: Callable[[Raw], Awaitable[None]], said: str) -> None:
    """A flood of frames that cost their sender nothing ends its connection, and only that."""

    async def story() -> None:
        async with listening() as (listener, port):
            neighbour = await connect(HOST, port, "/agent")
            raw = await Raw.open(port)
            await flood(raw)
            farewell = await raw.goodbye(within=2.0)
            assert await raw.reader.read() == b""
            raw.close()
            await until(lambda: listener.connections == 1, "only the neighbour is left")

            assert said in farewell
            await neighbour.send(b"hello")
            assert await neighbour.receive() == b"hello"
            await neighbour.close()

    asyncio.run(story())


def test_slow_resets() -> None:
    """A peer that opens and gives up now and then is no flooder, even when both come in one piece."""

    async def story() -> None:
        async with listening() as (_, port):
            raw = await Raw.open(port)
            for _ in range(5):
                stream = raw.request()
                raw.h2.reset_stream(stream)
            stream = raw.request()
            raw.h2.send_data(stream, b"\0\0\0\5hello")
            await raw.flush()
            heard = await raw.read(h2.events.DataReceived)

            assert heard.stream_id == stream
            assert heard.data == b"\0\0\0\5hello"
            raw.close()

    asyncio.run(story())


def test_too_many_channels() -> None:
    """The number of channels on one socket is bounded."""

    async def story() -> None:
        async with listening() as (_, port):
            raw = await Raw.open(port)
            for _ in range(20):
                raw.request()
            await raw.flush()

            assert "streams" in await raw.goodbye()
            raw.close()

    asyncio.run(story())


def test_unread_bytes_are_given_back() -> None:
    """Channels that end unread cost the connection nothing: its window is whole again afterwards."""

    async def close_at_once(channel: object) -> None:
        pass

    async def story() -> None:
        async with listening(close_at_once) as (_, port):
            raw = await Raw.open(port)
            await raw.read(h2.events.RemoteSettingsChanged)
            for _ in range(40):
                stream = raw.request()
                raw.h2.send_data(stream, bytes(16_000))
                await raw.flush()
                await raw.read(h2.events.StreamReset)
            assert raw.h2.outbound_flow_control_window > 15 * 1024 * 1024
            raw.close()

    asyncio.run(story())


def test_no_channel() -> None:
    """A connection that opens no channel is let go, however lively it is."""

    async def story() -> None:
        async with listening(limits=QUICK) as (_, port):
            raw = await Raw.open(port)
            assert await raw.goodbye() == "no channel was opened"
            raw.close()

    asyncio.run(story())


def test_half_a_preface() -> None:
    """A client that begins the preface and stops is cut at the deadline."""

    async def story() -> None:
        async with listening(limits=QUICK) as (_, port):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"PRI * HTTP/2.0")
            assert await asyncio.wait_for(reader.read(), 2.0) == b""
            writer.close()

    asyncio.run(story())


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_other_method(method: str) -> None:
    """A channel is opened by POST."""

    async def story() -> None:
        async with listening() as (_, port):
            raw = await Raw.open(port)
            raw.request(method=method, end=True)
            await raw.flush()
            answer = await raw.read(h2.events.ResponseReceived)

            assert dict(answer.headers)[":status"] == "405"
            raw.close()

    asyncio.run(story())


def test_half_closed_client() -> None:
    """A client that has said all it has to say still gets the answer (as curl does it)."""

    async def story() -> None:
        async with listening() as (_, port):
            raw = await Raw.open(port)
            stream = raw.request()
            raw.h2.send_data(stream, b"\0\0\0\5hello", end_stream=True)
            await raw.flush()
            heard = await raw.read(h2.events.DataReceived)
            await raw.read(h2.events.StreamEnded)

            assert heard.data == b"\0\0\0\5hello"
            raw.close()

    asyncio.run(story())


@pytest.mark.parametrize("framed", [b"\0\0\0\0", b"\x01\0\0\1", b"\xff\xff\xff\xff"])
def test_bad_length(framed: bytes) -> None:
    """A length that no message has ends the channel; the server does not wait for the rest."""
    ends: list[str] = []

    async def on_channel(channel: object) -> None:
        ends.append(await ended(channel))  # type: ignore[arg-type]

    async def story() -> None:
        async with listening(on_channel) as (_, port):
            raw = await Raw.open(port)
            raw.h2.send_data(raw.request(), framed)
            await raw.flush()
            await raw.read(h2.events.StreamReset)

            assert "bytes: between 1 and" in ends[0]
            raw.close()

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(10))
def test_garbage(seed: int) -> None:
    """Random bytes after the preface end the connection, and it is told why."""
    garbage = random.Random(seed).randbytes(2_000)

    async def story() -> None:
        async with listening() as (_, port):
            raw = await Raw.open(port)
            await raw.flush(garbage)
            assert await raw.goodbye()
            assert await raw.reader.read() == b""
            raw.close()

    asyncio.run(story())
