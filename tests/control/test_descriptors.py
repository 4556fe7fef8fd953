"""`llmgw serve` takes as many open files as it may: a shell's usual limit is below a fleet."""

import pathlib
import subprocess

from llmgw.kit import descriptors
from tests.support.ports import free_port
from tests.support.processes import LLMGW, Processes
from tests.support.waiting import wait_for

SOFT, HARD = 200, 700


def test_serve_raises_its_limit(tmp_path: pathlib.Path) -> None:
    """Started with 200, it has what the hard limit allows, as the kernel tells."""
    limited = f'ulimit -Sn {SOFT} && ulimit -Hn {HARD} && exec "$0" "$@"'
    argv = ["sh", "-c", limited, str(LLMGW), "serve"]
    port = free_port()
    with Processes(tmp_path) as processes:
        where = ("--listen", f"127.0.0.1:{port}", "--state-dir", str(tmp_path / "state"), "--metrics", "off")
        control = processes.start("control", [*argv, *where])
        limits = pathlib.Path(f"/proc/{control.pid}/limits")
        wait_for(lambda: "listens on" in control.said(), "it listens", within=30.0)
        (line,) = [line for line in limits.read_text().splitlines() if line.startswith("Max open files")]
        assert line.split()[3:5] == [str(HARD), str(HARD)]


def test_the_limit_is_what_the_system_says() -> None:
    """The number that is told is the one of this process."""
    said = subprocess.run(
        ["sh", "-c", "ulimit -n"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert str(descriptors.limit() or "unlimited") == said
