"""Who is connected: agents and gateways, each on its own stream of the listener.

`control.serve` makes it and gives `serve` to the listener; the loop sends through it and gets what
peers say by callback. Who may speak is decided by `wire.session.ControlSession`; who may take whose
place is decided here: the same instance at once, another one only when the first answers no ping.
"""

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Literal

from llmgw.control.joining import Joining
from llmgw.fleet.routes import Routes
from llmgw.kit.clock import Clock
from llmgw.transport.channel import Channel, ChannelClosed
from llmgw.wire import messages as wire
from llmgw.wire import session as say

log = logging.getLogger(__name__)

HEARTBEATS_PER_SECOND = 50.0
AT_ONCE = 8
"""Introductions in one round of the loop: some 10 ms. One a round was too few where the words of those that are
there fill each round: agents gave up after 15 s in the queue, and came again.
"""

BACKLOG = 1024
"""Messages that may wait for one peer; more, and it is taken for one that does not read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """One connected agent or gateway. `id` is the node's id or the gateway's name; `stream` only grows.

    `token` is the id of the one that it came with, empty where none is asked for.
    """

    kind: Literal["agent", "gateway"]
    id: str
    name: str
    instance: str
    address: str
    stream: int
    token: str = ""


class Peers:
    """The table of peers, for one epoch.

    `on_message(peer, message)` gets everything that a peer says, its Register or Subscribe first;
    Heartbeats come every `heartbeat` seconds, stretched for a large fleet, but never beyond `longest`.
    `on_closed(peer, said)` follows once for every peer that was announced, before any successor is.
    `objection(peer, message)` says why an introduction cannot be believed beside what is known, or nothing.
    `joining` asks for tokens; without it everybody may come.
    """

    def __init__(
        self,
        epoch: int,
        revision: Callable[[], int],
        on_message: Callable[[Peer, wire.Up], None],
        on_closed: Callable[[Peer, str], None],
        clock: Clock,
        *,
        heartbeat: float = 5.0,
        longest: float = 5.0,
        patience: float = 10.0,
        ping: float = 3.0,
        objection: "Callable[[Peer, wire.Register | wire.Subscribe], str]" = lambda *_: "",
        joining: Joining | None = None,
    ) -> None:
        self.outranked = 0
        self._epoch = epoch
        self._revision = revision
        self._on_message = on_message
        self._on_closed = on_closed
        self._clock = clock
        self._heartbeat = heartbeat
        self._longest = longest
        self._patience = patience
        self._ping = ping
        self._objection = objection
        self._joining = joining
        self._seq = 0
        self._streams = itertools.count(1)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._routes: Routes | None = None
        self._lines: dict[tuple[str, str], _Line] = {}
        self._named: dict[tuple[str, str], _Line] = {}
        """The same lines by what people call them."""

    def __iter__(self) -> Iterator[Peer]:
        return iter([line.peer for line in self._lines.values()])

    async def serve(self, channel: Channel) -> None:
        """One stream, from its first message to its end. Given to the listener as `on_channel`."""
        line = _Line(channel, say.ControlSession(self._epoch, self._clock.now() + self._patience))
        if self._joining is not None:
            entry = self._joining.opened(channel.path, channel.headers)
            if entry.said:
                log.warning("%s was not let in: %s", channel.peer, entry.said)
                await channel.send(wire.encode(wire.Refused(said=entry.said)))
                return
            line.token = entry.token
        async with asyncio.TaskGroup() as line.tasks:
            said = "this control plane let it go"
            try:
                said = await self._read(line)
                if not line.peer.stream:
                    log.warning("%s was not let in: %s", channel.peer, said)
            finally:
                self._remove(line, said)
            line.over()

    def send(self, node: str, make: Callable[[int, int], wire.Command]) -> bool:
        """Give the node the command `make(epoch, seq)`. False: it is not here, or we may not command."""
        return self._send("agent", node, make)

    def ask_gateway(self, gateway: str, make: Callable[[int, int], wire.Command]) -> bool:
        """Give the gateway the question `make(epoch, seq)`. False: it is not here, or we may not ask."""
        return self._send("gateway", gateway, make)

    def _send(self, kind: str, id_: str, make: Callable[[int, int], wire.Command]) -> bool:
        line = self._lines.get((kind, id_))
        if line is None or self.outranked:
            return False
        self._seq += 1
        return line.put(make(self._epoch, self._seq))

    def begin_again(self, node: str, said: str) -> None:
        """End the node's stream, so that it registers with everything it has. Its engines go on."""
        line = self._lines.get(("agent", node))
        if line is not None:
            line.channel.abort(said)

    def publish(self, routes: Routes) -> None:
        """Give every gateway this table, also those that come later. One that was not sent yet is dropped."""
        self._routes = routes
        for line in self._lines.values():
            if line.peer.kind == "gateway":
                line.put_routes(routes)

    def check_tokens(self) -> None:
        """End the streams whose token was revoked."""
        if self._joining is not None:
            for line in list(self._lines.values()):
                if not self._joining.stands(line.token):
                    line.channel.abort(f"token {line.token} was revoked")

    # --- one stream --------------------------------------------------------------------------

    async def _read(self, line: "_Line") -> str:
        try:
            await self._introduction(line)
            line.channel.hear(functools.partial(self._heard, line))
            while True:
                await self._do(line, line.session.received(await line.channel.receive()))
        except ChannelClosed as closed:
            return closed.said

    def _heard(self, line: "_Line", data: bytes) -> bool:
        """A message came while its stream's task waits. Whether it was one that only has to be delivered."""
        session, outputs = line.session.received(data)
        if session is not line.session or len(outputs) != 1 or not isinstance(outputs[0], say.Deliver):
            return False
        if self._current(line):
            self._on_message(line.peer, outputs[0].message)
        return True

    async def _introduction(self, line: "_Line") -> None:
        try:
            async with asyncio.timeout(line.session.due - self._clock.now()):
                first = await line.channel.receive()
        except TimeoutError:
            await self._do(line, line.session.ticked(line.session.due))
        else:
            await self._turn()
            if line.channel.gone:  # whoever gave up while others had their turn comes again
                raise ChannelClosed(line.channel.gone)
            await self._do(line, line.session.received(first))

    async def _turn(self) -> None:
        """A few introductions in each round of the loop: when a whole fleet comes, everybody else gets a turn too."""
        async with self._turns:
            await asyncio.sleep(0)

    async def _do(self, line: "_Line", step: say.ControlStep) -> None:
        line.session, outputs = step
        for output in outputs:
            match output:
                case say.Send(message=message):
                    await line.channel.send(wire.encode(message))
                case say.Admit(message=message):
                    await self._decide(line, message)
                case say.Deliver(message=message):
                    if self._current(line):
                        self._on_message(line.peer, message)
                case say.Outranked(epoch=epoch):
                    self._give_way(epoch, line)
                case say.End(said=said):
                    raise ChannelClosed(said)

    def _give_way(self, epoch: int, line: "_Line") -> None:
        if epoch > self.outranked:
            log.error(
                "%s obeys epoch %d: this control plane, of epoch %d, commands nobody any more",
                line.channel.peer,
                epoch,
                self._epoch,
            )
            self.outranked = epoch

    # --- who may take whose place ------------------------------------------------------------

    async def _decide(self, line: "_Line", message: wire.Register | wire.Subscribe) -> None:
        peer = _described(message, line, next(self._streams))
        if said := self._shut_out(line, peer):
            await self._do(line, line.session.refused(said))
            return
        if (rival := await self._living_rival(peer)) is not None:
            await self._do(line, line.session.refused(_taken(peer, rival.peer)))
            return
        if said := self._objection(peer, message):
            await self._do(line, line.session.refused(said))
            return
        for old in self._rivals(peer):
            self._remove(old, f"superseded from {peer.address}")
            old.channel.abort(f"superseded from {peer.address}")
        line.peer = peer
        self._lines[peer.kind, peer.id] = self._named[peer.kind, peer.name] = line
        self._on_message(peer, message)
        if peer.kind == "gateway" and self._routes is not None:
            line.put_routes(self._routes)
        await self._do(line, line.session.admitted(self._revision(), self._stretched()))
        line.welcomed()

    def _shut_out(self, line: "_Line", peer: Peer) -> str:
        if self._joining is None:
            return ""
        return self._joining.introduced(line.token, line.channel.path, peer.kind, peer.id, peer.name)

    async def _living_rival(self, peer: Peer) -> "_Line | None":
        silent: set[int] = set()
        while True:
            others = (line for line in self._rivals(peer) if not _same_process(line.peer, peer))
            rival = next((line for line in others if line.peer.stream not in silent), None)
            if rival is None or await rival.channel.ping(self._ping):
                return rival
            silent.add(rival.peer.stream)

    def _rivals(self, peer: Peer) -> "list[_Line]":
        """Who has its id or its name."""
        found = (self._lines.get((peer.kind, peer.id)), self._named.get((peer.kind, peer.name)))
        return list(dict.fromkeys(line for line in found if line is not None))

    def _stretched(self) -> float:
        return max(self._heartbeat, min(self._longest, len(self._lines) / HEARTBEATS_PER_SECOND))

    def _current(self, line: "_Line") -> bool:
        return self._lines.get((line.peer.kind, line.peer.id)) is line

    def _remove(self, line: "_Line", said: str) -> None:
        if self._current(line):
            del self._lines[line.peer.kind, line.peer.id], self._named[line.peer.kind, line.peer.name]
            self._on_closed(line.peer, said)


class _Line:
    """One stream and what waits to be said on it. Nothing runs for it while nothing does."""

    def __init__(self, channel: Channel, session: say.ControlSession) -> None:
        self.channel = channel
        self.session = session
        self.peer = Peer("agent", "", "", "", channel.peer, 0)
        self.token = ""
        self.tasks = asyncio.TaskGroup()
        self._welcome = False
        self._waiting: list[wire.Message] = []
        self._writer: asyncio.Task[None] | None = None

    def put(self, message: wire.Message) -> bool:
        """Say it when its turn comes; False where too much waits already, which ends the stream."""
        if len(self._waiting) >= BACKLOG:
            self.channel.abort(f"{self.channel.peer} reads too slowly: {BACKLOG} messages wait")
            return False
        self._waiting.append(message)
        self._begin()
        return True

    def put_routes(self, routes: Routes) -> None:
        """Say it in place of every table that still waits."""
        self._waiting.clear()
        self.put(wire.RoutesUpdate(routes=routes))

    def welcomed(self) -> None:
        """The peer is welcome: what waits may be said."""
        self._welcome = True
        self._begin()

    def over(self) -> None:
        """Nothing more is said."""
        if self._writer is not None:
            self._writer.cancel()

    def _begin(self) -> None:
        if self._welcome and self._waiting and self._writer is None:
            self._writer = self.tasks.create_task(self._write())

    async def _write(self) -> None:
        """Say what waits."""
        try:
            with contextlib.suppress(ChannelClosed):  # the reader is told as well
                while self._waiting:
                    await self.channel.send(wire.encode(self._waiting.pop(0)))
        finally:
            self._writer = None


def _described(message: wire.Register | wire.Subscribe, line: _Line, stream: int) -> Peer:
    address, token = line.channel.peer, line.token
    if isinstance(message, wire.Subscribe):
        return Peer("gateway", message.gateway, message.gateway, message.instance, address, stream, token)
    info = message.info
    return Peer("agent", info.id, info.name, info.instance, address, stream, token)


def _same_process(one: Peer, other: Peer) -> bool:
    """An instance that was not told is nobody's."""
    return bool(one.instance) and one.instance == other.instance


def _taken(peer: Peer, rival: Peer) -> str:
    same = f"id {peer.id}" if peer.id == rival.id else f"name {peer.name}"
    return (
        f"{peer.kind} {peer.name!r} at {peer.address} is refused: another one with the {same} is connected"
        f" from {rival.address} and answers; stop one of the two, or give it its own name and state directory"
    )
