"""Planted bugs: each replaces one function of the product while a run lasts.

A checker that cannot fail is the worst bug. Every mutant must be found, by the invariant that it is
meant to break or by another one; `python -m tests.lab sim --mutants all` counts in how many seeds.
"""

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

from llmgw.agent import core
from llmgw.fleet import events, replica, world
from llmgw.fleet.lifecycle import ENDED
from llmgw.fleet.routes import Routes
from llmgw.planning import board, draining, placement, reconcile, rollout, routes, standings, stock, troubles
from llmgw.planning import view as planning_view
from llmgw.planning.actions import Start, Stop
from llmgw.planning.ledger import Draining, Ledger
from llmgw.planning.needs import Needs
from llmgw.planning.view import View
from llmgw.wire import messages, session
from tests.sim import control, scenario
from tests.sim.mutants_node import NODE_MUTANTS
from tests.sim.mutants_people import PEOPLE_MUTANTS
from tests.sim.planting import Mutant, always


def _nothing(*_: Any) -> None:
    return None


def _gpus_free_when_stopped(right: Any) -> Any:
    def place_one(view: View, needs: Needs, chance: Any) -> Any:
        left = {key: shard for key, shard in view.fleet.shards.items() if shard.ordered != "stop"}
        fleet = dataclasses.replace(view.fleet, shards=left)
        seen = planning_view.look(view.desired, fleet, view.ledger, view.now, view.timers)
        needs.searches.clear()
        return right(seen, needs, chance)

    return place_one


def _gone_at_once(right: Any) -> Any:
    """The agent reports `gone` when the stop is ordered, not when nobody is left."""

    def stop(state: core.AgentState, command: Any, now: float) -> Any:
        kept = state.shards.get((command.replica, command.rank))
        if kept is None or kept.swept:
            return right(state, command, now)
        after, commands = right(state, command, now)
        left = {key: other for key, other in after.shards.items() if key != kept.spec.key}
        gone = dataclasses.replace(kept.status(now), state="gone")
        return dataclasses.replace(after, shards=left), (*commands, core.Report((gone,)))

    return stop


def _place_all(right: Any) -> Any:
    """Every pending model gets a place from the same snapshot."""

    def place_one(view: View, needs: Needs, chance: Any) -> Any:
        placed, unplaced = right(view, needs, chance)
        others = copy.copy(needs)
        others.pending = [key for key in needs.pending if key[-1] not in {a.spec.model for a in placed}]
        if placed and others.pending:
            placed += right(view, others, chance)[0]
        return placed, unplaced

    return place_one


def _lost_is_unreachable(right: Any) -> Any:
    def standing(last_seen: float, now: float, timers: Any) -> Any:
        found = right(last_seen, now, timers)
        return "Lost" if found == "Unreachable" else found

    return standing


def _without_evidence(right: Any) -> Any:
    return always(False)


def _drained_at_once(right: Any) -> Any:
    return always(True)


def _any_gateway_will_do(right: Any) -> Any:
    """Drained as soon as one gateway says so."""

    def due(view: View, replica: replica.Replica, draining: Draining) -> bool:
        gateways = view.fleet.gateways
        return right(view, replica, draining) or any(
            right(_seeing(view, {name: gateway}), replica, draining) for name, gateway in gateways.items()
        )

    return due


def _seeing(view: View, gateways: Mapping[str, world.Gateway]) -> View:
    return dataclasses.replace(view, fleet=dataclasses.replace(view.fleet, gateways=gateways))


def _head_with_workers(right: Any) -> Any:
    """Rank 0 is started together with its workers."""

    def starts(view: View) -> list[Any]:
        actions = right(view)
        begun = {action.key[0] for action in actions if isinstance(action, Start)}
        heads = [
            Start(shard.spec.key, shard.spec.node, shard.spec.generation, "with its workers")
            for found in view.replicas.values()
            for shard in found.present
            if found.id in begun and shard.spec.rank == 0 and shard.state == "held"
        ]
        return [*actions, *(head for head in heads if head not in actions)]

    return starts


def _before_the_weights(right: Any) -> Any:
    """A rank is executed though its neighbour is still downloading."""

    def starts(view: View) -> list[Any]:
        return [
            *right(view),
            *(
                Start(shard.spec.key, shard.spec.node, shard.spec.generation, "it is held here")
                for found in view.replicas.values()
                for shard in found.present
                if shard.spec.rank > 0 and shard.state == "held" and shard.ordered != "start"
            ),
        ]

    return starts


def _failed_alone_is_stopped(right: Any) -> Any:
    def sweep(view: View) -> list[Stop]:
        return [stop for stop in right(view) if view.fleet.shards[stop.key].state == "failed"]

    return sweep


def _starting_is_routed(right: Any) -> Any:
    def routed(found: replica.Replica, draining: bool) -> bool:
        return found.phase == "Starting" or right(found, draining)

    return routed


def _failed_stays_routed(right: Any) -> Any:
    """The table forgets nothing for as long as its node is there."""

    def table(view: View, drains: Mapping[str, Draining]) -> Routes:
        found = right(view, drains)
        old = view.ledger.routes.endpoints
        said = {endpoint.replica for endpoint in found.endpoints}
        kept = tuple(e for e in old if e.replica not in said and e.replica in view.replicas)
        return dataclasses.replace(found, endpoints=found.endpoints + kept) if kept else found

    return table


def _no_backoff(right: Any) -> Any:
    def charge(view: View, chance: Any) -> Ledger:
        return dataclasses.replace(right(view, chance), troubles={})

    return charge


def _sibling_forgives(right: Any) -> Any:
    """A replica that has been Ready for long forgives a failure of just now."""

    def proves(view: View, found: replica.Replica, known: Mapping[Any, Any]) -> bool:
        long = view.now - found.since >= view.timers.backoff_reset
        return (found.model, found.generation) in known and found.phase == "Ready" and long

    return proves


def _no_roster(right: Any) -> Any:
    def look(*seen: Any) -> View:
        return dataclasses.replace(right(*seen), heard=True)

    return look


def _not_dark(right: Any) -> Any:
    return always(False)


def _anybody_is_a_witness(right: Any) -> Any:
    def found_dark(fleet: world.Fleet, of: Mapping[str, str], *seen: Any) -> frozenset[str]:
        right(fleet, of, *seen)
        return frozenset(name for name, stands in of.items() if stands != "Ready" and fleet.gateways)

    return found_dark


def _stall_counts(right: Any) -> Any:
    return _nothing


def _starts_twice(right: Any) -> Any:
    """The agent executes a Start whatever the shard is doing."""

    def start(state: core.AgentState, command: Any, now: float) -> Any:
        kept = state.shards.get((command.replica, command.rank))
        if kept is not None and kept.state in ("starting", "started"):
            return state, (core.Launch(kept.spec),)
        return right(state, command, now)

    return start


def _old_first(right: Any) -> Any:
    """The old generation drains as soon as it is superseded."""

    def drain(view: View, fresh: Any, stale: Any, count: int) -> Any:
        return tuple((found.id, "it is old") for found in stale)

    return drain


def _unconfirmed_is_gone(right: Any) -> Any:
    """A failed shard is forgotten by the fleet before its node says that it is gone."""

    def reported(draft: world.Draft, event: Any, now: float) -> None:
        right(draft, event, now)
        for key, shard in list(draft.fleet.shards.items()):
            if shard.state in ENDED:
                del draft._shards.write[key]

    return reported


def _subscription_acknowledges(right: Any) -> Any:
    """A gateway's new stream counts as an acknowledgement with nothing in flight."""

    def event(gateway: str, message: messages.Up, host: str = "") -> Any:
        if isinstance(message, messages.Subscribe):
            return events.GatewaySeen(gateway, message.version)
        return right(gateway, message, host)

    return event


def _instead(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _silent_is_ready(right: Any) -> Any:
    """A node that fell silent gets work all the same."""

    def site(room: Any, stands: str, cordoned: str) -> Any:
        return right(room, "Ready" if stands == "Unreachable" else stands, cordoned)

    return site


def _without(rule: Callable[..., str]) -> Callable[[Any], Any]:
    return lambda rules: tuple(other for other in rules if other is not rule)


def _progress_counts(right: Any) -> Any:
    """Bytes that arrive give a shard more time."""

    def apply(draft: world.Draft, event: Any, now: float) -> None:
        right(draft, event, now)
        if isinstance(event, events.Progressed):
            for key, shard in list(draft.fleet.shards.items()):
                if shard.spec.node == event.node:
                    draft._shards.write[key] = dataclasses.replace(shard, since=now)

    return apply


def _oldest_goes(right: Any) -> Any:
    """Of one too many, the one that serves longest goes."""

    def drain(view: View, fresh: Any, stale: Any, count: int) -> Any:
        turned = [dataclasses.replace(found, since=-found.since) for found in fresh]
        return right(view, turned, stale, count)

    return drain


def _wall_is_time(right: Any) -> Any:
    """The loop asks people's clock what time it is."""

    def now(clock: control.SimulatedClock) -> float:
        return (clock.wall() - control.EPOCH).total_seconds()

    return now


def _charged_for_ever(right: Any) -> Any:
    def charge(view: View, chance: Any) -> Ledger:
        after = right(view, chance)
        return dataclasses.replace(after, charged=after.charged | view.ledger.charged)

    return charge


def _lost_drains_stay(right: Any) -> Any:
    """A drain outlives its replica."""

    def advance(view: View, drains: dict[str, Draining]) -> Any:
        before = dict(drains)
        stops = right(view, drains)
        drains.update({name: before[name] for name in before.keys() - drains.keys()})
        return stops

    return advance


def _nothing_adopted(right: Any) -> Any:
    """A restarted agent forgets what runs."""

    def adopted(state: core.AgentState, event: Any, now: float) -> Any:
        return state, ()

    return adopted


def _unswept(right: Any) -> Any:
    """What is left of a failed engine is left alone."""

    def fail(*seen: Any) -> Any:
        state, commands = right(*seen)
        return state, tuple(each for each in commands if not isinstance(each, core.Sweep))

    return fail


def _deaf_for_ever(right: Any) -> Any:
    """Orders of an older control plane are obeyed, and old ones again."""

    def commanded(session: Any, command: Any) -> Any:
        return right(dataclasses.replace(session, obeyed=-1, epoch=command.epoch), command)

    return commanded


def _never_again(right: Any) -> Any:
    """One failure is for ever."""

    def must_wait(view: View, mine: Any, found: Any) -> bool:
        return right(view, mine, found) or bool(list(found))

    return must_wait


def _hour_long(right: Any) -> Any:
    """A failure costs an hour, whatever the cap is."""

    def delays(base: float, cap: float) -> Any:
        return right(base=3000.0, cap=3000.0)

    return delays


MUTANTS: dict[str, Mutant] = {
    "gpu-free-when-stopped": Mutant(
        "a GPU is free as soon as the stop is ordered",
        reconcile,
        "_place_one",
        _gpus_free_when_stopped,
    ),
    "failed-holds-nothing": Mutant(
        "a failed shard is forgotten before it is gone", world.Draft, "_reported", _unconfirmed_is_gone
    ),
    "gone-at-once": Mutant("the agent says gone when the stop arrives", core, "_stop", _gone_at_once),
    "place-all": Mutant("several replicas are placed from one snapshot", reconcile, "_place_one", _place_all),
    "lost-is-unreachable": Mutant("a node that is silent is lost", world, "standing", _lost_is_unreachable),
    "no-evidence": Mutant(
        "what clients get does not count", board, "_green", _without_evidence, rare=True, meets="mute-node"
    ),
    "stall-counts": Mutant(
        "silence counts while we could not listen",
        world.Draft,
        "_stalled",
        _stall_counts,
        rare=True,
        meets="control-pause",
    ),
    "no-drain": Mutant("a drain is over when it begins", draining, "_due", _drained_at_once),
    "one-gateway-is-enough": Mutant(
        "one gateway's word ends a drain", draining, "_due", _any_gateway_will_do
    ),
    "subscription-acknowledges": Mutant(
        "a gateway's new stream ends a drain",
        control,
        "gateway_event",
        _subscription_acknowledges,
        rare=True,
        meets="new-generation cut-in-drain",
    ),
    "head-with-workers": Mutant(
        "rank 0 starts together with its workers", reconcile, "_starts", _head_with_workers
    ),
    "before-the-weights": Mutant(
        "a rank starts while its neighbour downloads", reconcile, "_starts", _before_the_weights
    ),
    "failed-alone": Mutant(
        "only the failed shard of a replica is stopped", reconcile, "_sweep", _failed_alone_is_stopped
    ),
    "starting-is-routed": Mutant(
        "clients are sent to what is starting", routes, "routed", _starting_is_routed
    ),
    "failed-stays-routed": Mutant("the table keeps what failed", reconcile, "routes", _failed_stays_routed),
    "no-backoff": Mutant("a failed start costs no delay", troubles, "charge", _no_backoff),
    "sibling-forgives": Mutant(
        "a sibling that serves for long voids the delay", troubles, "_proves", _sibling_forgives
    ),
    "old-first": Mutant(
        "the old generation drains before the new one serves", rollout, "_drain", _old_first, rare=True
    ),
    "no-roster": Mutant(
        "a restarted control plane acts before its nodes spoke", reconcile, "look", _no_roster
    ),
    "mass-silence": Mutant("all nodes silent at once are all lost", standings, "_dark", _not_dark, rare=True),
    "anybody-is-a-witness": Mutant(
        "any gateway's word lifts the doubt about ourselves, whatever it found",
        standings,
        "_found_dark",
        _anybody_is_a_witness,
        rare=True,
    ),
    "starts-twice": Mutant("the agent executes a start whatever runs already", core, "_start", _starts_twice),
    "silent-is-ready": Mutant("a silent node gets work", stock, "Site", _silent_is_ready),
    "memory-is-endless": Mutant(
        "memory is promised twice",
        placement,
        "_BESIDE_CARDS",
        _without(placement.cores_and_memory_fit),
        rare=True,
    ),
    "surge-of-three": Mutant("a roll-out takes as much room as it likes", rollout, "SURGE", _instead(3)),
    "progress-counts": Mutant("bytes move a shard's since", world.Draft, "apply", _progress_counts),
    "mistakes-are-adopted": Mutant("a wrong catalog is adopted", scenario, "sound", lambda _: always(True)),
    "oldest-goes": Mutant("of one too many the oldest goes", rollout, "_drain", _oldest_goes),
    "wall-is-time": Mutant("timers run by people's clock", control.SimulatedClock, "now", _wall_is_time),
    "charged-for-ever": Mutant("failed replicas are remembered", troubles, "charge", _charged_for_ever),
    "troubles-for-ever": Mutant(
        "failures outlive their generation", troubles, "_current", lambda _: always(True)
    ),
    "drains-for-ever": Mutant("a drain outlives its replica", draining, "advance", _lost_drains_stay),
    "nothing-adopted": Mutant("a restarted agent forgets what runs", core, "_adopted", _nothing_adopted),
    "unswept": Mutant("a failed engine's children are left alone", core, "_fail", _unswept),
    "obeys-again": Mutant("old orders are obeyed", session.AgentSession, "_commanded", _deaf_for_ever),
    "never-again": Mutant("a failed generation is never tried again", rollout, "_must_wait", _never_again),
    "hour-long": Mutant("a failure costs an hour", troubles, "Backoff", _hour_long),
    "excess-stays": Mutant("nothing is ever too much", rollout, "_drain", lambda _: lambda *_: ()),
    **NODE_MUTANTS,
    **PEOPLE_MUTANTS,
}
"""Every planted bug, by name."""


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The product with one bug in it."""
    mutant = MUTANTS[name]
    right = getattr(mutant.place, mutant.name)
    with mock.patch.object(mutant.place, mutant.name, mutant.wrong(right)):
        yield
