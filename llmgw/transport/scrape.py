"""The second listener: `GET /metrics` for Prometheus, and nothing else.

Each of the three processes listens with it, on loopback unless told otherwise.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from llmgw.transport.sockets import reason

log = logging.getLogger(__name__)

LONGEST = 8192
"""Bytes of a request."""


class Scrape(asyncio.Protocol):
    """One connection, one answer. `within` = seconds a caller may take, all in all."""

    def __init__(self, page: Callable[[], bytes], within: float = 10.0) -> None:
        self._page = page
        self._within = within
        self._asked = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(self._within, transport.abort)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._asked += data
        if b"\r\n\r\n" in self._asked:
            self._answer()
        elif len(self._asked) > LONGEST:
            self._transport.abort()

    def _answer(self) -> None:
        line = self._asked.split(b"\r\n", 1)[0]
        found = line.startswith((b"GET /metrics ", b"GET /metrics?"))
        status, body = (b"200 OK", self._page()) if found else (b"404 Not Found", b"only /metrics is here\n")
        self._transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (status, len(body), body)
        )
        self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._deadline.cancel()


async def listen(page: Callable[[], bytes], where: tuple[str, int] | None) -> asyncio.Server | None:
    """Serve `page` at `where`. None, said in the log, where that cannot be: no fleet stands still for its figures."""
    if where is None:
        return None
    host, port = where
    try:
        return await asyncio.get_running_loop().create_server(lambda: Scrape(page), host, port)
    except OSError as error:
        log.warning(
            "no metrics: cannot listen on %s:%d: %s (choose another --metrics)", host, port, reason(error)
        )
        return None
