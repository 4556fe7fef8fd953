"""Would a restart of this agent's unit kill its engines? Asked once, at the start, by `agent.serve`.

systemd's default is to end everything in a unit's cgroup. Engines are in there unless the agent could make
its groups elsewhere; a unit with KillMode=process leaves them to the next agent.
"""

import re
import shutil
import subprocess
from collections.abc import Callable

from llmgw.kit.children import environment
from llmgw.kit.text import safe

ASKED_WITHIN = 2.0
"""Seconds that systemctl may take."""

_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+\.service\Z")
_DEADLY = ("control-group", "mixed")


def unit_of(cgroup: str) -> str:
    """The service that a cgroup path belongs to: the innermost; empty where it is in none."""
    return next((part for part in reversed(cgroup.split("/")) if _UNIT.match(part)), "")


def warning(cgroup: str, engines: str, ask: Callable[[str, bool], str] | None = None) -> str:
    """What people should know before they restart the agent in `cgroup`, or nothing.

    `engines` is the group below which its engines are made; empty = they stay in the agent's own.
    `ask(unit, user)` tells the unit's KillMode, empty = nobody knows.
    """
    unit = unit_of(cgroup)
    if not unit or (engines and not engines.startswith(_root_of(cgroup, unit))):
        return ""
    mode = (ask or kill_mode)(unit, "/user@" in cgroup)
    if mode not in _DEADLY:
        return ""
    return (
        f"a restart of {unit} would kill every engine of this node: its KillMode is {safe(mode)}; "
        "set KillMode=process (see `llmgw unit agent`)"
    )


def _root_of(cgroup: str, unit: str) -> str:
    """The cgroup of the unit itself."""
    before, _, _ = cgroup.rpartition(f"/{unit}")
    return f"{before}/{unit}"


def kill_mode(unit: str, user: bool) -> str:
    """What systemctl says; empty where there is none, or it does not answer in time."""
    program = shutil.which("systemctl")
    if program is None:
        return ""
    whose = ("--user",) if user else ()
    try:
        done = subprocess.run(
            (program, *whose, "show", "--property=KillMode", "--value", "--", unit),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASKED_WITHIN,
            check=False,
            env=environment(),
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
