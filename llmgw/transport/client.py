"""The calling end: a channel of its own connection. Used by agents and gateways to reach their control plane."""

import asyncio
import ssl
from collections.abc import Iterable

from llmgw.transport.channel import Channel, ChannelClosed
from llmgw.transport.connection import Connection
from llmgw.transport.limits import Limits
from llmgw.transport.sockets import reason
from llmgw.transport.tls import distrust

USUAL = Limits()


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """The headers that carry `token`; none without one."""
    return (("authorization", f"Bearer {token}"),) if token else ()


async def connect(
    host: str,
    port: int,
    path: str,
    *,
    ping: float = USUAL.ping,
    timeout: float = USUAL.timeout,  # noqa: ASYNC109 - the life-long limit of the channel, not of this call
    headers: Iterable[tuple[str, str]] = (),
    tls: ssl.SSLContext | None = None,
) -> Channel:
    """A channel at `path`, agreed to by the server within `timeout` seconds. Raises ChannelClosed.

    It sends a PING every `ping` seconds and is closed when nothing came for `timeout`. Header names
    are in lower case. Without `tls` all of it is sent in clear. Closing the channel closes its connection.
    """
    where = f"{host}:{port}"
    limits = Limits(ping=ping, timeout=timeout)
    try:
        async with asyncio.timeout(timeout):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(limits), host, port, ssl=tls
            )
            return await _open(connection, path, headers)
    except TimeoutError:
        raise ChannelClosed(f"cannot reach {where}: no answer within {timeout:g} s") from None
    except ssl.SSLError as error:
        raise ChannelClosed(f"cannot talk to {where}: {distrust(error)}") from error
    except OSError as error:
        raise ChannelClosed(f"cannot reach {where}: {reason(error)}") from error


async def _open(connection: Connection, path: str, headers: Iterable[tuple[str, str]]) -> Channel:
    try:
        return await connection.open(path, headers)
    except ChannelClosed as closed:
        if connection.heard or connection.secure:
            raise
        raise ChannelClosed(f"{closed.said} before it said a word; if it speaks TLS, give --tls-ca") from None
    except BaseException:
        connection.abort("the channel was not opened")
        raise
