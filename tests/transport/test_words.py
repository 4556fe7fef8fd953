"""A plain DATA frame that goes past h2's parser leaves h2 just as if it had not."""

import asyncio

import h2.config
import h2.connection
import h2.exceptions
import h2.settings
import pytest
from hyperframe.frame import DataFrame, HeadersFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.transport.client import connect
from llmgw.transport.frames import HEAD, PER_SECOND, SMALL, FrameHeads
from llmgw.transport.words import taken
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
    assert heads.word(word, 0.0, {1}) == (0, 0), "h2 may wait for headers still"
    assert heads.feed(word, 0.0, {1}) == (len(word), "")

    assert heads.word(word * 2, 0.0, {1}) == (len(word), 1)
    assert heads.word(word * 2, 0.0, {1}, at=len(word)) == (2 * len(word), 1)
    for other in (
        word[:-1],
        word[:HEAD],
        DataFrame(3, b"word").serialize(),
        DataFrame(1, b"").serialize(),
        DataFrame(1, bytes(SMALL)).serialize(),
        DataFrame(1, b"word", flags=["END_STREAM"]).serialize(),
        DataFrame(1, b"word", flags=["PADDED"], pad_length=3).serialize(),
    ):
        assert heads.word(other, 0.0, {1}) == (0, 0)

    heads.feed(HeadersFrame(1, b"").serialize(), 0.0, {1})
    assert heads.word(word, 0.0, {1}) == (0, 0)


def test_plain_frames_are_counted() -> None:
    """Whoever sends too many small ones in a second is told apart by `feed`, whichever way they went before."""
    heads, word = FrameHeads(), DataFrame(1, b"word").serialize()
    heads.feed(word, 1.0, {1})
    taken_past = 0
    while heads.word(word, 1.0, {1})[1]:
        heads.took()
        taken_past += 1
    assert taken_past == PER_SECOND["small DATA"] - 1
    assert heads.feed(word, 1.0, {1})[1] == "floods with small DATA frames"
    assert heads.word(word, 2.0, {1})[1] == 0, "in the middle of a frame"


def test_a_frame_is_counted_once() -> None:
    """What h2 has to judge after all was not counted on the way: it is fed, and counted there."""
    heads, word = FrameHeads(), DataFrame(1, b"word").serialize()
    for _ in range(PER_SECOND["small DATA"]):
        heads.word(word, 1.0, {1})
        assert heads.feed(word, 1.0, {1}) == (len(word), "")
    assert heads.feed(word, 1.0, {1})[1] == "floods with small DATA frames"


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
