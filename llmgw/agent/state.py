"""The agent's own few facts on disk: who it is, whom it obeys, and that it is the only one here.

Called by `agent.serve`. The node's identity is generated once and lives in the state directory: a
name may change, a restarted agent is the same node.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import uuid
from collections.abc import Iterator

from llmgw.errors import Failed
from llmgw.kit.files import write_atomic
from llmgw.kit.locks import hold


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
        better = "stop that one, or give this one its own --name, --state-dir and --ports"
        try:
            lock = hold(self.root, who="agent", better=better)
        except OSError as error:
            raise unusable(error, self.root) from error
        try:
            yield self
        finally:
            os.close(lock)

    def node(self) -> str:
        """The id of this node, made at the first start. Raises OSError where it cannot be kept."""
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
        """Remember it, durably, with whatever another release has put beside it. Raises OSError."""
        path = self.root / "obeyed"
        kept: object = None
        with contextlib.suppress(FileNotFoundError, ValueError):
            kept = json.loads(path.read_bytes())
        beside = kept if isinstance(kept, dict) else {}
        write_atomic(path, json.dumps({**beside, **dataclasses.asdict(obeyed)}).encode())


def unusable(error: OSError, root: pathlib.Path) -> Failed:
    """What an agent says that cannot begin with its directory `root`."""
    return Failed(
        f"cannot use {error.filename or root}: {error.strerror}",
        help="make room there, or give this agent another --state-dir",
    )
