"""Following an apply until nothing of it is outstanding: what happened scrolls up, what moves is below it.

Used by `apply`, `rollback` and `up`. All of it goes to stderr: it is progress, not the answer. On a terminal
what moves is a region that is drawn again (`live`); elsewhere it is a line now and then.
"""

import base64
import dataclasses
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.cli.lines import OFF, Lines
from llmgw.cli.live import Plain, Region, region
from llmgw.cli.moving import Estimates, at_rest, failure_hint, mark, moving, without_place, worth_a_line
from llmgw.errors import LlmgwError, Unreachable
from llmgw.kit.clock import SystemClock
from llmgw.kit.text import safe
from llmgw.planning.plan import Plan
from llmgw.planning.render import how_long
from llmgw.planning.screen import ReplicaRow

POLL = 0.3
SAY_EVERY = 5.0
"""Seconds between two lines about what goes on, where no region shows it."""

UNMOVED = 10.0
"""Seconds for which nothing moves before what has no place is given up: a node may be about to register."""

LAST_LINES = 5
"""Lines of a failed engine that are shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Followed:
    """The apply of a revision, from which event on, and its plan where this is who applied it.

    `whole` = it stood already: everything that the fleet still lacks is waited for, not one apply.
    """

    number: int
    event: int
    plan: Plan | None = None
    whole: bool = False


def follow(client: Client, followed: Followed, limit: float, lines: Lines = OFF) -> int:
    """Until nothing of the apply is outstanding, or nothing but what fits nowhere, or `limit` seconds.

    Returns the exit code. `lines` has everything too, for scripts.
    """
    with region(sys.stderr) as shown:
        return _Follower(client, followed, shown, lines).run(limit)


class _Follower:
    """One look after the other."""

    def __init__(self, client: Client, followed: Followed, shown: Region, lines: Lines) -> None:
        self._lines, self._last = lines, ""
        self._came: Mapping[str, Any] = {}
        self._client, self._number, self._event = client, followed.number, followed.event
        self._shown, self._clock = shown, SystemClock()
        self._plan, self._whole = followed.plan, followed.whole
        self._estimates = Estimates(followed.plan)
        self._failed: set[str] = set()
        self._still: tuple[float, int] | None = None
        """Since when only places are waited for, and the newest event then."""
        self._began = self._said_at = self._clock.now()
        self._epoch: int | None = None
        self._away = ""
        """Why the control plane cannot be asked, as it was said; empty while it answers."""

    def run(self, limit: float) -> int:
        while True:
            try:
                code = self._step(limit)
            except Unreachable as error:
                code = self._without_answer(error, limit)
            if code is not None:
                took = round(self._clock.now() - self._began, 3)
                self._lines.say(
                    "summary", self._last, revision=self._number, exit_code=int(code), seconds=took
                )
                return code
            time.sleep(POLL)

    def _step(self, limit: float) -> int | None:
        """One look and what follows from it; the exit code at the end. Raises Unreachable."""
        # Asked first: what happened before it is then said before it.
        told = self._look()
        if self._away:
            self._away = ""
            self._say("the control plane answers again")
        self._tell_events()
        if told["ended"] or not told["waiting"]:
            return self._end(told, self._clock.now() - self._began)
        if self._clock.now() - self._began > limit:
            return self._end_of_patience(told["waiting"])
        every = SAY_EVERY if isinstance(self._shown, Plain) else 0.0
        if self._clock.now() - self._said_at >= every:
            self._said_at = self._clock.now()
            rows: tuple[ReplicaRow, ...] = self._client.read(tuple[ReplicaRow, ...], "/v1/replicas")
            self._shown.draw(moving(rows, self._estimates))
            self._tell_progress(rows)
            if self._is_stuck(rows, told["waiting"]):
                return self._end_without_place(rows, told["waiting"])
        return None

    def _without_answer(self, error: Unreachable, limit: float) -> int | None:
        """Engines and agents go on without a control plane, and it goes on with the apply once it is back."""
        later = f"Follow later: llmgw apply --attach {self._number}"
        if self._clock.now() - self._began > limit:
            self._say(f"{error.said}; what it began goes on. {later}")
            return Exit.TIMEOUT
        if not self._away:
            self._say(f"{error.said}; the work goes on, asking again. {later}")
        self._away = error.said
        return None

    def _look(self) -> Mapping[str, Any]:
        """When and how it ended, and what is waited for."""
        told: Mapping[str, Any]
        if self._whole:
            status = self._client.get("/v1/status")
            told = {"ended": "", "result": "", "waiting": status["outstanding"], "epoch": status.get("epoch")}
        else:
            told = self._client.get("/v1/apply", number=self._number)
        if self._epoch is not None and told.get("epoch") != self._epoch:
            self._event = 0  # it was started again, and counts its events anew
        self._epoch = told.get("epoch")
        return told

    def _is_stuck(self, rows: Collection[ReplicaRow], waiting: Collection[str]) -> bool:
        """Whether all that is waited for fits nowhere, and has been for long enough."""
        models = {_model(line) for line in waiting}
        if not (at_rest(rows, models) and without_place(self._client.get("/v1/status"), models)):
            self._still = None
            return False
        now = self._clock.now()
        if self._still is None or self._still[1] != self._event:
            self._still = now, self._event
        return now - self._still[0] >= UNMOVED

    def _end_of_patience(self, waiting: Iterable[str]) -> int:
        """What is outstanding, how far it is or why it is not, and how to go on."""
        self._say("still outstanding; the work goes on:")
        for line in waiting:
            self._say(f"  {line}")
        rows: tuple[ReplicaRow, ...] = self._client.read(tuple[ReplicaRow, ...], "/v1/replicas")
        for line in moving(rows, self._estimates):
            self._say(line)
        self._say(f"Follow: llmgw apply --attach {self._number}   Undo: llmgw rollback")
        return Exit.TIMEOUT

    def _end_without_place(self, rows: Collection[ReplicaRow], waiting: Collection[str]) -> int:
        why = {row.model: row.detail for row in rows if row.state == "Pending"}
        self._say("cannot be placed, and nothing goes on that could make room:")
        for line in waiting:
            self._say(f"  {line}; {why.get(_model(line), '')}")
        first = _model(next(iter(waiting)))
        rest = f"the rest of revision {self._number} is done; what fits later is placed then"
        self._say(f"{rest}. Why: llmgw why {first}   Undo: llmgw rollback")
        return Exit.FAILED

    def _tell_progress(self, rows: Iterable[ReplicaRow]) -> None:
        """To scripts, of those whose bytes have moved since they were told."""
        came = {row.replica: row.progress.received for row in rows if row.progress is not None}
        for row in rows:
            if came.get(row.replica) != self._came.get(row.replica):
                self._lines.moves(row)
        self._came = came

    def _tell_events(self) -> None:
        for entry in self._client.get("/v1/events", after=self._event):
            self._event = int(entry["number"])
            self._lines.happened(entry, self._failed)
            beside = self._estimates.beside(entry)
            if not isinstance(self._shown, Plain) and not worth_a_line(entry):
                continue
            self._say(f"  {mark(entry, self._failed):4}  {entry['about']}  {entry['said']}{beside}")
            if hint := failure_hint(entry):
                self._tell_failure(entry, hint)

    def _tell_failure(self, entry: Mapping[str, Any], hint: str) -> None:
        """The engine's own last lines, once a replica, and what to run next."""
        replica = str(entry["about"])
        if replica in self._failed:
            return
        self._failed.add(replica)
        for line in self._last_lines(replica):
            self._say(f"          | {line}")
        self._say(f"        {hint}")

    def _last_lines(self, replica: str) -> list[str]:
        """Nothing where its node cannot be asked: a failure of that is none of the apply."""
        try:
            told = self._client.lines("/v1/logs", name=replica, tail=LAST_LINES)
            whole = b"".join(base64.b64decode(piece.get("data", "")) for piece in told)
            return whole.decode(errors="replace").splitlines()[-LAST_LINES:]
        except (LlmgwError, ValueError):
            return []

    def _end(self, told: Mapping[str, Any], took: float) -> int:
        if told["result"] and told["result"] != "done":
            self._say(f"revision {self._number} is {told['result']}; follow that: llmgw apply --attach")
            return Exit.FAILED
        planned = how_long(self._plan) if self._plan is not None else ""
        beside = f" (planned {planned.removeprefix('about ')})" if planned else ""
        self._say(f"done in {took:.1f}s{beside}")
        return Exit.DONE

    def _say(self, line: str) -> None:
        self._last = safe(line).strip()
        self._shown.say(safe(line).rstrip())


def _model(line: str) -> str:
    """What a line about something outstanding is about."""
    return line.partition(":")[0]
