"""What a process costs, from /proc: processor time, memory, open files. For labs that measure or watch for leaks."""

import os
import pathlib

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time that the process has used, of all its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid: int) -> float:
    """MiB that it holds now."""
    return _kib(pid, "VmRSS:") / 1024


def peak_mib(pid: int) -> float:
    """The most MiB that it has held."""
    return _kib(pid, "VmHWM:") / 1024


def open_files(pid: int) -> int:
    """File descriptors, sockets among them."""
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def zombies(pid: int) -> int:
    """Children that ended and that nobody has waited for."""
    found = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += fields[0] == "Z" and int(fields[1]) == pid
    return found


def _kib(pid: int, name: str) -> int:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
