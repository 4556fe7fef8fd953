"""What one pass sees: who is there, who is believed, which replicas that makes.

Built once at the start of `reconcile` and read by each of its steps; the screens build one too, so
that they cannot disagree with the loop.
"""

import dataclasses
from collections.abc import Mapping

from llmgw.fleet.expiry import Standing, Timers
from llmgw.fleet.replica import Replica, replicas
from llmgw.fleet.world import Fleet
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """One look at the fleet.

    `heard` = the whole roster has spoken, or its grace is over: only then is absence a fact.
    `dark` = so many nodes fell silent together that we suspect ourselves: nothing starts or stops.
    `unheard` = nodes of the roster that have not spoken since we began to listen.
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

    def may_act(self) -> bool:
        """Whether this pass may start and stop anything at all."""
        return self.heard and not self.dark and self.desired.catalog is not None

    def of_model(self, model: str) -> list[Replica]:
        """The model's replicas in id order."""
        return [replica for replica in self.replicas.values() if replica.model == model]

    def reachable(self, node: str) -> bool:
        """Whether an order to the node would arrive now."""
        known = self.fleet.nodes.get(node)
        return known is not None and known.connected and self.standings.get(node) == "Ready"


def look(desired: Desired, fleet: Fleet, ledger: Ledger, now: float, timers: Timers) -> View:
    """What there is to see at `now`."""
    names = sorted(fleet.roster | fleet.nodes.keys())
    standings = {name: fleet.standing(name, now, timers) for name in names}
    for name in desired.marks.confirmed_lost & standings.keys():
        if standings[name] != "Ready":
            standings[name] = "Lost"
    unheard = tuple(name for name in names if standings[name] == "Unheard")
    dark = _dark(standings, ledger.lost | desired.marks.confirmed_lost, timers)
    green = _green(fleet, now, timers)
    if dark:
        standings = {name: "Unreachable" if was == "Lost" else was for name, was in standings.items()}
    return View(
        desired=desired,
        fleet=fleet,
        ledger=ledger,
        now=now,
        timers=timers,
        standings=standings,
        replicas=replicas(fleet, standings, green, now, timers),
        heard=not unheard or now - fleet.since >= timers.place_grace,
        dark=dark,
        unheard=unheard,
        lost=frozenset(name for name in names if standings[name] == "Lost"),
    )


def _dark(standings: Mapping[str, Standing], already_lost: frozenset[str], timers: Timers) -> bool:
    """Whether the silence looks like ours. Nodes whose loss was acted on before do not count."""
    counted = [stands for name, stands in standings.items() if stands == "Ready" or name not in already_lost]
    silent = sum(stands in ("Unreachable", "Lost") for stands in counted)
    return len(counted) >= 3 and silent >= timers.mass_share * len(counted)


def _green(fleet: Fleet, now: float, timers: Timers) -> set[str]:
    """Replicas that completed a request through a gateway lately: their agent may be silent, they are not."""
    return {
        replica
        for gateway in fleet.gateways.values()
        for replica, at in gateway.green_at.items()
        if now - at < timers.evidence
    }
