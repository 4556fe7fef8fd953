"""Pieces of engines' output for the control plane, one a command: who asks decides how fast it goes.

Built by `agent.serve`. Nothing is remembered between two pieces, so nothing has to be ended: whoever
follows asks for the next piece, and an agent that was restarted meanwhile answers it as well.
"""

import asyncio
import base64
import pathlib
from collections.abc import Mapping
from typing import Protocol

from llmgw.agent import logs
from llmgw.fleet.shard import ShardKey
from llmgw.kit.text import safe
from llmgw.wire import messages

MOST = 32
"""Answers that may be under way."""

LONGEST_WAIT = 10.0
LOOK = 0.2
"""Seconds between two looks for more output."""


class Shard(Protocol):
    """What is known of a shard that is here."""

    @property
    def state(self) -> str:
        """Its state."""
        ...


class LogAnswers:
    """Answers `Logs` from the files below `directory`."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._under_way = 0

    async def answer(self, asked: messages.Logs, shards: Mapping[ShardKey, Shard]) -> messages.Result:
        """The piece, or why there is none. `shards` are those that are here now."""
        if self._under_way >= MOST:
            said = f"cannot read another log now: {MOST} are being read on this node"
            return messages.Result(seq=asked.seq, ok=False, said=said)
        self._under_way += 1
        try:
            found = await self._piece(asked, shards)
        except OSError as error:
            said = f"cannot read the log: {error.strerror}: {safe(str(error.filename))}"
            return messages.Result(seq=asked.seq, ok=False, said=said)
        finally:
            self._under_way -= 1
        if found is None:
            said = f"no earlier log of rank {asked.rank} of {safe(asked.model)} is kept on this node"
            return messages.Result(seq=asked.seq, ok=False, said=said)
        return messages.Result(seq=asked.seq, data=found.model_dump())

    async def _piece(
        self, asked: messages.Logs, shards: Mapping[ShardKey, Shard]
    ) -> messages.LogPiece | None:
        key: ShardKey | None = (asked.replica, asked.rank)
        if asked.previous:
            key = await asyncio.to_thread(
                logs.previous, self._directory, asked.model, asked.rank, asked.replica, set(shards)
            )
        if key is None:
            return None
        left = min(asked.wait, LONGEST_WAIT)
        while True:
            found = await asyncio.to_thread(self._read, key, asked)
            shard = shards.get(key)
            if found.data or left <= 0 or shard is None or shard.state in ("failed", "gone"):
                return found.model_copy(update={"state": shard.state if shard is not None else ""})
            await asyncio.sleep(min(LOOK, left))
            left -= LOOK

    def _read(self, key: ShardKey, asked: messages.Logs) -> messages.LogPiece:
        path = logs.path_of(self._directory, key)
        plain = messages.LogPiece(replica=key[0], rank=key[1])
        if not path.exists():
            return plain.model_copy(update={"missing": True, "next": asked.offset or 0})
        offset = asked.offset
        if offset is None:
            offset = 0 if asked.tail is None else logs.tail_offset(path, asked.tail)
        found = logs.piece(path, offset, messages.LOG_PIECE)
        return plain.model_copy(
            update={
                "data": base64.b64encode(found.data).decode(),
                "offset": found.offset,
                "next": found.offset + len(found.data),
                "size": found.size,
                "lost": found.lost,
            }
        )
