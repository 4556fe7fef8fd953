"""How much and how long a peer may ask of us. Given to `connect` and `Listener`, obeyed everywhere below.

Seconds and bytes. Every timer may be a fraction of a second.
"""

import dataclasses

DOUBT = 0.9
"""Share of `ping` that a peer is silent for when it is asked: a timer is not exact."""

RIDE = 0.7
"""The same for a PING that goes with what is sent anyway: the other end reads both at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """The defaults suit agents on one network with their control plane.

    `ping`: to a peer that is silent a PING goes out this often; `timeout`: after so long without a byte the peer is dead, and
    a send that moves nothing for so long ends its channel: within 15 s both ends have done all that follows. `window`: unread bytes a channel may hold.
    `connections`: sockets that are open, whatever became of them yet; `handshakes` of TLS are under way at a time, each for
    `handshake_timeout` seconds at most.
    `head`, `body`, `head_timeout`, `body_timeout`, `idle` are for HTTP/1.1 requests: bytes allowed,
    seconds until all of them are here, seconds a connection may wait between two requests. `bodies`: bytes
    of all bodies that are here at a time, whoever sends them.
    """

    ping: float = 5.0
    timeout: float = 14.5
    window: int = 1024 * 1024
    channels: int = 16
    connections: int = 4096
    handshakes: int = 128
    handshake_timeout: float = 5.0
    head: int = 32 * 1024
    body: int = 32 * 1024 * 1024
    bodies: int = 256 * 1024 * 1024
    head_timeout: float = 10.0
    body_timeout: float = 60.0
    idle: float = 75.0

    @property
    def linger(self) -> float:
        """Seconds that a closing connection may take to deliver what it still has."""
        return min(self.timeout, 1.0)


class Silence:
    """How long the peer has said nothing while we could have heard it. Pure.

    A process that was suspended finds its timers long due and the peer's answers still unread: what
    a check comes late by is not the peer's silence.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._heard = now
        self._due = now + limits.ping
        self._rode = now

    def heard(self, now: float) -> None:
        """Bytes came."""
        self._heard = now

    def check(self, now: float) -> float | None:
        """Seconds until the next check, or None: the peer is dead."""
        late = now - self._due
        if late > self._limits.ping:
            self._heard += late
        left = self._heard + self._limits.timeout - now
        if left <= 0:
            return None
        wait = self._limits.ping if self.doubtful(now) else self._heard + self._limits.ping - now
        self._due = now + min(wait, left)
        return min(wait, left)

    def doubtful(self, now: float) -> bool:
        """Whether it was silent for so long that it should be asked: whoever talks proves that it is there."""
        return now - self._heard >= DOUBT * self._limits.ping

    def rides(self, now: float) -> bool:
        """Whether what is sent now takes a PING along: one for each silence, and for each `ping` of it."""
        soon = RIDE * self._limits.ping
        if now - self._heard < soon or now - self._rode < soon:
            return False
        self._rode = now
        return True


class Seldom:
    """Which of many lines alike are said: one every so many seconds, with how many were left out. Pure."""

    def __init__(self, every: float = 60.0) -> None:
        self._every = every
        self._since: float | None = None
        self._left_out = 0

    def said(self, line: str, now: float) -> str:
        """The line as it is said now, empty = not now."""
        if self._since is not None and now - self._since < self._every:
            self._left_out += 1
            return ""
        more = f" ({self._left_out} more like this since the last line)" if self._left_out else ""
        self._since, self._left_out = now, 0
        return line + more
