"""The routes of `hands`: every act can be rehearsed before it is done, by the loop's own function.

Passed to `Api(..., more=...)` by `serve`. An act that was shown is done only if its plan is still that one.
"""

import collections
import dataclasses
import hashlib
import json
from typing import Any

import pydantic

from llmgw.control.adoption import Adoption
from llmgw.control.api import LONGEST_TIME, Routes
from llmgw.control.hands import Act, Hands, Verb
from llmgw.control.journal import Journal
from llmgw.control.loop import Loop
from llmgw.control.marks import desired
from llmgw.errors import Stale
from llmgw.kit.chance import Chance
from llmgw.kit.clock import Clock
from llmgw.planning.plan import Plan, make_plan
from llmgw.planning.rows import Row
from llmgw.transport.http import Request, Response

LONGEST_TEXT = 1000


class HandBody(pydantic.BaseModel):
    """An act as the CLI sends it. `expect` is the plan that was shown; empty = whatever it is now."""

    verb: Verb
    name: str = pydantic.Field(max_length=LONGEST_TEXT)
    who: str = pydantic.Field(default="", max_length=LONGEST_TEXT)
    reason: str = pydantic.Field(default="", max_length=LONGEST_TEXT)
    seconds: float | None = pydantic.Field(default=None, gt=0, le=LONGEST_TIME, allow_inf_nan=False)
    expect: str = ""

    def act(self) -> Act:
        return Act(self.verb, self.name, self.who, self.reason, self.seconds)


class HandsApi:
    """Answers for one `Hands`."""

    def __init__(
        self, hands: Hands, adoption: Adoption, loop: Loop, journal: Journal, clock: Clock, chance: Chance
    ) -> None:
        self._hands, self._adoption, self._loop = hands, adoption, loop
        self._journal, self._clock, self._chance = journal, clock, chance

    @property
    def routes(self) -> Routes:
        return {
            ("GET", "/v1/marks"): self._marks,
            ("POST", "/v1/hands/plan"): self._plan,
            ("POST", "/v1/hands"): self._do,
        }

    async def _marks(self, _: Request) -> Response:
        now = self._clock.wall()
        rows = [
            {**mark.model_dump(mode="json"), "age": (now - mark.since).total_seconds()}
            for mark in self._hands.kept.marks
        ]
        return Response(200, json.dumps(rows).encode())

    async def _plan(self, request: Request) -> Response:
        act = HandBody.model_validate_json(request.body).act()
        plan = self._rehearse(act, self._hands.check(act))
        return Response(200, _PLAN.dump_json(plan))

    async def _do(self, request: Request) -> Response:
        body = HandBody.model_validate_json(request.body)
        act = body.act()
        about = self._hands.check(act)
        if body.expect and (plan := self._rehearse(act, about)) is not None and plan.digest != body.expect:
            raise Stale(
                f"cannot {act.verb} {act.name}: what follows from it is now {plan.id}. Nothing was changed",
                help="look at it again",
            )
        event = self._journal.last
        said = self._hands.do(act, about)
        answer: dict[str, Any] = {"about": about, "said": said, "event": event}
        return Response(200, json.dumps(answer).encode())

    def _rehearse(self, act: Act, about: str) -> Plan | None:
        """What would follow from `act` alone, as rows of origin "change"; None while no catalog stands."""
        loop = self._loop
        if loop.desired.catalog is None:
            return None
        marked = dataclasses.replace(loop.desired, marks=desired(self._hands.set_by(act, about)))
        now, number = self._clock.now(), self._adoption.number

        def plan(after: bool) -> Plan:
            return make_plan(
                loop.desired,
                marked if after else loop.desired,
                self._hands.fleet_after(act, about) if after else loop.fleet,
                loop.ledger,
                now,
                self._chance,
                loop.timers,
                base=number,
                board=loop.memory,
            )

        return _told_apart(plan(True), plan(False), f"{act.verb} {about}")


_PLAN: pydantic.TypeAdapter[Plan | None] = pydantic.TypeAdapter(Plan | None)


def _told_apart(after: Plan, before: Plan, act: str) -> Plan:
    """`after` with what would not happen without the act as its change; the rest heals anyhow."""
    anyhow = collections.Counter(map(_what, before.rows))
    rows = []
    for row in after.rows:
        heals = anyhow[_what(row)] > 0
        anyhow[_what(row)] -= heals
        rows.append(dataclasses.replace(row, origin="healing" if heals else "change"))
    told = sorted([act, *_what(row)] for row in rows if row.origin == "change")
    digest = hashlib.sha256(json.dumps([act, told]).encode()).hexdigest()
    stuck = {(each.model, each.profile) for each in before.unplaced}
    unplaced = tuple(
        dataclasses.replace(each, origin="healing" if (each.model, each.profile) in stuck else "change")
        for each in after.unplaced
    )
    return dataclasses.replace(after, rows=tuple(rows), unplaced=unplaced, digest=digest)


def _what(row: Row) -> tuple[str, str, str, str]:
    return (row.symbol, row.model, row.replica, row.generation)
