"""From a shard's spec to a running leader, in the order that leaves no orphan at any point.

`agent.supervisor` calls `launch`: free ports → command line → durable intent → fork → durable fact.
Whatever fails before the fork is said in words; what was forked is in the tree that is returned.
"""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from llmgw.agent import logs, marks, ports, process
from llmgw.agent.cgroups import Cgroups
from llmgw.agent.marks import Identity
from llmgw.agent.records import Record, Records
from llmgw.agent.sweep import Tree
from llmgw.engines.base import Adapter, CommandLine
from llmgw.engines.registry import adapter
from llmgw.errors import Failed
from llmgw.fleet.shard import ShardSpec

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Launched:
    """A shard that was executed: its record, its leader and its tree.

    `unsaved` is why the record is not on the disk as it is here; by the intent there its cookie is known.
    """

    record: Record
    leader: process.Leader
    tree: Tree
    unsaved: str = ""


class Launcher:
    """Launches the shards of one node. `engines` maps an engine's name to the program that was found."""

    def __init__(
        self,
        node: str,
        *,
        records: Records,
        logs: pathlib.Path,
        cgroups: Cgroups | None,
        engines: Mapping[str, str],
        inherited: Mapping[str, str],
    ) -> None:
        self.node, self.records, self.cgroups = node, records, cgroups
        self._logs, self._engines, self._inherited = logs, engines, inherited

    def chosen(self, spec: ShardSpec, weights: pathlib.Path) -> pathlib.Path:
        """What the engine of `spec` takes of `weights`. Raises Failed or OSError.

        Called beside the loop: the weights and the engine's program may lie on a mount that hangs.
        """
        kind = adapter(spec.profile.engine)
        process.must_be_executable(self._program(kind))
        return _wanted(weights, kind)

    def launch(
        self, spec: ShardSpec, model: pathlib.Path, beyond: Mapping[str, Any] | None = None
    ) -> Launched:
        """Execute the engine of `spec` with what was chosen. Raises Failed or OSError; then nothing of it runs.

        `beyond` are keys of the spec that only a newer release knows: its record keeps them.
        """
        kind = adapter(spec.profile.engine)
        program = self._program(kind)
        must_be_free(spec)
        line = kind.command(spec, str(model), program)
        _must_be_passable(spec, line)
        cookie, output = marks.new_cookie(), logs.path_of(self._logs, spec.key)
        group = self.cgroups.make(cookie) if self.cgroups is not None else ""
        kept = {"spec": beyond} if beyond else {}
        record = Record(spec, Identity(cookie, group), argv=line.argv, log=str(output), kept=kept)
        try:
            self._intend(record)
            return self._fork(record, line)
        except (OSError, Failed):
            if self.cgroups is not None and group:
                self.cgroups.remove(group)
            raise

    def _program(self, kind: Adapter) -> str:
        program = self._engines.get(kind.name)
        if program is None:
            raise Failed(f"cannot run {kind.name}: it is not installed on this node")
        return program

    def _intend(self, record: Record) -> None:
        """What no disk knows of is never started: the next agent could not find it."""
        try:
            self.records.write(record)
        except OSError as error:
            raise Failed(f"cannot record its launch in {self.records.directory}: {error.strerror}") from error

    def _fork(self, record: Record, line: CommandLine) -> Launched:
        spec, intent = record.spec, record.identity
        mark = marks.environment(self.node, spec.key, intent.cookie)
        env = process.environment(self._inherited, line, mark, spec.gpus)
        directory = ""
        if self.cgroups is not None and intent.cgroup:
            directory = str(self.cgroups.directory(intent.cgroup))
        leader = process.launch(line, env, intent, pathlib.Path(record.log), directory)
        tree = Tree(leader.identity, self.cgroups, leader)
        running = dataclasses.replace(record, identity=leader.identity, state="running")
        return Launched(running, leader, tree, self.save(running))

    def save(self, record: Record) -> str:
        """Put the record of what runs on the disk. Returns why it is not there; empty = it is."""
        try:
            self.records.write(record)
        except OSError as error:
            name = marks.shard_name(record.spec.key)
            return f"cannot write the record of {name} in {self.records.directory}: {error.strerror}"
        return ""


def inherited() -> Mapping[str, str]:
    """The environment of this process."""
    return dict(os.environ)


def must_be_free(spec: ShardSpec) -> None:
    """Raises Failed where a port of the shard cannot be bound, with who holds it, OSError where none can be tried."""
    for port in ports.taken(spec.ports):
        raise Failed(f"port {port} is held by {ports.holder(port)}")


def _must_be_passable(spec: ShardSpec, line: CommandLine) -> None:
    """Raises Failed where no process can be given this. The catalog refuses such values, a message may have them."""
    odd = [f"its argument {n}" for n, value in enumerate(line.argv) if "\0" in value]
    odd += [
        f"its variable {name!r}"
        for name, value in line.env
        if not name or set("=\0") & set(name) or "\0" in value
    ]
    odd += ["its replica's name"] if "\0" in spec.replica else []
    odd += ["a card's name"] if any("\0" in gpu for gpu in spec.gpus) else []
    if odd:
        raise Failed(f"cannot run {line.argv[0]}: {odd[0]} has a NUL, or is no name of a variable")


def _wanted(weights: pathlib.Path, kind: Adapter) -> pathlib.Path:
    """What the engine takes: for GGUF the one file in a directory, or the first of a split one."""
    if kind.weights == "directory" or weights.is_file():
        return weights
    found = sorted(weights.rglob("*.gguf"))
    first = [path for path in found if "-00001-of-" in path.name]
    if len(found) != 1 and len(first) != 1:
        raise Failed(
            f"cannot choose the model among {len(found)} GGUF files of {weights}: name one in `source:`"
        )
    return first[0] if first else found[0]
