"""The one port with TLS: the same channels and requests, and sentences where the two ends do not fit."""

import asyncio
import contextlib
import pathlib
import ssl

import httpx
import pytest

from llmgw.errors import Failed
from llmgw.transport import tls
from llmgw.transport.channel import Channel, ChannelClosed
from llmgw.transport.client import connect
from llmgw.transport.listener import Listener
from tests.support import certificates as ours
from tests.transport.harness import HOST, QUICK, echo, ended, hello, listening, until


async def serving(on_channel: object = echo) -> tuple[Listener, int]:
    """A listener with TLS, and its port."""
    listener = Listener(on_channel, hello, limits=QUICK)  # type: ignore[arg-type]
    _, port = await listener.start(HOST, 0, ours.serving())
    return listener, port


def test_a_channel_carries_long_messages_both_ways_under_tls() -> None:
    """Larger than any window, twice at once, and every byte comes back."""

    async def scenario() -> None:
        listener, port = await serving()
        channel = await connect(HOST, port, "/agent", tls=ours.calling("h2"))
        long = bytes(range(256)) * 16_384
        for message in (long, b"short", long[::-1]):
            sending = asyncio.ensure_future(channel.send(message))
            assert await channel.receive() == message
            await sending
        assert await channel.ping(1.0)
        await channel.close()
        await listener.close()
        await until(lambda: listener.connections == 0, "closed")

    asyncio.run(scenario())


def test_requests_are_answered_on_the_same_port_and_protocol_is_agreed_by_alpn() -> None:
    """The CLI's HTTP/1.1 and the agents' HTTP/2 meet one listener; nothing is spoken that was not agreed."""

    async def scenario() -> None:
        listener, port = await serving()
        async with httpx.AsyncClient(verify=ours.calling("http/1.1"), trust_env=False) as client:
            answer = await client.get(f"https://localhost:{port}/x")
        assert (answer.status_code, answer.text, answer.http_version) == (200, "/x", "HTTP/1.1")
        for offered, agreed in (("h2", "h2"), ("http/1.1", "http/1.1")):
            reader, writer = await asyncio.open_connection(HOST, port, ssl=ours.calling(offered))
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == agreed
            writer.transport.abort()
            del reader
        await listener.close()

    asyncio.run(scenario())


def test_a_server_that_stops_delivers_what_it_said_and_why() -> None:
    """TLS knows no half-closed socket: the goodbye arrives all the same."""

    async def scenario() -> None:
        async def talk(channel: Channel) -> None:
            await channel.send(b"last words" * 1000)
            await asyncio.Event().wait()

        listener, port = await serving(talk)
        channel = await connect(HOST, port, "/agent", tls=ours.calling("h2"))
        assert await channel.receive() == b"last words" * 1000
        closing = asyncio.ensure_future(listener.close())
        assert "the server is stopping" in await ended(channel)
        await channel.close()
        await closing

    asyncio.run(scenario())


async def refusal(port: int, context: ssl.SSLContext | None) -> str:
    """Why a channel cannot be opened there."""
    with pytest.raises(ChannelClosed) as closed:
        await connect(HOST, port, "/agent", ping=0.2, timeout=2.0, tls=context)
    return closed.value.said


def test_ends_that_do_not_fit_say_what_would_help() -> None:
    """An unknown authority, TLS to a plain port, plain to a TLS port: three sentences, no stack trace."""

    async def scenario() -> None:
        listener, port = await serving()
        stranger = tls.calling(tls.SYSTEM, "h2")
        assert "its certificate is not trusted: " in await refusal(port, stranger)
        assert "if it speaks TLS, give --tls-ca" in await refusal(port, None)
        await listener.close()
        async with listening() as (_, plain):
            assert "it speaks no TLS" in await refusal(plain, ours.calling("h2"))

    asyncio.run(scenario())


def test_a_handshake_that_stands_still_is_ended() -> None:
    """Who connects and says nothing is let go of after the time that a head may take."""

    async def scenario() -> None:
        listener, port = await serving()
        reader, writer = await asyncio.open_connection(HOST, port)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                assert await reader.read(1) == b""
        writer.transport.abort()
        await listener.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        (ours.CERTIFICATE, pathlib.Path("/nowhere"), "no such file"),
        (ours.CERTIFICATE, ours.AUTHORITY, ": "),
        (pathlib.Path(__file__), ours.KEY, ": "),
    ],
)
def test_a_certificate_that_cannot_be_used_is_a_sentence(
    certificate: pathlib.Path, key: pathlib.Path, said: str
) -> None:
    """Before anything listens, with both files named."""
    with pytest.raises(Failed) as failed:
        tls.serving(certificate, key)
    assert failed.value.said.startswith(f"cannot serve with certificate {certificate} and key {key}: ")
    assert said in failed.value.said
