"""Requests out of bytes, however they are cut."""

import itertools

import hypothesis
from hypothesis import strategies as st

from llmgw.gateway.answers import Refusal
from llmgw.gateway.receive import Expected, Limits, Received, Receiver, Request

HEAD = b"POST /v1/completions?x=1 HTTP/1.1\r\nHost: gw\r\nAccept: text/plain\r\n"
SENT = (
    HEAD + b"Content-Length: 5\r\n\r\nhello"
    + HEAD + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
    + HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello"
    + b"GET /v1/models HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n\r\n"
)  # fmt: skip


def received(*pieces: bytes, limits: Limits | None = None) -> list[Received]:
    """What comes out when these pieces go in."""
    receiver = Receiver(limits or Limits())
    return [out for piece in pieces for out in receiver.feed(piece)]


@hypothesis.given(st.lists(st.integers(1, len(SENT) - 1), max_size=12))
def test_where_the_bytes_are_cut_does_not_matter(cuts: list[int]) -> None:
    """Four requests, of every kind of framing and one that offers an upgrade, come out the same."""
    at = [0, *sorted(cuts), len(SENT)]
    out = received(*(SENT[start:end] for start, end in itertools.pairwise(at) if start < end))
    requests = [each for each in out if isinstance(each, Request)]
    assert [request.body for request in requests] == [b"hello", b"hello", b"hello", b""]
    assert [request.target for request in requests] == [b"/v1/completions?x=1"] * 3 + [b"/v1/models"]
    assert [request.keep for request in requests] == [True, True, True, False]
    assert [each for each in out if isinstance(each, Refusal)] == []
    assert sum(isinstance(each, Expected) for each in out) == 1


@hypothesis.given(st.binary(max_size=400), st.lists(st.integers(1, 200), max_size=4))
def test_rubbish_ends_in_one_refusal_or_none(data: bytes, cuts: list[int]) -> None:
    """Nothing a client sends raises, and after a refusal nothing more comes out."""
    out = received(data[:50], data[50:], *(data[:cut] for cut in cuts))
    assert sum(isinstance(each, Refusal) for each in out) <= 1
    assert not any(isinstance(each, Refusal) for each in out[:-1])


def test_what_is_smuggled_is_refused() -> None:
    """Two readings of one request's length, in any spelling: 400, and nothing behind it is served."""
    tail = b"\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    for lie in (
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding : chunked",
        b"Content-Length: +5",
        b"Content-Length: 5,5",
        b"X: a\r\n b",
        b"X: a\nY: b",
        b"X: \0",
    ):
        out = received(HEAD + lie + tail)
        assert len(out) == 1, lie
        assert isinstance(out[0], Refusal), lie
        assert out[0].status == 400, lie


def test_an_upgrade_that_is_declined_keeps_the_rest_of_its_header() -> None:
    """Who offers one and asks to close is closed; an empty header stays an empty header."""
    offer = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Empty:\r\nUpgrade: h2c\r\nConnection: %b\r\n\r\n"
    for asked, keep in (
        (b"close, Upgrade", False),
        (b"Upgrade,close", False),
        (b"upgrade, keep-alive", True),
    ):
        (request,) = received(offer % asked)
        assert isinstance(request, Request)
        assert request.keep is keep
        assert request.headers[b"x-empty"] == b""


def test_many_upgrades_at_once_are_no_deep_water() -> None:
    """Thousands of requests that each offer an upgrade, in one read."""
    offer = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert len(received(offer * 3000)) == 3000


def test_a_head_is_charged_with_its_own_bytes_only() -> None:
    """A read that ends a large body and begins the next head is no large head."""
    large = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000
    out = received(large + HEAD[:10], HEAD[10:] + b"Content-Length: 0\r\n\r\n", limits=Limits(head=100))
    assert [type(each) for each in out] == [Request, Request]


def test_trailers_and_chunk_sizes_are_bounded_too() -> None:
    """A body whose framing outgrows it is refused like a body that is too large."""
    limits = Limits(head=100, body=100)
    chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for endless in ([b"1;" + b"x" * 90 + b"\r\na\r\n"] * 9, [b"0\r\n", *[b"X: " + b"y" * 90 + b"\r\n"] * 9]):
        out = received(chunked, *endless, limits=limits)
        assert isinstance(out[-1], Refusal)
        assert out[-1].status == 413
