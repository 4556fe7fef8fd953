"""A real systemd that manages one user's services: for labs of our units, on machines that no systemd started.

Called inside a pid and mount namespace of a lab's own (`namespaces.again`), which it ends with. It gets a cgroup
named as the one of a user's manager, so that whoever looks at a service's cgroup sees what an installation has.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping

from tests.lab.command import CannotRun
from tests.support.processes import Processes
from tests.support.waiting import wait_for

SYSTEMD = pathlib.Path("/lib/systemd/systemd")
GROUP = "user@0.service"


class Manager:
    """Its units and its answers. `directory` holds all that it writes."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self._units = directory / "config" / "systemd" / "user"
        self._units.mkdir(parents=True)
        (directory / "run").mkdir(mode=0o700)
        self.environment = {
            "XDG_RUNTIME_DIR": str(directory / "run"),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "HOME": str(directory),
            "SYSTEMD_LOG_TARGET": "console",
        }

    def install(self, unit: str, text: str, drop_in: str) -> None:
        """Write a unit and, as people change one, what is to be otherwise; a newer one takes its place."""
        (self._units / unit).write_text(text)
        beside = self._units / f"{unit}.d"
        beside.mkdir(exist_ok=True)
        (beside / "lab.conf").write_text(drop_in)
        self.ask("daemon-reload")

    def ask(self, *words: str) -> str:
        """What systemctl answers. AssertionError with its words where it fails."""
        done = self._systemctl(*words)
        assert done.returncode == 0, f"systemctl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def shown(self, unit: str) -> Mapping[str, str]:
        """The properties of a unit."""
        lines = self.ask("show", unit).splitlines()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def answers(self) -> bool:
        """Whether it is up."""
        return self._systemctl("show-environment").returncode == 0

    def _systemctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["systemctl", "--user", *words],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@contextlib.contextmanager
def managed(directory: pathlib.Path, processes: Processes) -> Iterator[Manager]:
    """A manager that runs. Raises CannotRun."""
    if not SYSTEMD.exists() or shutil.which("systemctl") is None:
        raise CannotRun("systemd is not installed")
    _pretend_booted()
    manager = Manager(directory)
    groups = [group / directory.parent.name for group in _hierarchies()]
    try:
        for group in groups:
            (group / GROUP).mkdir(parents=True)
        joins = "".join(f'echo $$ > "{group}/{GROUP}/cgroup.procs"; ' for group in groups)
        started = processes.start(
            "systemd", ["/bin/sh", "-c", f"{joins}exec {SYSTEMD} --user"], manager.environment
        )
        wait_for(manager.answers, "systemd answers", within=30.0, every=0.2)
        yield manager
        started.stop()
    finally:
        _end(groups)


def _pretend_booted() -> None:
    """A user's manager starts where a system's one has: told by a directory in /run, which is our own here."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    pathlib.Path("/run/systemd/system").mkdir(parents=True)


def _hierarchies() -> list[pathlib.Path]:
    """Where systemd keeps its groups: cgroup v2 and, where it is mounted, its own hierarchy of v1."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ")[:3]
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options):
            found.append(pathlib.Path(left.split(" ")[4]))
    if not found:
        raise CannotRun("no cgroup hierarchy is mounted")
    return found


def _end(groups: list[pathlib.Path]) -> None:
    """Whatever is left in the groups ends, and they go."""
    for group in groups:
        for kill in group.glob("cgroup.kill"):
            kill.write_text("1")
    for group in groups:
        wait_for(lambda group=group: _removed(group), f"{group} is empty", within=10.0, every=0.1)  # type: ignore[misc]


def _removed(group: pathlib.Path) -> bool:
    for directory, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            pathlib.Path(directory).rmdir()
    return not group.exists()
