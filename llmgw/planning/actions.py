"""What a pass decided, named and frozen: printed by `plan`, sent by the dispatcher, undone by not sending.

`Assign`, `Start` and `Stop` become commands to nodes (`control.orders`); `Drain` and `Undrain` take
effect through the routing table of the same pass. Every one says why.
"""

import dataclasses

from llmgw.fleet.shard import ShardKey, ShardSpec


@dataclasses.dataclass(frozen=True, slots=True)
class Assign:
    """A node gets a shard: it reserves, fetches, and executes nothing yet."""

    spec: ShardSpec
    because: str


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """A shard whose replica holds its weights everywhere is executed."""

    key: ShardKey
    node: str
    generation: str
    because: str


@dataclasses.dataclass(frozen=True, slots=True)
class Drain:
    """A replica gets no new requests; it stops once it is idle or its limit is reached."""

    replica: str
    because: str


@dataclasses.dataclass(frozen=True, slots=True)
class Undrain:
    """A drain is taken back: the replica is needed after all."""

    replica: str
    because: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """A shard ends: TERM, `grace` seconds, the whole tree, verified."""

    key: ShardKey
    node: str
    generation: str
    grace: float
    because: str


Action = Assign | Start | Drain | Undrain | Stop
