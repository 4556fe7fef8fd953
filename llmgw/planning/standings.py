"""Who is there and who is believed: what the silences of this instant mean together.

The first thing that a look at the fleet works out; `planning.view` shows it to every rule.
"""

import dataclasses
import math
from collections.abc import Mapping

from llmgw.fleet.expiry import Standing, Timers
from llmgw.fleet.world import Fleet


@dataclasses.dataclass(frozen=True, slots=True)
class Standings:
    """What every node of the roster is worth, by node id in their order.

    `heard` = the whole roster has spoken, or its grace is over: only then is absence a fact.
    `dark` = so many nodes fell silent together that we suspect ourselves: nothing starts or stops.
    `unheard` = nodes of the roster that have not spoken since we began to listen; `silent` spoke, and
    are Unreachable. `turns_at` is the
    next instant after this one at which silence alone changes any of it; infinite if none does.
    """

    of: Mapping[str, Standing]
    heard: bool
    dark: bool
    unheard: tuple[str, ...]
    silent: tuple[str, ...]
    lost: frozenset[str]
    turns_at: float


def stand(
    fleet: Fleet, confirmed_lost: frozenset[str], acted_on: frozenset[str], now: float, timers: Timers
) -> Standings:
    """What the silences mean at `now`. `acted_on` are the nodes whose loss was acted on before."""
    of = {name: fleet.standing(name, now, timers) for name in sorted(fleet.roster | fleet.nodes.keys())}
    turns_at = _turns_at(fleet, "Unheard" in of.values(), now, timers)
    if all(stands == "Ready" for stands in of.values()):
        return Standings(of, True, False, (), (), frozenset(), turns_at)
    for name in confirmed_lost & of.keys():
        if of[name] != "Ready":
            of[name] = "Lost"
    unheard = tuple(name for name, stands in of.items() if stands == "Unheard")
    known_lost = acted_on | confirmed_lost
    dark = _dark(of, known_lost, timers) and _dark(
        of, known_lost | _found_dark(fleet, of, now, timers), timers
    )
    if dark:
        of = {name: "Unreachable" if was == "Lost" else was for name, was in of.items()}
    return Standings(
        of=of,
        heard=not unheard or now - fleet.since >= timers.place_grace,
        dark=dark,
        unheard=unheard,
        silent=tuple(name for name, stands in of.items() if stands == "Unreachable"),
        lost=frozenset(name for name, stands in of.items() if stands == "Lost"),
        turns_at=turns_at,
    )


def _dark(of: Mapping[str, Standing], already_lost: frozenset[str], timers: Timers) -> bool:
    """Whether the silence looks like ours. Nodes whose loss was acted on before do not count."""
    counted = [stands for name, stands in of.items() if stands == "Ready" or name not in already_lost]
    silent = len(counted) - counted.count("Ready") - counted.count("Unheard")
    return len(counted) >= 3 and silent >= timers.mass_share * len(counted)


def _found_dark(fleet: Fleet, of: Mapping[str, Standing], now: float, timers: Timers) -> frozenset[str]:
    """Silent nodes to whose replicas a gateway on another machine than ours could not connect either, lately and since
    they fell silent. A gateway that is silent itself may be served by them: then nobody's word counts.
    """
    gateways = fleet.gateways.values()
    if any(now - gateway.last_seen >= timers.gateway_silent for gateway in gateways):
        return frozenset()
    witnesses = [gateway for gateway in gateways if gateway.apart]
    dark: dict[str, bool] = {}
    for shard in fleet.shards.values() if witnesses else ():
        node, replica = shard.spec.node, shard.spec.replica
        if shard.spec.rank or shard.state != "ready" or of.get(node, "Ready") == "Ready":
            continue
        since = max(fleet.nodes[node].last_seen, now - timers.evidence)
        last = max((gateway.dark_at.get(replica, -math.inf) for gateway in witnesses), default=-math.inf)
        green = any(gateway.green_at.get(replica, -math.inf) >= last for gateway in gateways)
        dark[node] = dark.get(node, True) and last > since and not green
    return frozenset(node for node, found in dark.items() if found)


def _turns_at(fleet: Fleet, waiting: bool, now: float, timers: Timers) -> float:
    first = math.inf
    for at in (fleet.since + timers.place_grace, fleet.since + timers.lost_grace) if waiting else ():
        if now < at < first:
            first = at
    unreachable, lost = timers.unreachable, timers.lost
    for node in fleet.nodes.values():
        seen = node.last_seen
        at = seen + unreachable
        if at <= now:
            at = seen + lost
        if now < at < first:
            first = at
    return first
