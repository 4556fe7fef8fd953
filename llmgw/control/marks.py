"""What people set on the fleet by hand, as it is kept on disk. Pure; used by `hands` and `store`.

A mark says what about what, who, why, since when and until when. `desired` makes of them what
`planning` decides by.
"""

import dataclasses
import datetime
from collections.abc import Iterable
from typing import Literal

import pydantic

from llmgw.planning.desired import Marks

Kind = Literal["cordoned", "draining", "paused", "confirmed_lost"]

MOST = 1024
"""Marks at a time. Each node and each model has at most one of a kind."""


class Mark(pydantic.BaseModel):
    """One mark. `about` is a node's id or a model; `name` is what people call it. `until` None = until lifted."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    kind: Kind
    about: str
    name: str
    who: str = ""
    reason: str = ""
    since: pydantic.AwareDatetime
    until: pydantic.AwareDatetime | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.kind, self.about)

    @property
    def said(self) -> str:
        """The reason with who gave it, as refusals and screens show it."""
        if not self.reason:
            return f"by {self.who}, without a reason" if self.who else "no reason was given"
        return f"{self.reason} ({self.who})" if self.who else self.reason


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """The marks that stand, by (kind, about)."""

    marks: tuple[Mark, ...] = ()

    def of(self, about: str, *kinds: Kind) -> tuple[Mark, ...]:
        """The marks of one node or model, of these kinds or of any."""
        return tuple(m for m in self.marks if m.about == about and (not kinds or m.kind in kinds))

    def plus(self, mark: Mark) -> "Kept":
        """With `mark`, in place of what said the same of the same."""
        return Kept((*(m for m in self.marks if m.key != mark.key), mark))

    def minus(self, gone: Iterable[Mark]) -> "Kept":
        """Without these."""
        keys = {mark.key for mark in gone}
        return Kept(tuple(mark for mark in self.marks if mark.key not in keys))

    def over(self, now: datetime.datetime) -> tuple[Mark, ...]:
        """What has expired at `now`."""
        return tuple(mark for mark in self.marks if mark.until is not None and mark.until <= now)


def desired(kept: Kept) -> Marks:
    """What the marks ask of the fleet."""

    def of(kind: Kind) -> dict[str, str]:
        return {mark.about: mark.said for mark in kept.marks if mark.kind == kind}

    return Marks(of("cordoned"), of("draining"), of("paused"), frozenset(of("confirmed_lost")))
