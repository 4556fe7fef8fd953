"""The conversation between an agent and its control plane, both ends, as state machines without a socket.

A stream opens, bytes arrive or time passes; out come values that say what to do: send, obey, end.
`agent.connection` drives `AgentSession` over all its streams; `control.peers` holds one
`ControlSession` for each stream of an agent or a gateway.

    agent    apart ─ opened ─▶ registering ─ Registered ─▶ registered ─ ended ─▶ apart
    control  waiting ─ Register | Subscribe ─▶ deciding ─ admitted ─▶ joined
             and from each of these ─▶ over
"""

import dataclasses
import functools
import math
from typing import Literal

import pydantic

from llmgw.fleet.routes import epoch_of
from llmgw.kit.chance import Chance, jitter
from llmgw.wire import bounds
from llmgw.wire import messages as wire

HEARTBEAT_SHARE = 0.2

REPEATED = 256
"""Bytes up to which a heartbeat is understood once: a fleet says the same all the time."""

_BEATS = b'{"kind":"heartbeat"'

Command = wire.Assign | wire.Start | wire.Stop | wire.Collect | wire.Check | wire.Logs

# --- what to do ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Send:
    """Say this to the other end."""

    message: wire.Message


@dataclasses.dataclass(frozen=True, slots=True)
class Adopt:
    """This epoch commands from now on: keep it on disk before anything that follows is obeyed."""

    epoch: int
    revision: int


@dataclasses.dataclass(frozen=True, slots=True)
class Obey:
    """A command that is new."""

    command: Command | wire.Clock


@dataclasses.dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat is due."""


@dataclasses.dataclass(frozen=True, slots=True)
class Admit:
    """A peer introduced itself. Answer with `admitted` or `refused`."""

    message: wire.Register | wire.Subscribe


@dataclasses.dataclass(frozen=True, slots=True)
class Deliver:
    """A peer said this."""

    message: wire.Up


@dataclasses.dataclass(frozen=True, slots=True)
class Outranked:
    """An agent has obeyed a newer control plane, of `epoch`: ours must not command any more."""

    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """Close the stream; `said` is why."""

    said: str


AgentOutput = Send | Adopt | Obey | Beat | End
ControlOutput = Send | Admit | Deliver | Outranked | End


# --- the agent's end -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class AgentSession:
    """What outlives a stream: the epoch, the last command obeyed in it, the number of the newest stream.

    Everything that comes from an older stream has no effect. `due` is when `ticked` must be called:
    the answer to Register is late, or a heartbeat is due.
    """

    epoch: int = 0
    obeyed: int = 0
    stream: int = 0
    phase: Literal["apart", "registering", "registered"] = "apart"
    heartbeat: float = 5.0
    due: float = math.inf

    def opened(
        self, register: wire.Register, now: float, patience: float
    ) -> "tuple[AgentSession, wire.Register]":
        """A new stream is there: its number, and what to say first. `patience` seconds for an answer."""
        session = dataclasses.replace(self, stream=self.stream + 1, phase="registering", due=now + patience)
        return session, register.model_copy(update={"epoch": self.epoch})

    def received(self, stream: int, data: bytes, now: float, chance: Chance) -> "AgentStep":
        """A message came on `stream`."""
        if stream != self.stream or self.phase == "apart":
            return self, ()
        try:
            message = wire.decode_down(data)
        except pydantic.ValidationError as error:
            return self._end(f"cannot read what the control plane said: {_first(error)}")
        match message:
            case wire.Registered():
                return self._registered(message, now, chance)
            case wire.Refused(said=said):
                return self._end(said)
            case wire.RoutesUpdate():
                return self, ()
            case _:
                return self._commanded(message)

    def ticked(self, now: float, chance: Chance) -> "AgentStep":
        """Time passed."""
        if now < self.due:
            return self, ()
        if self.phase == "registering":
            return self._end("the control plane did not answer the registration")
        due = _next_beat(self.heartbeat, now, chance)
        return dataclasses.replace(self, due=due), (Beat(),)

    def ended(self, stream: int) -> "AgentSession":
        """`stream` is over."""
        return self._apart() if stream == self.stream else self

    def _registered(self, message: wire.Registered, now: float, chance: Chance) -> "AgentStep":
        if message.protocol != wire.PROTOCOL:
            return self._end(_other_protocol("the control plane", message.protocol))
        if message.epoch < self.epoch:
            return self._end(
                f"the control plane is of epoch {message.epoch}, and epoch {self.epoch} commands this node"
            )
        session = dataclasses.replace(
            self,
            epoch=message.epoch,
            obeyed=self.obeyed if message.epoch == self.epoch else 0,
            phase="registered",
            heartbeat=message.heartbeat,
            due=_next_beat(message.heartbeat, now, chance),
        )
        return session, (Adopt(message.epoch, message.revision),)

    def _commanded(self, command: Command | wire.Clock | wire.Unknown) -> "AgentStep":
        if self.phase != "registered" or command.epoch != self.epoch or command.seq <= self.obeyed:
            return self, ()
        session = dataclasses.replace(self, obeyed=command.seq)
        if isinstance(command, wire.Unknown):
            said = f"unsupported: this agent does not know {command.kind!r}"
            return session, (Send(wire.Result(seq=command.seq, ok=False, said=said)),)
        return session, (Obey(command),)

    def _end(self, said: str) -> "AgentStep":
        return self._apart(), (End(said),)

    def _apart(self) -> "AgentSession":
        return dataclasses.replace(self, phase="apart", due=math.inf)


AgentStep = tuple[AgentSession, tuple[AgentOutput, ...]]


# --- the control plane's end -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class ControlSession:
    """One stream of a peer. `due` is when it must have introduced itself; `node` is who an agent said it is."""

    epoch: int
    due: float
    phase: Literal["waiting", "deciding", "joined", "over"] = "waiting"
    agent: bool = True
    node: tuple[str, str] = ("", "")

    def received(self, data: bytes) -> "ControlStep":
        """A message came. One of a kind that this release does not know has no effect."""
        if self.phase == "joined" and self.agent and data.startswith(_BEATS) and len(data) <= REPEATED:
            return (self, heard) if (heard := _heartbeat(data)) else self._read(data)
        return (self, ()) if self.phase == "over" else self._read(data)

    def _read(self, data: bytes) -> "ControlStep":
        try:
            message = wire.decode_up(data)
        except pydantic.ValidationError as error:
            if self.phase == "joined" and error.errors()[0]["type"] == "union_tag_invalid":
                return self, ()
            return self._end(f"cannot read what the peer said: {_first(error)}")
        if flaw := bounds.flaw(message):
            return self.refused(f"cannot believe this {message.kind}: {flaw}")
        match message:
            case wire.Register() | wire.Subscribe():
                return self._introduced(message)
            case _ if self.phase != "joined":
                return self._end(f"the peer said {message.kind!r} before it was welcome")
            case wire.Report(info=info) if info is not None and (info.id, info.name) != self.node:
                return self.refused(
                    f"cannot believe this report: {self.node[1]} calls itself {info.name} now"
                )
            case _ if self._fits(message):
                return self, (Deliver(message),)
            case _:
                return self._end(f"{message.kind!r} is not for this kind of peer to say")

    def ticked(self, now: float) -> "ControlStep":
        """Time passed."""
        if self.phase == "waiting" and now >= self.due:
            return self._end("the peer did not say who it is")
        return self, ()

    def admitted(self, revision: int, heartbeat: float) -> "ControlStep":
        """The peer is welcome: an agent is told so, a gateway sees it by its first routing table."""
        session = dataclasses.replace(self, phase="joined", due=math.inf)
        if not self.agent:
            return session, ()
        return session, (Send(wire.Registered(epoch=self.epoch, revision=revision, heartbeat=heartbeat)),)

    def refused(self, said: str) -> "ControlStep":
        """The peer is not welcome."""
        return dataclasses.replace(self, phase="over"), (Send(wire.Refused(said=said)), End(said))

    def _introduced(self, message: wire.Register | wire.Subscribe) -> "ControlStep":
        if self.phase != "waiting":
            return self._end("the peer introduced itself twice")
        if message.protocol != wire.PROTOCOL:
            return self.refused(_other_protocol("the peer", message.protocol))
        met = message.epoch if isinstance(message, wire.Register) else epoch_of(message.version)
        if met > max(self.epoch, bounds.NEWEST_EPOCH):
            return self.refused(f"cannot believe this {message.kind}: epoch {met} is out of all bounds")
        if isinstance(message, wire.Register) and message.epoch > self.epoch:
            session, outputs = self.refused(
                f"epoch {message.epoch} commands this node, and this control plane is of epoch {self.epoch}"
            )
            return session, (Outranked(message.epoch), *outputs)
        agent = isinstance(message, wire.Register)
        node = (message.info.id, message.info.name) if isinstance(message, wire.Register) else ("", "")
        session = dataclasses.replace(self, phase="deciding", due=math.inf, agent=agent, node=node)
        return session, (Admit(message),)

    def _fits(self, message: wire.Up) -> bool:
        return isinstance(message, wire.Load | wire.Leave) != self.agent

    def _end(self, said: str) -> "ControlStep":
        return dataclasses.replace(self, phase="over"), (End(said),)


ControlStep = tuple[ControlSession, tuple[ControlOutput, ...]]


@functools.lru_cache(maxsize=4096)
def _heartbeat(data: bytes) -> tuple[Deliver, ...]:
    """What is to be done about a heartbeat of an agent that is welcome; nothing where it is none to believe."""
    try:
        message = wire.decode_up(data)
    except pydantic.ValidationError:
        return ()
    return (Deliver(message),) if isinstance(message, wire.Heartbeat) and not bounds.flaw(message) else ()


def _next_beat(heartbeat: float, now: float, chance: Chance) -> float:
    return now + jitter(chance, heartbeat, HEARTBEAT_SHARE)


def _other_protocol(who: str, protocol: int) -> str:
    return f"{who} speaks protocol {protocol}, this release {wire.PROTOCOL}: upgrade the older one"


def _first(error: pydantic.ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{first['msg']} at {place}" if place else first["msg"]
