"""Asking nodes to remove exactly what was listed, and waiting for what each says. Used by the API's gc."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pydantic

from llmgw.fleet.node import CachedWeights
from llmgw.wire import messages


class EntryOutcome(pydantic.BaseModel):
    """What a node did with one entry. `freed` in bytes."""

    cache_name: str
    removed: bool
    said: str = ""
    freed: int = 0


_ENTRIES = pydantic.TypeAdapter(list[EntryOutcome])


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What one node did with its part of the list. `said` is set where it did not answer."""

    node: str
    asked: int
    entries: tuple[dict[str, Any], ...] = ()
    said: str = ""


class Collecting:
    """Matches the nodes' Results with the Collects they answer. At most one a node and sequence."""

    def __init__(
        self, send: Callable[[str, Callable[[int, int], messages.Command]], bool], patience: float = 60.0
    ) -> None:
        self._send, self._patience = send, patience
        self._open: dict[tuple[str, int], asyncio.Future[messages.Result]] = {}

    async def ask(self, node: str, entries: tuple[CachedWeights, ...], revision: int) -> Outcome:
        """Ask `node` and wait for its answer, at most `patience` seconds."""
        answer: asyncio.Future[messages.Result] = asyncio.get_running_loop().create_future()
        numbers: list[int] = []

        def command(epoch: int, seq: int) -> messages.Command:
            numbers.append(seq)
            return messages.Collect(epoch=epoch, seq=seq, revision=revision, entries=entries)

        if not self._send(node, command):
            return Outcome(node, len(entries), said="not connected: nothing was asked")
        self._open[node, numbers[0]] = answer
        try:
            async with asyncio.timeout(self._patience):
                result = await answer
        except TimeoutError:
            return Outcome(
                node,
                len(entries),
                said=f"no answer within {self._patience:g}s: list again to see what it did",
            )
        finally:
            del self._open[node, numbers[0]]
        if not result.ok:
            return Outcome(node, len(entries), said=result.said)
        try:
            rows = _ENTRIES.validate_python(result.data.get("entries", []))
        except pydantic.ValidationError as error:
            said = f"its answer cannot be read: {error.errors()[0]['msg'].lower()}"
            return Outcome(node, len(entries), said=said)
        return Outcome(node, len(entries), tuple(row.model_dump() for row in rows))

    def answered(self, node: str, result: messages.Result) -> None:
        """A node answered one of its commands."""
        waiting = self._open.get((node, result.seq))
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
