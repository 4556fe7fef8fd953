"""An engine's answer on its way to the client: its head, its framing, and the end that it must have.

Called by `gateway.exchange`; bytes in, bytes out. Body bytes are passed on as they came. A stream
of events is passed on in whole events, so that an engine's death between two reads leaves the
client with whole events and one that says what happened.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Literal

from llmgw.gateway import answers

End = Literal["clean", "cut", "error", "abort"]
"""How an answer ended: as it should, before its end, or by the engine's own word that it failed."""

DROPPED = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"trailer",
        b"transfer-encoding", b"upgrade", b"content-length", b"x-request-id", b"set-cookie",
    }
)  # fmt: skip
"""Of an engine's head: what is about its own connection, what is said anew, and what is nobody's business."""

WINDOW = 4096
"""Bytes at the end of an answer in which its end is looked for."""
HELD = 256 * 1024
"""Bytes of one unfinished event that are held back; a longer one flows on in parts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ending:
    """What a stream must say last: a line that matches; `marker` is in every such line, and quick to find."""

    marker: bytes
    line: re.Pattern[bytes]


_DONE = Ending(b"[DONE]", re.compile(rb"^data: ?\[DONE\]", re.MULTILINE))
_RESPONSE = Ending(
    b"response.",
    re.compile(
        rb'^(?:event: ?|data: ?\{"type": ?")response\.(?:completed|incomplete|failed)\b', re.MULTILINE
    ),
)
_MESSAGE = Ending(
    b"message_stop", re.compile(rb'^(?:event: ?|data: ?\{"type": ?")message_stop\b', re.MULTILINE)
)
ENDINGS: Mapping[str, Ending] = {
    "/v1/chat/completions": _DONE,
    "/v1/completions": _DONE,
    "/v1/responses": _RESPONSE,
    "/v1/messages": _MESSAGE,
}
"""By path; of a path that is not here the framing alone tells the end."""

_ABORT = re.compile(rb'"finish_reason"\s*:\s*"abort"')
_ERROR = re.compile(rb'(?:\A|\n)(?:event: ?error|data: ?\{"error")')
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")


@dataclasses.dataclass(slots=True)
class Head:
    """Status and headers as an engine sent them; names in lower case. `length` is None when chunked."""

    status: int
    headers: list[tuple[bytes, bytes]]
    length: int | None = None
    chunked: bool = False
    events: bool = False

    @classmethod
    def of(cls, status: int, headers: list[tuple[bytes, bytes]]) -> "Head":
        """Read what the relay must know."""
        head = cls(status, headers)
        for name, value in headers:
            if name == b"content-length":
                head.length = int(value)
            elif name == b"transfer-encoding":
                head.chunked = value.lower() == b"chunked"
            elif name == b"content-type":
                head.events = value.lower().startswith(b"text/event-stream")
        return head

    @property
    def delimited(self) -> bool:
        """Whether its end can be told from its engine's death."""
        return self.chunked or self.length is not None or self.status in (204, 304)

    def value(self, wanted: bytes) -> bytes | None:
        """The first value of a header."""
        return next((value for name, value in self.headers if name == wanted), None)


class Relay:
    """One answer to a request for `path`."""

    __slots__ = ("_chunked", "_ended", "_ending", "_events", "_head", "_held", "_tail", "_watch", "sent")

    def __init__(self, head: Head, path: str) -> None:
        self._head = head
        self._events = head.events
        self._chunked = head.chunked or head.events
        self._watch = head.status == 200
        self._ending = ENDINGS.get(path) if head.events and self._watch else None
        self._ended = self._ending is None
        self._held = b""
        self._tail = b""
        self.sent = 0

    def head(self, request_id: bytes, *, keep: bool) -> bytes:
        """The head as the client gets it."""
        kept = b"".join(
            b"%b: %b\r\n" % (name, value) for name, value in self._head.headers if name not in DROPPED
        )
        framing = b""
        if self._chunked:
            framing = b"transfer-encoding: chunked\r\n"
        elif self._head.length is not None:
            framing = b"content-length: %d\r\n" % self._head.length
        return b"HTTP/1.1 %d %b\r\nx-request-id: %b\r\n%b%b%b\r\n" % (
            self._head.status,
            answers.REASONS.get(self._head.status, b""),
            request_id,
            kept,
            framing,
            b"" if keep else b"connection: close\r\n",
        )

    def feed(self, piece: bytes) -> bytes:
        """What goes to the client now that the engine sent `piece` of its body."""
        if self._watch:
            self._tail = piece if len(piece) >= WINDOW else (self._tail + piece)[-WINDOW:]
        return self._framed(self._whole_events(piece) if self._events else piece)

    def _whole_events(self, piece: bytes) -> bytes:
        held = self._held + piece if self._held else piece
        end = len(held)
        if not held.endswith(_BLANK_LINES) and end <= HELD:
            end = max(held.rfind(blank) + len(blank) if blank in held else 0 for blank in _BLANK_LINES)
        self._held = held[end:]
        self._look_for_end(held[:end])
        return held[:end]

    def _look_for_end(self, events: bytes) -> None:
        if not self._ended and self._ending is not None and self._ending.marker in events:
            self._ended = self._ending.line.search(events) is not None

    def _framed(self, body: bytes) -> bytes:
        self.sent += len(body)
        return b"%x\r\n%b\r\n" % (len(body), body) if self._chunked and body else body

    def complete(self) -> tuple[End, bytes]:
        """The engine ended its answer: how, and the last bytes for the client (none where it was `cut`)."""
        self._look_for_end(self._held)
        if not self._ended:
            return "cut", b""
        rest = self._framed(self._held)
        return self._own_word(), rest + b"0\r\n\r\n" if self._chunked else rest

    def _own_word(self) -> End:
        if self._watch and _ABORT.search(self._tail):
            return "abort"
        return "error" if self._watch and self._events and _ERROR.search(self._tail) else "clean"

    def broken(self, said: str) -> bytes:
        """The last bytes for a client whose answer ends too early; the connection is cut behind them."""
        return self._framed(answers.broken_event(said)) if self._events else b""
