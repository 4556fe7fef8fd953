"""A simulated machine's processes: pids, start ticks, sessions, marks, trees, and signals that arrive.

`Processes` is the kernel of one boot, as `agent.kernel` wants it: the product's own scans, adoptions and
sweeps run on it. Who truly descends from which launch stands in `Process.engine`, which only the oracle
and the faults look at. `Shelf` is the directory of records, as bytes that can go bad.
"""

import contextlib
import dataclasses
import signal
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from llmgw.agent import records
from llmgw.agent.cgroups import Cgroups
from llmgw.agent.marks import group_base
from llmgw.agent.procfs import TICKS_PER_SECOND, Stat
from llmgw.agent.records import Found, Record
from llmgw.fleet.shard import ShardKey
from tests.sim.clockwork import Clockwork, Life

if TYPE_CHECKING:
    from tests.sim.machines import Engine

NOTHING: Mapping[str, str] = {}


@dataclasses.dataclass(slots=True, eq=False)
class Process:
    """One process. `engine` is the launch that it descends from, None for a stranger.

    `stubborn` = TERM does nothing to it; `stuck` = seconds that a KILL takes. A stranger may hold `gpu`.
    """

    pid: int
    ticks: int
    inode: int
    session: int
    parent: "Process | None"
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cgroup: str = "/"
    engine: "Engine | None" = None
    born: float = 0.0
    stubborn: bool = False
    stuck: float = 0.0
    gpu: str = ""
    alive: bool = True
    dying: bool = False

    def __str__(self) -> str:
        return f"pid {self.pid} of {self.engine or 'a stranger'}"


class Kin(Protocol):
    """Who hears of what happens to processes."""

    def signalled(self, process: Process, number: signal.Signals) -> None:
        """A signal is about to arrive."""
        ...

    def ended(self, process: Process) -> None:
        """A process is dead."""
        ...


class Processes:
    """The kernel of one boot of one machine, with one agent at a time."""

    def __init__(self, clock: Clockwork, name: str, boot: int, power: Life, kin: Kin) -> None:
        self.table: dict[int, Process] = {}
        self.agent: Process | None = None
        self._clock = clock
        self._boot = f"{name}/{boot}"
        self._began = clock.now
        self._power = power
        self._kin = kin
        self._chance = clock.chance(f"processes/{self._boot}")
        self._handles: dict[int, Process] = {}
        self._opened = 0
        self._pids = 100

    # --- what happens ---------------------------------------------------------------------------

    def fork(
        self,
        parent: Process | None,
        *,
        env: Mapping[str, str] = NOTHING,
        cgroup: str = "/",
        session: int = 0,
        engine: "Engine | None" = None,
        like: tuple[int, int] | None = None,
    ) -> Process:
        """A new process; `session` 0 = its own. `like` = the pid and the ticks that it gets, else the next ones."""
        self._pids += 1
        pid, ticks = like or (self._pids, self.ticks())
        process = Process(
            pid, ticks, self._pids, session or pid, parent, env, cgroup, engine, self._clock.now
        )
        self.table[pid] = process
        return process

    def ticks(self) -> int:
        """Now, in ticks since boot."""
        return int((self._clock.now - self._began) * TICKS_PER_SECOND)

    def age(self, ticks: int) -> float:
        """Seconds since then."""
        return max(0.0, self._clock.now - self._began - ticks / TICKS_PER_SECOND)

    def free(self, pid: int) -> bool:
        """Nobody has this pid, not as a zombie either."""
        return pid not in self.table

    def exit(self, process: Process) -> None:
        """It dies. A parent that lives has to reap it, everybody else's children init does."""
        if not process.alive:
            return
        process.alive = False
        if process.parent is None or not process.parent.alive:
            self.reap(process)
        for child in list(self.table.values()):
            if child.parent is process:
                child.parent = None
                if not child.alive:
                    self.reap(child)
        self._kin.ended(process)

    def reap(self, process: Process) -> None:
        """Its entry goes, and its pid may be somebody else's."""
        if self.table.get(process.pid) is process and not process.alive:
            del self.table[process.pid]

    def living(self) -> Iterable[Process]:
        """Everybody who lives, oldest first."""
        return [process for process in self.table.values() if process.alive]

    # --- what `agent.kernel` asks -----------------------------------------------------------------

    def me(self) -> int:
        return self.agent.pid if self.agent is not None else 0

    def boot_id(self) -> str:
        return self._boot

    def pids(self) -> Iterable[int]:
        return list(self.table)

    def stat(self, pid: int) -> Stat | None:
        found = self.table.get(pid)
        if found is None:
            return None
        state = "Z" if not found.alive else "D" if found.dying else "S"
        return Stat(pid, state, found.parent.pid if found.parent else 1, found.session, found.ticks)

    def environ(self, pid: int) -> Mapping[str, str]:
        found = self.table.get(pid)
        return found.env if found is not None and found.alive else NOTHING

    def cgroup(self, pid: int) -> str:
        found = self.table.get(pid)
        return found.cgroup if found is not None else ""

    def hold(self, pid: int) -> int:
        if pid not in self.table:
            raise ProcessLookupError(pid)
        self._opened += 1
        self._handles[self._opened] = self.table[pid]
        return self._opened

    def inode(self, handle: int) -> int:
        return self._handles[handle].inode

    def send(self, handle: int, number: signal.Signals) -> None:
        self.signal(self._handles[handle], number)

    def let_go(self, handle: int) -> None:
        del self._handles[handle]

    @property
    def held(self) -> int:
        """How many handles are open."""
        return len(self._handles)

    def signal(self, process: Process, number: signal.Signals) -> None:
        """A signal arrives, if there is still somebody."""
        if not process.alive:
            return
        self._kin.signalled(process, number)
        if number == signal.SIGTERM:
            if not process.stubborn:
                self._later(self._chance.uniform(0.1, 25.0), process)
        elif process.stuck:
            if not process.dying:
                process.dying = True
                self._later(process.stuck, process)
        else:
            self.exit(process)

    def _later(self, delay: float, process: Process) -> None:
        self._clock.after(delay, lambda: self.exit(process), self._power)


class Groups(Cgroups):
    """The cgroups of a simulated machine."""

    def __init__(self, kernel: Processes, node: str) -> None:
        self._kernel = kernel
        self.base = f"/{group_base(node)}"

    def make(self, name: str) -> str:
        return f"{self.base}/{name}"

    def processor_time(self, path: str) -> int:  # noqa: ARG002 - not simulated
        return 0

    def kill(self, path: str) -> None:
        for process in self._kernel.living():
            if f"{process.cgroup}/".startswith(f"{path}/"):
                self._kernel.signal(process, signal.SIGKILL)

    def remove(self, path: str) -> None:
        pass


class Shelf:
    """The directory of records on a simulated disk. `aside` are files that were put into quarantine."""

    def __init__(self) -> None:
        self.aside: list[str] = []
        self._files: dict[str, bytes] = {}
        self._fresh: dict[str, Record] = {}

    @property
    def files(self) -> dict[str, bytes]:
        """Every file; what was written is put into bytes when somebody looks."""
        self._files.update({name: records.encode(record) for name, record in self._fresh.items()})
        self._fresh.clear()
        return self._files

    def write(self, record: Record) -> None:
        self._fresh[name_of(record.spec.key)] = record

    def forget(self, key: ShardKey) -> None:
        self._fresh.pop(name_of(key), None)
        self._files.pop(name_of(key), None)

    def read(self) -> Found:
        """As `agent.records` reads its directory: what cannot be read is set aside, and is never fatal."""
        found: list[Record] = []
        foreign: set[str] = set()
        for name, data in sorted(self.files.items()):
            try:
                found.append(records.parse(data))
            except records.Newer as newer:
                foreign |= {newer.cookie} - {""}
            except (ValueError, RecursionError):
                self.aside.append(name)
                del self.files[name]
        return Found(tuple(found), frozenset(foreign))

    def damage(self, name: str, how: Callable[[bytes], bytes | None]) -> None:
        """Something happens to a file while nobody looks; None = it is gone."""
        data = how(self.files.pop(name))
        if data is not None:
            self.files[name] = data


def name_of(key: ShardKey) -> str:
    """The file of a shard's record."""
    return f"{urllib.parse.quote(key[0], safe='')}.{key[1]}.json"


def readable(data: bytes) -> Record | None:
    """The record that a file still tells, if it does."""
    with contextlib.suppress(ValueError, RecursionError, records.Newer):
        return records.parse(data)
    return None
