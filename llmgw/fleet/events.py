"""What happens to the fleet, named and frozen. `Fleet.apply` is the only thing that takes them.

They come from agents and gateways (`control.translate` makes them of wire messages), from the
dispatcher (what was ordered), and from tests and the simulation: always the same ones.
"""

import dataclasses
from typing import Literal

from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import Failure, Progress, ShardKey, ShardSpec, ShardStatus


@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    """A node said everything, whole: what is not in it is not there."""

    info: NodeInfo
    shards: tuple[tuple[ShardSpec, ShardStatus], ...] = ()
    failures: tuple[Failure, ...] = ()
    progress: tuple[Progress, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Reported:
    """Shards moved on. `info` comes along when what the node holds changed with them."""

    node: str
    statuses: tuple[ShardStatus, ...]
    info: NodeInfo | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Heartbeat:
    """The node is there. `idle` tells the engines' own counters by shard, where known."""

    node: str
    idle: tuple[tuple[ShardKey, bool], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Progressed:
    """Bytes arrived. Empty = no fetch is running there any more."""

    node: str
    progress: tuple[Progress, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Disconnected:
    """The node's stream ended. Its silence is counted from the last word, not from here."""

    node: str


@dataclasses.dataclass(frozen=True, slots=True)
class Assigned:
    """The dispatcher sent a new shard to its node: its GPUs and ports are taken from now on."""

    spec: ShardSpec


@dataclasses.dataclass(frozen=True, slots=True)
class Ordered:
    """The dispatcher sent `order` for a shard; it is sent again if nothing follows."""

    key: ShardKey
    order: Literal["assign", "start", "stop"]


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayArrived:
    """A gateway opened a stream and did not tell its load yet.

    What it said before still stands, except its acknowledgement: a drain waits for its next word. `apart` = it is
    known to run on another machine than this control plane.
    """

    gateway: str
    apart: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class GatewaySeen:
    """A gateway spoke. `acked` is the newest table it serves by; `in_flight` and `green` are by replica.

    `green` = age in seconds of the last completed request: evidence that the engine lives; `dark` = that of the
    last connection that could not be made, where none was since: evidence that it does not.
    """

    gateway: str
    acked: int
    in_flight: tuple[tuple[str, int], ...] = ()
    green: tuple[tuple[str, float], ...] = ()
    queued: tuple[tuple[str, int], ...] = ()
    dark: tuple[tuple[str, float], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayForgotten:
    """A gateway that said good-bye: it drained and stopped, and holds no drain up any more."""

    gateway: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stalled:
    """We could not listen for `seconds`: nobody's silence counts for that long."""

    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class NodeForgotten:
    """A person removed the node from the roster."""

    node: str


Event = (
    Registered
    | Reported
    | Heartbeat
    | Progressed
    | Disconnected
    | Assigned
    | Ordered
    | GatewayArrived
    | GatewaySeen
    | GatewayForgotten
    | Stalled
    | NodeForgotten
)
