"""An agent dies at every call that matters: `python -m tests.lab crashpoints`.

An undisturbed launch, registration and stop are watched by strace and their calls counted. Then a real
agent dies by SIGKILL as it is about to make each of them: rename, fsync, fork, exec, pidfd, unlink, and
many of what it opens, writes, closes and sends. The next agent is left in peace: it must keep the engine that lived,
know every process that carries our mark, hold no card twice and come to what the catalog asks for;
when the model is removed nothing is left, no process, no record, no card and no cgroup.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tests.lab.command import CannotRun, Outcome
from tests.support import proc
from tests.support.planted import wrapper
from tests.support.processes import Process
from tests.support.rig import TIMERS, Rig
from tests.support.story import must

EACH = (
    "rename", "renameat", "renameat2", "fsync", "fdatasync", "clone", "clone3", "vfork", "execve", "unlink",
    "unlinkat", "mkdir", "mkdirat", "rmdir", "bind", "pidfd_open", "pidfd_send_signal", "waitid",
)  # fmt: skip
"""Calls before each of which an agent dies."""
SOME = ("openat", "write", "close", "sendto", "sendmsg")
"""Calls of which as many are taken as there is room for, spread evenly; of openat those below its state."""
TIMES = 3
"""How often an agent dies at each of the rare ones."""
LIVES = ("launch", "register", "stop")
QUICK = TIMERS | {"backoff_base": "200ms", "backoff_cap": "500ms", "min_ready": "50ms"}
OPTIONS = ("--timer", "health.look=50ms", "--timer", "health.every=200ms")
PATIENCE = 90.0
TOLD = 30
"""Events and lines of the agent that a failure is told with."""
LINE = re.compile(r"(\d+) +(\w+)\((.*)")
GROUPS = pathlib.Path("/sys/fs/cgroup")
_ANYWHERE = 'inet_pton(AF_INET6, "::"'


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Point:
    """The agent is about to make `call` for the `number`th time in this life, in whichever thread does so first."""

    life: str
    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.life}, before {self.call} {self.number}"


def run(argv: list[str]) -> Outcome:
    """`--points` at most; `--mutant forgets-intents` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--points", type=int, default=180, help="at most; those left out are spread evenly")
    parser.add_argument("--lanes", type=int, default=3, help="fleets side by side")
    parser.add_argument("--mutant", choices=["forgets-intents"])
    asked = parser.parse_args(argv)
    if shutil.which("strace") is None:
        raise CannotRun("strace is needed")
    took: collections.Counter[str] = collections.Counter(dict.fromkeys((*LIVES, "adopted"), 0))
    figures: dict[str, object] = {}
    try:
        wrong = _fleets(asked.lanes, asked.points, asked.mutant, took, figures)
    except AssertionError as error:
        wrong = [str(error).splitlines()[0]]
    for line in wrong:
        print(f"FAIL {line}", file=sys.stderr)
    return Outcome(not wrong, dict(took), figures, "; ".join(wrong[:2]))


def _fleets(
    number: int, most: int, mutant: str | None, took: collections.Counter[str], figures: dict[str, object]
) -> list[str]:
    """What was wrong at any point, told by so many fleets side by side. AssertionError where one cannot begin."""
    wrong: list[str] = []
    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(number) as pool:
        lanes = [stack.enter_context(_lane()) for _ in range(number)]
        for begun in [pool.submit(lane.begin, mutant) for lane in lanes]:
            begun.result()
        points = _thinned(lanes[0].watched(), most)
        work = [pool.submit(lane.strikes, points[n::number]) for n, lane in enumerate(lanes)]
        for each in work:
            struck, said = each.result()
            took.update(struck)
            wrong += said
    died = sum(took[life] for life in LIVES)
    calls = collections.Counter(point.call for point in points)
    figures |= {"points": len(points), "died": died, "calls": dict(calls), "wrong": len(wrong)}
    return wrong or ([f"only {died} of {len(points)} died"] if died < 0.8 * len(points) else [])


@contextlib.contextmanager
def _lane() -> Iterator["Lane"]:
    with (
        tempfile.TemporaryDirectory(prefix="llmgw-crash-") as place,
        Lane(pathlib.Path(place), {"alpha": "I am alpha."}, timers=QUICK) as lane,
    ):
        yield lane


def _thinned(points: Sequence[Point], most: int) -> list[Point]:
    """An equal share of every life: its rare calls, each a few times, and as many of every other call as there is
    room for; what of an agent is under way beside the call is never twice the same."""
    kept: list[Point] = []
    for life in LIVES:
        mine = [point for point in points if point.life == life]
        rare = _evenly([point for point in mine if point.call in EACH] * TIMES, most // len(LIVES))
        kept += rare
        often = [[point for point in mine if point.call == call] for call in SOME]
        for each, more in zip(
            often, _shares([len(each) for each in often], most // len(LIVES) - len(rare)), strict=True
        ):
            kept += _evenly(each, more)
    return sorted(kept, key=lambda point: (point.number, point.call, LIVES.index(point.life)))


def _shares(there: Sequence[int], room: int) -> list[int]:
    """How many of each are taken: as equally as what is there allows."""
    taken = [0] * len(there)
    while room and any(taken[n] < there[n] for n in range(len(there))):
        least = min((n for n in range(len(there)) if taken[n] < there[n]), key=lambda n: taken[n])
        taken[least] += 1
        room -= 1
    return taken


def _evenly(points: Sequence[Point], most: int) -> list[Point]:
    return [points[n * len(points) // most] for n in range(most)] if len(points) > most else list(points)


class Lane(Rig):
    """One node and its control plane, through one life of its agent after the other."""

    def until(self, condition: Callable[[], object], what: str, within: float = PATIENCE) -> None:
        """As a rig waits, and longer: several fleets share this machine."""
        super().until(condition, what, within)

    def begin(self, mutant: str | None) -> None:
        """The node is there, and nothing runs; its weights are in its cache."""
        self._mutant = mutant
        self._tracings = self._told = 0
        self.control()
        self.profile()
        self._agent()
        self.until(lambda: list(self.standing().values()) == ["Ready"], "the node registers")
        self._ask(wanted=True)
        self.until(self._served, "the model is served once")
        self._ask(wanted=False)
        self.until(self._empty, "and ends")

    # --- the calls of an undisturbed life ------------------------------------------------------

    def watched(self) -> list[Point]:
        """Every call of the three lives, as strace saw them."""
        found: list[Point] = []
        for life in LIVES:
            with self._traced(life, None) as trace:
                self._live(life)
                self._goes_well(life)
            found += self._calls(life, trace.read_text(errors="replace"))
            if life == "register":  # strace has brought it up, and has gone with it
                self._renewed()
        return sorted(set(found))

    def _calls(self, life: str, text: str) -> Iterator[Point]:
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        for line in text.splitlines():
            if (said := LINE.match(line)) is not None:
                thread, call, arguments = said.groups()
                counts[thread, call] += 1
                if (life, call) == ("register", "execve"):
                    continue  # it becomes llmgw
                if call == "bind" and _ANYWHERE in arguments:
                    continue  # it looks whether a port is free: a thousand times, and nothing hangs on it
                if call != "openat" or str(self.directory / "a") in arguments:
                    yield Point(life, call, counts[thread, call])

    # --- the lives that end -------------------------------------------------------------------

    def strikes(self, points: Iterable[Point]) -> tuple[Mapping[str, int], list[str]]:
        """Round after round of launch, register and stop, each with its next point. How often who died; what was wrong."""
        left = {life: collections.deque(p for p in points if p.life == life) for life in LIVES}
        took: collections.Counter[str] = collections.Counter()
        while any(left.values()):
            point: Point | None = None
            try:
                for life in LIVES:
                    point = left[life].popleft() if left[life] else None
                    self._strike(life, point, took)
            except AssertionError as error:
                print(f"{point or 'undisturbed'}: {error}\n{self.told()}", file=sys.stderr)
                return took, [f"{point or 'undisturbed'}: {str(error).splitlines()[0]}"]
        return took, []

    def _strike(self, life: str, point: Point | None, took: collections.Counter[str]) -> None:
        if point is None and life == "register":
            return
        before = self.pids()
        if point is None:
            self._live(life)
        else:
            with self._traced(life, point) as trace:
                self._live(life)
                self.until(lambda: _killed(trace) or self._went_well(life), "it dies or comes through")
            took[life] += _killed(trace)
            lived = not self.agents["a"].running and life != "stop"
            self._renewed(before if life == "register" else self.pids() if lived else {})
            took["adopted"] += bool(lived and self.pids())
        self._goes_well(life)
        must(not self.doubles(), f"two engines on one card: {self.doubles()}")

    def _renewed(self, kept: Mapping[int, int] | None = None) -> None:
        """The next agent, undisturbed. `kept` are engines that must live on under it."""
        self._end_agent()
        told = self.last_event()
        self._agent()
        self.until(lambda: self.registered("a", told), "the next agent registers")
        self.until(lambda: not self._unknown(), "the control plane knows every engine", within=5.0)
        lost = dict(kept or {}).items() - self.pids().items()
        must(not lost, f"engines that lived ended: {dict(lost)}")

    def told(self) -> str:
        """What the control plane and the agent said last, for whoever looks into a failure."""
        events = [
            f"{each['at']} {each['kind']} {each['about']}: {each['said']}"
            for each in self.get(f"events?after={max(0, self.last_event() - TOLD)}")
        ]
        return "\n".join([*events, *self.agents["a"].said().splitlines()[-TOLD:]])

    def _unknown(self) -> set[str]:
        """Shards of marked processes that the control plane does not know."""
        there = {seen.shard for seen in self.engines()}
        rows = self.get("replicas")
        return there - {f"{row['replica']}:{shard['rank']}" for row in rows for shard in row["shards"]}

    # --- one life ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _traced(self, life: str, point: Point | None) -> Iterator[pathlib.Path]:
        """strace at the agent, from its exec on to register, else from now on. Gives what it writes."""
        self._tracings += 1
        trace = self.directory / f"trace-{self._tracings}"
        names = ",".join(f"?{call}" for call in (*EACH, *SOME)) if point is None else point.call
        words = ["strace", "-f", "-s", "300", "-o", str(trace), "-e", f"trace={names}"]
        if point is not None:
            words += ["-e", f"inject={point.call}:signal=SIGKILL:when={point.number}"]
        trace.touch()
        if life == "register":
            self._end_agent()
            self._told = self.last_event()
            self._agent(words)
            yield trace
            return
        words += ["--detach-on=execve", "-p", str(self.agents["a"].pid)]  # engines are not traced
        tracer = self.processes.start("strace", words, {"LC_ALL": "C"})
        self.until(lambda: "attached" in tracer.said(), "strace is attached")
        try:
            yield trace
        finally:
            tracer.stop()
            tracer.err.unlink()

    def _live(self, life: str) -> None:
        """What makes the agent do it."""
        if life != "register":
            self._ask(wanted=life == "launch")

    def _goes_well(self, life: str) -> None:
        self.until(lambda: self._went_well(life), f"{life} comes to its end")

    def _went_well(self, life: str) -> bool:
        if life == "register" and not self.registered("a", self._told):
            return False  # what the last agent told still stands
        return self._empty() if life == "stop" else self._served()

    def _served(self) -> bool:
        return (
            self.settled()
            and [row["state"] for row in self.get("replicas")] == ["Ready"]
            and len(self.pids()) == 1
        )

    def _empty(self) -> bool:
        """Nothing of any engine is left on the node, and the control plane says so."""
        shards = self.directory / "a" / "shards"
        records = [path for path in shards.iterdir() if path.name.endswith(".json")]
        try:
            groups = [path for path in GROUPS.glob(f"**/llmgw-{self._node()}/*") if path.is_dir()]
        except FileNotFoundError:  # the group of another fleet went while we looked through all of them
            return False
        return self.settled() and not (
            self.get("replicas") or self.engines() or self.held("a") or records or groups
        )

    def _node(self) -> str:
        return (self.directory / "a" / "node-id").read_text()

    def _ask(self, *, wanted: bool) -> None:
        """The catalog wants the model, or nothing."""
        if wanted:
            self.model("alpha", scaling={"min": 1, "max": 1})
        else:
            self.remove("alpha")
        self.commit("one model" if wanted else "nothing")
        allowed = () if wanted else ("--allow-empty",)
        applied = self.cli("apply", "catalog", "--yes", "--wait", "accepted", *allowed)
        must(applied.returncode == 0, f"apply: {applied.stdout}{applied.stderr}")

    def _agent(self, tracer: Sequence[str] = ()) -> None:
        self.agents["a"] = self.agent("a", *OPTIONS, wrapper=(*tracer, *wrapper(self._mutant)))

    def _end_agent(self) -> None:
        """SIGKILL for it, whoever started it."""
        agent = self.agents["a"]
        for child in proc.children(agent.pid):
            if "strace" in _program(agent):
                os.kill(child.pid, signal.SIGKILL)
                self.until(lambda: not agent.running, "strace ends with its agent")
        agent.kill()


def _program(process: Process) -> str:
    return process.argv[0]


def _killed(trace: pathlib.Path) -> bool:
    return "+++ killed by SIGKILL" in trace.read_text(errors="replace")
