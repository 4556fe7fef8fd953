"""Engines' output, read along while everything else dies: `python -m tests.lab logs --cycles 6`.

An engine numbers its lines and says far more than a log keeps, so holes are punched at the head of its
file all the time. Three `llmgw logs -f` read it, one of them from the beginning and one that is stopped
for a while, while the agent and the control plane are killed and started again. Every line that the
file had after a follower began comes exactly once and in order; where lines are missing there is a
sentence that says how much. The file never takes more of the disk than it is said to.
"""

import argparse
import dataclasses
import pathlib
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from llmgw.agent.supervisor import Supervisor
from tests.lab.command import Outcome
from tests.support.planted import wrapper
from tests.support.processes import Process
from tests.support.rig import Rig
from tests.support.story import must

LINE = 100
"""Bytes of a numbered line."""
TALKER = f"""\
import os, pathlib, sys, time
place, number = pathlib.Path(sys.argv[1]), 0
while not (place / "enough").exists():
    many = 400_000 if (place / "burst").exists() else 40
    for _ in range(many // 40):
        lines = b"".join(b"<%012d %s>\\n" % (number + n, b"x" * {LINE - 16}) for n in range(40))
        os.write(1, lines)
        number += 40
    if many > 40:
        (place / "burst").unlink()
    (place / "said.new").write_text(str(number))
    (place / "said.new").rename(place / "said")
    time.sleep(0.02)
"""
ENGINE = """\
#!/bin/sh
{python} -S {talker} {place} &
exec {engine} "$@"
"""
NUMBERED = re.compile(rb"<(\d{12}) x+>\n")
GONE = re.compile(r"^([\d.]+) ([KMG]?)B of earlier output are gone", re.MULTILINE)
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
BOUND = Supervisor.LOG_KEPT + 4 * 2**20
OPTIONS = ("--timer", "supervisor.trim=200ms", "--timer", "health.look=50ms")
PATIENCE = 90.0
FOLLOWERS = {"beginning": "all", "now": "0", "slow": "0"}
"""What each is asked to begin with."""


def run(argv: list[str]) -> Outcome:
    """`--cycles` of kills; `--mutant copies-and-truncates` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cycles", type=int, default=6)
    parser.add_argument("--mutant", choices=["copies-and-truncates"])
    asked = parser.parse_args(argv)
    took = {"agent_kills": 0, "control_kills": 0, "bytes_cut": 0, "asked_again": 0, "told_as_gone": 0}
    figures: dict[str, float] = {}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="llmgw-logs-") as place,
            Talking(pathlib.Path(place), asked.mutant) as rig,
        ):
            try:
                rig.begin()
                for _ in range(asked.cycles):
                    rig.cycle(took)
                rig.stall()
                said = rig.enough()
                took["bytes_cut"] = rig.log.stat().st_size - rig.on_disk()
                figures |= {"lines": said, "kept_mib": round(rig.on_disk() / 2**20, 1)}
                for follower in rig.followers.values():
                    follower.end(said)
            finally:
                for follower in rig.followers.values():
                    took["asked_again"] += follower.process.said(1000).count("asking again")
                    took["told_as_gone"] += follower.read.gaps
                    figures[f"{follower.process.name}_gone"] = follower.read.missing
                    figures[f"{follower.process.name}_doubled"] = follower.read.doubled
    except AssertionError as error:
        print(f"FAIL {error}", file=sys.stderr)
        return Outcome(False, took, figures, str(error).splitlines()[0])
    return Outcome(True, took, figures)


@dataclasses.dataclass(slots=True)
class Read:
    """What has come to a follower, up to byte `at` of its output; `last` is the last line's number.

    `missing` lines in `gaps` places, the first of them `where`; `doubled` came once more, or out of order.
    """

    at: int = 0
    last: int = -1
    missing: int = 0
    gaps: int = 0
    where: str = ""
    doubled: int = 0
    again: str = ""

    def line(self, number: int) -> None:
        """The next line that came."""
        if number <= self.last:
            self.again = self.again or f"{number} after {self.last}"
            self.doubled += 1
            return
        if number > self.last + 1:
            self.where = self.where or f"{self.last + 1}-{number - 1}"
            self.missing, self.gaps = self.missing + number - self.last - 1, self.gaps + 1
        self.last = number


@dataclasses.dataclass(frozen=True, slots=True)
class Follower:
    """One `llmgw logs -f`. `since` = lines that were said before it began; 0 = it reads all that there is."""

    process: Process
    since: int
    read: Read = dataclasses.field(default_factory=Read)

    def newest(self) -> int:
        """The number of the last whole line that came; -1 = none."""
        with self.process.out.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 64 * 1024))
            return max(map(int, NUMBERED.findall(file.read())), default=-1)

    def judge(self) -> None:
        """Count what has come since the last time. AssertionError unless all of it until now is exact."""
        name, read = self.process.name, self.read
        numbers = self._numbers()
        if not read.at and self.since:
            read.last = next(numbers, -1)
            must(
                read.last >= self.since - 1,
                f"{name}: it begins with {read.last}, and {self.since} had been said",
            )
        for number in numbers:
            read.line(number)
        must(not read.doubled, f"{name}: {read.doubled} lines come twice or late, the first {read.again}")
        # What is gone is said before the lines behind it come.
        told = [float(much) * UNITS[unit] for much, unit in GONE.findall(self.process.err.read_text())]
        lost = f"{name}: {read.missing} lines are missing in {read.gaps} places, the first {read.where}"
        must(read.gaps <= len(told), f"{lost}, and {len(told)} times it is told")
        enough = sum(told) >= 0.95 * read.missing * LINE
        must(enough, f"{lost}, and {sum(told):.0f} bytes are told as gone")

    def end(self, said: int) -> None:
        """AssertionError unless everything up to the last of `said` lines has come, and is exact."""
        self.judge()
        must(
            self.read.last == said - 1,
            f"{self.process.name}: the last line is {self.read.last} of {said}",
        )

    def _numbers(self) -> Iterator[int]:
        with self.process.out.open("rb") as file:
            file.seek(self.read.at)
            begin, came = self.read.at, file.read()
        for found in NUMBERED.finditer(came):
            self.read.at = begin + found.end()
            yield int(found[1])


class Talking(Rig):
    """One node with one engine that says a lot."""

    def __init__(self, directory: pathlib.Path, mutant: str | None) -> None:
        super().__init__(directory, {"alpha": "I am alpha."})
        self._mutant = mutant
        self.followers: dict[str, Follower] = {}
        talker, talking = directory / "talker.py", directory / "talking-engine"
        talker.write_text(TALKER)
        talking.write_text(
            ENGINE.format(python=sys.executable, talker=talker, place=directory, engine=self.engine)
        )
        talking.chmod(0o755)
        self.engine = talking

    def until(self, condition: Callable[[], object], what: str, within: float = PATIENCE) -> None:
        """As a rig waits, and longer: there is a lot to read."""
        super().until(condition, what, within)

    def begin(self) -> None:
        """It talks, its file is cut, and three read along."""
        self._control = self.control()
        self._begin_agent()
        self.profile()
        self.model("alpha")
        self.commit("one model")
        self.until(lambda: list(self.standing().values()) == ["Ready"], "the node registers")
        must(self.cli("apply", "catalog", "--yes").returncode == 0, "the catalog is applied")
        self.until(self.settled, "the engine is ready")
        (self.log,) = (self.directory / "a" / "logs").glob("*.log")
        self.burst()
        for name, tail in FOLLOWERS.items():
            since = 0 if tail == "all" else self.said()
            process = self.processes.llmgw(f"follower-{name}", "logs", "alpha", "-f", "--tail", tail)
            self.followers[name] = Follower(process, since)
            self._reaches(self.followers[name], since + 1)

    def cycle(self, took: dict[str, int]) -> None:
        """The agent dies and comes back, then the control plane; everybody reads on."""
        self.agents["a"].kill()
        took["agent_kills"] += 1
        told = self.last_event()
        time.sleep(0.5)
        self._begin_agent()
        self.until(lambda: self.registered("a", told), "the agent is back")
        self.caught_up()
        self._control.kill()
        took["control_kills"] += 1
        time.sleep(0.5)
        self._control = self.control()
        self.until(lambda: list(self.standing().values()) == ["Ready"], "the control plane is back")
        self.caught_up()
        self.cut()

    def stall(self) -> None:
        """One of them is stopped, and meanwhile more is said than the file keeps."""
        slow = self.followers["slow"]
        slow.process.signal(signal.SIGSTOP)
        for _ in range(2):
            self.burst()
        slow.process.signal(signal.SIGCONT)
        self.caught_up()

    def enough(self) -> int:
        """It falls silent. How many lines it said, when everybody has the last one."""
        (self.directory / "enough").touch()
        self.until(lambda: not [seen for seen in self.engines() if "talker" in seen.command], "it is silent")
        self.caught_up()
        self.cut()
        for follower in self.followers.values():
            follower.process.must_run()
        return self.said()

    def said(self) -> int:
        """Lines that it has said at least."""
        found = self.directory / "said"
        return int(found.read_text()) if found.exists() else 0

    def burst(self) -> None:
        """Forty megabytes at once; then the file is cut."""
        (self.directory / "burst").touch()
        self.until(lambda: not (self.directory / "burst").exists(), "it has said a lot")
        self.cut()

    def cut(self) -> None:
        """The file is within its bound, though it goes on."""
        self.until(lambda: self.on_disk() <= BOUND, "the file is bounded")

    def on_disk(self) -> int:
        """Bytes of the disk that the log takes."""
        return self.log.stat().st_blocks * 512

    def caught_up(self) -> None:
        """Everybody has what was said until now."""
        said = self.said()
        for follower in self.followers.values():
            self._reaches(follower, said - 1)

    def _reaches(self, follower: Follower, line: int) -> None:
        name = follower.process.name
        try:
            self.until(lambda: follower.newest() >= line, f"{name} reads on to line {line}")
        finally:  # which lines came says more than that no more did
            follower.judge()

    def _begin_agent(self) -> None:
        self.agents["a"] = self.agent("a", *OPTIONS, wrapper=wrapper(self._mutant))
