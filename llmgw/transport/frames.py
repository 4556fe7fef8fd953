"""Reads the heads of a peer's HTTP/2 frames before h2 gets them, and counts what costs us and not the sender.

`transport.connection` feeds it everything that arrives. h2 alone would keep up to 16 MiB of a frame
before it calls it too long, tells of no frame that comes for a stream that is gone, and counts nothing.
"""

from collections.abc import Mapping

LONGEST = 16_384
"""Payload bytes of the longest frame: what we announce, which is HTTP/2's default."""

_HEAD = 9
_END_STREAM = 0x1
_KINDS: Mapping[int, str] = {
    0: "DATA",
    1: "HEADERS",
    2: "PRIORITY",
    3: "RST_STREAM",
    4: "SETTINGS",
    6: "PING",
    8: "WINDOW_UPDATE",
    9: "CONTINUATION",
}

PER_SECOND: Mapping[str, int] = {
    "HEADERS": 200,
    "PRIORITY": 100,
    "RST_STREAM": 100,
    "SETTINGS": 50,
    "PING": 500,
    "WINDOW_UPDATE": 10_000,
    "CONTINUATION": 100,
    "empty DATA": 500,
    "unknown": 100,
}
"""Frames that a peer in good faith never sends more often; DATA with bytes in it is bounded by its window."""


class FrameHeads:
    """Bytes in, in any pieces; the first reason to end the connection out. Pure: `now` is seconds."""

    def __init__(self, per_second: Mapping[str, int] = PER_SECOND, *, preface: int = 0) -> None:
        self._per_second = per_second
        self._skip = preface
        self._head = b""
        self._second = 0
        self._counts: dict[str, int] = {}

    def feed(self, data: bytes, now: float) -> str:
        """What is wrong with the frames that begin in `data`; empty = nothing."""
        if int(now) != self._second:
            self._second = int(now)
            self._counts.clear()
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                passed = min(self._skip, end - at)
                self._skip -= passed
                at += passed
            elif not self._head and end - at >= _HEAD:
                if said := self._begun(data[at : at + _HEAD]):
                    return said
                at += _HEAD
            else:
                piece = data[at : at + _HEAD - len(self._head)]
                self._head += piece
                at += len(piece)
                if len(self._head) == _HEAD:
                    head, self._head = self._head, b""
                    if said := self._begun(head):
                        return said
        return ""

    def _begun(self, head: bytes) -> str:
        length = int.from_bytes(head[:3], "big")
        kind = _KINDS.get(head[3], "unknown")
        if kind == "DATA":
            kind = "" if length or head[4] & _END_STREAM else "empty DATA"
        self._skip = length
        if length > LONGEST:
            return f"sends a frame of {length} bytes, {LONGEST} are allowed"
        if not kind:
            return ""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"floods with {kind} frames" if self._counts[kind] > self._per_second[kind] else ""
