"""What an apply did: each action from its beginning until nothing of it is outstanding, on disk as it goes.

`adoption` begins a record with each revision; `serve` lets it read on in the journal; `applying` answers
from it. A record that a restart cut in two goes on, and says so.
"""

import dataclasses

from llmgw.control.journal import Entry, Journal
from llmgw.control.keeping import Keeping
from llmgw.control.loop import Loop
from llmgw.control.records import Happened, Record
from llmgw.control.store import Revision, Store
from llmgw.kit.clock import Clock
from llmgw.planning.fired import Allowed
from llmgw.planning.plan import Plan
from llmgw.planning.screen import outstanding

MOST = 2000
"""Actions that a record keeps; the others are counted."""

DONE = "done"
_TOLD = ("action", "shard")


class Recording:
    """The record of the newest apply; the others are only on disk."""

    def __init__(self, store: Store, loop: Loop, journal: Journal, keeping: Keeping, clock: Clock) -> None:
        self._store, self._loop, self._journal = store, loop, journal
        self._keeping, self._clock = keeping, clock
        self._record: Record | None = None
        self._models: frozenset[str] = frozenset()
        self._seen = 0
        self._cut = False
        """Whether the record was begun by a process before this one."""

    @property
    def current(self) -> Record | None:
        """The record of the revision that stands, up to now."""
        self.read_on()
        return self._record

    def begin(self, revision: Revision, plan: Plan, allowed: Allowed) -> None:
        """An apply begins; the one before it, where it still went on, ends here."""
        self.read_on()
        if self._record is not None and self._record.ended is None:
            self._end(f"superseded by revision {revision.number} by {revision.who or '?'}")
        rows = tuple(dataclasses.replace(row, commands=()) for row in plan.rows)
        kept = dataclasses.replace(plan, rows=rows)
        self._keeping.keep("the plan of an apply", lambda: self._store.save_plan(revision.number, kept))
        self._seen, self._models = self._journal.last, _models(plan)
        self._cut = False
        self._keep(Record(number=revision.number, began=revision.at, allowed=tuple(sorted(allowed))))

    def resume(self) -> None:
        """Go on with the record of the newest revision, after a restart."""
        numbers = self._store.revisions()
        record = self._store.record(numbers[-1]) if numbers else None
        if record is None or record.ended is not None:
            return
        plan = self._store.plan(record.number)
        self._record, self._models = record, _models(plan) if plan is not None else frozenset()
        self._cut = True
        said = "it was started again: what happened meanwhile is not written down"
        self._add([Happened(at=self._clock.wall(), kind="alarm", about="control plane", said=said)])

    def read_on(self) -> None:
        """Take over what has happened since; end the record where nothing of its apply is outstanding."""
        record = self._record
        if record is None or record.ended is not None:
            return
        entries, self._seen = self._journal.after(self._seen), self._journal.last
        self._add(
            [_happened(entry) for entry in entries if entry.kind in _TOLD and self._is_ours(entry.about)]
        )
        if not self.waiting():
            self._end(DONE)

    def waiting(self) -> tuple[str, ...]:
        """What the newest apply still waits for, one line each; other models' troubles are not its own."""
        view = self._loop.view()
        lines = tuple(line for line in outstanding(view) if self._is_ours(line.partition(":")[0]))
        if lines or view.heard or not self._cut:
            return lines
        # What is left to stop is known to nodes alone after a restart.
        return tuple(f"{view.fleet.name(node)}: has not spoken yet" for node in view.unheard)

    def _is_ours(self, about: str) -> bool:
        return about in self._models or about.rpartition("/")[0] in self._models

    def _add(self, happened: list[Happened]) -> None:
        record = self._record
        if record is None or not happened:
            return
        room = max(0, MOST - len(record.actions))
        update = {
            "actions": (*record.actions, *happened[:room]),
            "dropped": record.dropped + len(happened[room:]),
        }
        self._keep(record.model_copy(update=update))

    def _end(self, result: str) -> None:
        assert self._record is not None
        self._keep(self._record.model_copy(update={"ended": self._clock.wall(), "result": result}))

    def _keep(self, record: Record) -> None:
        self._record = record
        self._keeping.keep(f"the record of revision {record.number}", lambda: self._store.save_record(record))


def _models(plan: Plan) -> frozenset[str]:
    """Those that the change asks something of: what fitted nowhere before it is none of its work."""
    rows = {row.model for row in plan.rows if row.origin == "change"}
    return frozenset(rows | {each.model for each in plan.unplaced if each.origin == "change"})


def _happened(entry: Entry) -> Happened:
    return Happened(at=entry.at, kind=entry.kind, about=entry.about, said=entry.said)
