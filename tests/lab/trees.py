"""Engines whose processes do not want to go: `python -m tests.lab trees --n 20`.

Every shape of process tree that engines are known for, as the agent's own child and adopted from an
agent that died, in a cgroup and without one: the shard is stopped, or its leader is killed. When the
agent says `gone`, /proc has nobody left; who was there is known from what each of them wrote down.
"""

import argparse
import asyncio
import contextlib
import os
import pathlib
import signal
import tempfile
from collections.abc import Iterator
from unittest import mock

from llmgw.agent import sweep
from tests.agent.house import House, alive, gone, ready, until
from tests.lab.command import CannotRun, Outcome

SHAPES = {
    "same group": "workers",
    "ignores TERM": "workers ignores-term",
    "sessions of their own": "sessions",
    "double fork": "orphans",
    "retitled": "retitled",
    "cleared": "cleared twins",
    "wiped": "wiped",
}
"""What an engine does, by what people call it. `wiped` leaves nothing but its cgroup."""


def run(argv: list[str]) -> Outcome:
    """`--n` rounds; `--mutant ends-the-leader-only` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", type=int, default=3)
    parser.add_argument("--mutant", choices=["ends-the-leader-only"])
    asked = parser.parse_args(argv)
    took: dict[str, int] = dict.fromkeys((*SHAPES, "adopted", "leader dead"), 0)
    left: list[str] = []
    groups = 0
    with _planted(asked.mutant):
        for _ in range(asked.n):
            for with_cgroups in (True, False):
                with tempfile.TemporaryDirectory(prefix="llmgw-trees-") as place:
                    house = House(pathlib.Path(place), with_cgroups=with_cgroups)
                    groups += house.cgroups is not None
                    try:
                        asyncio.run(_all(house, took, left))
                    finally:
                        house.clean()
    if not groups:
        raise CannotRun("cgroup v2 is not writable")
    return Outcome(
        not left, took, {"survivors": len(left), "processes": took.pop("processes", 0)}, "; ".join(left[:3])
    )


@contextlib.contextmanager
def _planted(mutant: str | None) -> Iterator[None]:
    """A sweep that takes its leader for the whole tree."""
    if mutant is None:
        yield
        return

    def leader_only(tree: sweep.Tree) -> tuple[()]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(tree.identity.pid, signal.SIGKILL)
        return ()

    with mock.patch.object(sweep.Tree, "kill", leader_only):
        yield


async def _all(house: House, took: dict[str, int], left: list[str]) -> None:
    """Every shape, stopped as a child, stopped as adopted, and with its leader killed."""
    os.environ["FAMILY"] = str(house.root)  # engines inherit it from their agent, which is us
    for shape, does in SHAPES.items():
        if shape == "wiped" and house.cgroups is None:
            continue
        for how in ("child", "adopted", "leader dead"):
            survivors = await _one(house, does, how, took)
            took[shape] += 1
            left += [f"{shape}, {how}: pid {pid} is left" for pid in survivors]


async def _one(house: House, does: str, how: str, took: dict[str, int]) -> list[int]:
    """Who is left of one tree after its agent has said that it is gone."""
    shard = house.spec(does=does)
    async with house.agent() as first:
        leader = await ready(house, first, shard)
        tree = await _members(house, leader)
        took["processes"] = took.get("processes", 0) + len(tree)
        if how == "child":
            await gone(first, shard)
            return _ended(tree)
    async with house.agent() as second:
        await until(lambda: shard.key in second.state.shards, "adopted")
        took["adopted"] += 1
        if how == "leader dead":
            os.kill(leader, signal.SIGKILL)
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            took["leader dead"] += 1
        await gone(second, shard)
    return _ended(tree)


async def _members(house: House, leader: int) -> list[int]:
    """The pids that the tree itself wrote down, its leader among them."""
    family = house.root / f"family-{leader}"
    await until(lambda: family.exists() and family.read_text().endswith("all\n"), "the tree is complete")
    return [leader, *map(int, family.read_text().split()[:-1])]


def _ended(tree: list[int]) -> list[int]:
    survivors = [pid for pid in tree if alive(pid)]
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    return survivors
