"""A machine that rebooted: `python -m tests.lab reboot --n 20`.

In namespaces of its own the boot id is another one (a file mounted over it) and every engine is gone,
as a reboot leaves it; strangers run under the pids and with the start ticks that the records name. The
agent that starts then adopts nobody, touches no stranger, tells no shard as running, keeps no record,
and starts a shard anew when it is told to, and only then.
"""

import argparse
import asyncio
import contextlib
import pathlib
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from unittest import mock

from llmgw.agent import marks, procfs
from tests.agent.house import House, gone, ready
from tests.lab.command import Outcome
from tests.lab.pid_reuse import Stranger, same_tick, taken
from tests.support import namespaces

BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")


def run(argv: list[str]) -> Outcome:
    """`--n` reboots; `--mutant boots-are-one` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--mutant", choices=["boots-are-one"])
    asked = parser.parse_args(argv)
    if not namespaces.inside():
        return namespaces.again("reboot", argv)
    took = {"reboots": 0, "reused": 0, "same_tick": 0, "started_anew": 0}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="llmgw-reboot-") as place:
        house = House(pathlib.Path(place))
        try:
            for _ in range(asked.n):
                wrong += asyncio.run(_one(house, took, asked.mutant))
        finally:
            house.clean()
    return Outcome(not wrong, took, {"wrong": len(wrong)}, "; ".join(wrong[:3]))


@contextlib.contextmanager
def _planted(mutant: str | None, stranger: Stranger, mark: Mapping[str, str]) -> Iterator[None]:
    """A process is what its pid and ticks say, in whichever boot: the stranger is taken for the engine."""
    if mutant is None:
        yield
        return
    right = procfs.environ

    def environ(pid: int) -> dict[str, str]:
        found = right(pid)
        return {**found, **mark} if pid == stranger.pid else found

    always = mock.Mock(return_value=procfs.boot_id())
    with mock.patch.object(procfs, "environ", environ), mock.patch.object(procfs, "boot_id", always):
        yield


async def _one(house: House, took: dict[str, int], mutant: str | None) -> list[str]:
    """One life, one reboot, one life after it. What was wrong about it."""
    shard = house.spec()
    house.reports.clear()
    async with house.agent() as agent:
        pid = await ready(house, agent, shard)
    (record,) = house.records.read().records
    stranger = taken(pid, took, "reused")
    same_tick(house, stranger, took)
    mark = marks.environment(house.node, shard.key, record.identity.cookie)
    with _planted(mutant, stranger, mark), _rebooted(house.root, took):
        async with house.agent() as agent:
            agent.heard()
            await asyncio.sleep(0.1)
            wrong = [
                f"{key} is told as {kept.state}"
                for key, kept in agent.state.shards.items()
                if kept.state != "failed"
            ]
            wrong += [f"{len(house.marked())} engines run"] if house.marked() else []
            wrong += [said] if (said := stranger.harm()) else []
            if shard.key in agent.state.shards:
                await gone(agent, shard)
            wrong += ["a record is left"] if house.records.read().records else []
            await ready(house, agent, shard)
            took["started_anew"] += 1
            await gone(agent, shard)
    return wrong


@contextlib.contextmanager
def _rebooted(root: pathlib.Path, took: dict[str, int]) -> Iterator[None]:
    """Another boot id, for everybody in our mount namespace."""
    before, other = BOOT_ID.read_text(), root / "boot_id"
    other.write_text(f"{uuid.uuid4()}\n")
    subprocess.run(["mount", "--bind", str(other), str(BOOT_ID)], check=True)
    try:
        took["reboots"] += BOOT_ID.read_text() == other.read_text() != before
        yield
    finally:
        subprocess.run(["umount", str(BOOT_ID)], check=True)
