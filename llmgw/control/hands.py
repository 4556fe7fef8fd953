"""Hands on the fleet: cordon, drain, pause and their like. Checks each, keeps it, tells it, lets it end.

Built by `serve`. `hands_api` is how the CLI reaches it and shows the plan of an act first; the loop calls
`expire` before each pass. What stands is on disk before anybody is told so.
"""

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Literal

from llmgw.control.journal import Journal
from llmgw.control.keeping import Keeping
from llmgw.control.loop import Loop
from llmgw.control.marks import MOST, Kept, Kind, Mark, desired
from llmgw.control.names import model_named, node_named
from llmgw.control.store import MAKE_ROOM, Store
from llmgw.errors import Blocked, Failed
from llmgw.fleet import events
from llmgw.fleet.world import Fleet
from llmgw.kit.clock import Clock
from llmgw.kit.text import count
from llmgw.kit.units import show_seconds

Verb = Literal["cordon", "uncordon", "drain", "confirm-lost", "forget", "pause", "resume", "retry"]

SETS: Mapping[Verb, Kind] = {
    "cordon": "cordoned",
    "drain": "draining",
    "confirm-lost": "confirmed_lost",
    "pause": "paused",
}
LIFTS: Mapping[Verb, tuple[Kind, ...]] = {"uncordon": ("cordoned", "draining"), "resume": ("paused",)}
OF_MODELS: frozenset[Verb] = frozenset({"pause", "resume", "retry"})


@dataclasses.dataclass(frozen=True, slots=True)
class Act:
    """What somebody wants done. `name` as they wrote it; `seconds` until it ends by itself, None = never."""

    verb: Verb
    name: str
    who: str = ""
    reason: str = ""
    seconds: float | None = None


class Hands:
    """The marks that stand, and every act on them."""

    def __init__(
        self,
        store: Store,
        loop: Loop,
        journal: Journal,
        keeping: Keeping,
        clock: Clock,
        *,
        forget: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`forget` is told of a node that a person took out of the roster."""
        self._store, self._loop, self._journal = store, loop, journal
        self._keeping, self._clock, self._forget = keeping, clock, forget
        self._kept = Kept()
        self._ends: dict[tuple[str, str], float] = {}

    @property
    def kept(self) -> Kept:
        return self._kept

    def resume(self) -> None:
        """Stand by what was kept, after a start. Raises Failed where it cannot be read."""
        kept, now = self._store.marks(), self._clock.wall()
        for mark in kept.marks:
            self._time(mark, now)
        self._stand(kept)
        self._loop.expire = self.expire

    def expire(self, now: float) -> float | None:
        """End what has come to its end at `now`; when the next one does."""
        over = [mark for mark in self._kept.marks if self._ends.get(mark.key, now + 1) <= now]
        if over:
            self._lift(tuple(over))
            for mark in over:
                self._journal.note("hand", mark.name, f"no longer {_word(mark.kind)}: its time is over")
        return min(self._ends.values(), default=None)

    def returned(self, node: str) -> None:
        """The node spoke: whoever called it lost was early, and its next silence is a new one."""
        gone = self._kept.of(node, "confirmed_lost")
        if gone:
            self._lift(gone)
            self._journal.note("hand", gone[0].name, "no longer confirmed lost: it is back")

    def check(self, act: Act) -> str:
        """The id or model that `act` is about. Raises LlmgwError where it cannot be done."""
        if self._loop.fenced:
            raise Blocked(f"cannot {act.verb} {act.name}: nothing would follow from it. {self._loop.fenced}")
        if (about := self._marked(act)) is not None:
            return about
        if act.verb in OF_MODELS:
            return model_named(act.name, self._loop.desired.catalog, self._loop.fleet)
        about = node_named(act.name, self._loop.fleet)
        if act.verb in ("forget", "confirm-lost"):
            self._must_be_away(act, about)
        if act.verb == "forget":
            self._must_hold_nothing(about)
        return about

    def _marked(self, act: Act) -> str | None:
        """What a lifting act is about where only the mark is left of it: a model or node that is known no more."""
        kinds, fleet = LIFTS.get(act.verb, ()), self._loop.fleet
        marks = [mark for mark in self._kept.marks if mark.kind in kinds]
        if any(mark.about == act.name for mark in marks):
            return act.name
        found = {mark.about for mark in marks if mark.name == act.name}
        return found.pop() if len(found) == 1 and act.name not in fleet.roster | fleet.nodes.keys() else None

    def set_by(self, act: Act, about: str) -> Kept:
        """The marks as they would be after `act`."""
        if act.verb in SETS:
            return self._kept.plus(self._mark(act, about))
        if act.verb == "forget":
            return self._kept.minus(self._kept.of(about))
        return self._kept.minus(self._kept.of(about, *LIFTS.get(act.verb, ())) if act.verb in LIFTS else ())

    def fleet_after(self, act: Act, about: str) -> Fleet:
        """The fleet as it would be known after `act`."""
        fleet = self._loop.fleet
        return fleet.apply(events.NodeForgotten(about), self._clock.now()) if act.verb == "forget" else fleet

    def do(self, act: Act, about: str) -> str:
        """Do what `check` let through. Returns what is so now, in a sentence. Raises Failed."""
        name = about if act.verb in OF_MODELS else self._loop.fleet.name(about)
        said = self._done(act, about, name)
        reason = f": {act.reason}" if act.reason else ""
        self._journal.note("hand", name, f"{act.verb} by {act.who or '?'}{reason}")
        return said

    def _done(self, act: Act, about: str, name: str) -> str:
        kept = self.set_by(act, about)
        if act.verb == "retry":
            gone = self._loop.forgive(about)
            failures = sum(trouble.failures for trouble in gone)
            return (
                f"{name} is tried again at once: {count(failures, 'failed start')} forgotten"
                if gone
                else f"{name} waits for no back-off: there was nothing to clear"
            )
        if len(kept.marks) > MOST:
            raise Failed(f"cannot {act.verb} {name}: {MOST} marks stand already", help="lift some first")
        changed = kept != self._kept
        self._save(kept, act.verb, name)
        if act.verb == "forget":
            self._loop.hear(events.NodeForgotten(about))
            self._forget(about)
            return f"{name} is forgotten: no restart waits for it"
        if act.verb in LIFTS:
            return (
                f"{name} is {_AFTER[act.verb]}" if changed else f"{name} was not {_BEFORE[act.verb]} anyhow"
            )
        until = f", for {show_seconds(act.seconds)}" if act.seconds is not None else ""
        return f"{name} is {_AFTER[act.verb]}{until}"

    # --- what stands --------------------------------------------------------------------------

    def _mark(self, act: Act, about: str) -> Mark:
        now = self._clock.wall()
        return Mark(
            kind=SETS[act.verb],
            about=about,
            name=about if act.verb in OF_MODELS else self._loop.fleet.name(about),
            who=act.who,
            reason=act.reason,
            since=now,
            until=None if act.seconds is None else now + datetime.timedelta(seconds=act.seconds),
        )

    def _save(self, kept: Kept, verb: str, name: str) -> None:
        if kept == self._kept:
            return
        try:
            self._store.save_marks(kept)
        except OSError as error:
            raise Failed(
                f"cannot {verb} {name}: it cannot be kept at {error.filename}: {error.strerror}. Nothing was changed",
                help=MAKE_ROOM,
            ) from error
        # Only what is new is timed: the others end when they were to, wherever the wall clock went since.
        for mark in self._kept.marks:
            if mark not in kept.marks:
                self._ends.pop(mark.key, None)
        for mark in kept.marks:
            if mark not in self._kept.marks:
                self._time(mark, mark.since)
        self._stand(kept)

    def _lift(self, gone: tuple[Mark, ...]) -> None:
        for mark in gone:
            self._ends.pop(mark.key, None)
        self._stand(self._kept.minus(gone))
        self._keeping.keep("the marks", lambda: self._store.save_marks(self._kept))

    def _time(self, mark: Mark, now: datetime.datetime) -> None:
        """When it ends, by the clock that nobody sets. `now` is what the wall clock shows."""
        if mark.until is not None:
            self._ends[mark.key] = self._clock.now() + max(0.0, (mark.until - now).total_seconds())

    def _stand(self, kept: Kept) -> None:
        self._kept = kept
        self._loop.adopt(dataclasses.replace(self._loop.desired, marks=desired(kept)))

    # --- what may be done ---------------------------------------------------------------------

    def _must_be_away(self, act: Act, about: str) -> None:
        fleet = self._loop.fleet
        node, name = fleet.nodes.get(about), fleet.name(about)
        now = self._clock.now()
        if node is not None and (node.connected or fleet.standing(about, now, self._loop.timers) == "Ready"):
            spoke = show_seconds(max(0.0, now - node.last_seen))
            raise Blocked(
                f"cannot {act.verb} {name}: it is here, it spoke {spoke} ago. Nothing was changed",
                help=f"empty it with `llmgw node drain {name}`, then end its agent",
            )

    def _must_hold_nothing(self, about: str) -> None:
        fleet = self._loop.fleet
        name = fleet.name(about)
        if self._kept.of(about, "confirmed_lost"):
            return
        held = sorted({shard.spec.replica for shard in fleet.on_node(about)})
        if about not in fleet.nodes:
            said = "it has not spoken since this control plane started, so what runs on it is not known"
        elif held:
            those = "is" if len(held) == 1 else "are"
            said = f"nobody confirmed that {', '.join(held[:5])} on it {those} gone"
        else:
            return
        raise Blocked(
            f"cannot forget {name}: {said}. Nothing was changed",
            help=f"if the machine is really off: llmgw node confirm-lost {name}",
        )


_AFTER: Mapping[Verb, str] = {
    "cordon": "cordoned: nothing new is placed on it",
    "uncordon": "open again",
    "drain": "being drained: each of its replicas goes once its successor is ready on another node",
    "confirm-lost": "lost: what ran there is rebuilt elsewhere",
    "pause": "paused: what runs goes on, nothing is started or stopped for it while the catalog has it",
    "resume": "resumed",
}
_BEFORE: Mapping[Verb, str] = {"uncordon": "cordoned", "resume": "paused"}


def _word(kind: Kind) -> str:
    return kind.replace("_", " ")
