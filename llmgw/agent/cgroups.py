"""One cgroup a shard, where cgroup v2 is writable: the surest way to find and end a whole tree.

`agent.process` enters them, `agent.sweep` ends them. Where there is none, session, group and cookie
must do, and everything here is simply absent.
"""

import os
import pathlib

from llmgw.agent import procfs
from llmgw.agent.marks import group_base


class Cgroups:
    """The directory below which this agent makes its shards' groups. `node` keeps agents of one host apart."""

    def __init__(self, mount: pathlib.Path, base: str) -> None:
        self.mount = mount
        self.base = base

    def make(self, name: str) -> str:
        """A new group for a shard. Returns its path below the mount; empty where it cannot be made."""
        path = f"{self.base}/{name}"
        try:
            self.directory(path).mkdir(mode=0o755, exist_ok=True)
        except OSError:
            return ""
        return path

    def directory(self, path: str) -> pathlib.Path:
        """Where the group `path` is on disk."""
        return self.mount / path.lstrip("/")

    def processor_time(self, path: str) -> int:
        """Microseconds that the group and those below it have used; 0 where it is gone."""
        try:
            first = procfs.text(self.directory(path) / "cpu.stat").split()
        except OSError:
            return 0
        return int(first[1])

    def kill(self, path: str) -> None:
        """SIGKILL everything in the group and below it, at once; nothing where the group is gone."""
        try:
            (self.directory(path) / "cgroup.kill").write_text("1")
        except OSError:
            return

    def tidy(self) -> None:
        """Remove the groups in which nobody lives: launches that an earlier agent died in, or could not end."""
        try:
            found = [entry for entry in self.directory(self.base).iterdir() if entry.is_dir()]
            for entry in found:
                if "populated 0" in procfs.text(entry / "cgroup.events"):
                    self.remove(f"{self.base}/{entry.name}")
        except OSError:
            return

    def remove(self, path: str) -> None:
        """Remove the empty group, with the groups that the engine made in it."""
        top = self.directory(path)
        try:
            below = sorted((entry for entry in top.rglob("*") if entry.is_dir()), reverse=True)
            for directory in (*below, top):
                directory.rmdir()
        except OSError:
            return


def find(node: str) -> Cgroups | None:
    """The writable cgroup v2 hierarchy of this host, or None. It may be mounted below a tmpfs."""
    mount = _mounted(procfs.text(procfs.PROC / "self/mountinfo"))
    if mount is None:
        return None
    for parent in (procfs.cgroup(os.getpid()), "/"):
        base = f"{parent.rstrip('/')}/{group_base(node)}"
        directory = mount / base.lstrip("/")
        try:
            directory.mkdir(mode=0o755, exist_ok=True)
        except OSError:
            continue
        if (directory / "cgroup.kill").exists():
            return Cgroups(mount, base)
    return None


def _mounted(mountinfo: str) -> pathlib.Path | None:
    """Where cgroup2 is mounted, by `/proc/self/mountinfo`."""
    for line in mountinfo.split("\n"):
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            return pathlib.Path(mount.split()[4])
    return None
