"""Sockets on their way in: all counted, little kept for each, and a machine that is out of files says so once."""

import asyncio
import contextlib
import dataclasses
import logging
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from llmgw.transport.client import connect
from llmgw.transport.limits import Limits
from llmgw.transport.listener import Listener
from tests.support import certificates as ours
from tests.transport.harness import HOST, QUICK, echo, hello, listening, until

FEW = dataclasses.replace(QUICK, head_timeout=30.0, connections=6)


@contextlib.asynccontextmanager
async def secured(limits: Limits) -> AsyncIterator[tuple[Listener, int]]:
    """A listener with TLS, and its port."""
    listener = Listener(echo, hello, limits=limits)
    _, port = await listener.start(HOST, 0, ours.serving())
    try:
        yield listener, port
    finally:
        await listener.close()
        await until(lambda: listener.connections == 0, "the listener's sockets are closed")


@contextlib.asynccontextmanager
async def knocking(port: int, many: int, first: bytes = b"") -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many clients that connect and send `first` at most."""
    pairs = [await asyncio.open_connection(HOST, port) for _ in range(many)]
    for _, writer in pairs:
        writer.write(first)
    try:
        yield [reader for reader, _ in pairs]
    finally:
        for _, writer in pairs:
            writer.transport.abort()


@contextlib.contextmanager
def files(more: int) -> Iterator[None]:
    """This process may open so many more files than it has, whose numbers have no gaps then."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = max(int(name) for name in os.listdir("/proc/self/fd"))
    fillers = [os.dup(0)]
    while fillers[-1] < top:
        fillers.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 1 + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for filler in fillers:
            os.close(filler)


async def spoken(port: int, tls: bool = True) -> None:
    """One word there and back."""
    channel = await connect(HOST, port, "/agent", tls=ours.calling("h2") if tls else None)
    await channel.send(b"word")
    assert await channel.receive() == b"word"
    await channel.close()


def test_sockets_without_a_handshake_are_counted() -> None:
    """Under TLS too: as many as are allowed, and the next one is closed; who was in before stays."""

    async def story() -> None:
        async with secured(FEW) as (listener, port):
            known = await connect(HOST, port, "/agent", tls=ours.calling("h2"))
            async with knocking(port, FEW.connections - 1):
                await until(lambda: listener.connections == FEW.connections, "all are counted")
                async with knocking(port, 1) as (late,):
                    with contextlib.suppress(ConnectionError):
                        assert await asyncio.wait_for(late.read(1), 5.0) == b""
                await known.send(b"still here")
                assert await known.receive() == b"still here"
            await until(lambda: listener.connections == 1, "only the first is left")
            await spoken(port)
            await known.close()

    asyncio.run(story())


def test_handshakes_under_way_are_few_and_short() -> None:
    """Who says nothing takes none of them, who begins and stops is cut: a client in good faith gets its own."""

    async def story() -> None:
        limits = dataclasses.replace(QUICK, head_timeout=30.0, handshakes=2, handshake_timeout=0.2)
        async with secured(limits) as (listener, port), knocking(port, 10):
            await until(lambda: listener.connections == 10, "all are in")
            assert listener.handshakes == 0
            await spoken(port)
            async with knocking(port, 6, b"\x16\x03") as begun:
                seen = 0
                while not begun[-1].at_eof():
                    seen = max(seen, listener.handshakes)
                    with contextlib.suppress(TimeoutError, ConnectionError):
                        await asyncio.wait_for(begun[-1].read(1), 0.02)
                assert seen == 2
            await spoken(port)

    asyncio.run(story())


def test_some_files_are_left_for_others(caplog: pytest.LogCaptureFixture) -> None:
    """Sockets never take the last files: the refusals are one line, and end when there is room again."""

    async def story() -> None:
        async with secured(QUICK) as (_, port):
            known = await connect(HOST, port, "/agent", tls=ours.calling("h2"))
            with files(20):
                for _ in range(3):
                    async with knocking(port, 1) as (refused,):
                        with contextlib.suppress(ConnectionError):
                            assert await asyncio.wait_for(refused.read(1), 5.0) == b""
                await known.send(b"still here")
                assert await known.receive() == b"still here"
            await spoken(port)
            await known.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    (line,) = [record.getMessage() for record in caplog.records]
    assert "cannot accept a connection: " in line
    assert "LimitNOFILE=" in line


def test_no_file_left_is_a_pause_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """At the limit nobody is accepted and nothing spins; whoever waited is served once there are files again."""

    async def story() -> None:
        async with listening() as (listener, port):
            client = socket.socket()
            client.setblocking(False)
            fillers: list[int] = []
            with files(8):
                with contextlib.suppress(OSError):
                    while True:
                        fillers.append(os.dup(client.fileno()))
                try:
                    with contextlib.suppress(BlockingIOError):
                        client.connect((HOST, port))
                    await until(lambda: caplog.records, "it is said")
                    await asyncio.sleep(0.3)
                    assert listener.connections == 0, "the fault took no effect"
                finally:
                    for filler in fillers:
                        os.close(filler)
            await until(lambda: listener.connections == 1, "it is accepted after all")
            client.close()
            await spoken(port, tls=False)

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    (record,) = caplog.records
    assert record.getMessage().startswith("cannot accept a connection: too many open files; ")
    assert record.exc_info is None
