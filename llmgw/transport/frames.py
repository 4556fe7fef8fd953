"""Reads the heads of a peer's HTTP/2 frames before h2 gets them, and counts what costs us and not the sender.

`transport.connection` feeds it everything that arrives, and gives h2 one turn's work at a time. h2 alone would
keep up to 16 MiB of a frame before it calls it too long, tells of no frame that comes for a stream that is
gone, and counts nothing.
"""

import struct
from collections.abc import Container, Mapping

LONGEST = 16_384
"""Payload bytes of the longest frame: what we announce, which is HTTP/2's default."""

LONGEST_SETTINGS = 240
"""Payload bytes of the longest SETTINGS frame: forty of them, and HTTP/2 has ten."""

SMALL = 1024
"""Payload bytes below which a DATA frame is more work than what it carries."""

TURN = 32
"""Frames that are handled before others may have a turn."""

HEAD = 9
"""Bytes of the head of a frame."""

PING, PING_SIZE = 6, 8
"""The type of a PING frame, and the bytes in it: RFC 9113, 6.7."""

_FIELDS = struct.Struct(">HBBBL")
_UPDATES_MOST = 10_000
_KINDS: Mapping[int, str] = {
    0: "DATA",
    1: "HEADERS",
    2: "PRIORITY",
    3: "RST_STREAM",
    4: "SETTINGS",
    PING: "PING",
    8: "WINDOW_UPDATE",
    9: "CONTINUATION",
}

PER_SECOND: Mapping[str, int] = {
    "HEADERS": 50,
    "long HEADERS": 8192,
    "PRIORITY": 100,
    "RST_STREAM": 100,
    "SETTINGS": 50,
    "PING": 500,
    "WINDOW_UPDATE": 500,
    "CONTINUATION": 30,
    "empty DATA": 500,
    "small DATA": 1000,
    "stray DATA": 200,
    "unknown": 100,
}
"""Frames that a peer in good faith never sends more often; what is long in bytes, of HEADERS and CONTINUATION.

DATA is stray that is for no channel: what was under way when one ended. More DATA than that is bounded by its
window. WINDOW_UPDATE may come as much more often as the peer was sent something.
"""


_UNTOLD = frozenset({"HEADERS", "CONTINUATION", "unknown"})
"""After these h2 may wait for the rest of a block of headers, and DATA would be wrong."""


class FrameHeads:
    """Bytes in, in any pieces; one turn's work and the first reason to end the connection out. Pure: `now` is seconds."""

    def __init__(self, per_second: Mapping[str, int] = PER_SECOND, *, preface: int = 0) -> None:
        self._per_second = per_second
        self._skip = preface
        self._head = b""
        self._second = 0
        self._counts: dict[str, int] = {}
        self._turn = 0
        self._updates = 0
        self._before = "HEADERS"

    def sent(self, size: int) -> None:
        """The peer was sent a DATA frame of `size` bytes: it may say that it read them, of stream and connection."""
        self._updates = min(_UPDATES_MOST, self._updates + 2 + size // 4096)

    def feed(self, data: bytes, now: float, carried: Container[int] = (), *, at: int = 0) -> tuple[int, str]:
        """Where in `data` the turn that begins at `at` ends, and what is wrong with its frames; empty = nothing.

        A head ends its turn, so `carried` has each stream that is a channel when DATA for it is judged.
        """
        self._begin(now)
        end = len(data)
        while at < end:
            if self._skip:
                passed = min(self._skip, end - at)
                self._skip -= passed
                at += passed
            elif self._turn >= TURN and not self._head:
                break
            elif not self._head and end - at >= HEAD:
                if said := self._begun(data[at : at + HEAD], carried):
                    return at, said
                at += HEAD
            else:
                piece = data[at : at + HEAD - len(self._head)]
                self._head += piece
                at += len(piece)
                if len(self._head) == HEAD:
                    head, self._head = self._head, b""
                    if said := self._begun(head, carried):
                        return at, said
        if not self._skip:
            self._turn = 0
        return at, ""

    def plain(self, data: bytes, now: float, carried: Container[int], *, at: int = 0) -> tuple[int, int]:
        """Where the frame at `at` ends, and its stream, where it is whole, says nothing else and is not one too many: a small
        DATA frame of a channel or, stream 0, a PING that asks. `took` counts it. (0, 0): feed it.
        """
        if self._skip or self._head or self._before in _UNTOLD or len(data) - at <= HEAD:
            return 0, 0
        high, low, kind, flags, stream = _FIELDS.unpack_from(data, at)
        size = high << 8 | low
        end = at + HEAD + size
        if kind == PING:
            simple = size == PING_SIZE and not stream
        else:
            simple = not kind and 0 < size < SMALL and stream in carried
        if flags or end > len(data) or not simple:
            return 0, 0
        self._begin(now)
        named = _plain(stream)
        return (end, stream) if self._counts.get(named, 0) < self._per_second[named] else (0, 0)

    def took(self, stream: int) -> None:
        """The frame that `plain` found was handled, and is not fed."""
        self._counted(_plain(stream))

    def _begin(self, now: float) -> None:
        """Whoever counts, counts from each second on anew."""
        if int(now) != self._second:
            self._second = int(now)
            self._counts.clear()

    def _begun(self, head: bytes, carried: Container[int]) -> str:
        length = int.from_bytes(head[:3], "big")
        kind = _KINDS.get(head[3], "unknown")
        self._skip = length
        self._before = kind
        self._turn += TURN if kind in ("HEADERS", "CONTINUATION") else 1
        longest = LONGEST_SETTINGS if kind == "SETTINGS" else LONGEST
        if length > longest:
            what = "SETTINGS frame" if kind == "SETTINGS" else "frame"
            return f"sends a {what} of {length} bytes, {longest} are allowed"
        if kind == "DATA":
            return self._data(length, int.from_bytes(head[5:], "big") & 0x7FFFFFFF in carried)
        if kind == "WINDOW_UPDATE" and self._updates:
            self._updates -= 1
            return ""
        if kind in ("HEADERS", "CONTINUATION") and (said := self._counted("long HEADERS", length)):
            return said
        return self._counted(kind)

    def _data(self, length: int, carried: bool) -> str:
        if not carried and (said := self._counted("stray DATA")):
            return said
        if length >= SMALL:
            return ""
        return self._counted("small DATA" if length else "empty DATA")

    def _counted(self, kind: str, many: int = 1) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + many
        return f"floods with {kind} frames" if self._counts[kind] > self._per_second[kind] else ""


def _plain(stream: int) -> str:
    return "small DATA" if stream else "PING"
