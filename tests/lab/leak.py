"""An agent whose engines end and whose connection breaks, hundreds of times: `python -m tests.lab leak`.

One agent, one control plane, and between them a proxy that cuts and counts the streams that open. Its
engines are killed when they are Ready, then end by themselves as soon as they run, again and again, while
the connection is cut. Before and afterwards everything is calm for a moment, and what agent and
control plane hold is read from /proc: open files, zombies, memory.
"""

import argparse
import asyncio
import os
import pathlib
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tests.lab.command import Outcome
from tests.support.cutter import Cutter
from tests.support.planted import wrapper
from tests.support.proc_figures import open_files, resident_mib, zombies
from tests.support.rig import TIMERS, Rig
from tests.support.story import must
from tests.support.waiting import wait_for

REPLICAS = 2
"""All cards of the node: every one is used again and again."""
WARM_EXITS, WARM_CUTS = 120, 5
STORMS = 5
"""With a calm after each, in which engines come to be Ready and are killed then."""
FILES, MIB = 3, 6.0
"""How many more open files, and how much more memory, may be there afterwards."""
PATIENCE = 240.0
QUICK = TIMERS | {"backoff_base": "50ms", "backoff_cap": "100ms", "min_ready": "50ms"}
FLEETING = """\
#!/bin/sh
# Where it is calm, be the engine; else end as engines do that cannot load.
[ -e {calm} ] && exec {engine} "$@"
echo "$LLMGW_SHARD" >> {exits}
echo "error: it is not calm"
exit 3
"""


def run(argv: list[str]) -> Outcome:
    """`--exits` and `--cuts`; `--mutant lets-nothing-go` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--exits", type=int, default=500)
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--mutant", choices=["lets-nothing-go"])
    asked = parser.parse_args(argv)
    took = {"exits": 0, "killed_when_ready": 0, "cuts": 0, "streams": 0}
    figures: dict[str, float] = {}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="llmgw-leak-") as place,
            Leaky(pathlib.Path(place), asked.mutant) as rig,
        ):
            rig.begin()
            rig.storm(WARM_EXITS, WARM_CUTS, dict(took))
            before = rig.held_by_processes()
            for _ in range(STORMS):
                rig.storm(-(-asked.exits // STORMS), -(-asked.cuts // STORMS), took)
            after = rig.held_by_processes()
            for name, was in before.items():
                figures |= {f"{name}_before": was, f"{name}_after": after[name]}
            took["streams"] = rig.line.streams
            must(took["streams"] >= WARM_CUTS + asked.cuts, f"{took['streams']} streams opened")
            _flat(before, after)
    except AssertionError as error:
        print(f"FAIL {error}", file=sys.stderr)
        return Outcome(False, took, figures, str(error).splitlines()[0])
    return Outcome(True, took, figures)


def _flat(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Nothing of it has grown."""
    most = {"files": FILES, "zombies": 0, "mib": MIB}
    grown = [
        f"{name}: {was:g} became {after[name]:g}"
        for name, was in before.items()
        if after[name] > was + most[name.rpartition("_")[2]]
    ]
    must(not grown, "; ".join(grown))


class Leaky(Rig):
    """One node that serves one model on both cards, where it is calm."""

    def __init__(self, directory: pathlib.Path, mutant: str | None) -> None:
        super().__init__(directory, {"alpha": "I am alpha."}, timers=QUICK)
        self._mutant = mutant
        self._calm, self._exits = directory / "calm", directory / "exits"
        self.line = Line(self.control_port)
        fleeting = directory / "fleeting-engine"
        fleeting.write_text(FLEETING.format(calm=self._calm, exits=self._exits, engine=self.engine))
        fleeting.chmod(0o755)
        self.engine = fleeting

    def __enter__(self) -> "Leaky":
        super().__enter__()
        self.line.__enter__()
        return self

    def __exit__(self, *ended: Any) -> None:
        self.line.__exit__(*ended)
        super().__exit__(*ended)

    def begin(self) -> None:
        """Everything runs."""
        self._calm.touch()
        self._exits.touch()
        self._control = self.control()
        self._agent = self.agent(
            "a", "--control", f"127.0.0.1:{self.line.port}", wrapper=wrapper(self._mutant)
        )
        self.profile()
        self.model("alpha", scaling={"min": REPLICAS, "max": REPLICAS})
        self.commit("one model")
        self.until(lambda: list(self.standing().values()) == ["Ready"], "the node registers")
        must(self.cli("apply", "catalog", "--yes").returncode == 0, "the catalog is applied")
        self._rest()

    def storm(self, exits: int, cuts: int, took: dict[str, int]) -> None:
        """So many engines end by themselves, and so many cuts; both that are Ready are killed first. Then calm."""
        self._calm.unlink()
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
            took["killed_when_ready"] += 1
        begun = self.exits()
        for number in range(1, cuts + 1):
            self._ended(begun + exits * number // cuts)
            took["cuts"] += self.line.cut()
        took["exits"] += self.exits() - begun
        self._calm.touch()
        self._rest()

    def _ended(self, exits: int) -> None:
        wait_for(lambda: self.exits() >= exits, f"{exits} exits", within=PATIENCE)

    def exits(self) -> int:
        """Engines that have ended by themselves, as they counted themselves."""
        return len(self._exits.read_text().splitlines())

    def held_by_processes(self) -> dict[str, float]:
        """What agent and control plane hold."""
        found: dict[str, float] = {}
        for name, process in (("agent", self._agent), ("control", self._control)):
            found |= {
                f"{name}_files": float(open_files(process.pid)),
                f"{name}_zombies": float(zombies(process.pid)),
                f"{name}_mib": round(resident_mib(process.pid), 1),
            }
        return found

    def _rest(self) -> None:
        """Both replicas are ready, and nothing else is under way."""
        self.until(
            lambda: self.settled() and len(self.pids()) == REPLICAS, "both replicas are ready", within=60.0
        )


class Line:
    """The proxy, in a thread of its own. `port` is where an agent calls the control plane through it."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._cutter = Cutter("127.0.0.1", port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="line")

    def __enter__(self) -> "Line":
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._cutter.start(), self._loop).result(10.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._cutter.close(), self._loop).result(10.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def streams(self) -> int:
        """Streams of HTTP/2 that the agent opened through here."""
        return self._cutter.streams

    def cut(self) -> int:
        """Cut the connection once there is one; how many were open."""
        wait_for(lambda: self._cutter.open, "the agent is connected", within=30.0)
        return asyncio.run_coroutine_threadsafe(self._do_cut(), self._loop).result(10.0)

    async def _do_cut(self) -> int:
        return self._cutter.cut()
