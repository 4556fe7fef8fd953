"""Peers that abuse HTTP/2: the abuser is cut with its reason, a neighbour does not notice."""

import asyncio
import logging
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
    WindowUpdateFrame,
)
from hypothesis import given
from hypothesis import strategies as st

from llmgw.transport import connection
from llmgw.transport.channel import Channel
from llmgw.transport.client import connect
from llmgw.transport.frames import LONGEST, PER_SECOND, TURN, FrameHeads
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


async def _data_on_refused(raw: Raw) -> None:
    stream = raw.request("/nowhere")
    await raw.flush(DataFrame(stream, b"x").serialize() * COUNT)


async def _ends_on_refused(raw: Raw) -> None:
    stream = raw.request("/nowhere")
    await raw.flush(DataFrame(stream, b"", flags=["END_STREAM"]).serialize() * COUNT)


async def _data_on_reset(raw: Raw) -> None:
    stream = raw.request()
    raw.h2.reset_stream(stream)
    await raw.flush(DataFrame(stream, bytes(2000)).serialize() * COUNT)


async def _small_data(raw: Raw) -> None:
    stream = raw.request()
    begun = DataFrame(stream, b"\0\1\0\0").serialize()
    await raw.flush(begun + DataFrame(stream, b"x").serialize() * COUNT * 2)


async def _heads_on_refused(raw: Raw) -> None:
    for _ in range(PER_SECOND["HEADERS"] * 3):
        raw.request("/nowhere", end=True)
    await raw.flush()


async def _window_updates(raw: Raw) -> None:
    await raw.flush(WindowUpdateFrame(0, 1).serialize() * COUNT)


async def _long_heads(raw: Raw) -> None:
    for _ in range(8):
        stream = raw.h2.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "http"), (":authority", "test"), (":path", "/agent")]
        raw.h2.send_headers(stream, [*head, ("long", f"{stream}" * 3000)])
    await raw.flush()


async def _wide_settings(raw: Raw) -> None:
    await raw.flush(SettingsFrame(0, settings=dict.fromkeys(range(100, 300), 1)).serialize())


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

    assert set(said) == {(1, "")}
    assert heads.feed(ping * 3, 2.0) == (len(ping) * 3, "")
    assert heads.feed(ping, 2.9)[1] == "floods with PING frames"


def test_one_turn_is_little_work() -> None:
    """So many frames at a time, or one head: before the next is judged, what it opened is known."""
    ping = PingFrame(0, b"12345678").serialize()
    head = HeadersFrame(1, b"\x82").serialize()
    heads = FrameHeads()

    assert heads.feed(ping * TURN * 3, 0.0) == (len(ping) * TURN, "")
    assert heads.feed(ping + head + ping, 0.0) == (len(ping + head), "")
    assert heads.feed(head[:-1], 0.0) == (len(head) - 1, "")
    assert heads.feed(head[-1:] + ping, 0.0) == (1, ""), "its last byte came in another piece"
    assert heads.feed(ping + ping, 0.0, at=len(ping)) == (len(ping) * 2, "")


@given(st.lists(st.sampled_from([0, 1, 1, 3, 4, 6, 8, 9, 77]), max_size=60), st.integers(1, 40), st.data())
def test_turns_are_the_whole(kinds: list[int], step: int, data: st.DataObject) -> None:
    """However bytes arrive and are cut into turns, every one is handed on once, and turns end between frames."""
    lengths = [data.draw(st.integers(0, 60)) for _ in kinds]
    frames = [
        length.to_bytes(3, "big") + bytes([kind, 0, 0, 0, 0, 1]) + bytes(length)
        for kind, length in zip(kinds, lengths, strict=True)
    ]
    ends = {sum(map(len, frames[:n])) for n in range(len(frames) + 1)}
    whole, heads, passed = b"".join(frames), FrameHeads(dict.fromkeys(PER_SECOND, 10**6)), 0
    for begin in range(0, len(whole), step):
        piece, at = whole[begin : begin + step], 0
        while at < len(piece):
            end, said = heads.feed(piece, 0.0, at=at)
            assert (said, end > at) == ("", True)
            at = end
            assert at == len(piece) or begin + at in ends
        passed += at
    assert passed == len(whole)


def test_what_a_peer_got_it_may_acknowledge() -> None:
    """Who is sent much may say more often that it read it: that costs it what it costs us."""
    update = WindowUpdateFrame(0, 1).serialize()
    heads = FrameHeads({**PER_SECOND, "WINDOW_UPDATE": 3})
    for _ in range(10):
        heads.sent(16_384)
    assert heads.feed(update * 20, 0.0)[1] == ""
    assert [heads.feed(update * TURN, float(n))[1] for n in range(1, 4)][-1] == (
        "floods with WINDOW_UPDATE frames"
    )


def test_a_refused_stream_is_reset() -> None:
    """Nobody goes on sending into a stream that was answered; its number is free again."""

    async def story() -> None:
        async with listening() as (_, port):
            raw = await Raw.open(port)
            for _ in range(20):
                stream = raw.request("/nowhere")
                await raw.flush()
                answer = await raw.read(h2.events.ResponseReceived)
                assert dict(answer.headers)[":status"] == "404"
                reset = await raw.read(h2.events.StreamReset)
                assert (reset.stream_id, reset.error_code) == (stream, h2.errors.ErrorCodes.NO_ERROR)
            raw.close()

    asyncio.run(story())


def test_a_long_read_is_taken_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes longer than a connection's share waits while others have their turn, and nothing is lost of it."""
    monkeypatch.setattr(connection, "SHARE", 0.0)
    later: list[int] = []
    put_off = connection.Connection._put_off

    def noted(self: connection.Connection, rest: bytes, spent: float) -> None:
        later.append(len(rest))
        put_off(self, rest, spent)

    monkeypatch.setattr(connection.Connection, "_put_off", noted)
    words = [b"%d" % n for n in range(300)]

    async def story() -> None:
        async with listening() as (_, port):
            raw = await Raw.open(port)
            stream = raw.request()
            for word in words:
                raw.h2.send_data(stream, len(word).to_bytes(4, "big") + word)
            await raw.flush()
            heard = b""
            while len(heard) < sum(len(word) + 4 for word in words):
                heard += (await raw.read(h2.events.DataReceived)).data
            assert heard == b"".join(len(word).to_bytes(4, "big") + word for word in words)
            assert later, "the fault took no effect"
            raw.close()

    asyncio.run(story())


def test_who_never_reads_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much it says: a peer that takes nothing for `timeout` is given up, before its answers fill our memory."""
    made: list[connection.Connection] = []
    connected = connection.Connection.connection_made

    def noted(self: connection.Connection, transport: asyncio.BaseTransport) -> None:
        made.append(self)
        connected(self, transport)

    monkeypatch.setattr(connection.Connection, "connection_made", noted)

    async def story() -> None:
        async with listening(ended_silently, limits=QUICK) as (listener, port):
            raw = await Raw.open(port)
            raw.request()
            await raw.flush()
            await until(lambda: made, "it is connected")
            for _ in range(4):  # longer than `timeout`, and it reads
                await raw.flush(PingFrame(0, b"12345678").serialize())
                await asyncio.sleep(QUICK.timeout / 3)
            assert listener.connections == 1
            made[0].pause_writing()  # as asyncio does when what is written stays
            async with asyncio.timeout(5):
                while listener.connections:
                    await raw.flush(PingFrame(0, b"12345678").serialize())
                    await asyncio.sleep(QUICK.timeout / 10)
            raw.close()

    asyncio.run(story())


async def ended_silently(channel: Channel) -> None:
    """Say nothing until it is over."""
    await ended(channel)


def test_floods_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """The first flooder is named in the log; who comes again and again makes no second line for a while."""

    async def story() -> None:
        async with listening() as (_, port):
            for _ in range(5):
                raw = await Raw.open(port)
                await _pings(raw)
                assert "floods with" in await raw.goodbye()
                raw.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert [record.getMessage().count("floods with PING frames") for record in caplog.records] == [1]


def test_good_faith() -> None:
    """What an honest peer with the shortest timers of the tests sends stays far below every limit."""
    pings = 1 / 0.02

    assert pings * 5 < PER_SECOND["PING"]


@pytest.mark.parametrize(
    ("flood", "said"),
    [
        (_resets, "floods with HEADERS frames"),
        (_resets_of_one, "floods with RST_STREAM frames"),
        (_pings, "floods with PING frames"),
        (_settings, "floods with SETTINGS frames"),
        (_empty_data, "floods with empty DATA frames"),
        (_data_on_refused, "floods with stray DATA frames"),
        (_ends_on_refused, "floods with "),
        (_data_on_reset, "floods with stray DATA frames"),
        (_small_data, "floods with small DATA frames"),
        (_heads_on_refused, "floods with HEADERS frames"),
        (_window_updates, "floods with WINDOW_UPDATE frames"),
        (_long_heads, "floods with long HEADERS frames"),
        (_wide_settings, "sends a SETTINGS frame of 1200 bytes"),
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
