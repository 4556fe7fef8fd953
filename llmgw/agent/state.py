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
from typing import Annotated

import pydantic

from llmgw.errors import Failed
from llmgw.kit.files import read_regular, write_atomic
from llmgw.kit.locks import hold
from llmgw.kit.state_files import from_json, read_state

LONGEST_ID = 255


@dataclasses.dataclass(frozen=True, slots=True)
class Obeyed:
    """The highest control plane epoch that was obeyed, and the newest catalog revision that was heard of."""

    epoch: Annotated[int, pydantic.Field(ge=0)] = 0
    revision: Annotated[int, pydantic.Field(ge=0)] = 0


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
        """The id of this node, made at the first start. Raises OSError where it cannot be kept, Failed where it cannot be read."""
        path = self.root / "node-id"
        if found := read_state(path, _node_id, "put the id back; without the file this is a new node"):
            return found
        made = uuid.uuid4().hex[:12]
        write_atomic(path, made.encode())
        return made

    def obeyed(self) -> Obeyed:
        """What was adopted last. Raises Failed where the file cannot be read: an older epoch must not win."""
        better = "remove it if no older control plane can still be running"
        return read_state(self.root / "obeyed", _obeyed, better) or Obeyed()

    def obey(self, obeyed: Obeyed) -> None:
        """Remember it, durably, with whatever another release has put beside it. Raises OSError."""
        path = self.root / "obeyed"
        kept: object = None
        with contextlib.suppress(FileNotFoundError, ValueError):
            kept = from_json(read_regular(path))
        beside = kept if isinstance(kept, dict) else {}
        write_atomic(path, json.dumps({**beside, **dataclasses.asdict(obeyed)}).encode())


_OBEYED = pydantic.TypeAdapter(Obeyed)


def _obeyed(data: bytes) -> Obeyed:
    found = from_json(data)
    if not isinstance(found, dict) or "epoch" not in found:
        raise ValueError("it names no epoch")
    return _OBEYED.validate_python(found)


def _node_id(data: bytes) -> str:
    found = data.decode().strip()
    if not found.isprintable() or len(found) > LONGEST_ID:
        raise ValueError("that is no id of a node")
    return found


def unusable(error: OSError, root: pathlib.Path) -> Failed:
    """What an agent says that cannot begin with its directory `root`."""
    room = "make room there, or give this agent another --state-dir"
    place = "put a directory there, or mount on it what the link leads to; --cache names another place for weights"
    return Failed(
        f"cannot use {error.filename or root}: {error.strerror}",
        help=place if isinstance(error, NotADirectoryError) else room,
    )
