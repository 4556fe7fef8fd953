"""A plain frame that goes past h2's parser leaves h2 just as if it had not."""

import asyncio

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import pytest
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, SettingsFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.transport.client import connect
from llmgw.transport.frames import HEAD, PER_SECOND, PING, SMALL, FrameHeads
from llmgw.transport.words import ANSWER, asked, taken
from tests.transport.harness import HOST, listening

WINDOW = 2000


@settings(max_examples=50)
@given(st.lists(st.integers(1, WINDOW // 2)), st.integers(0, 3))
def test_like_h2(sizes: list[int], acknowledge: int) -> None:
    """Windows, acknowledgements and the end by a peer that sends more than it may are the same either way."""
    ours, theirs = _pair(), _pair()
    for number, size in enumerate(sizes):
        frame = DataFrame(1, bytes(size)).serialize()
        expected, got = "", ""
        try:
            theirs.receive_data(frame)
        except h2.exceptions.ProtocolError as error:
            expected = str(error)
        if not taken(ours, 1, bytes(size)):
            try:
                ours.receive_data(frame)
            except h2.exceptions.ProtocolError as error:
                got = str(error)
        assert got == expected
        if expected:
            return
        if number % 4 < acknowledge:
            for machine in (ours, theirs):
                machine.acknowledge_received_data(size, 1)
        assert ours.data_to_send() == theirs.data_to_send()
        assert ours.remote_flow_control_window(1) == theirs.remote_flow_control_window(1)


def test_what_is_over_is_left_to_h2() -> None:
    """DATA after the peer's end, and for a stream that never was, is not taken; before any headers h2 refuses it."""
    ended = _pair()
    ended.receive_data(DataFrame(1, b"", flags=["END_STREAM"]).serialize())
    assert not taken(ended, 1, b"word")
    assert not taken(_pair(), 3, b"word")

    caller = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    caller.initiate_connection()
    caller.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")])
    with pytest.raises(h2.exceptions.ProtocolError):
        taken(caller, 1, b"word")


def test_which_frames_are_plain() -> None:
    """A whole small DATA frame of a channel, without a flag, and not where a block of headers may be open."""
    heads = FrameHeads()
    word = DataFrame(1, b"word").serialize()
    assert heads.plain(word, 0.0, {1}) == (0, 0), "h2 may wait for headers still"
    assert heads.feed(word, 0.0, {1}) == (len(word), "")

    assert heads.plain(word * 2, 0.0, {1}) == (len(word), 1)
    assert heads.plain(word * 2, 0.0, {1}, at=len(word)) == (2 * len(word), 1)
    for other in (
        word[:-1],
        word[:HEAD],
        DataFrame(3, b"word").serialize(),
        DataFrame(1, b"").serialize(),
        DataFrame(1, bytes(SMALL)).serialize(),
        DataFrame(1, b"word", flags=["END_STREAM"]).serialize(),
        DataFrame(1, b"word", flags=["PADDED"], pad_length=3).serialize(),
        PingFrame(0, bytes(8), flags=["ACK"]).serialize(),
        PingFrame(0, bytes(8)).serialize()[:-1],
        _raw(PING, bytes(7)),
        _raw(PING, bytes(9)),
        _raw(PING, bytes(8), stream=1),
        SettingsFrame(0, flags=["ACK"]).serialize(),
    ):
        assert heads.plain(other, 0.0, {1}) == (0, 0)

    assert heads.plain(PingFrame(0, bytes(8)).serialize(), 0.0, {1}) == (HEAD + 8, 0)

    heads.feed(HeadersFrame(1, b"").serialize(), 0.0, {1})
    for plain in (word, PingFrame(0, bytes(8)).serialize()):
        assert heads.plain(plain, 0.0, {1}) == (0, 0)


PLAIN = {"small DATA": DataFrame(1, b"word").serialize(), "PING": PingFrame(0, bytes(8)).serialize()}


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_frames_are_counted(kind: str) -> None:
    """Whoever sends too many of them in a second is told apart by `feed`, whichever way they went before."""
    heads, frame = FrameHeads(), PLAIN[kind]
    heads.feed(frame, 1.0, {1})
    taken_past = 0
    while heads.plain(frame, 1.0, {1})[0]:
        heads.took(1 if kind == "small DATA" else 0)
        taken_past += 1
    assert taken_past == PER_SECOND[kind] - 1
    assert heads.feed(frame, 1.0, {1})[1] == f"floods with {kind} frames"
    assert heads.plain(frame, 2.0, {1})[0] == 0, "in the middle of a frame"


@pytest.mark.parametrize("kind", PLAIN)
def test_a_frame_is_counted_once(kind: str) -> None:
    """What h2 has to judge after all was not counted on the way: it is fed, and counted there."""
    heads, frame = FrameHeads(), PLAIN[kind]
    for _ in range(PER_SECOND[kind]):
        heads.plain(frame, 1.0, {1})
        assert heads.feed(frame, 1.0, {1}) == (len(frame), "")
    assert heads.feed(frame, 1.0, {1})[1] == f"floods with {kind} frames"


def test_the_answer_is_that_of_h2() -> None:
    """A PING is answered with the bytes that h2 would send, until the connection has ended."""
    theirs = _pair()
    theirs.receive_data(PingFrame(0, b"12345678").serialize())

    assert asked(_pair())
    assert theirs.data_to_send() == ANSWER + b"12345678"

    theirs.close_connection()
    assert not asked(theirs)


def test_pings_are_answered_in_turn() -> None:
    """On a real socket: those between words, in pieces and with the rest of h2's work, each once and in order."""
    assert asyncio.run(_answers()) == [b"%08d" % number for number in range(40)]


async def _answers() -> list[bytes]:
    async with listening() as (_, port):
        reader, writer = await asyncio.open_connection(HOST, port)
        machine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        machine.initiate_connection()
        pings = [PingFrame(0, b"%08d" % number).serialize() for number in range(40)]
        writer.write(machine.data_to_send() + b"".join(pings[:20]))
        for ping in pings[20:]:
            writer.write(ping[:5])
            await asyncio.sleep(0)
            writer.write(ping[5:])
        answers: list[bytes] = []
        async with asyncio.timeout(10.0):
            while len(answers) < len(pings):
                heard = machine.receive_data(await reader.read(4096))
                answers += [
                    event.ping_data for event in heard if isinstance(event, h2.events.PingAckReceived)
                ]
        writer.close()
        await writer.wait_closed()
        return answers


async def _echoed(words: int) -> list[bytes]:
    async with listening() as (_, port):
        channel = await connect(HOST, port, "/agent")
        heard = []
        for number in range(words):
            await channel.send(b"%d" % number)
            heard.append(await channel.receive())
        await channel.close()
        return heard


def test_words_arrive() -> None:
    """Through real sockets, a word comes whole and in its place."""
    assert asyncio.run(_echoed(50)) == [b"%d" % number for number in range(50)]


def _raw(kind: int, payload: bytes, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + stream.to_bytes(4, "big") + payload


def _pair() -> h2.connection.H2Connection:
    """A server that has welcomed a stream."""
    caller = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.local_settings = h2.settings.Settings(
        client=False, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW}
    )
    caller.initiate_connection()
    server.initiate_connection()
    caller.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")])
    server.receive_data(caller.data_to_send())
    server.send_headers(1, [(":status", "200")])
    server.data_to_send()
    return server


def test_nothing_is_taken_after_the_end() -> None:
    """Once a connection has ended, a word on a channel that was open is h2's to refuse."""
    ours = _pair()
    assert taken(ours, 1, b"x")

    ours.close_connection()

    assert not taken(ours, 1, b"x")
    with pytest.raises(h2.exceptions.ProtocolError, match="CLOSED"):
        ours.receive_data(DataFrame(1, b"x").serialize())
