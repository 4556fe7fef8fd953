"""What this node is and has, as it tells it: read anew for every registration.

Called by `agent.serve`. What cannot be read is absent, never zero.
"""

import dataclasses
from collections.abc import Collection

import psutil

from llmgw.agent.gpus import Gpus
from llmgw.agent.mounts import Mounts
from llmgw.agent.ports import taken
from llmgw.fleet.node import InstalledEngine, NodeInfo

DISK_STEP = 1 << 30
"""Bytes of disk by which a node's room has changed, rather than what its logs write."""


@dataclasses.dataclass(frozen=True, slots=True)
class Inventory:
    """The parts of a node that stay as they are while the agent lives, and how to read the others."""

    fixed: NodeInfo
    gpus: Gpus
    mounts: Mounts

    def read(
        self,
        *,
        ours: Collection[int],
        our_ports: Collection[int],
    ) -> NodeInfo:
        """The node now; its cards and its mounts as seen last. `ours` are the pids of our shards, `our_ports` the
        ports they hold.
        """
        memory, seen = psutil.virtual_memory(), self.mounts.seen
        return dataclasses.replace(
            self.fixed,
            gpus=self.gpus.read(ours),
            cpu_cores=float(psutil.cpu_count() or 0) or None,
            memory_total=memory.total,
            memory_free=memory.available,
            disk_free=seen.free,
            weights=seen.weights,
            engines=self.fixed.engines if seen.engines is None else seen.engines,
            ports_taken=foreign_ports(self.fixed.ports, our_ports),
        )


def told(info: NodeInfo) -> tuple[object, ...]:
    """What the control plane is told of at once when it changes. Disk by the step: others fill it and empty it,
    and what found no room there waits for this word.
    """
    disk = None if info.disk_free is None else info.disk_free // DISK_STEP
    return info.gpus, info.ports_taken, info.weights, info.engines, info.warnings, disk


def foreign_ports(ports: tuple[int, int], ours: Collection[int]) -> tuple[int, ...]:
    """The ports of our range that somebody else holds, ascending. Raises OSError.

    Ours are not tried: an engine may be about to bind them.
    """
    first, last = ports
    held = frozenset(ours)
    return taken(port for port in range(first, last + 1) if port not in held)


def engines_by_name(found: Collection[InstalledEngine]) -> dict[str, str]:
    """Engine → the program that was found."""
    return {engine.name: engine.path for engine in found}
