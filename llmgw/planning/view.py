"""What one pass sees: who is there, who is believed, which replicas that makes.

Built once at the start of `reconcile` and read by each of its steps; the screens build one too, so
that they cannot disagree with the loop.
"""

import dataclasses
from collections.abc import Mapping

from llmgw.fleet.expiry import Standing, Timers
from llmgw.fleet.replica import Replica
from llmgw.fleet.world import Fleet
from llmgw.planning.board import Board
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """One look at the fleet.

    `heard` = the whole roster has spoken, or its grace is over: only then is absence a fact.
    `dark` = so many nodes fell silent together that we suspect ourselves: nothing starts or stops.
    `unheard` = nodes of the roster that have not spoken since we began to listen. `board` knows which
    of it changed; `replicas` come in id order where it was made for this look alone.
    """

    desired: Desired
    fleet: Fleet
    ledger: Ledger
    now: float
    timers: Timers
    standings: Mapping[str, Standing]
    replicas: Mapping[str, Replica]
    heard: bool
    dark: bool
    unheard: tuple[str, ...]
    lost: frozenset[str]
    board: Board

    def may_act(self) -> bool:
        """Whether this pass may start and stop anything at all."""
        return self.heard and not self.dark and self.desired.catalog is not None

    def of_model(self, model: str) -> list[Replica]:
        """The model's replicas in id order."""
        return [self.replicas[name] for name in self.board.roll.by_model.get(model, ())]

    def silent(self, gateway: str) -> bool:
        """Whether this gateway has not spoken for so long that nobody waits for its word."""
        return self.now - self.fleet.gateways[gateway].last_seen >= self.timers.gateway_silent

    def reachable(self, node: str) -> bool:
        """Whether an order to the node would arrive now."""
        known = self.fleet.nodes.get(node)
        return known is not None and known.connected and self.standings.get(node) == "Ready"


def look(
    desired: Desired,
    fleet: Fleet,
    ledger: Ledger,
    now: float,
    timers: Timers,
    memory: Board | None = None,
) -> View:
    """What there is to see at `now`."""
    board = Board() if memory is None else memory
    standings = board.look(desired, fleet, ledger, now, timers)
    return View(
        desired=desired,
        fleet=fleet,
        ledger=ledger,
        now=now,
        timers=timers,
        standings=standings.of,
        replicas=board.roll.replicas,
        heard=standings.heard,
        dark=standings.dark,
        unheard=standings.unheard,
        lost=standings.lost,
        board=board,
    )
