"""What /proc says about processes: who carries our mark, since when a pid runs, who its children are.

Read by tests that must know what really runs, whatever any agent believes. A zombie is dead.
"""

import dataclasses
import pathlib
from collections.abc import Iterator

PROC = pathlib.Path("/proc")
MARKS = ("LLMGW_COOKIE", "LLMGW_SHARD")


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """One live process. `ticks` (since boot) and `pid` together name it; `env` is what it was started with."""

    pid: int
    parent: int
    ticks: int
    command: str
    env: dict[str, str]

    @property
    def shard(self) -> str:
        return self.env.get("LLMGW_SHARD", "")


def look(pid: int) -> Seen | None:
    """The process, or None where it is gone, a zombie, or somebody else's."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
        command = (PROC / str(pid) / "cmdline").read_bytes()
        environ = (PROC / str(pid) / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The second field is the name in parentheses and may hold spaces and parentheses itself.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    text = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return Seen(pid, int(fields[1]), int(fields[19]), text, _variables(environ))


def everyone() -> Iterator[Seen]:
    """Every live process that may be looked at."""
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and (seen := look(int(entry.name))) is not None:
            yield seen


def marked(containing: str = "") -> list[Seen]:
    """The processes that carry llmgw's mark, of the shards whose name has `containing` in it, by pid."""
    found = (seen for seen in everyone() if any(mark in seen.env for mark in MARKS))
    return sorted((seen for seen in found if containing in seen.shard), key=lambda seen: seen.pid)


def children(pid: int) -> list[Seen]:
    """The direct children of `pid`."""
    return [seen for seen in everyone() if seen.parent == pid]


def alive(pid: int) -> bool:
    """Whether the pid is a live process."""
    return look(pid) is not None


def start_ticks(pid: int) -> int:
    """Clock ticks from boot to the start of `pid`: the same pid with other ticks is another process."""
    seen = look(pid)
    assert seen is not None, f"process {pid} is gone"
    return seen.ticks


def _variables(environ: bytes) -> dict[str, str]:
    pairs = (item.partition(b"=") for item in environ.split(b"\0") if b"=" in item)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}
