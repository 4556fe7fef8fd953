"""The agent's own few facts on disk: who it is, whom it obeys, and that it is the only one here.

Called by `agent.serve`. The node's identity is generated once and lives in the state directory: a
name may change, a restarted agent is the same node.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import uuid
from collections.abc import Iterator

from llmgw.errors import Failed
from llmgw.kit.files import write_atomic


@dataclasses.dataclass(frozen=True, slots=True)
class Obeyed:
    """The highest control plane epoch that was obeyed, and the newest catalog revision that was heard of."""

    epoch: int = 0
    revision: int = 0


class StateDir:
    """One agent's directory, held by one process at a time."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    @contextlib.contextmanager
    def held(self) -> Iterator["StateDir"]:
        """Hold it for this process. Raises Failed naming who has it."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Not inherited by engines: the kernel lets go of it when we die, however we die.
        lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(lock, "r+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = file.read().strip() or "unknown"
                raise Failed(
                    f"cannot use {self.root}: another agent (pid {holder}) runs on it",
                    help="stop that one, or give this one its own --name, --state-dir and --ports",
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield self

    def node(self) -> str:
        """The id of this node, made at the first start."""
        path = self.root / "node-id"
        with contextlib.suppress(FileNotFoundError):
            if found := path.read_text().strip():
                return found
        made = uuid.uuid4().hex[:12]
        write_atomic(path, made.encode())
        return made

    def obeyed(self) -> Obeyed:
        """What was adopted last. Raises Failed where the file cannot be read: an older epoch must not win."""
        path = self.root / "obeyed"
        try:
            stored = json.loads(path.read_bytes())
            return Obeyed(int(stored["epoch"]), int(stored["revision"]))
        except FileNotFoundError:
            return Obeyed()
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(
                f"cannot read {path}: {error}",
                help="remove it if no older control plane can still be running",
            ) from error

    def obey(self, obeyed: Obeyed) -> None:
        """Remember it, durably."""
        write_atomic(self.root / "obeyed", json.dumps(dataclasses.asdict(obeyed)).encode())
