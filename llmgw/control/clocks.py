"""What the clocks of agents and gateways show beside ours. A route of the API, for `llmgw doctor`.

Asked when a person asks, and nothing is decided by it: a reading said once would be wrong after the next step
of either clock, and a heartbeat with one would never be the same as the last.
"""

import asyncio
import dataclasses
import json
import math
from typing import Any

from llmgw.control.api import Routes
from llmgw.control.asking import Asking, NoAnswer
from llmgw.control.peers import Peer, Peers
from llmgw.kit.clock import Clock
from llmgw.transport.http import Request, Response
from llmgw.wire import messages

PATIENCE = 2.0
"""Seconds for all answers together: they are asked at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """How many seconds a peer's clock is ahead of ours, to within `within`; None = it did not say.

    `within` is half of the time that the answer took: somewhere in it the clock was read.
    """

    kind: str
    name: str
    ahead: float | None = None
    within: float = 0.0


class Clocks:
    """Answers `GET /v1/clocks` for one control plane: a row for each peer that is connected."""

    def __init__(
        self, peers: Peers, agents: Asking, gateways: Asking, clock: Clock, patience: float = PATIENCE
    ) -> None:
        self._peers, self._clock, self._patience = peers, clock, patience
        self._asking = {"agent": agents, "gateway": gateways}

    @property
    def routes(self) -> Routes:
        return {("GET", "/v1/clocks"): self._answer}

    async def _answer(self, _: Request) -> Response:
        rows = await asyncio.gather(*map(self._compare, self._peers))
        rows.sort(key=lambda row: (row.kind, row.name))
        return Response(200, json.dumps([dataclasses.asdict(row) for row in rows]).encode())

    async def _compare(self, peer: Peer) -> Compared:
        began = self._clock.now()
        try:
            result = await self._asking[peer.kind].ask(
                peer.id, lambda epoch, seq: messages.Clock(epoch=epoch, seq=seq), self._patience
            )
        except NoAnswer:
            return Compared(peer.kind, peer.name)
        wall = _number(result.data.get("wall")) if result.ok else None
        if wall is None:
            return Compared(peer.kind, peer.name)
        within = (self._clock.now() - began) / 2
        return Compared(peer.kind, peer.name, wall - (self._clock.wall().timestamp() - within), within)


def _number(value: Any) -> float | None:
    """A reading; None for what is none."""
    sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if sound else None
