"""Requests out of a client's bytes, however they are cut; no sockets here.

`gateway.front` feeds a `Receiver` and serves what comes out. llhttp refuses what is ambiguous about
framing; the limits, the one Host and `Expect` are ours to hold. What is refused ends the connection.
"""

import dataclasses
from typing import Literal

import httptools

from llmgw.gateway.answers import Refusal

Stage = Literal["idle", "head", "body", "refused"]


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a client may send, in bytes, and how long it may take to, in seconds.

    `idle` = between requests; `stalled` = it takes nothing of its answer; `lingering` = how long a
    refused client is listened to, so that it reads why before the connection is reset. `connections`
    bounds how many there may be: one more is closed as it comes.
    """

    head: int = 16 * 1024
    body: int = 32 * 1024 * 1024
    head_within: float = 10.0
    body_within: float = 60.0
    idle: float = 75.0
    stalled: float = 60.0
    lingering: float = 2.0
    connections: int = 16384


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One request, whole. Header names in lower case; `keep` = the client goes on using the connection."""

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes
    keep: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """The client waits for a `100 Continue` before it sends its body."""


Received = Request | Refusal | Expected

_UPGRADE = (b"upgrade", b"http2-settings")


def _without_upgrade(connection: bytes) -> bytes:
    """What else a Connection header asks for: to close, say."""
    return b",".join(each for each in connection.split(b",") if each.strip().lower() not in _UPGRADE)


class Receiver:
    """Fed with bytes; gives requests in order, and after a Refusal nothing more."""

    def __init__(self, limits: Limits) -> None:
        self.stage: Stage = "idle"
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._out: list[Received] = []
        self._first = 0
        self._fed = 0
        self._last = False
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._named: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Received]:
        """What `data` completed."""
        if self.stage == "refused" or self._last:
            return []
        self._out = []
        self._first = 0
        self._fed += len(data)
        rest = self._parse(data)
        while rest:
            rest = self._parse(rest)
        if self.stage == "head" and self._fed > self._limits.head:
            self._refuse_head()
        elif self.stage == "body" and self._fed > self._limits.head + 2 * self._limits.body:
            self._refuse(self._too_large())
        return self._out

    def _parse(self, data: bytes) -> bytes:
        """Feed llhttp; what it must be fed next, if anything."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if not self._last:
                self._refuse(Refusal(400, "cannot read the request: it is not HTTP/1.1", "bad_request"))
        return b""

    def _decline_upgrade(self, rest: bytes) -> bytes:
        """The request again as if no upgrade had been offered: Java's client offers h2c with its first.

        llhttp takes such a request as ended behind its head, so the head is read once more without it.
        """
        if self.stage == "refused":
            return b""
        del self._out[self._first :]
        head = b"%b %b HTTP/1.1\r\n" % (self._parser.get_method(), self._target)
        for name, value in self._headers:
            known = name.lower()
            if known not in _UPGRADE:
                head += b"%b: %b\r\n" % (name, _without_upgrade(value) if known == b"connection" else value)
        self._parser = httptools.HttpRequestParser(self)
        return head + b"\r\n" + rest

    def _refuse(self, refusal: Refusal) -> None:
        if self.stage != "refused":
            self.stage = "refused"
            self._out.append(refusal)

    def _refuse_head(self) -> None:
        said = f"cannot read the request: its head is larger than {self._limits.head} bytes"
        self._refuse(Refusal(431, said, "head_too_large"))

    # --- called by llhttp -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._begin()
        if self.stage != "refused":
            self.stage = "head"
            self._first = len(self._out)
            self._fed = 0  # this read may hold the end of an earlier request; a read is bounded

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))
        self._size += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        if self.stage == "refused":
            return
        if self._size + len(self._target) > self._limits.head:
            self._refuse_head()
            return
        self._named = {name.lower(): value for name, value in self._headers}
        refusal = self._objection()
        if refusal is not None:
            self._refuse(refusal)
            return
        self.stage = "body"
        self._size = 0
        if b"expect" in self._named:
            self._out.append(Expected())

    def _objection(self) -> Refusal | None:
        if self._parser.get_method() == b"CONNECT":
            return Refusal(405, "cannot CONNECT: this is no proxy", "method_not_allowed", allow="GET, POST")
        if self._parser.get_http_version() != "1.1":
            return Refusal(505, "cannot answer HTTP/1.0: ask with HTTP/1.1", "http_version")
        if b"host" not in self._named or self._hosts() != 1:
            return Refusal(400, "cannot read the request: it needs exactly one Host", "bad_request")
        if self._named.get(b"expect", b"100-continue").lower() != b"100-continue":
            return Refusal(417, "cannot meet this Expect: 100-continue is known", "expectation_failed")
        if int(self._named.get(b"content-length", b"0")) > self._limits.body:
            return self._too_large()
        return None

    def _hosts(self) -> int:
        if len(self._named) == len(self._headers):
            return 1
        return sum(name.lower() == b"host" for name, _ in self._headers)

    def _too_large(self) -> Refusal:
        said = f"cannot read the request: its body is larger than {self._limits.body} bytes"
        return Refusal(413, said, "body_too_large")

    def on_body(self, piece: bytes) -> None:
        if self.stage == "refused":
            return
        self._size += len(piece)
        if self._size > self._limits.body:
            self._refuse(self._too_large())
            return
        self._body.append(piece)

    def on_message_complete(self) -> None:
        if self.stage == "refused":
            return
        keep = self._parser.should_keep_alive()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._out.append(Request(self._parser.get_method(), self._target, self._named, body, keep))
        self.stage = "idle"
        self._last = not keep
