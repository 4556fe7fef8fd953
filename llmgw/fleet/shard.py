"""The part of a replica on one node: what was asked of the node, and what it says about it.

A `ShardSpec` is complete: it can be read back from a disk years later and describe the process to
a stranger. The control plane makes it (`planning.placement`), the agent records and obeys it.
"""

import dataclasses
from typing import Literal

from llmgw.catalog.model import Profile
from llmgw.catalog.sources import Source, cache_name

State = Literal[
    "assigned", "fetching", "held", "starting", "started", "ready", "draining", "stopping", "failed", "gone"
]
ShardKey = tuple[str, int]
"""(replica id, rank)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """One rank of a replica as the others reach it. `port` starts a block of `PORTS_PER_SHARD`."""

    rank: int
    node: str
    address: str
    port: int


PORTS_PER_SHARD = 10
"""HTTP, then a rendezvous block of 8 (SGLang takes dist-init + 6), then one spare."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShardSpec:
    """Everything a node needs to run one rank. Peers in rank order; this shard is `peers[rank]`.

    `gpus` are UUIDs in the order the engine must see them. `source_bytes` is 0 when unknown.
    """

    replica: str
    model: str
    rank: int
    generation: str
    profile: Profile
    source: Source
    peers: tuple[Peer, ...]
    gpus: tuple[str, ...] = ()
    source_bytes: int = 0

    @property
    def key(self) -> ShardKey:
        return (self.replica, self.rank)

    @property
    def node(self) -> str:
        return self.peers[self.rank].node

    @property
    def port(self) -> int:
        return self.peers[self.rank].port

    @property
    def address(self) -> str:
        return self.peers[self.rank].address

    @property
    def ports(self) -> range:
        return range(self.port, self.port + PORTS_PER_SHARD)

    @property
    def cache_name(self) -> str:
        return cache_name(self.source)


@dataclasses.dataclass(frozen=True, slots=True)
class ShardStatus:
    """What the node says about one shard. `age` is seconds since it entered `state`, on the node's clock.

    `reason` says why (of `failed`: the exit and the engine's last line). `adopted` = found alive by a
    restarted agent. `idle` is the engine's own word that nothing runs or waits; None is "not known".
    `slow` = it lives and answers no probes: new requests go elsewhere where they can, nothing restarts.
    `served` is for how many seconds one that failed had been ready; 0 = it never was.
    """

    replica: str
    rank: int
    state: State
    age: float = 0.0
    reason: str = ""
    pid: int = 0
    adopted: bool = False
    idle: bool | None = None
    slow: bool = False
    served: float = 0.0

    @property
    def key(self) -> ShardKey:
        return (self.replica, self.rank)


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """What an agent remembers of failed starts, so that a new control plane does not forget the delay.

    `served` as in the status of the newest.
    """

    model: str
    generation: str
    count: int
    age: float
    reason: str = ""
    served: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Bytes of one source arriving at one node. No transition: it moves no `since` and no deadline.

    `total` is None unless the server said a length. `rate` is bytes per second; `idle` is seconds
    since the last byte.
    """

    cache_name: str
    received: int
    total: int | None = None
    rate: float = 0.0
    idle: float = 0.0
