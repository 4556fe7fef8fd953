"""Engines that nothing can describe, and processes that are not ours: `python -m tests.lab unknown --n 5`.

Each round kills an agent and removes the record of one of its engines. The agent that starts while no
control plane answers leaves that engine alone: for all it knows somebody could still describe it. Once
the control plane has spoken, the engine ends, its card is used again, and nothing else has ended: not
the engine beside it, and not the unmarked process that a card is charged to, whose card is withdrawn.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

from llmgw.kit.clock import SystemClock
from tests.lab.command import Outcome
from tests.support import proc
from tests.support.planted import wrapper
from tests.support.processes import Process
from tests.support.rig import CARDS, Rig
from tests.support.story import must

ALONE = 2.0
"""Seconds without a control plane in which nothing may end."""
SOON = 15.0
"""Seconds from the first contact to the end of what nothing describes."""


def run(argv: list[str]) -> Outcome:
    """`--n` rounds; `--mutant ends-unheard` or `keeps-orphans` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", type=int, default=3)
    parser.add_argument("--mutant", choices=["ends-unheard", "keeps-orphans"])
    asked = parser.parse_args(argv)
    took = {
        "records_removed": 0,
        "left_alone_unheard": 0,
        "ended_once_heard": 0,
        "stranger_untouched": 0,
        "card_withdrawn": 0,
    }
    figures = {"slowest_end_s": 0.0}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="llmgw-unknown-") as place,
            Rig(pathlib.Path(place), {"alpha": "I am alpha."}) as rig,
        ):
            control = _begin(rig, asked.mutant)
            for _ in range(asked.n):
                control = _round(rig, control, asked.mutant, took, figures)
            _stranger(rig, asked.mutant, took)
    except AssertionError as error:
        print(f"FAIL {error}", file=sys.stderr)
        return Outcome(False, took, said=str(error).splitlines()[0])
    return Outcome(True, took, {name: round(value, 2) for name, value in figures.items()})


def _begin(rig: Rig, mutant: str | None) -> Process:
    """One node whose two cards serve the model twice."""
    control = rig.control()
    rig.agents["a"] = rig.agent("a", wrapper=wrapper(mutant))
    rig.profile()
    rig.model("alpha", scaling={"min": 2, "max": 2})
    rig.commit("one model, twice")
    rig.until(lambda: list(rig.standing().values()) == ["Ready"], "the node registers")
    must(rig.cli("apply", "catalog", "--yes").returncode == 0, "the catalog is applied")
    rig.until(rig.settled, "both replicas are ready")
    return control


def _round(
    rig: Rig, control: Process, mutant: str | None, took: dict[str, int], figures: dict[str, float]
) -> Process:
    """The record of one engine is lost while nobody is there."""
    before = rig.pids()
    control.kill()
    rig.agents["a"].kill()
    records = sorted((rig.directory / "a" / "shards").glob("*.json"))
    must(len(records) == 2, f"two records: {records}")
    lost = records[0].name.partition(".")[0].replace("%2F", "/")
    records[0].unlink()
    (orphan,) = [seen.pid for seen in rig.engines() if seen.shard.startswith(f"{lost}:")]
    took["records_removed"] += 1
    rig.agents["a"] = rig.agent("a", wrapper=wrapper(mutant))
    time.sleep(ALONE)
    must(rig.pids() == before, f"before anybody was heard the engines changed: {before} {rig.pids()}")
    took["left_alone_unheard"] += 1
    control = rig.control()
    began = SystemClock().now()
    rig.until(lambda: not proc.alive(orphan), "what nothing describes ends", within=SOON)
    figures["slowest_end_s"] = max(figures["slowest_end_s"], SystemClock().now() - began)
    took["ended_once_heard"] += 1
    rig.until(lambda: rig.settled() and len(rig.pids()) == 2, "the model is served twice again")
    (kept,) = before.keys() - {orphan}
    must(kept in rig.pids(), "the engine beside it runs on")
    must(not rig.doubles(), f"two engines on one card: {rig.doubles()}")
    return control


def _stranger(rig: Rig, mutant: str | None, took: dict[str, int]) -> None:
    """A process of somebody else is charged on a card: it is reported, not ended, and the card is not placed on."""
    rig.remove("alpha")
    rig.commit("nothing")
    must(rig.cli("apply", "catalog", "--yes", "--allow-empty").returncode == 0, "nothing runs")
    rig.until(lambda: not rig.pids() and not rig.held("a"), "every card is free")
    stranger = subprocess.Popen(["/bin/sleep", "600"])
    try:
        rig.agents["a"].kill()
        told = rig.last_event()
        rig.agents["a"] = rig.agent("a", wrapper=wrapper(mutant), nvml=f"pid={stranger.pid}@0:20480")
        rig.model("alpha", scaling={"min": 2, "max": 2})
        rig.commit("twice, with one card that is somebody else's")
        rig.until(lambda: rig.registered("a", told), "the node registers again")
        rig.cli("apply", "catalog", "--yes", "--wait", "accepted")
        rig.until(lambda: len(rig.pids()) == 1, "one replica finds a card")
        time.sleep(ALONE)
        must(rig.held("a") == {CARDS[1]}, f"the charged card is not used: {rig.held('a')}")
        took["card_withdrawn"] += 1
        must(stranger.poll() is None, "the stranger runs on")
        took["stranger_untouched"] += 1
    finally:
        stranger.kill()
        stranger.wait()
