"""An answer's bytes on their way."""

import itertools

import hypothesis
from hypothesis import strategies as st

from llmgw.gateway.relay import HELD, Head, Relay

CHAT = "/v1/chat/completions"
EVENTS = b'data: {"x":"\xc3\xa9\xf0\x9f\x99\x82"}\n\n' + b": ping\r\n\r\n" + b"data: 2\n\ndata: [DONE]\n\n"


def relay(kind: bytes, path: str = CHAT, *, length: int | None = None) -> Relay:
    headers = [(b"content-type", kind)]
    headers.append(
        (b"transfer-encoding", b"chunked") if length is None else (b"content-length", b"%d" % length)
    )
    return Relay(Head.of(200, headers), path)


def events(path: str = CHAT) -> Relay:
    return relay(b"text/event-stream; charset=utf-8", path)


def body(framed: bytes) -> bytes:
    """Chunks without their framing."""
    out = b""
    while framed:
        size, _, framed = framed.partition(b"\r\n")
        out, framed = out + framed[: int(size, 16)], framed[int(size, 16) + 2 :]
    return out


@hypothesis.given(st.lists(st.integers(1, len(EVENTS) - 1), max_size=9))
def test_events_arrive_whole_and_unchanged(cuts: list[int]) -> None:
    """However the engine's bytes are cut, each write to the client ends with an event's end."""
    at = [0, *sorted(cuts), len(EVENTS)]
    passing = events()
    fed = [passing.feed(EVENTS[start:end]) for start, end in itertools.pairwise(at) if start < end]
    assert all(body(piece).endswith((b"\n\n", b"\r\n\r\n")) for piece in fed if piece)
    end, last = passing.complete()
    assert (end, body(b"".join(fed) + last)) == ("clean", EVENTS)
    assert passing.sent == len(EVENTS)


def test_an_event_without_end_is_not_held_for_ever() -> None:
    """Beyond the bound it flows on in parts: memory is not the client's to spend."""
    passing = events()
    assert passing.feed(b"data: ") == b""
    assert len(body(passing.feed(b"x" * HELD))) == HELD + 6


def test_each_kind_of_stream_has_its_own_end() -> None:
    """Responses and messages end by their last event, others by their framing."""
    for path, last in (
        (CHAT, b"data:[DONE]\n\n"),
        ("/v1/responses", b'event: response.completed\ndata: {"big":"' + b"x" * 9000 + b'"}\n\n'),
        ("/v1/responses", b'data: {"type":"response.failed"}\n\n'),
        ("/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        ("/v1/audio/speech", b"data: x\n\n"),
    ):
        passing = events(path)
        passing.feed(b"data: 1\n\n" + last)
        assert passing.complete()[0] == "clean", path
    for path in (CHAT, "/v1/responses", "/v1/messages"):
        passing = events(path)
        passing.feed(b'data: {"c":"data: [DONE] response.completed message_stop"}\n\n')
        assert passing.complete() == ("cut", b""), path


def test_an_end_without_its_blank_line_is_an_end() -> None:
    """What was held back is sent before the end."""
    passing = events()
    assert passing.feed(b"data: [DONE]\n") == b""
    assert passing.complete() == ("clean", b"d\r\ndata: [DONE]\n\r\n0\r\n\r\n")


def test_an_abort_is_found_in_plain_answers_too() -> None:
    """200, truncated text, finish_reason abort: passed on, and not called clean."""
    passing = relay(b"application/json", length=29)
    assert passing.feed(b'{"finish_reason": "abort" }   ')
    assert passing.complete() == ("abort", b"")
    quoted = relay(b"application/json")
    quoted.feed(b'{"content":"\\"finish_reason\\":\\"abort\\""}')
    assert quoted.complete()[0] == "clean"


def test_an_event_stream_with_a_length_is_sent_in_chunks() -> None:
    """Otherwise there would be no room for the event that says it broke."""
    passing = relay(b"text/event-stream", length=100)
    head = passing.head(b"id-1", keep=True)
    assert b"transfer-encoding: chunked" in head
    assert b"content-length" not in head
    assert b"connection" not in head
    assert passing.broken("cannot finish").endswith(b"}\n\n\r\n")
    assert relay(b"application/json", length=5).broken("cannot finish") == b""
