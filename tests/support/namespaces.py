"""A lab that needs namespaces of its own runs itself again inside them.

Called by labs that reuse pids, change the boot id, or cut networks: as the root of a pid and mount
namespace they do it to themselves alone. What runs inside prints its outcome as its last line.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

from tests.lab.command import CannotRun, Outcome

INSIDE = "LLMGW_LAB_INSIDE"
LAST_PID = pathlib.Path("/proc/sys/kernel/ns_last_pid")


def inside() -> bool:
    """Whether we run in namespaces of our own already."""
    return os.environ.get(INSIDE) == str(os.getpid())


def again(lab: str, argv: Sequence[str], *, net: bool = False) -> Outcome:
    """The outcome of this lab, run as process 1 of a pid and mount namespace. Raises CannotRun.

    `net` = of a network of its own too. However it ends, everything that it started ends with it.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise CannotRun("only root can make namespaces")
    ran = subprocess.run(
        [
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--mount",
            *(["--net"] if net else []),
            sys.executable,
            "-m",
            "tests.lab",
            lab,
            *argv,
        ],
        env={**os.environ, INSIDE: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    try:
        told = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return Outcome(False, said=f"it ended inside with {ran.returncode} and told nothing")
    return Outcome(bool(told["pass"]), told["took_effect"], told["figures"], told.get("said", ""))


def next_pid(pid: int) -> None:
    """The next process of this pid namespace gets `pid`, where it is free."""
    LAST_PID.write_text(str(pid - 1))
