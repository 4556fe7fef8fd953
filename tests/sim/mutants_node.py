"""Planted bugs of the node: what an agent adopts, signals, ends and keeps. Merged into `sim.mutants.MUTANTS`."""

import dataclasses
import types
from typing import Any

from llmgw.agent import adopt, answer, collect, core, fetch, manifest, marks, partial
from llmgw.agent.kernel import LINUX, live
from llmgw.fleet import world
from llmgw.gateway import exchange
from llmgw.planning import gc, placement, stock
from llmgw.routing import retry, table
from tests.sim.planting import Mutant, always


def _nobody_leads(right: Any) -> Any:
    """What was launched before is swept, not taken over."""
    return always(None)


def _reached_is_forgotten(right: Any) -> Any:
    """A ready engine comes up anew for the next agent."""

    def identified(*seen: Any) -> Any:
        return dataclasses.replace(right(*seen), reached="starting")

    return identified


def _first_session_leads(right: Any) -> Any:
    """Where the record does not name the leader, whoever made a session is taken for it."""

    def leader(record: Any, tree: Any, boot: str) -> Any:
        return right(record, [dataclasses.replace(mark, leader=0) for mark in reversed(tree)], boot)

    return leader


def _intents_are_forgotten(right: Any) -> Any:
    """A record that names no process yet describes nothing."""

    def leader(record: Any, tree: Any, boot: str) -> Any:
        return right(record, tree, boot) if record.state == "running" else None

    return leader


def _session_is_a_number(right: Any) -> Any:
    """The leader's pid is the session's name for ever, whoever has it."""

    def session(identity: Any, kernel: Any = LINUX) -> int:
        return int(identity.pid)

    return session


def _ticks_are_enough(right: Any) -> Any:
    """Who has the leader's pid and ticks is the leader."""

    def session(identity: Any, kernel: Any = LINUX) -> int:
        found = kernel.stat(identity.pid)
        return int(identity.pid) if found is not None and found.ticks == identity.ticks else 0

    return session


def _all_are_ours(right: Any) -> Any:
    """Who has a session of its own beside our leader belongs to it."""

    def members(identity: Any, kernel: Any = LINUX, *_: Any) -> Any:
        there = (live(kernel, pid) for pid in kernel.pids() if pid != kernel.me())
        return tuple(stat for stat in there if stat is not None and stat.pid >= identity.pid)

    return members


def _orphans_stay(right: Any) -> Any:
    def heard(state: core.AgentState) -> Any:
        return state, ()

    return heard


def _orphans_end_at_once(right: Any) -> Any:
    """What nothing describes is ended before anybody could describe it."""

    def undescribed(state: core.AgentState, event: core.Undescribed) -> Any:
        return core._heard(right(state, event)[0])

    return undescribed


def _strangers_hold_nothing(right: Any) -> Any:
    def usable(room: Any, profile: Any, spare: Any, kind: str) -> Any:
        cards = [dataclasses.replace(gpu, foreign=0) for gpu in room.free.get(kind, ())]
        return right(types.SimpleNamespace(free={kind: cards}), profile, spare, kind)

    return usable


def _lost_cards_hold(right: Any) -> Any:
    """A card is a card, whatever the driver says of it."""

    def room(info: Any, specs: Any) -> Any:
        cards = (
            None if info.gpus is None else tuple(dataclasses.replace(gpu, healthy=True) for gpu in info.gpus)
        )
        return right(dataclasses.replace(info, gpus=cards), specs)

    return room


# --- weights ---------------------------------------------------------------------------------


def _wanted_is_offered(right: Any) -> Any:
    """What the catalog wants, and nobody runs just now, is in the listing."""

    def stays(*seen: Any) -> str:
        found = str(right(*seen))
        return "" if found == gc.WANTED else found

    return stays


def _part_is_believed(right: Any) -> Any:
    """A part is appended whatever it says of itself."""

    def part(have: Any, headers: Any) -> Any:
        total = int(headers["content-range"].rpartition("/")[2])
        return answer.Append(total)

    return part


def _boot_is_ignored(right: Any) -> Any:
    """Bytes of before a reboot count like others."""

    def built_on(noted: Any, size: Any, *, checked: bool, boot: str) -> Any:
        return right(noted, size, checked=True, boot=boot)

    return built_on


def _first_disk_stays(right: Any) -> Any:
    """What a node said of its disk first is believed for ever."""

    def reported(draft: world.Draft, event: Any, now: float) -> None:
        known = draft._nodes.read.get(event.node)
        if event.info is not None and known is not None:
            told = dataclasses.replace(event.info, disk_free=known.info.disk_free)
            event = dataclasses.replace(event, info=told)
        right(draft, event, now)

    return reported


# --- requests --------------------------------------------------------------------------------


def _tried_again(right: Any) -> Any:
    """Where a request was before is forgotten."""

    def pick(route: Any, journey: Any, *rest: Any) -> Any:
        return right(route, dataclasses.replace(journey, tried=()), *rest)

    return pick


def _cut_is_tried_again(right: Any) -> Any:
    """An answer that breaks off is asked for anew."""

    def broken(self: exchange.Exchange, said: str, out: bytes) -> None:
        self._relay = None
        self._failed(said, died=True)

    return broken


def _draining_is_offered(right: Any) -> Any:
    def build(routes: Any) -> Any:
        open_ = tuple(dataclasses.replace(each, draining=False) for each in routes.endpoints)
        return right(dataclasses.replace(routes, endpoints=open_))

    return build


NODE_MUTANTS: dict[str, Mutant] = {
    "nobody-leads": Mutant("a restarted agent ends what runs", adopt, "_leader", _nobody_leads),
    "reached-is-forgotten": Mutant(
        "a ready engine is starting for the next agent",
        adopt,
        "_identified",
        _reached_is_forgotten,
        rare=True,
    ),
    "intents-are-forgotten": Mutant(
        "an engine whose agent died in the launch is ended",
        adopt,
        "_leader",
        _intents_are_forgotten,
        meets="killed-in-launch",
        rare=True,
    ),
    "first-session-leads": Mutant(
        "a worker is taken for the leader",
        adopt,
        "_leader",
        _first_session_leads,
        meets="killed-in-launch",
        rare=True,
    ),
    "session-is-a-number": Mutant(
        "a session's number is ours for ever", marks, "session", _session_is_a_number, meets="pid-reused"
    ),
    "ticks-are-enough": Mutant(
        "pid and ticks name a session",
        marks,
        "session",
        _ticks_are_enough,
        meets="pid-reused",
        rare=True,
    ),
    "all-are-ours": Mutant("a sweep takes neighbours with it", marks, "members", _all_are_ours, rare=True),
    "orphans-stay": Mutant(
        "what nothing describes lives on", core, "_heard", _orphans_stay, meets="torn-record"
    ),
    "orphans-end-at-once": Mutant(
        "what nothing describes ends before the control plane was heard",
        core,
        "_undescribed",
        _orphans_end_at_once,
        meets="torn-record",
    ),
    "strays-hold-nothing": Mutant(
        "cards of engines that nothing describes are offered until these compute there",
        core.AgentState,
        "strayed",
        lambda _: always(""),
        meets="torn-record",
        rare=True,
    ),
    "wanted-is-offered": Mutant(
        "gc offers what the catalog wants", gc, "_stays", _wanted_is_offered, meets="collect"
    ),
    "whose-is-not-asked": Mutant(
        "what others put into an entry goes with it",
        collect,
        "check",
        lambda _: always(None),
        meets="odd-file",
        rare=True,
    ),
    "sizes-are-not-looked-at": Mutant(
        "an entry is whole by its manifest alone",
        manifest,
        "flaw_of",
        lambda _: always(""),
        meets="damaged-entry",
        rare=True,
    ),
    "digests-are-not-compared": Mutant(
        "bytes are not proven", fetch, "fault_of", lambda _: always(""), meets="wrong-bytes"
    ),
    "part-is-believed": Mutant(
        "what comes is appended to what was there",
        answer,
        "_part",
        _part_is_believed,
        meets="republished",
        rare=True,
    ),
    "boot-is-ignored": Mutant(
        "bytes of before a reboot count",
        partial,
        "built_on",
        _boot_is_ignored,
        rare=True,
        meets="power-loss-in-fetch",
    ),
    "first-disk-stays": Mutant(
        "a disk is as free as it was at first",
        world.Draft,
        "_reported",
        _first_disk_stays,
        meets="disk-full",
        rare=True,
    ),
    "tried-again": Mutant(
        "a request goes to the same replica again", retry, "_pick", _tried_again, meets="engine-rests"
    ),
    "no-budget": Mutant(
        "a request is tried for ever",
        retry,
        "_spent",
        lambda _: always(None),
        meets="engine-rests",
        rare=True,
    ),
    "cut-is-tried-again": Mutant(
        "an answer that broke off is asked for anew",
        exchange.Exchange,
        "_break",
        _cut_is_tried_again,
        meets="answer-cut",
    ),
    "draining-is-offered": Mutant(
        "a gateway sends clients to what drains",
        table,
        "build",
        _draining_is_offered,
        rare=True,
    ),
    "strangers-hold-nothing": Mutant(
        "cards of strangers are offered",
        placement,
        "usable",
        _strangers_hold_nothing,
        meets="card-taken",
        rare=True,
    ),
    "lost-cards-hold": Mutant(
        "a card that the driver has lost is given away", stock, "room", _lost_cards_hold, meets="card-lost"
    ),
}
"""Planted bugs of the node, by name."""
