"""The loop: hear what happened, settle, dispatch. The only place where decisions become orders.

`serve` builds it; `peers` feeds it through `hear`, the API through `adopt` and `mark`. Events of one
instant share a pass; a heartbeat alone triggers none; between events it sleeps exactly until time
alone would change the answer.
"""

import asyncio
import collections
import logging
from collections.abc import Callable

from llmgw.control.journal import Journal
from llmgw.control.presence import Presence
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.routes import Routes
from llmgw.fleet.shard import ShardStatus
from llmgw.fleet.world import Draft, Fleet
from llmgw.kit.chance import Chance
from llmgw.kit.clock import Clock
from llmgw.planning.actions import Action, Assign, Drain, Start, Stop, Undrain
from llmgw.planning.board import Board
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger, Trouble
from llmgw.planning.needs import Unplaced
from llmgw.planning.settle import settle
from llmgw.planning.view import View, look

log = logging.getLogger(__name__)

PULSE = 0.2
"""Seconds between two proofs that we can listen."""

STALL = 1.0
"""A gap between two pulses that is longer than this was a stall: nobody's silence counts for it."""


class Loop:
    """Holds the observed and the desired state; every change goes through `hear`, `adopt` or `decide`."""

    def __init__(
        self,
        *,
        desired: Desired,
        fleet: Fleet,
        ledger: Ledger,
        timers: Timers,
        clock: Clock,
        chance: Chance,
        journal: Journal,
        dispatch: Callable[[Action], bool],
        publish: Callable[[Routes], None],
    ) -> None:
        self.desired, self.ledger, self.timers = desired, ledger, timers
        self._fleet, self._draft = fleet, Draft(fleet)
        self.unplaced: tuple[Unplaced, ...] = ()
        self.alarms: tuple[str, ...] = ()
        self._alarmed: dict[str, str] = {}
        self.fenced = ""
        self.passes = 0
        self.ordered: collections.Counter[str] = collections.Counter()
        self.expire: Callable[[float], float | None] = lambda _: None
        """Called before each pass: ends what people set until now, returns when the next of it ends."""
        self.prepare: Callable[[], None] = lambda: None
        """Called before each pass: what has to be on disk before anything is decided is there then."""
        self._clock, self._chance, self._journal = clock, chance, journal
        self._presence = Presence(journal)
        self._dispatch, self._publish = dispatch, publish
        self._board = Board()
        self._news = asyncio.Event()
        self._wake_at: float | None = None
        self._listening = clock.now()

    @property
    def fleet(self) -> Fleet:
        """Everything observed. What was heard since it was last asked for is one copy of each map."""
        new = self._draft.fleet
        if new is not self._fleet:
            self._fleet, self._draft = new, Draft(new)
        return new

    @fleet.setter
    def fleet(self, fleet: Fleet) -> None:
        self._fleet, self._draft = fleet, Draft(fleet)

    @property
    def glance(self) -> Fleet:
        """The same, for a look that is over before anything else is heard: it costs no copy, and must not be kept."""
        return self._draft.fleet

    def hear(self, event: events.Event) -> None:
        """Something happened. A pass follows if it can change anything."""
        now, fleet = self._clock.now(), self.glance
        matters = self._matters(event, fleet, now)
        _tell(self._journal, fleet, event)
        self._draft.apply(event, now)
        if matters:
            self._news.set()

    def adopt(self, desired: Desired) -> None:
        """Another desired state stands from now on."""
        self.desired = desired
        self._news.set()

    def forgive(self, model: str) -> tuple[Trouble, ...]:
        """Forget the failed starts of a model: no back-off, no halted roll-out. Returns what they were."""
        troubles = self.ledger.troubles
        gone = tuple(trouble for (name, _), trouble in troubles.items() if name == model)
        self.ledger = self.ledger.forgiving(model, self._clock.now())
        self._news.set()
        return gone

    @property
    def memory(self) -> Board:
        """What the passes remember, lent to who plans or looks: never across an await."""
        return self._board

    def view(self) -> View:
        """What there is to see now; by what the passes remember, so that a screen costs what changed."""
        view = look(self.desired, self.fleet, self.ledger, self._clock.now(), self.timers, self._board)
        self._board.rest(acted=False)
        return view

    def fence(self, said: str) -> None:
        """A newer control plane commands our nodes: we give no more orders, and say so."""
        if not self.fenced:
            self._journal.note("alarm", "control plane", said)
            log.error("%s", said)
        self.fenced = said

    async def run(self) -> None:
        """Decide whenever there is news or time has come, for ever.

        Others get as long as a decision took before the next: what comes meanwhile shares it.
        """
        while True:
            await self._sleep()
            self._news.clear()
            began = self._clock.now()
            self.decide()
            await asyncio.sleep(min(self._clock.now() - began, PULSE))

    async def pulse(self) -> None:
        """Prove that we can listen, for ever; `decide` looks at the newest proof."""
        while True:
            await asyncio.sleep(PULSE)
            self._notice_stall()

    def decide(self) -> None:
        """One settling at this instant, its orders and its table sent."""
        self._notice_stall()
        if self.fenced:
            self._wake_at = None
            return
        now = self._clock.now()
        self.passes += 1
        self.prepare()
        ends = self.expire(now)
        done = settle(self.desired, self.fleet, self.ledger, now, self._chance, self.timers, self._board)
        self._tell_presence(done.fleet, now)
        self._raise_alarms(done.alarms)
        changed = done.ledger.routes.version != self.ledger.routes.version
        self.fleet, self.ledger = done.fleet, done.ledger
        self.unplaced = done.unplaced
        wakes = (done.wake_at, ends, self._falls_silent(now))
        self._wake_at = min((at for at in wakes if at is not None), default=None)
        if changed:
            self._publish(self.ledger.routes)
        for action in done.actions:
            self._journal.note("action", *_in_words(action, self.fleet))
            self.ordered[type(action).__name__.lower()] += 1
            self._dispatch(action)

    def _tell_presence(self, fleet: Fleet, now: float) -> None:
        if (standings := self._board.standings) is not None:
            self._presence.look(standings.of, fleet, self.desired.marks.confirmed_lost, now)

    def _falls_silent(self, now: float) -> float | None:
        """When the next gateway has been silent for long enough to say so."""
        limit = self.timers.gateway_silent
        dues = (gateway.last_seen + limit for gateway in self.glance.gateways.values())
        return min((at for at in dues if at > now), default=None)

    def _raise_alarms(self, said: tuple[str, ...]) -> None:
        """Journal those that are new and those that are over, and remember since when each stands."""
        before, self._alarmed = self._alarmed, {}
        for alarm in [alarm for alarm in before if alarm not in said]:
            self._journal.note("alarm", "fleet", f"over: {alarm}")
            log.info("over: %s", alarm)
        for alarm in said:
            if alarm not in before:
                self._journal.note("alarm", "fleet", alarm)
                log.warning("%s", alarm)
            self._alarmed[alarm] = before.get(alarm) or f"{self._clock.wall():%Y-%m-%d %H:%M:%S} UTC"
        self.alarms = tuple(f"{alarm} (since {at})" for alarm, at in self._alarmed.items())

    def _matters(self, event: events.Event, fleet: Fleet, now: float) -> bool:
        match event:
            case events.Heartbeat(node=node):
                return fleet.standing(node, now, self.timers) != "Ready" or bool(self.ledger.drains)
            case events.Progressed():
                return False
            case events.Reported(statuses=statuses, info=None):
                moved = any(_moves(fleet, status) for status in statuses)
                return moved or bool(self.ledger.drains)
            case events.GatewaySeen(gateway=name, queued=queued, dark=dark):
                known = fleet.gateways.get(name)
                back = known is not None and now - known.last_seen >= self.timers.gateway_silent
                standings = self._board.standings
                witness = bool(dark) and standings is not None and standings.dark
                return (
                    bool(self.ledger.drains)
                    or back
                    or witness
                    or any(self._sleeps(model) for model, count in queued if count)
                )
            case _:
                return True

    def _sleeps(self, model: str) -> bool:
        """Whether it has no replica for want of requests."""
        scale = self.ledger.scales.get(model)
        return scale is not None and scale.count == 0

    def _notice_stall(self) -> None:
        now = self._clock.now()
        gap = now - self._listening - PULSE
        self._listening = now
        if gap > STALL:
            self._journal.note(
                "alarm", "control plane", f"stalled for {gap:.1f}s: nobody's silence counts for it"
            )
            self.fleet = self.fleet.apply(events.Stalled(gap), now)
            self.ledger = self.ledger.later(gap, now)
            self._news.set()

    async def _sleep(self) -> None:
        left = None if self._wake_at is None else max(0.0, self._wake_at - self._clock.now())
        try:
            async with asyncio.timeout(left):
                await self._news.wait()
        except TimeoutError:
            return


def _moves(fleet: Fleet, status: ShardStatus) -> bool:
    """Whether a report is more than the engine's counters."""
    shard = fleet.shards.get(status.key)
    known = (status.state, status.slow)
    return shard is not None and ((shard.state, shard.status.slow) != known or not shard.confirmed)


def _in_words(action: Action, fleet: Fleet) -> tuple[str, str]:
    """(about, said) of an action, with the node's name."""
    match action:
        case Assign(spec=spec):
            return spec.replica, f"assign rank {spec.rank} to {fleet.name(spec.node)}: {action.because}"
        case Start(key=(replica, rank), node=node):
            return replica, f"start rank {rank} on {fleet.name(node)}: {action.because}"
        case Stop(key=(replica, rank), node=node):
            return replica, f"stop rank {rank} on {fleet.name(node)}: {action.because}"
        case Drain(replica=replica):
            return replica, f"drain: {action.because}"
        case Undrain(replica=replica):
            return replica, f"drain taken back: {action.because}"


def _tell(journal: Journal, before: Fleet, event: events.Event) -> None:
    """Journal what an event changed, in people's words."""
    match event:
        case events.Registered(info=info, shards=shards):
            journal.note("node", info.name, f"registered with {len(shards)} shards")
        case events.Disconnected(node=node) if node in before.nodes:
            journal.note("node", before.nodes[node].info.name, "its connection ended")
        case events.Reported(statuses=statuses):
            for status in statuses:
                was = before.shards.get(status.key)
                if was is not None and was.state != status.state:
                    because = f": {status.reason}" if status.reason else ""
                    journal.note("shard", status.replica, f"rank {status.rank} {status.state}{because}")
        case _:
            return
