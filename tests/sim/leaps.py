"""Stretches in which nothing of note would happen are not lived through: `sim.clockwork` leaps over them.

A leap is a translation. Everybody who speaks went on speaking at the same pace, clients went on asking,
and what waits for an instant still waits for that instant. The product's own `wake_at` says when time
alone would make the control plane decide otherwise: no leap goes beyond that.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmgw.fleet.world import Fleet, Gateway, Node
from llmgw.planning import scaling
from llmgw.planning.board import Board
from llmgw.planning.ledger import Scale
from llmgw.planning.standings import stand
from llmgw.planning.view import View
from llmgw.planning.wake import wake_at

if TYPE_CHECKING:
    from tests.sim.agents import Agent
    from tests.sim.gateways import Gateway as Door
    from tests.sim.world import World


def leap(world: "World", due: float) -> float:
    """Go on to `due`, or as far towards it as nothing happens, and say how far; the past where there is no leap."""
    control = world.control
    if not control.answers:
        return _asleep(world, due)
    if not (control.steady and all(peer.steady for peer in _peers(world)) and _all_there(world)):
        return -math.inf
    agents = [name for name, agent in world.agents.items() if agent.speaks]
    gateways = [name for name, gateway in world.gateways.items() if gateway.speaks]
    instant = _instant(world, frozenset(agents), frozenset(gateways))
    delay = min(due, instant) - world.clock.now
    if delay <= 0.0:
        return -math.inf
    _move(world, agents, delay)
    control.leapt(_fleet(world, agents, gateways, delay), delay, instant)
    return world.clock.now + delay


def _asleep(world: "World", due: float) -> float:
    """The control plane hears nobody: all they do is try."""
    if not all(peer.steady for peer in _peers(world)):
        return -math.inf
    _move(world, [], due - world.clock.now)
    return due


def _peers(world: "World") -> "list[Agent | Door]":
    return [*world.agents.values(), *world.gateways.values()]


def _all_there(world: "World") -> bool:
    """Nobody is about to find the control plane."""
    return all(peer.connected or not peer.path.whole for peer in _peers(world))


def _move(world: "World", agents: list[str], delay: float) -> None:
    for agent in world.agents.values():
        agent.leapt(delay)
    for name in agents:
        world.leapt(name, delay)
    for gateway in world.gateways.values():
        gateway.leapt(delay)


def _fleet(world: "World", agents: list[str], gateways: list[str], delay: float) -> Fleet:
    """What the newest words of everybody who speaks have made of the fleet: the same ones, later."""
    fleet = world.control.fleet
    nodes, known = dict(fleet.nodes), dict(fleet.gateways)
    for name in agents:
        if name in nodes:
            nodes[name] = _heard(nodes[name], nodes[name].last_seen + delay)
    for name in gateways:
        if name in known:
            green = {
                replica: at + delay if world.whole(replica) else at
                for replica, at in known[name].green_at.items()
            }
            known[name] = _seen_at(known[name], known[name].last_seen + delay, green)
    return _with(fleet, nodes, known)


def _with(fleet: Fleet, nodes: dict[str, Node], gateways: dict[str, Gateway]) -> Fleet:
    return Fleet(fleet.since, fleet.roster, nodes, fleet.shards, gateways, fleet.progress, fleet.called)


def _heard(node: Node, at: float) -> Node:
    return Node(node.info, at, node.since, node.connected, node.failures)


def _instant(world: "World", agents: frozenset[str], gateways: frozenset[str]) -> float:
    """When the control plane decides next if these go on speaking; now where it is about to."""
    loop, now = world.control.loop, world.clock.now
    ends = loop.expire(now)
    if loop._news.is_set():
        return now
    silent = now - loop.timers.unreachable
    if any(node.last_seen <= silent for name, node in loop.fleet.nodes.items() if name in agents):
        return now
    view = _seen(world, agents, gateways)
    if _scales_move(view):
        return now
    windows = [
        scale.since + loop.timers.scale_window
        for scale in loop.ledger.scales.values()
        if scale.most < scale.count
    ]
    stale = [
        known.last_seen + loop.timers.gateway_silent
        for name, known in loop.fleet.gateways.items()
        if name not in gateways and loop.ledger.scales
    ]
    instants = (wake_at(view), ends, *windows, *stale)
    return min((at for at in instants if at is not None and at > now), default=math.inf)


def _seen(world: "World", agents: frozenset[str], gateways: frozenset[str]) -> View:
    """The fleet as the loop sees it, when those who speak never fall silent."""
    loop, control = world.control.loop, world.control
    of = loop.fleet
    nodes = {name: _heard(node, math.inf) if name in agents else node for name, node in of.nodes.items()}
    known = {
        name: _seen_at(known, math.inf, _lasting(world, known.green_at)) if name in gateways else known
        for name, known in of.gateways.items()
    }
    fleet = _with(of, nodes, known)
    ledger, now, timers = loop.ledger, world.clock.now, control.unhurried
    there = stand(fleet, loop.desired.marks.confirmed_lost, ledger.lost, now, timers)
    board = Board.__new__(Board)
    board.__dict__.update(loop._board.__dict__)  # nothing of note happened since its pass
    board.standings, board.moved = there, True
    return View(
        desired=loop.desired,
        fleet=fleet,
        ledger=ledger,
        now=now,
        timers=timers,
        standings=there.of,
        replicas=board.roll.replicas,
        heard=there.heard,
        dark=there.dark,
        unheard=there.unheard,
        lost=there.lost,
        board=board,
    )


def _seen_at(known: Gateway, at: float, green_at: Mapping[str, float]) -> Gateway:
    return Gateway(
        acked=known.acked,
        in_flight=known.in_flight,
        green_at=green_at,
        queued=known.queued,
        last_seen=at,
        dark_at=known.dark_at,
        apart=known.apart,
    )


def _lasting(world: "World", green_at: Mapping[str, float]) -> dict[str, float]:
    """Whoever serves goes on answering clients as often as before."""
    fresh = world.clock.now - world.control.timers.evidence
    return {
        replica: math.inf if at > fresh and world.whole(replica) else at for replica, at in green_at.items()
    }


def _scales_move(view: View) -> bool:
    """Whether the requests of now ask for other counts than the ledger has."""
    if view.board.wants is None or not view.board.wants.elastic:
        return False
    old, new = view.ledger.scales, scaling.rescale(view).scales
    return {name: _told(scale) for name, scale in old.items()} != {
        name: _told(scale) for name, scale in new.items()
    }


def _told(scale: Scale) -> tuple[int, int, bool]:
    """What a count hangs on: a window that has begun goes on by itself."""
    return scale.count, scale.most, scale.since < math.inf
