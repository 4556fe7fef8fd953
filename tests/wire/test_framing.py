"""Framing: bytes in any pieces, messages whole."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.wire.framing import LIMIT, Deframer, FramingError, frame


def _all(deframer: Deframer) -> list[bytes]:
    return list(iter(deframer.next, None))


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=8), st.data())
def test_pieces(messages: list[bytes], data: st.DataObject) -> None:
    """However the bytes are cut into pieces, the same messages come out."""
    stream = b"".join(map(frame, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    deframer = Deframer()
    received = []

    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        deframer.feed(stream[start:end])
        received += _all(deframer)

    assert received == messages
    assert not deframer.partial


def test_partial() -> None:
    """A message that has begun is known to be unfinished."""
    deframer = Deframer()
    deframer.feed(frame(b"hello")[:-1])

    assert deframer.next() is None
    assert deframer.partial


@pytest.mark.parametrize("length", [0, LIMIT + 1, 2**32 - 1])
def test_bad_length(length: int) -> None:
    """A length that no message has is refused before anything is kept for it."""
    deframer = Deframer()
    deframer.feed(struct.pack(">I", length))

    with pytest.raises(FramingError, match=str(length)):
        deframer.next()


@pytest.mark.parametrize("length", [0, LIMIT + 1])
def test_refused_before_sending(length: int) -> None:
    """What a peer would refuse is not sent."""
    with pytest.raises(FramingError, match=f"{length} bytes"):
        frame(bytes(length))


def test_longest() -> None:
    """The longest message that is allowed arrives."""
    deframer = Deframer()
    deframer.feed(frame(bytes(LIMIT)))

    assert deframer.next() == bytes(LIMIT)
