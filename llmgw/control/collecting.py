"""Asking nodes to remove exactly what was listed, and waiting for what each says. Used by the API's gc."""

import dataclasses
from typing import Any

import pydantic

from llmgw.control.asking import Asking, NoAnswer
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
    """Asks node by node."""

    def __init__(self, asking: Asking, patience: float = 60.0) -> None:
        self._asking, self._patience = asking, patience

    async def ask(self, node: str, entries: tuple[CachedWeights, ...], revision: int) -> Outcome:
        """Ask `node` and wait for its answer, at most `patience` seconds."""

        def command(epoch: int, seq: int) -> messages.Command:
            return messages.Collect(epoch=epoch, seq=seq, revision=revision, entries=entries)

        try:
            result = await self._asking.ask(node, command, self._patience)
        except NoAnswer as none:
            return Outcome(node, len(entries), said=f"{none.said}; list again to see what it did")
        if not result.ok:
            return Outcome(node, len(entries), said=result.said)
        try:
            rows = _ENTRIES.validate_python(result.data.get("entries", []))
        except pydantic.ValidationError as error:
            said = f"its answer cannot be read: {error.errors()[0]['msg'].lower()}"
            return Outcome(node, len(entries), said=said)
        return Outcome(node, len(entries), tuple(row.model_dump() for row in rows))
