"""Who holds what on which node: GPUs, ports, cores, memory and disk. The planner's view of free.

A GPU is held from the moment a shard is assigned until its node reported it gone; foreign
processes hold theirs. What a node did not say is None, and refuses nothing.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from llmgw.fleet.node import Gpu, NodeInfo
from llmgw.fleet.shard import ShardSpec
from llmgw.fleet.world import Fleet


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """What is left on one node. `held_by` maps a GPU UUID to the replica on it; `ports` are taken."""

    info: NodeInfo
    held_by: Mapping[str, str]
    ports: frozenset[int]
    cores_booked: float
    memory_booked: int
    disk_booked: int
    siblings: Mapping[str, int]

    def free_gpus(self) -> list[Gpu]:
        """Healthy cards that nobody of ours holds, in the node's order."""
        return [gpu for gpu in self.info.gpus or () if gpu.healthy and gpu.uuid not in self.held_by]

    def port_block(self, size: int) -> int | None:
        """The first port of the lowest free block of `size`, or None."""
        first, last = self.info.ports
        for start in range(first, last - size + 2, size):
            if not any(port in self.ports for port in range(start, start + size)):
                return start
        return None


def rooms(fleet: Fleet) -> dict[str, Room]:
    """The room on every node that has ever registered, by node id."""
    by_node: dict[str, list[ShardSpec]] = {name: [] for name in fleet.nodes}
    for shard in fleet.shards.values():
        if shard.spec.node in by_node:
            by_node[shard.spec.node].append(shard.spec)
    return {name: room(fleet.nodes[name].info, specs) for name, specs in by_node.items()}


def room(info: NodeInfo, specs: Iterable[ShardSpec]) -> Room:
    """The room that `specs` leave on a node."""
    held: dict[str, str] = {}
    ports = set(info.ports_taken)
    cores, memory = 0.0, 0
    arriving: dict[str, int] = {}
    siblings: dict[str, int] = {}
    for spec in specs:
        held.update(dict.fromkeys(spec.gpus, spec.replica))
        ports.update(spec.ports)
        cores += spec.profile.cpu_cores
        memory += spec.profile.cpu_memory
        siblings[spec.model] = siblings.get(spec.model, 0) + 1
        if not info.holds(spec.cache_name):
            arriving[spec.cache_name] = spec.source_bytes
    return Room(info, held, frozenset(ports), cores, memory, sum(arriving.values()), siblings)
