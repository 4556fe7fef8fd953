"""Asking an engine over HTTP. Its answer may be anything: it is bounded in bytes and seconds, never decoded.

Called by `agent.health` for every probe.
"""

import asyncio
import dataclasses
from typing import Any, Literal

import httpx
import orjson

from llmgw.kit.text import safe
from llmgw.kit.units import show_bytes

LARGEST = 4 * 2**20
"""Bytes of an answer: the counters of the most talkative engine are a tenth of that."""


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
    """There is none, and why; `odd` = what came cannot be one."""

    def __init__(self, outcome: Literal["refused", "late", "broke", "odd"], said: str) -> None:
        super().__init__(said)
        self.outcome, self.said = outcome, said


async def ask(
    client: httpx.AsyncClient, method: str, url: str, *, within: float, body: object = None
) -> Answer:
    """The whole answer within so many seconds. Raises NoAnswer."""
    path = f"/{url.partition('://')[2].partition('/')[2]}"
    try:
        async with asyncio.timeout(within):
            return await _whole(client, method, url, path, within, body)
    except (TimeoutError, httpx.TimeoutException):
        raise NoAnswer("late", f"{path} does not answer in time") from None
    except httpx.ConnectError:
        raise NoAnswer("refused", f"{path} cannot be reached") from None
    except httpx.TransportError as error:
        raise NoAnswer("broke", f"{path} breaks off ({type(error).__name__})") from None
    except (httpx.InvalidURL, ValueError) as error:  # of an address that is none
        raise NoAnswer("odd", f"{path} cannot be asked: {safe(str(error))[:200]}") from None


async def _whole(
    client: httpx.AsyncClient, method: str, url: str, path: str, within: float, body: object
) -> Answer:
    headers = {"accept-encoding": "identity"}
    async with client.stream(method, url, json=body, headers=headers, timeout=within) as response:
        raw = bytearray()
        async for piece in response.aiter_raw():
            raw += piece
            if len(raw) > LARGEST:
                raise NoAnswer("odd", f"{path} answers with more than {show_bytes(LARGEST)}")
        return Answer(response.status_code, bytes(raw))
