"""What the agent knows of its shards across its own death: one small file a shard, whole or absent.

`agent.supervisor` writes `launching` before it forks and `running` after; `agent.adopt` reads them
all at start. A record is the full spec: it can describe the process to a control plane that has
forgotten everything. One that cannot be read is set aside, never deleted and never fatal.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import urllib.parse
from collections.abc import Mapping
from typing import Any, Literal

import pydantic

from llmgw.agent.confine import own_directory
from llmgw.agent.marks import Identity, shard_name
from llmgw.fleet.shard import ShardKey, ShardSpec
from llmgw.kit.files import read_regular, sync_directory, write_atomic
from llmgw.kit.text import safe
from llmgw.wire.messages import not_known
from llmgw.wire.unknown import merged

VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One launch of a shard. `reached` survives a restart, so that a ready shard stays ready; `reached_at` is when
    it was, in ticks since boot (0 = at its exec, or an earlier release did not say).

    `kept` is the body as it was read: keys of another release are written back, under its `version`.
    """

    spec: ShardSpec
    identity: Identity
    state: Literal["launching", "running"] = "launching"
    reached: Literal["starting", "started", "ready"] = "starting"
    reached_at: int = 0
    argv: tuple[str, ...] = ()
    log: str = ""
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)
    version: int = dataclasses.field(default=VERSION, compare=False)

    @property
    def beyond(self) -> Mapping[str, Any]:
        """The keys of its spec that only a newer release knows."""
        return not_known(self.kept.get("spec", {}), self.spec)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """Everything that lay in the directory.

    `foreign` names, by shard and by cookie, what only a newer release describes: it is left alone.
    """

    records: tuple[Record, ...] = ()
    foreign: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()


class Records:
    """The directory of records. Everything here is durable when it returns."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self._quarantine = directory / "quarantine"
        own_directory(directory)

    def write(self, record: Record) -> None:
        """Store `record`, in place of an older one of its shard. Raises OSError."""
        write_atomic(self._path(record.spec.key), encode(record))

    def forget(self, key: ShardKey) -> None:
        """Remove the record of `key`, if there is one."""
        self._path(key).unlink(missing_ok=True)
        sync_directory(self.directory)

    def read(self, node: str = "") -> Found:
        """Every record, one a shard. Bad files are moved to `quarantine/`, and those of another node than `node`.

        What a newer release wrote is left as it is.
        """
        records: list[Record] = []
        elsewhere: list[tuple[pathlib.Path, Record]] = []
        foreign: set[str] = set()
        problems: list[str] = []
        for path in sorted(self.directory.iterdir()):
            if path.name.startswith("."):
                with contextlib.suppress(OSError):
                    path.unlink()  # a write that was cut off
            elif path.suffix == ".json":
                try:
                    record = parse(read_regular(path))
                except Newer as newer:
                    foreign |= {_shard_of(path), newer.cookie} - {""}
                    problems.append(f"left record {path.name} alone: {newer}")
                except OSError as error:
                    problems.append(self._set_aside(path, error.strerror or str(error)))
                except (ValueError, RecursionError) as error:
                    problems.append(self._set_aside(path, str(error)))
                else:
                    if node and record.spec.node != node:
                        why = f"it is of node {record.spec.node}, and this is {node}"
                        problems.append(self._set_aside(path, why))
                    elif path == self._path(record.spec.key):
                        records.append(record)
                    else:
                        elsewhere.append((path, record))
        for path, record in elsewhere:
            kept, problem = self._put_right(path, record)
            records += [record] if kept else []
            problems.append(problem)
        return Found(tuple(records), frozenset(foreign), tuple(map(safe, problems)))

    def _put_right(self, path: pathlib.Path, record: Record) -> tuple[bool, str]:
        """What becomes of a record under another name than its shard's: whether it counts, and what people are told.

        Somebody copied the shard's record, or renamed it: then it is all that describes what may live.
        """
        right = self._path(record.spec.key)
        if os.path.lexists(right):
            why = f"it is of {shard_name(record.spec.key)}, whose record is {right.name}"
            return False, self._set_aside(path, why)
        try:
            path.rename(right)
            sync_directory(self.directory)
        except OSError as error:
            return True, f"cannot rename record {path.name} to {right.name}: {error.strerror}"
        return True, f"renamed record {path.name} to {right.name}: that is the name of its shard"

    def _set_aside(self, path: pathlib.Path, why: str) -> str:
        why = " ".join(why.split())[:300]
        try:
            aside = own_directory(self._quarantine) / f"{path.name}.{path.lstat().st_mtime_ns}"
            path.replace(aside)
            sync_directory(self.directory)
        except OSError as error:
            return f"cannot read record {path.name}: {why}; nor set it aside: {error.strerror}"
        return f"set record {path.name} aside as {aside}: {why}"

    def _path(self, key: ShardKey) -> pathlib.Path:
        return self.directory / f"{urllib.parse.quote(key[0], safe='')}.{key[1]}.json"


def nodes_of(directory: pathlib.Path) -> frozenset[str]:
    """The nodes that the records in `directory` are of, as far as they can be read. Nothing is changed."""
    found: set[str] = set()
    for path in directory.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, RecursionError, Newer):
            found.add(parse(read_regular(path)).spec.node)
    return frozenset(found)


class Newer(Exception):
    """A record of a version that this release cannot describe; `cookie` where it still tells it."""

    def __init__(self, said: str, cookie: str) -> None:
        super().__init__(said)
        self.cookie = cookie


_BODY: pydantic.TypeAdapter[Record] = pydantic.TypeAdapter(Record)


def encode(record: Record) -> bytes:
    """The bytes of a record's file: version, sha256, body."""
    body = merged(record.kept, _BODY.dump_python(record, mode="json", exclude={"kept", "version"}))
    text = _canonical(body)
    whole = {"v": record.version, "sha256": hashlib.sha256(text.encode()).hexdigest(), "body": body}
    return _canonical(whole).encode() + b"\n"


def parse(data: bytes) -> Record:
    """One record, of a later version too where it describes a shard as this release understands it.

    Raises ValueError where its bytes are not what was written, Newer where only a later release can read them.
    """
    whole = json.loads(data)
    if not isinstance(whole, dict) or not isinstance(whole.get("body"), dict):
        raise ValueError("it is no record")
    body = whole["body"]
    if hashlib.sha256(_canonical(body).encode()).hexdigest() != whole.get("sha256"):
        raise ValueError("its sha256 does not match its body")
    version = whole.get("v")
    if isinstance(version, int):
        try:
            # Not as JSON again: a path in it may be no text, and JSON of surrogates is refused.
            return dataclasses.replace(_BODY.validate_python(body), kept=body, version=version)
        except pydantic.ValidationError:
            if version <= VERSION:
                raise
    identity = body.get("identity")
    cookie = identity.get("cookie") if isinstance(identity, dict) else None
    raise Newer(f"it is of version {version}, this release writes {VERSION}", str(cookie or ""))


def _shard_of(path: pathlib.Path) -> str:
    replica, _, rank = path.name.removesuffix(".json").rpartition(".")
    return f"{urllib.parse.unquote(replica)}:{rank}"


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
