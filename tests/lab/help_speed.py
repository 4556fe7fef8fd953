"""How long people wait for `--help` and for a TAB: `python -m tests.lab help-speed`.

Each is run as a shell runs it and as an installation has it, with its bytecode kept, which a first run writes:
the median of ten, in wall time, and the CPU time of the same runs, which says what a busy machine adds. This machine's
pace is printed beside. What may be imported is a test's.
"""

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from llmgw.kit.clock import SystemClock
from tests.lab.command import Outcome
from tests.support.pace import pace
from tests.support.processes import LLMGW

LIMIT = 120.0
"""Milliseconds, of the median."""

HELP: Mapping[str, list[str]] = {
    "help": ["--help"],
    "plan help": ["plan", "--help"],
    "node drain help": ["node", "drain", "--help"],
}
TABS: Mapping[str, tuple[str, str]] = {"tab verb": ("llmgw st", "1"), "tab node": ("llmgw node cordon ", "3")}


def run(argv: Sequence[str]) -> Outcome:
    """Medians; fails where one is above the limit."""
    parser = argparse.ArgumentParser(prog="help-speed", description=__doc__)
    parser.add_argument("--n", type=int, default=10, help="runs of each")
    args = parser.parse_args(argv)
    before = pace()
    with tempfile.TemporaryDirectory() as cache:
        quiet = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONPYCACHEPREFIX": f"{cache}/bytecode"}
        quiet.pop("PYTHONDONTWRITEBYTECODE", None)
        cases = {name: ([str(LLMGW), *words], quiet) for name, words in HELP.items()}
        for name, (words, at) in TABS.items():
            asked = {"_LLMGW_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": at}
            cases[name] = ([str(LLMGW)], {**quiet, **asked})
        measured = {name: _measured(command, env, args.n) for name, (command, env) in cases.items()}
    slowness = round((before + pace()) / 2, 2)
    figures: dict[str, object] = {
        name: {"wall_ms": round(statistics.median(wall), 1), "cpu_ms": round(statistics.median(cpu), 1)}
        for name, (wall, cpu) in measured.items()
    }
    slow = [name for name, (wall, _) in measured.items() if statistics.median(wall) > LIMIT]
    said = f"above {LIMIT:g} ms: {', '.join(slow)}" if slow else ""
    return Outcome(not slow, figures=figures | {"pace": slowness}, said=said)


def _measured(command: list[str], env: Mapping[str, str], times: int) -> tuple[list[float], list[float]]:
    """Wall and CPU milliseconds of each run."""
    clock, wall, cpu = SystemClock(), list[float](), list[float]()
    for _ in range(times + 1):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), clock.now()
        subprocess.run(command, env=dict(env), stdout=subprocess.DEVNULL, check=True)
        after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), clock.now()
        wall.append((ended - began) * 1000)
        cpu.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return wall[1:], cpu[1:]
