"""What a node tells at once: what placement waits for, and not what every log line changes."""

import dataclasses

from llmgw.agent.inventory import DISK_STEP, told
from llmgw.fleet.node import NodeInfo

NODE = NodeInfo(id="n", name="n", instance="n#1", address="n", disk_free=10 * DISK_STEP)


def disk(free: int | None) -> NodeInfo:
    """The node with so much room."""
    return dataclasses.replace(NODE, disk_free=free)


def test_a_disk_that_somebody_emptied_is_told() -> None:
    """A model that found no room would wait for ever: nothing else of the node changes."""
    assert told(disk(0)) != told(disk(10 * DISK_STEP)) != told(disk(None))


def test_what_logs_write_is_not_told() -> None:
    """A disk moves all the time."""
    assert told(disk(10 * DISK_STEP)) == told(disk(10 * DISK_STEP + 4096))
