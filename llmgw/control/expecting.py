"""What an apply is held to: the plan that its author saw. Compared by `planning.promise`, refused here.

`adoption` tells what was shown and what was adopted, and asks before it adopts. A plan that was applied
once is used up: what replaced it is named, and by whom.
"""

import dataclasses
import datetime
from collections.abc import Iterable

from llmgw.control.store import Revision
from llmgw.errors import Stale
from llmgw.kit.text import safe
from llmgw.kit.units import show_seconds
from llmgw.planning.fired import Allowed
from llmgw.planning.plan import Plan
from llmgw.planning.promise import Promise, compare, promise

KEPT = 512
"""Plans whose promises are remembered; a restart forgets them."""

MOST_LINES = 100_000
"""Lines of all those promises together, some 30 MiB; the newest is kept however many it has."""

SHORTEST = 6
"""Hexadecimal digits that name a plan at least."""

_SHOWN = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """How an apply is meant: `expect` is a plan's id or digest; `saved` what a saved plan promised; or neither."""

    expect: str = ""
    saved: Promise | None = None
    allowed: Allowed = frozenset()

    @property
    def name(self) -> str:
        """What people call the plan that they expect."""
        return self.saved.id if self.saved is not None else self.expect


@dataclasses.dataclass(frozen=True, slots=True)
class Past:
    """A revision without its bytes. `digest` is of its catalog, `plan` of the plan that led to it."""

    number: int
    digest: str
    plan: str
    who: str
    message: str
    commit: str
    at: datetime.datetime

    def said(self, now: datetime.datetime) -> str:
        """`revision 7 by dana, 6m ago (51be0aa1): longer context`."""
        ago = show_seconds(max(0.0, (now - self.at).total_seconds()))
        commit = f" ({self.commit[:12]})" if self.commit else ""
        message = f": {self.message}" if self.message else ""
        return safe(f"revision {self.number} by {self.who or '?'}, {ago} ago{commit}{message}")


class Expecting:
    """The promises of the plans that were shown, and every revision that is kept, in short."""

    def __init__(self) -> None:
        self._promises: dict[str, Promise] = {}
        self._lines = 0
        self.past: list[Past] = []

    def resume(self, revisions: Iterable[Revision]) -> None:
        """Know these revisions, oldest first."""
        self.past = []
        for revision in revisions:
            self.adopted(revision)

    def adopted(self, revision: Revision) -> None:
        """A revision stands from now on."""
        short = Past(
            revision.number,
            revision.digest,
            revision.plan,
            revision.who,
            revision.message,
            revision.commit,
            revision.at,
        )
        self.past = [*self.past[-KEPT + 1 :], short]

    def showed(self, plan: Plan) -> None:
        """Somebody sees this plan now, made against what stands now."""
        self._forget(plan.digest)
        promised = self._promises[plan.digest] = promise(plan)
        self._lines += _size(promised)
        while len(self._promises) > KEPT or (self._lines > MOST_LINES and len(self._promises) > 1):
            self._forget(next(iter(self._promises)))

    def _forget(self, digest: str) -> None:
        if (promised := self._promises.pop(digest, None)) is not None:
            self._lines -= _size(promised)

    def check_catalog(self, wish: Wish, catalog: str) -> None:
        """Raise Stale where the plan that was seen leads to another catalog than that with this digest."""
        promised = self._promised(wish)
        if promised is not None and promised.catalog != catalog:
            raise Stale(
                f"cannot apply {wish.name}: the catalog is another than the one it was made for. Nothing was changed",
                help="llmgw plan",
            )

    def check(self, wish: Wish, plan: Plan, now: datetime.datetime) -> None:
        """Raise Stale, with every difference, where `plan` is not what was expected or a part of it."""
        if not wish.name:
            return
        promised = self._promised(wish)
        if promised is not None and promised.cluster not in ("", plan.cluster):
            raise Stale(
                f"cannot apply {wish.name}: it was made for cluster {safe(promised.cluster)}, this is"
                f" {safe(plan.cluster)}. Nothing was changed",
                help="look at it here with `llmgw plan`, or ask the other cluster with --server",
            )
        self._check_unused(wish, promised, now)
        if promised is None:
            if _names(wish.expect, plan.digest):
                return
            raise _stale(wish, plan, ["it was shown by no plan since this control plane started"])
        found = compare(promised, promise(plan))
        if found.stale:
            meanwhile = [past.said(now) for past in self.past if past.number > promised.base]
            raise _stale(
                wish,
                plan,
                [*map(safe, found.lines), *(f"applied since  {one}" for one in meanwhile[-_SHOWN:])],
            )

    def _check_unused(self, wish: Wish, promised: Promise | None, now: datetime.datetime) -> None:
        """Raise Stale where the plan was applied once and something else stands since."""
        for past, following in zip(self.past, self.past[1:], strict=False):
            if promised is not None:
                used = past.number > promised.base and past.digest == promised.catalog
            else:
                used = _names(wish.expect, past.plan)
            if used:
                raise Stale(
                    f"cannot apply {wish.name}: it was applied as revision {past.number} and is superseded by"
                    f" {following.said(now)}. Nothing was changed",
                    help=f"llmgw rollback {past.number}",
                )

    def _promised(self, wish: Wish) -> Promise | None:
        if wish.saved is not None:
            return wish.saved
        found = [digest for digest in self._promises if wish.expect and _names(wish.expect, digest)]
        if len(found) > 1:
            raise Stale(
                f"cannot apply {wish.expect}: that is short for {len(found)} plans", help="write more of it"
            )
        return self._promises[found[0]] if found else None


def _size(promised: Promise) -> int:
    return len(promised.lines) + len(promised.unplaced)


def _names(short: str, digest: str) -> bool:
    digits = short.removeprefix("p-")
    return len(digits) >= SHORTEST and digest.startswith(digits)


def _stale(wish: Wish, plan: Plan, lines: Iterable[str]) -> Stale:
    details = "".join(f"\n  {line}" for line in lines)
    return Stale(
        f"cannot apply {wish.name}: the plan is now {plan.id}. Nothing was changed{details}",
        help=f"look at it again with `llmgw plan`, then llmgw apply --expect {plan.id}",
    )
