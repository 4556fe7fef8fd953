"""Ports that an engine could not have: whatever holds them, and nothing else."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from llmgw.agent import ports
from llmgw.agent.inventory import foreign_ports
from tests.support.ports import free_block

Squatter = Callable[[contextlib.ExitStack, int], object]


def bound(stack: contextlib.ExitStack, port: int, *, reuse: bool = False) -> socket.socket:
    """A socket that has the port and does not listen."""
    made = stack.enter_context(socket.socket())
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
    made.bind(("127.0.0.1", port))
    return made


def listening(stack: contextlib.ExitStack, port: int) -> socket.socket:
    """A server."""
    return stack.enter_context(socket.create_server(("127.0.0.1", port)))


def listening_v6(stack: contextlib.ExitStack, port: int) -> None:
    """A server of IPv6 alone."""
    stack.enter_context(socket.create_server(("::1", port), family=socket.AF_INET6))


def connected(stack: contextlib.ExitStack, port: int) -> socket.socket:
    """An outgoing connection from the port."""
    server = listening(stack, 0)
    client = bound(stack, port)
    client.connect(server.getsockname())
    accepted, _ = server.accept()
    stack.enter_context(accepted)
    client.settimeout(10)
    return client


def closing(stack: contextlib.ExitStack, port: int) -> None:
    """An outgoing connection from the port that was closed there first: TIME-WAIT, without SO_REUSEADDR."""
    server = listening(stack, 0)
    with bound(stack, port) as client:
        client.connect(server.getsockname())
        accepted, _ = server.accept()
    with accepted:
        assert accepted.recv(1) == b""


def served(stack: contextlib.ExitStack, port: int) -> None:
    """What a server that ended leaves behind: TIME-WAIT of the connections that it closed first."""
    with listening(stack, port) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        accepted.close()
        assert client.recv(1) == b""


def nothing(stack: contextlib.ExitStack, port: int) -> None:
    """Nobody."""


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """What is closed after a test."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    ("squatter", "held"),
    [
        (nothing, False),
        (listening, True),
        (listening_v6, True),
        (bound, True),
        (connected, True),
        (closing, True),
        (served, False),
        (lambda stack, port: bound(stack, port, reuse=True), False),
    ],
)
def test_taken_is_what_an_engine_cannot_bind(
    stack: contextlib.ExitStack, squatter: Squatter, *, held: bool
) -> None:
    """As a server binds its port on every address, with SO_REUSEADDR; without it no port could be had that is held."""
    port = free_block(10).start + 1
    squatter(stack, port)
    assert ports.taken(range(port - 1, port + 2)) == ((port,) if held else ())
    assert foreign_ports((port - 1, port + 1), ()) == ((port,) if held else ())
    assert foreign_ports((port - 1, port + 1), (port,)) == ()
    assert binds(port, reuse=True) is not held
    assert not (held and binds(port, reuse=False))


BIND = """
import socket, sys
made = socket.socket(socket.AF_INET6)
made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(sys.argv[2]))
made.bind(("::", int(sys.argv[1])))
made.listen()
"""


def binds(port: int, *, reuse: bool) -> bool:
    """Whether another process can listen on a port."""
    argv = [sys.executable, "-S", "-c", BIND, str(port), str(int(reuse))]
    return subprocess.run(argv, stderr=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.parametrize(
    ("squatter", "who"),
    [
        (listening, f"pid {os.getpid()}"),
        (connected, f"pid {os.getpid()}"),
        (bound, "a process that bound it and does not listen"),
        (closing, "a connection that is closing: wait a minute"),
    ],
)
def test_who_holds_a_port_is_named_where_it_can_be(
    stack: contextlib.ExitStack, squatter: Squatter, who: str
) -> None:
    """By pid, or by what is known of it."""
    port = free_block(10).start + 1
    squatter(stack, port)
    assert ports.holder(port) == who
