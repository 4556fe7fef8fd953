"""Machines on one switch, each a network namespace: what passes between two of them can be made to vanish.

Called by the labs of partitions, inside a network, pid and mount namespace of their own (`namespaces.again`),
with which everything here goes away again. A port that is taken from the switch keeps its carrier: nobody is
told, senders succeed, nothing arrives. That is the half-open case, which a closed socket is not.
"""

import pathlib
import subprocess

NAMES = pathlib.Path("/run/netns")
HERE = "10.77.0.254"
"""Where whoever runs the lab stands, on the same switch."""
_SWITCH = "sw"


class Network:
    """The switch and its machines, by name. `cuts` counts ports that were taken away."""

    def __init__(self) -> None:
        self.cuts = 0
        self._addresses: dict[str, str] = {}
        NAMES.mkdir(exist_ok=True)
        _run("mount", "-t", "tmpfs", "tmpfs", str(NAMES))
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", _SWITCH, "type", "bridge")
        _run("ip", "address", "add", f"{HERE}/24", "dev", _SWITCH)
        _run("ip", "link", "set", _SWITCH, "up")

    def add(self, name: str) -> str:
        """A machine; its address."""
        self._addresses[name] = address = f"10.77.0.{len(self._addresses) + 1}"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", _port(name), "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", name, "link", "set", device, "up")
        _run("ip", "link", "set", _port(name), "master", _SWITCH, "up")
        return address

    def inside(self, name: str) -> tuple[str, ...]:
        """What a program is started by way of, to run on that machine."""
        return ("nsenter", f"--net={NAMES / name}", "--")

    def cut(self, name: str) -> None:
        """Nothing reaches the machine, or leaves it, and nobody is told."""
        _run("ip", "link", "set", _port(name), "nomaster")
        self.cuts += 1

    def heal(self, name: str) -> None:
        """It is on the switch again."""
        _run("ip", "link", "set", _port(name), "master", _SWITCH)


def _port(name: str) -> str:
    return f"to-{name}"


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
