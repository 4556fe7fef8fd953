"""What the control plane keeps on disk: a closed list, and never the state of a replica.

Revisions with who applied them, what became of the catalog that is followed, the roster of nodes and
gateways, its epoch. A row could say "running" about a process that died; the fleet cannot, so it is asked
again after each start. Built by `serve`, used by `adoption`, `watch` and the loop.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import os
import pathlib
from collections.abc import Iterator

import pydantic

from llmgw.control.holding import Followed
from llmgw.errors import Failed
from llmgw.kit.files import write_atomic

KEPT_REVISIONS = 200
_FOLLOWED = pydantic.TypeAdapter(Followed)


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
    at: datetime.datetime


class Known(pydantic.BaseModel):
    """A node or gateway that was here. `heard` is the wall clock of about its last word.

    `lost` = its loss was acted on: its replicas are elsewhere, and no restart waits for it.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    name: str = ""
    heard: datetime.datetime
    lost: bool = False


class Roster(pydantic.BaseModel):
    """Who a restart waits for."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    nodes: dict[str, Known] = {}
    gateways: dict[str, Known] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """The state directory. One control plane at a time holds it (`held`)."""

    root: pathlib.Path

    @contextlib.contextmanager
    def held(self) -> Iterator["Store"]:
        """Hold the directory for this process. Raises Failed naming who has it."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = lock.read().strip() or "unknown"
                raise Failed(
                    f"cannot use {self.root}: another control plane (pid {holder}) runs on it",
                    help="stop that one, or give this one its own --state-dir",
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            (self.root / "revisions").mkdir(exist_ok=True, mode=0o700)
            yield self

    def next_epoch(self, now: datetime.datetime) -> int:
        """A number greater than every one before it, durable before it is used.

        At least the seconds of the wall clock: a control plane that lost this directory is then above
        what agents and gateways have obeyed, and not taken for the one they know.
        """
        path = self.root / "epoch"
        before = int(path.read_text()) if path.exists() else 0
        epoch = max(before + 1, int(now.timestamp()))
        self.raise_epoch(epoch)
        return epoch

    def raise_epoch(self, epoch: int) -> None:
        """Remember that `epoch` was seen, so that the next start is above it."""
        write_atomic(self.root / "epoch", str(epoch).encode())

    def roster(self) -> Roster:
        """Who was here; empty on the first start."""
        path = self.root / "roster.json"
        return Roster.model_validate_json(path.read_bytes()) if path.exists() else Roster()

    def save_roster(self, roster: Roster) -> None:
        write_atomic(self.root / "roster.json", roster.model_dump_json(indent=1).encode())

    def followed(self) -> Followed:
        """What became of the catalog that was followed; nothing on the first start. Raises Failed."""
        path = self.root / "followed.json"
        try:
            return _FOLLOWED.validate_json(path.read_bytes()) if path.exists() else Followed()
        except pydantic.ValidationError as error:
            raise Failed(
                f"cannot read {path}: {error.errors()[0]['msg'].lower()}",
                help="remove it: what is held is judged again then, and a rollback is forgotten",
            ) from error

    def save_followed(self, followed: Followed) -> None:
        write_atomic(self.root / "followed.json", _FOLLOWED.dump_json(followed, indent=1))

    def revisions(self) -> list[int]:
        """The numbers of the kept revisions, oldest first."""
        return sorted(int(path.stem) for path in (self.root / "revisions").glob("[0-9]*.json"))

    def revision(self, number: int) -> Revision:
        """One revision. Raises Failed when it is not kept."""
        path = self._revision_path(number)
        if not path.exists():
            raise Failed(f"cannot read revision {number}: it is not kept", help="see `llmgw history`")
        return Revision.model_validate_json(path.read_bytes())

    def newest(self) -> Revision | None:
        """The revision that stands, or None before the first apply."""
        numbers = self.revisions()
        return self.revision(numbers[-1]) if numbers else None

    def add(self, revision: Revision) -> None:
        """Keep `revision`; it stands once this returns. The oldest beyond `KEPT_REVISIONS` go."""
        write_atomic(self._revision_path(revision.number), revision.model_dump_json(indent=1).encode())
        for number in self.revisions()[:-KEPT_REVISIONS]:
            self._revision_path(number).unlink()

    def _revision_path(self, number: int) -> pathlib.Path:
        return self.root / "revisions" / f"{number:08d}.json"
