"""The agent's own few facts on disk: who it is, whom it obeys, and that it is the only one here.

Called by `agent.serve`. The node's identity is generated once and lives in the state directory: a
name may change, a restarted agent is the same node.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import uuid
from collections.abc import Iterator
from typing import Annotated

import pydantic

from llmgw.agent.records import nodes_of
from llmgw.errors import Failed
from llmgw.kit.files import read_regular, write_atomic
from llmgw.kit.locks import hold
from llmgw.kit.state_files import from_json, read_state

_NODE_ID = re.compile(r"[0-9a-f]{12}", re.ASCII)


BETTER = "put this node's id into it: `llmgw nodes -o wide` lists the ids. A new node needs a --state-dir of its own"


@dataclasses.dataclass(frozen=True, slots=True)
class Obeyed:
    """The highest control plane epoch that was obeyed, and the newest catalog revision that was heard of."""

    epoch: Annotated[int, pydantic.Field(ge=0)] = 0
    revision: Annotated[int, pydantic.Field(ge=0)] = 0


class StateDir:
    """One agent's directory, held by one process at a time. `recovered` = what was put right in it, in words."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.recovered: tuple[str, ...] = ()

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
        """The id of this node, made at the first start.

        Where it is not whole, the records of what runs here tell it: as a new node this one would know none of that.
        Raises OSError where it cannot be kept, Failed where nothing tells it.
        """
        path = self.root / "node-id"
        data = read_state(path, bytes, BETTER)
        named = nodes_of(self.root / "shards")
        if data is not None and _NODE_ID.fullmatch(said := data.decode("ascii", "replace").strip()):
            if named and said not in named:
                others = ", ".join(sorted(named))
                raise Failed(
                    f"{path} says {said}, and the records in {self.root / 'shards'} are of {others}",
                    help=BETTER,
                )
            return said
        if data is None and not named:
            made = uuid.uuid4().hex[:12]
            write_atomic(path, made.encode())
            return made
        was = "missing" if data is None else "empty" if not data.strip() else "not 12 hexadecimal digits"
        if len(named) != 1:
            whose = f", and the records in {self.root / 'shards'} name {len(named)} nodes" if named else ""
            raise Failed(f"cannot read {path}: it is {was}{whose}", help=BETTER)
        (node,) = named
        write_atomic(path, node.encode())
        self.recovered = (f"{path} was {was}: this is node {node}, by the records of what it runs",)
        return node

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


def unusable(error: OSError, root: pathlib.Path) -> Failed:
    """What an agent says that cannot begin with its directory `root`."""
    room = "make room there, or give this agent another --state-dir"
    place = "put a directory there, or mount on it what the link leads to; --cache names another place for weights"
    return Failed(
        f"cannot use {error.filename or root}: {error.strerror}",
        help=place if isinstance(error, NotADirectoryError) else room,
    )
