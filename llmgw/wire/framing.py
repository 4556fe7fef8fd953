"""Messages on a stream of bytes: each is preceded by its length, four bytes, big endian.

Called by `transport.channel` in both directions; what a message says is `wire.messages`' business.
"""

import struct

LIMIT = 16 * 1024 * 1024
"""Bytes of the longest message. A whole fleet's routing table is far below it."""

_LENGTH = struct.Struct(">I")


class FramingError(ValueError):
    """The bytes are no message of ours: too long, or empty. Nothing after them can be read."""


def frame(message: bytes) -> bytes:
    """`message` behind its length. Raises FramingError on one that no peer would take."""
    _check(len(message))
    return _LENGTH.pack(len(message)) + message


class Deframer:
    """Bytes in, in any pieces; whole messages out, one at a time."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes | bytearray) -> None:
        """Add what arrived."""
        self._bytes += data

    def next(self) -> bytes | None:
        """The next whole message, or None until more is fed. Raises FramingError on a bad length."""
        if len(self._bytes) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes)
        _check(length)
        end = _LENGTH.size + length
        if len(self._bytes) < end:
            return None
        message = bytes(memoryview(self._bytes)[_LENGTH.size : end])
        del self._bytes[:end]
        return message

    @property
    def partial(self) -> bool:
        """Whether a message has begun and not ended."""
        return bool(self._bytes)


def _check(length: int) -> None:
    if not 0 < length <= LIMIT:
        raise FramingError(f"a message of {length} bytes: between 1 and {LIMIT} are allowed")
