"""What is kept of an apply beside the catalog's bytes, and of a hold: values on disk. Used by `store`.

`recording` writes a record while its apply goes on; `switch` a hold; the screens of `history` read them.
"""

import pydantic

from llmgw.planning.fired import Guard


class Happened(pydantic.BaseModel):
    """One action of an apply, or what came of it, as the journal had it."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    at: pydantic.AwareDatetime
    kind: str
    about: str
    said: str


class Record(pydantic.BaseModel):
    """How the apply of a revision went. `ended` None = it goes on; `result` is empty until then.

    `allowed` are the guards that were overridden, with what. Of `actions` the first are kept; `dropped`
    counts the others.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    number: int
    began: pydantic.AwareDatetime
    allowed: tuple[tuple[Guard, str], ...] = ()
    actions: tuple[Happened, ...] = ()
    dropped: int = 0
    ended: pydantic.AwareDatetime | None = None
    result: str = ""


class OnHold(pydantic.BaseModel):
    """Nothing that is followed is adopted. `until` None = until somebody releases it."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    who: str
    reason: str
    since: pydantic.AwareDatetime
    until: pydantic.AwareDatetime | None = None
