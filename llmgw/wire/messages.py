"""What is said between the control plane and its peers: agents and gateways.

Versioned by `PROTOCOL`; a tagged union on `kind`. Unknown keys are ignored, those of a shard's spec also kept and said
again: a newer control plane gets its own spec back. Absent ones take their default, an unknown command is answered `unsupported`. Ages travel, never clock readings, but for the answer
to `Clock`: people read that, and nothing is decided by it.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic

from llmgw.fleet.node import CachedWeights, NodeInfo
from llmgw.fleet.routes import Routes
from llmgw.fleet.shard import Failure, Progress, ShardKey, ShardSpec, ShardStatus
from llmgw.wire.unknown import beyond, merged

PROTOCOL = 1

LOG_PIECE = 32 * 1024
"""Bytes of output in one answer: in base64 below the longest text that is believed."""


class Message(pydantic.BaseModel):
    """One message. Frozen; keys that this release does not know are ignored, at every depth.

    Not allowed to stay: the dataclasses in it would have no room for them, and the peer that sent them could
    not be heard at all.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")


# --- agent → control plane -------------------------------------------------------------------


class Register(Message):
    """Everything the node knows, every time: the first message of each of its streams.

    `epoch` is the highest control plane epoch it has obeyed; `revision` the newest catalog revision.
    """

    kind: Literal["register"] = "register"
    protocol: int = PROTOCOL
    epoch: int = 0
    revision: int = 0
    info: NodeInfo
    shards: tuple[tuple[ShardSpec, ShardStatus], ...] = ()
    failures: tuple[Failure, ...] = ()
    progress: tuple[Progress, ...] = ()
    _beyond: Mapping[ShardKey, Mapping[str, Any]] = pydantic.PrivateAttr(default_factory=dict)

    @property
    def beyond(self) -> Mapping[ShardKey, Mapping[str, Any]]:
        """The keys of its specs that this release does not know, as they came."""
        return self._beyond

    def with_beyond(self, kept: Mapping[ShardKey, Mapping[str, Any]]) -> "Register":
        """The same, its specs said with these keys."""
        copy = self.model_copy()
        copy._beyond = kept  # noqa: SLF001 - our own copy
        return copy


class Report(Message):
    """Transitions. `info` comes along when the inventory or the cache changed."""

    kind: Literal["report"] = "report"
    statuses: tuple[ShardStatus, ...] = ()
    info: NodeInfo | None = None


class ProgressReport(Message):
    """Bytes of the fetches under way, on its own method: never a transition."""

    kind: Literal["progress"] = "progress"
    progress: tuple[Progress, ...] = ()


class Heartbeat(Message):
    """I am here."""

    kind: Literal["heartbeat"] = "heartbeat"
    idle: tuple[tuple[ShardKey, bool], ...] = ()


class Result(Message):
    """The answer to the command with this `seq`. `data` is the command's own."""

    kind: Literal["result"] = "result"
    seq: int
    ok: bool = True
    said: str = ""
    data: dict[str, Any] = {}


# --- control plane → agent -------------------------------------------------------------------


class Registered(Message):
    """Welcome. From now on only this epoch commands you; `revision` is the adopted catalog's."""

    kind: Literal["registered"] = "registered"
    protocol: int = PROTOCOL
    epoch: int
    revision: int = 0
    heartbeat: float = 5.0


class Refused(Message):
    """The registration is refused and the stream ends: another instance is alive, or the epoch is newer."""

    kind: Literal["refused"] = "refused"
    said: str


class Command(Message):
    """A command carries its epoch and sequence; one that is older than what was obeyed has no effect."""

    epoch: int
    seq: int


class Assign(Command):
    """Take this shard: reserve its GPUs and ports, fetch its weights, execute nothing yet."""

    kind: Literal["assign"] = "assign"
    spec: ShardSpec
    _beyond: Mapping[str, Any] = pydantic.PrivateAttr(default_factory=dict)

    @property
    def beyond(self) -> Mapping[str, Any]:
        """The keys of its spec that this release does not know, as they came."""
        return self._beyond

    def with_beyond(self, kept: Mapping[str, Any]) -> "Assign":
        """The same, with these keys."""
        copy = self.model_copy()
        copy._beyond = kept  # noqa: SLF001 - our own copy
        return copy


class Start(Command):
    """Execute the engine of a shard that is `held`."""

    kind: Literal["start"] = "start"
    replica: str
    rank: int
    generation: str


class Stop(Command):
    """End the shard: TERM, `grace` seconds, the whole tree, verified; then `gone`."""

    kind: Literal["stop"] = "stop"
    replica: str
    rank: int
    generation: str
    grace: float = 20.0
    because: str = ""


class Collect(Command):
    """Remove exactly these entries, each re-checked by the node. `revision` is the catalog's."""

    kind: Literal["collect"] = "collect"
    revision: int
    entries: tuple[CachedWeights, ...]


class Check(Command):
    """Run the engines' own version commands and answer with a Result: `engines`, as Register says them.

    A second one runs them again, after the first. An older agent answers `unsupported`.
    """

    kind: Literal["check"] = "check"


class Logs(Command):
    """Send one piece of a shard's output: answered by a Result with a `LogPiece`. A second one reads again.

    `offset` is where to read on; without it the piece begins `tail` lines before the end, or at the
    beginning. Where nothing is there yet, the answer may take `wait` seconds. `previous` = what ended last on
    this node of the same model and rank, before `replica`, which may be empty then.
    """

    kind: Literal["logs"] = "logs"
    model: str
    replica: str = ""
    rank: int = 0
    previous: bool = False
    offset: int | None = None
    tail: int | None = None
    wait: float = 0.0


class LogPiece(Message):
    """At most `LOG_PIECE` bytes of output, in base64, from `offset` on; the next begin at `next`.

    `lost` bytes right before it are on no disk any more. `size` = where the log ends now. `state` is the
    shard's, empty where it runs here no more; `missing` = there is no such file.
    """

    replica: str = ""
    rank: int = 0
    data: str = ""
    offset: int = 0
    next: int = 0
    size: int = 0
    lost: int = 0
    state: str = ""
    missing: bool = False


class Clock(Command):
    """Say what your wall clock shows, in seconds since 1970: an agent by a Result with `wall`, a gateway by a Load.

    A second one is answered again. An older agent answers `unsupported`, an older gateway nothing.
    """

    kind: Literal["clock"] = "clock"


class Unknown(Message):
    """A command of a newer control plane: answered `unsupported`, never dropped."""

    kind: str
    epoch: int = 0
    seq: int = 0


# --- gateway → control plane, and back -------------------------------------------------------


class Subscribe(Message):
    """The first message of a gateway's stream. `version` is the table it serves by now.

    `instance` is drawn anew by each process: only another process of the same name is a rival. `host` is alike for
    processes of one machine; empty = not said.
    """

    kind: Literal["subscribe"] = "subscribe"
    protocol: int = PROTOCOL
    gateway: str
    instance: str = ""
    build: str = ""
    version: int = 0
    host: str = ""


class Load(Message):
    """What a gateway has in flight, by replica, at table `acked`; also its acknowledgement of it.

    `green` = seconds since a replica last completed a request; `queued` is by model. `clocks` answer
    each `Clock`, by its sequence number. `dark` = seconds since a replica could not be connected to, of those that
    could not be since.
    """

    kind: Literal["load"] = "load"
    acked: int
    in_flight: tuple[tuple[str, int], ...] = ()
    green: tuple[tuple[str, float], ...] = ()
    queued: tuple[tuple[str, int], ...] = ()
    clocks: tuple[tuple[int, float], ...] = ()
    dark: tuple[tuple[str, float], ...] = ()


class Leave(Message):
    """The gateway has drained and stops: it holds no drain up any more."""

    kind: Literal["leave"] = "leave"


class RoutesUpdate(Message):
    """A full routing table; the newest version wins."""

    kind: Literal["routes"] = "routes"
    routes: Routes


Up = Register | Report | ProgressReport | Heartbeat | Result | Subscribe | Load | Leave
Down = Registered | Refused | Assign | Start | Stop | Collect | Check | Logs | Clock | RoutesUpdate

_UP: pydantic.TypeAdapter[Up] = pydantic.TypeAdapter(Annotated[Up, pydantic.Field(discriminator="kind")])
_DOWN: pydantic.TypeAdapter[Down] = pydantic.TypeAdapter(
    Annotated[Down, pydantic.Field(discriminator="kind")]
)
_SPEC: pydantic.TypeAdapter[ShardSpec] = pydantic.TypeAdapter(ShardSpec)
_DOWN_KINDS = frozenset(cls.model_fields["kind"].default for cls in Down.__args__)


def encode(message: Message) -> bytes:
    """One message as UTF-8 JSON, without its length."""
    data: bytes = message.__pydantic_serializer__.to_json(message)
    if isinstance(message, Register) and message.beyond:
        return _whole(message, data)
    return data


def decode_up(data: bytes) -> Up:
    """What a peer said to the control plane. Raises pydantic.ValidationError on what is none of it."""
    return _UP.validate_json(data)


def decode_down(data: bytes) -> Down | Unknown:
    """What the control plane said. A kind of a newer release comes back as `Unknown`."""
    try:
        found = _DOWN.validate_json(data)
    except pydantic.ValidationError:
        unknown = Unknown.model_validate_json(data)
        if unknown.kind in _DOWN_KINDS:
            raise
        return unknown
    if isinstance(found, Assign) and (kept := _kept(data, found.spec)):
        return found.with_beyond(kept)
    return found


def _kept(data: bytes, spec: ShardSpec) -> Mapping[str, Any]:
    """The unknown keys of an Assign; none where one has a number that cannot be said again (not finite, or too long)."""
    try:
        kept = not_known(json.loads(data)["spec"], spec)
        json.dumps(kept, allow_nan=False)
    except ValueError:
        return {}
    return kept


def not_known(said: Mapping[str, Any], spec: ShardSpec) -> Mapping[str, Any]:
    """What a spec as it came has beyond `spec`, which it was understood as."""
    return beyond(said, _SPEC.dump_python(spec, mode="json"))


def _whole(register: Register, data: bytes) -> bytes:
    """A registration with what its specs have beyond what this release knows."""
    said = json.loads(data)
    said["shards"] = [
        [merged(register.beyond.get(known.key, {}), spec), status]
        for (known, _), (spec, status) in zip(register.shards, said["shards"], strict=True)
    ]
    return json.dumps(said, separators=(",", ":")).encode()
