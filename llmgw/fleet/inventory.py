"""Who holds what on which node: GPUs, ports, cores, memory and disk. The planner's view of free.

A GPU is held from the moment a shard is assigned until its node reported it gone; foreign
processes hold theirs. What a node did not say is None, and refuses nothing.
"""

from collections.abc import Iterable

from llmgw.fleet.node import Gpu, NodeInfo
from llmgw.fleet.shard import PORTS_PER_SHARD, ShardSpec

_MICRO = 1_000_000
_NONE: frozenset[str] = frozenset()


class Room:
    """What is left on one node. `add` takes from it; when something goes, `room` builds it anew.

    `free` = healthy cards that nobody of ours holds, by type and in the node's order; `held_by` maps
    a GPU UUID to the replica on it; `siblings` counts shards by model; `cached` are whole weights.
    In whatever order shards are added, the room is the same.
    """

    __slots__ = (
        "_arriving",
        "_blocks",
        "_cores",
        "cached",
        "free",
        "held_by",
        "info",
        "memory_booked",
        "shards",
        "siblings",
    )

    def __init__(self, info: NodeInfo) -> None:
        self.info = info
        self.held_by: dict[str, str] = {}
        self.siblings: dict[str, int] = {}
        self.memory_booked = 0
        self.shards = 0
        self.cached = (
            frozenset(entry.cache_name for entry in info.weights if entry.whole) if info.weights else _NONE
        )
        self.free: dict[str, list[Gpu]] = {}
        self._cores = 0
        self._arriving: dict[str, int] | None = None
        self._blocks = 0
        for gpu in info.gpus or ():
            if gpu.healthy:
                self.free.setdefault(gpu.name, []).append(gpu)
        for port in info.ports_taken:
            self._take_port(port)

    def add(self, spec: ShardSpec) -> None:
        """A shard takes its part."""
        self.shards += 1
        for gpu in spec.gpus:
            self.held_by[gpu] = min(spec.replica, self.held_by.get(gpu, spec.replica))
        if spec.gpus:
            for kind, cards in self.free.items():
                self.free[kind] = [gpu for gpu in cards if gpu.uuid not in spec.gpus]
        self._take_port(spec.port)
        self._take_port(spec.port + PORTS_PER_SHARD - 1)
        self._cores += round(spec.profile.cpu_cores * _MICRO)
        self.memory_booked += spec.profile.cpu_memory
        self.siblings[spec.model] = self.siblings.get(spec.model, 0) + 1
        if spec.source_bytes and spec.cache_name not in self.cached:
            self._arriving = self._arriving or {}
            takes = self.info.takes(spec.cache_name, spec.source_bytes)
            self._arriving[spec.cache_name] = max(takes, self._arriving.get(spec.cache_name, 0))

    @property
    def cores_booked(self) -> float:
        return self._cores / _MICRO

    @property
    def disk_booked(self) -> int:
        """Bytes of free disk that the weights which are on their way here will take."""
        return sum(self._arriving.values()) if self._arriving else 0

    def arrives(self, cache_name: str) -> bool:
        """Whether a shard here brings these weights: the next one shares them."""
        return self._arriving is not None and cache_name in self._arriving

    def free_gpus(self) -> list[Gpu]:
        """Healthy cards that nobody of ours holds."""
        return [gpu for cards in self.free.values() for gpu in cards]

    def port_block(self) -> int | None:
        """The first port of the lowest block of `PORTS_PER_SHARD` that is free, or None."""
        lowest = (~self._blocks & (self._blocks + 1)).bit_length() - 1
        first, last = self.info.ports
        start = first + lowest * PORTS_PER_SHARD
        return start if start + PORTS_PER_SHARD - 1 <= last else None

    def _take_port(self, port: int) -> None:
        # Blocks as bits of one integer: a port outside the range is nobody's business.
        first, last = self.info.ports
        if first <= port <= last:
            self._blocks |= 1 << (port - first) // PORTS_PER_SHARD


def room(info: NodeInfo, specs: Iterable[ShardSpec]) -> Room:
    """The room that `specs` leave on a node."""
    left = Room(info)
    for spec in specs:
        left.add(spec)
    return left
