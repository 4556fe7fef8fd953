"""Asking an engine over HTTP. Its answer may be anything: bounded in bytes, pieces and seconds, never decompressed.

Called by `agent.health` for every probe: eight idle engines are asked as many times a second, so this is
a connection, a request and h11's reading of the answer, and no client with pools and certificates.
"""

import asyncio
import dataclasses
import errno
from typing import Any, Literal

import h11
import orjson

from llmgw.engines.base import host_port
from llmgw.kit.text import safe
from llmgw.kit.units import show_bytes

LARGEST = 512 * 2**10
"""Bytes of an answer as they come, head and framing too: the counters of the most talkative engine are fewer."""

PIECES = 4096
"""Parts of an answer, as it is framed or as it comes: each costs the same, however few bytes it has."""

PIECE = 65_536

_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""What this machine lacks says nothing of the engine."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What came, whatever it is."""

    status: int
    raw: bytes

    @property
    def text(self) -> str:
        return self.raw.decode(errors="replace")

    def entries(self, key: str) -> list[Any]:
        """The list under `key` of a JSON object; empty where it is not one."""
        try:
            document = orjson.loads(self.raw)
        except orjson.JSONDecodeError:
            return []
        found = document.get(key) if isinstance(document, dict) else None
        return found if isinstance(found, list) else []


class NoAnswer(Exception):
    """There is none, and why; `odd` = what came cannot be one, `large` = there is more of it than is read."""

    def __init__(self, outcome: Literal["refused", "late", "broke", "odd", "large"], said: str) -> None:
        super().__init__(said)
        self.outcome, self.said = outcome, said


async def ask(host: str, port: int, method: str, path: str, *, within: float, body: object = None) -> Answer:
    """The whole answer within so many seconds, on a connection of its own. A redirect is an answer.

    Raises NoAnswer; OSError where it is this machine that has no room for a connection.
    """
    try:
        async with asyncio.timeout(within):
            return await _whole(host, port, _request(host, port, method, path, body), path)
    except TimeoutError:
        raise NoAnswer("late", f"{path} does not answer in time") from None


async def _whole(host: str, port: int, request: bytes, path: str) -> Answer:
    reader, writer = await _connected(host, port, path)
    try:
        writer.write(request)
        return await _answer(reader, path)
    except (ConnectionError, h11.RemoteProtocolError) as error:
        raise NoAnswer("broke", f"{path} breaks off ({type(error).__name__})") from None
    finally:
        writer.close()


async def _connected(host: str, port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection(host, port)
    except OSError as error:
        if error.errno in _OURS:
            raise
        raise NoAnswer("refused", f"{path} cannot be reached") from None
    except (ValueError, OverflowError) as error:  # of an address that is none
        raise NoAnswer("odd", f"{path} cannot be asked: {safe(str(error))[:200]}") from None


def _request(host: str, port: int, method: str, path: str, body: object) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host_port(host, port)}",
        "Connection: close",
        "Accept: */*",
        "Accept-Encoding: identity",
    ]
    content = b"" if body is None else orjson.dumps(body)
    if content:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


async def _answer(reader: asyncio.StreamReader, path: str) -> Answer:
    machine = h11.Connection(h11.CLIENT)
    machine.send(h11.Request(method="GET", target="/", headers=[("host", "-")]))
    machine.send(h11.EndOfMessage())
    status, raw, received = 0, bytearray(), 0
    for _ in range(PIECES):
        match machine.next_event():
            case h11.NEED_DATA:
                came = await reader.read(PIECE)
                received += len(came)
                if received > LARGEST:
                    raise NoAnswer("large", f"{path} answers with more than {show_bytes(LARGEST)}")
                machine.receive_data(came)
            case h11.Response(status_code=code):
                status = code
            case h11.Data(data=data):
                raw += data
            case h11.EndOfMessage() | h11.ConnectionClosed():
                return Answer(status, bytes(raw))
    raise NoAnswer("large", f"{path} answers in more than {PIECES} pieces")
