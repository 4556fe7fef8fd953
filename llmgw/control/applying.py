"""The routes of an apply and of everything that is kept of it: apply, follow, history, hold and release.

Passed to `Api(..., more=...)` by `serve`. The CLI's verbs `apply`, `history`, `show`, `rollback`, `hold` and
`release` ask them.
"""

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pydantic

from llmgw.control.adoption import Adoption
from llmgw.control.api import LONGEST_TIME, PlanBody, Routes, number_of, upload
from llmgw.control.expecting import Past, Wish
from llmgw.control.journal import Journal
from llmgw.control.recording import Recording
from llmgw.control.records import OnHold, Record
from llmgw.control.store import Store
from llmgw.control.switch import Switch
from llmgw.errors import Failed
from llmgw.planning.fired import Guard
from llmgw.planning.plan import Plan
from llmgw.planning.promise import Promise
from llmgw.transport.http import Request, Response

LONGEST_TEXT = 1000
SHOWN = 20
"""Revisions that `history` lists where nobody says how many."""

READERS = 2
"""Reads of what is on disk at a time, each beside the loop."""

MOST_ALLOWED = 1000
GOES_ON = "goes on"

_PLAN = pydantic.TypeAdapter(Plan)


class ApplyBody(PlanBody):
    """A catalog to adopt. `expect` or `saved` = the plan that was seen; `allowed` = guards, and exactly what of each."""

    saved: Promise | None = None
    allowed: list[tuple[Guard, str]] = pydantic.Field(default=[], max_length=MOST_ALLOWED)

    def wish(self) -> Wish:
        return Wish(self.expect, self.saved, frozenset(self.allowed))


class HoldBody(pydantic.BaseModel):
    """Who holds it and why. `seconds` until it ends by itself, None = never."""

    who: str = pydantic.Field(default="", max_length=LONGEST_TEXT)
    reason: str = pydantic.Field(min_length=1, max_length=LONGEST_TEXT)
    seconds: float | None = pydantic.Field(default=None, gt=0, le=LONGEST_TIME, allow_inf_nan=False)


class ReleaseBody(pydantic.BaseModel):
    """Who lets go."""

    who: str = pydantic.Field(default="", max_length=LONGEST_TEXT)


@dataclasses.dataclass(frozen=True, slots=True)
class _Short:
    """What a row of `history` tells of a record."""

    ended: str
    result: str
    actions: int
    allowed: tuple[tuple[Guard, str], ...]


_NOT_RECORDED = _Short("", "", 0, ())


class Applying:
    """Answers for one control plane.

    Records of older applies change no more: they are read once, beside the loop, and kept in short.
    """

    def __init__(
        self,
        adoption: Adoption,
        store: Store,
        recording: Recording,
        switch: Switch,
        journal: Journal,
        epoch: int = 0,
    ) -> None:
        self._epoch = epoch
        self._adoption, self._store, self._recording = adoption, store, recording
        self._switch, self._journal = switch, journal
        self._shorts: dict[int, _Short] = {}
        self._reading = asyncio.Semaphore(READERS)

    @property
    def routes(self) -> Routes:
        return {
            ("POST", "/v1/apply"): self._apply,
            ("GET", "/v1/apply"): self._follow,
            ("GET", "/v1/history"): self._history,
            ("GET", "/v1/revision"): self._revision,
            ("GET", "/v1/hold"): self._on_hold,
            ("POST", "/v1/hold"): self._hold,
            ("POST", "/v1/release"): self._release,
        }

    async def _apply(self, request: Request) -> Response:
        body = upload(request, ApplyBody)
        last, before = self._journal.last, self._adoption.number
        number, plan = await self._adoption.apply(body.proposal(), body.wish())
        answer = {"revision": number, "event": last, "plan": plan.digest, "new": number != before}
        return _json(answer)

    async def _follow(self, request: Request) -> Response:
        """How the apply of a revision goes; of the newest where none is named."""
        current = self._recording.current
        number = number_of(request, "number", 0) or self._adoption.number
        record = await self._recorded(number)
        if record is None:
            raise Failed(
                f"cannot follow revision {number}: nothing is kept of its apply", help="llmgw history"
            )
        goes_on = record.ended is None and record is current
        return _json(
            {
                "number": number,
                "epoch": self._epoch,
                "began": record.began.isoformat(),
                "ended": record.ended.isoformat() if record.ended is not None else "",
                "result": record.result,
                "waiting": self._recording.waiting() if goes_on else (),
            }
        )

    async def _history(self, request: Request) -> Response:
        """The newest revisions, newest first. With `records=0` nothing is told of their applies, and nothing read."""
        most = number_of(request, "last", SHOWN) or len(self._adoption.past)
        past = [*self._adoption.past[-most:]]
        told = number_of(request, "records", 1) != 0
        shorts = {each.number: await self._short(each.number) for each in past} if told else {}
        return _json([self._row(each, shorts.get(each.number, _NOT_RECORDED)) for each in reversed(past)])

    async def _short(self, number: int) -> _Short:
        current = self._recording.current
        if current is not None and current.number == number:
            return _in_short(current)
        if (known := self._shorts.get(number)) is None:
            record = await self._recorded(number)
            if record is None:
                return _NOT_RECORDED
            known = self._shorts[number] = _in_short(record)
            kept = {each.number for each in self._adoption.past}
            self._shorts = {n: short for n, short in self._shorts.items() if n in kept}
        return known

    def _row(self, past: Past, short: _Short) -> Mapping[str, Any]:
        return {
            "number": past.number,
            "at": past.at.isoformat(),
            "who": past.who,
            "commit": past.commit,
            "message": past.message,
            "plan": past.plan,
            "digest": past.digest,
            "stands": past.number == self._adoption.number,
            **dataclasses.asdict(short),
        }

    async def _recorded(self, number: int) -> Record | None:
        current = self._recording.current
        if current is not None and current.number == number:
            return current
        async with self._reading:
            return await asyncio.to_thread(self._store.record, number)

    async def _revision(self, request: Request) -> Response:
        """Everything that is kept of one revision: its bytes, its plan, what its apply did."""
        number = number_of(request, "number", 0) or self._adoption.number
        if not number:
            raise Failed("cannot show a revision: none stands yet", help="llmgw apply")
        record, stands = await self._recorded(number), number == self._adoption.number
        async with self._reading:
            return await asyncio.to_thread(self._whole, number, record, stands)

    def _whole(self, number: int, record: Record | None, stands: bool) -> Response:
        revision, plan = self._store.revision(number), self._store.plan(number)
        return _json(
            {
                "revision": revision.model_dump(mode="json"),
                "record": record.model_dump(mode="json") if record is not None else None,
                "plan": _PLAN.dump_python(plan, mode="json") if plan is not None else None,
                "stands": stands,
            }
        )

    async def _on_hold(self, _: Request) -> Response:
        return _json(_shown(self._switch.held))

    async def _hold(self, request: Request) -> Response:
        body = HoldBody.model_validate_json(request.body)
        return _json(_shown(self._switch.hold(body.who, body.reason, body.seconds)))

    async def _release(self, request: Request) -> Response:
        return _json(_shown(self._switch.release(ReleaseBody.model_validate_json(request.body).who)))


def _in_short(record: Record) -> _Short:
    return _Short(
        record.ended.isoformat() if record.ended is not None else "",
        record.result or GOES_ON,
        len(record.actions) + record.dropped,
        record.allowed,
    )


def _shown(held: OnHold | None) -> Any:
    return held.model_dump(mode="json") if held is not None else None


def _json(value: Any) -> Response:
    return Response(200, json.dumps(value).encode())
