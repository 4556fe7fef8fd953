"""`make up` is one process and its child: what ends it ends both, and nothing is left behind."""

import http.client
import pathlib
import signal
import subprocess
import sys

import pytest

from demo.__main__ import beside
from tests.support import proc
from tests.support.ports import bindable, free_port
from tests.support.processes import Process, Processes
from tests.support.waiting import wait_for

PARENT = "import pathlib, sys; from demo.__main__ import beside; sys.exit(beside(pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))"
CHILD = """
import signal, sys, time
def leave(number, frame):
    print(f"left by signal {number}", file=sys.stderr, flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
print("child runs", file=sys.stderr, flush=True)
time.sleep(60)
"""


def demo(processes: Processes, model: pathlib.Path, port: int) -> Process:
    """A demo whose llmgw only waits for a signal, once that child runs."""
    model.write_bytes(b"GGUF")
    argv = [sys.executable, "-c", PARENT, str(model), str(port), sys.executable, "-c", CHILD]
    started = processes.start("demo", argv)
    wait_for(lambda: "child runs" in started.said(), "the child runs")
    return started


@pytest.mark.parametrize("to_both", [False, True], ids=["SIGTERM to the parent", "Ctrl-C to both"])
def test_a_signal_ends_both(processes: Processes, tmp_path: pathlib.Path, to_both: bool) -> None:
    """SIGTERM is passed on, Ctrl-C is left to the child; the exit code is the child's, the port is free."""
    port = free_port()
    started = demo(processes, tmp_path / "model.gguf", port)
    (child,) = proc.children(started.pid)

    if to_both:
        for pid in (started.pid, child.pid):
            subprocess.run(["kill", "-INT", str(pid)], check=True)
    else:
        started.signal(signal.SIGTERM)

    wait_for(lambda: not started.running, "the demo ends")
    assert started.stop() == 7
    assert f"left by signal {signal.SIGINT if to_both else signal.SIGTERM:d}" in started.said()
    assert not proc.alive(child.pid)
    assert bindable(port)


def test_the_model_is_served_while_llmgw_runs(processes: Processes, tmp_path: pathlib.Path) -> None:
    """While the child lives, the weights can be fetched from loopback."""
    port = free_port()
    demo(processes, tmp_path / "model.gguf", port)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/model.gguf")
        assert connection.getresponse().read() == b"GGUF"
    finally:
        connection.close()


def test_a_second_demo_says_why_it_cannot(
    processes: Processes, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the port is taken, the demo says so in one line and runs nothing."""
    model, port = tmp_path / "model.gguf", free_port()
    demo(processes, model, port)

    assert beside(model, port, ["/no/such/program"]) == 1
    assert (
        capsys.readouterr().err
        == f"cannot serve the demo's model on 127.0.0.1:{port}: Address already in use (is another demo running?)\n"
    )
