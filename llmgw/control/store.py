"""What the control plane keeps on disk: a closed list, and never the state of a replica.

Revisions with who applied them, of each its plan and what its apply did, what became of the catalog that
is followed and whether that is on hold, the roster of nodes and gateways, the marks that people set, the
hashes of tokens (in `tokens`), its epoch. A row could say "running" about a process that died; the fleet
cannot, so it is asked again after each start. Built by `serve`, used by `adoption`, `recording`, `watch`
and the loop.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pydantic

from llmgw.control.holding import Followed
from llmgw.control.marks import Kept
from llmgw.control.records import OnHold, Record
from llmgw.errors import Failed
from llmgw.kit.files import read_regular, sync_directory, write_atomic
from llmgw.kit.locks import hold
from llmgw.kit.state_files import from_json, read_state
from llmgw.planning.plan import Plan

T = TypeVar("T")
KEPT_REVISIONS = 200
MAKE_ROOM = "make room there, or name another --state-dir"
_FOLLOWED = pydantic.TypeAdapter(Followed)
_LONGEST_EPOCH = 12
"""Digits: far beyond the seconds of any wall clock, and a number that every release can carry on."""
_NUMBERED = re.compile(r"\d{8,12}\.json", re.ASCII)
_MARKS = pydantic.TypeAdapter(Kept)
_PLAN = pydantic.TypeAdapter(Plan)


class Revision(pydantic.BaseModel):
    """One adopted catalog: its bytes, where they came from and what was planned for it."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    number: int
    files: dict[str, str]
    digest: str
    commit: str = ""
    who: str = ""
    message: str = ""
    plan: str = ""
    at: pydantic.AwareDatetime


class Known(pydantic.BaseModel):
    """A node or gateway that was here. `heard` is the wall clock of about its last word.

    `lost` = its loss was acted on: its replicas are elsewhere, and no restart waits for it.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    name: str = ""
    heard: pydantic.AwareDatetime
    lost: bool = False


class Roster(pydantic.BaseModel):
    """Who a restart waits for."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    nodes: dict[str, Known] = {}
    gateways: dict[str, Known] = {}


def served(root: pathlib.Path) -> bool:
    """Whether a control plane ever began in this state directory."""
    return (root / "epoch").exists()


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """The state directory. One control plane at a time holds it (`held`)."""

    root: pathlib.Path

    @contextlib.contextmanager
    def held(self) -> Iterator["Store"]:
        """Hold the directory for this process. Raises Failed naming who has it, or why it cannot be used."""
        better = "stop that one, or give this one its own --state-dir"
        try:
            lock = hold(self.root, who="control plane", better=better)
        except OSError as error:
            raise Failed(f"cannot use {self.root}: {_because(error)}", help=MAKE_ROOM) from error
        try:
            yield self
        finally:
            os.close(lock)

    def next_epoch(self, now: datetime.datetime) -> int:
        """A number greater than every one before it, durable before it is used.

        At least the seconds of the wall clock: a control plane that lost this directory is then above
        what agents and gateways have obeyed, and not taken for the one they know. Raises Failed.
        """
        epoch = max(self._last_epoch() + 1, int(now.timestamp()))
        try:
            self.raise_epoch(epoch)
        except OSError as error:
            raise Failed(
                f"cannot start: the epoch cannot be kept: {_because(error)}", help=MAKE_ROOM
            ) from error
        return epoch

    def _last_epoch(self) -> int:
        better = "remove it if no other control plane commands these nodes"
        return read_state(self.root / "epoch", _epoch, better) or 0

    def raise_epoch(self, epoch: int) -> None:
        """Remember that `epoch` was seen, so that the next start is above it. Raises OSError."""
        write_atomic(self.root / "epoch", str(epoch).encode())

    def roster(self) -> Roster:
        """Who was here; empty on the first start. Raises Failed."""
        better = "remove it: nobody is waited for then, and nodes that are away are not known"
        return read_state(self.root / "roster.json", Roster.model_validate_json, better) or Roster()

    def save_roster(self, roster: Roster) -> None:
        """Remember who is here. Raises OSError."""
        write_atomic(self.root / "roster.json", roster.model_dump_json(indent=1).encode())

    def followed(self) -> Followed:
        """What became of the catalog that was followed; nothing on the first start. Raises Failed."""
        better = "remove it: what is held is judged again then, and a rollback is forgotten"

        def parse(data: bytes) -> Followed:
            return _FOLLOWED.validate_python(_followed(data), strict=False)

        return read_state(self.root / "followed.json", parse, better) or Followed()

    def save_followed(self, followed: Followed) -> None:
        """Remember what became of the catalog that is followed; keys of another release stay. Raises OSError."""
        path = self.root / "followed.json"
        ours = _FOLLOWED.dump_python(followed, mode="json")
        found: Any = None
        with contextlib.suppress(OSError, ValueError):
            found = _followed(read_regular(path))
        others = found if isinstance(found, dict) else {}
        write_atomic(path, json.dumps({**others, **ours}, indent=1).encode())

    def marks(self) -> Kept:
        """The marks that people set; none on the first start. Raises Failed."""
        better = "remove it: nothing is cordoned, drained or paused then"
        return read_state(self.root / "marks.json", _MARKS.validate_json, better) or Kept()

    def save_marks(self, marks: Kept) -> None:
        """Remember the marks. Raises OSError."""
        write_atomic(self.root / "marks.json", _MARKS.dump_json(marks, indent=1))

    def on_hold(self) -> OnHold | None:
        """The hold that stands; None where there is none. Raises Failed."""
        better = "remove it: nothing is on hold then"
        return read_state(self.root / "hold.json", OnHold.model_validate_json, better)

    def save_on_hold(self, held: OnHold | None) -> None:
        """Remember the hold, or that there is none. Raises OSError."""
        path = self.root / "hold.json"
        if held is not None:
            write_atomic(path, held.model_dump_json(indent=1).encode())
        elif path.exists():
            path.unlink()
            sync_directory(self.root)

    def record(self, number: int) -> Record | None:
        """How the apply of a revision went; None where nothing readable is kept of it."""
        return _kept(self._apply_path(number, "record"), Record.model_validate_json)

    def save_record(self, record: Record) -> None:
        """Remember how an apply goes. Raises OSError."""
        self._write_apply(record.number, "record", record.model_dump_json(indent=1).encode())

    def plan(self, number: int) -> Plan | None:
        """The plan by which a revision was adopted; None where nothing readable is kept of it."""
        return _kept(self._apply_path(number, "plan"), _PLAN.validate_json)

    def save_plan(self, number: int, plan: Plan) -> None:
        """Remember the plan of a revision. Raises OSError."""
        self._write_apply(number, "plan", _PLAN.dump_json(plan))

    def _write_apply(self, number: int, what: str, data: bytes) -> None:
        path = self._apply_path(number, what)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        write_atomic(path, data)

    def _apply_path(self, number: int, what: str) -> pathlib.Path:
        return self.root / "applies" / f"{number:08d}.{what}.json"

    def kept(self) -> Iterator[Revision]:
        """Every kept revision that can be read, oldest first."""
        for number in self.revisions():
            revision = _kept(self._revision_path(number), Revision.model_validate_json)
            if revision is not None:
                yield revision

    def revisions(self) -> list[int]:
        """The numbers of the kept revisions, oldest first. Other files there are none of ours. Raises Failed."""
        directory = self.root / "revisions"
        try:
            names = os.listdir(directory) if directory.exists() else []
        except OSError as error:
            because = (error.strerror or str(error)).lower()
            raise Failed(f"cannot read {directory}: {because}", help="put the directory back") from error
        return sorted(int(name[:-5]) for name in names if _NUMBERED.fullmatch(name))

    def revision(self, number: int) -> Revision:
        """One revision. Raises Failed where it is not kept, or cannot be read."""
        path = self._revision_path(number)
        better = "put a copy of it back; without the file the revision before it stands"
        found = read_state(path, Revision.model_validate_json, better)
        if found is None:
            raise Failed(f"cannot read revision {number}: it is not kept", help="see `llmgw history`")
        if found.number != number:
            raise Failed(f"cannot read {path}: it is revision {found.number}", help=better)
        return found

    def newest(self) -> Revision | None:
        """The revision that stands, or None before the first apply."""
        numbers = self.revisions()
        return self.revision(numbers[-1]) if numbers else None

    def add(self, revision: Revision) -> None:
        """Keep `revision`; it stands once this returns. The oldest beyond `KEPT_REVISIONS` go.

        Raises Failed where the disk refuses; nothing has changed then.
        """
        path = self._revision_path(revision.number)
        try:
            path.parent.mkdir(exist_ok=True, mode=0o700)
            for number in self.revisions()[: 1 - KEPT_REVISIONS]:
                self._revision_path(number).unlink()
                for what in ("record", "plan"):
                    self._apply_path(number, what).unlink(missing_ok=True)
            write_atomic(path, revision.model_dump_json(indent=1).encode())
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()  # renamed and not durable: it must not stand after a restart either
            raise Failed(
                f"cannot keep revision {revision.number}: {_because(error)}. Nothing was changed",
                help=MAKE_ROOM,
            ) from error

    def _revision_path(self, number: int) -> pathlib.Path:
        return self.root / "revisions" / f"{number:08d}.json"


def _epoch(data: bytes) -> int:
    text = data.strip()
    if not text.isdigit() or len(text) > _LONGEST_EPOCH:
        raise ValueError("that is no epoch")
    return int(text)


def _followed(data: bytes) -> Any:
    """What is in the file; `left` was one digest once. Raises ValueError."""
    found = from_json(data)
    if isinstance(found, dict) and isinstance(found.get("left"), str):
        found["left"] = [found["left"]] if found["left"] else []
    return found


def _kept(path: pathlib.Path, read: Callable[[bytes], T]) -> T | None:
    """What `read` makes of a file that only tells what was; None where it is not there or cannot be read."""
    try:
        return read(read_regular(path))
    except (OSError, pydantic.ValidationError):
        return None


def _because(error: OSError) -> str:
    """`no space left on device at PATH`."""
    said = error.strerror or str(error)
    return f"{said[:1].lower()}{said[1:]} at {error.filename}" if error.filename else said
