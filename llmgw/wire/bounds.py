"""What a peer may say and be believed: the meaning of a message that types cannot hold. Pure.

`wire.session` asks it about everything that came, before anybody else sees it. A message beyond the
bounds ends its stream with the sentence given here; the bounds lie far above what a sound peer says.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pydantic

from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import PORTS_PER_SHARD, ShardSpec, ShardStatus
from llmgw.wire import messages as wire

NEWEST_EPOCH = 1 << 38
"""The highest epoch believed of an agent: the versions of its tables, 24 bits longer, still fit 63."""

LARGEST = (1 << 63) - 1
LONGEST = 1e13
"""Of seconds, rates and other measured numbers: 300,000 years, 10 TB/s."""

MOST = 65_536
"""Items of any list."""

MOST_SHARDS = 4096
MOST_GPUS = 1024
TEXT = 65_536
NAME = 255
"""Characters of any text, and of a name."""

DEEPEST = 12
_SIGNED = frozenset({"modified", "args", "data"})
"""Where a number may be negative: a file's time, an engine's own flags, a command's own answer."""


def flaw(message: wire.Up) -> str:
    """Why `message` cannot be believed, or nothing."""
    try:
        _within(message, "")
        match message:
            case wire.Register():
                _register(message)
            case wire.Report(info=info) if info is not None:
                _info(info)
            case wire.Subscribe(gateway=gateway):
                _name(gateway, "gateway")
            case _:
                pass
    except _Flaw as found:
        return str(found)
    return ""


def flaw_of_node(info: NodeInfo) -> str:
    """Why a node that people only suppose cannot be one, or nothing."""
    try:
        _within(info, "")
        _info(info)
    except _Flaw as found:
        return str(found)
    return ""


class _Flaw(Exception):
    pass


def _require(sound: bool, said: str) -> None:
    if not sound:
        raise _Flaw(said)


# --- every number, text and list -------------------------------------------------------------


@functools.cache
def _fields(kind: Any) -> tuple[str, ...] | None:
    """The names of a value's parts; None for a map."""
    if issubclass(kind, Mapping):
        return None
    if issubclass(kind, pydantic.BaseModel):
        return tuple(kind.model_fields)
    return tuple(field.name for field in dataclasses.fields(kind))


def _within(value: Any, place: str, deep: int = 0, *, signed: bool = False) -> None:
    """Everything in `value`. A leaf is judged where it is found: most parts are leaves, and a fleet that comes
    back brings a million of them.
    """
    if deep >= DEEPEST:
        raise _Flaw("it lies too deep")
    for name, part in _parts(value, place):
        kind = type(part)
        if kind is str:
            if len(part) > TEXT:
                raise _Flaw(f"{name} has {len(part)} characters, {TEXT} are the most")
        elif kind is int or kind is float:
            if not 0 <= part <= LONGEST:  # far more than most numbers are
                _number(part, name, signed=signed or name in _SIGNED)
        elif part and kind is not bool:
            _within(part, name, deep + 1, signed=signed or name in _SIGNED)


def _parts(value: Any, place: str) -> Iterable[tuple[str, Any]]:
    kind: Any = type(value)
    if kind is tuple or kind is list:
        _require(len(value) <= MOST, f"{place} has {len(value)} items, {MOST} are the most")
        return zip(itertools.repeat(place), value)
    if (names := _fields(kind)) is None:
        return [(place, part) for pair in value.items() for part in pair]
    return [(name, getattr(value, name)) for name in names]


def _number(value: float, place: str, *, signed: bool) -> None:
    if isinstance(value, int) and abs(value) > LARGEST:
        raise _Flaw(f"{place} has more than 63 bits")
    if isinstance(value, float) and not abs(value) <= LONGEST:
        raise _Flaw(f"{place} is {value}, {LONGEST:g} is the most")
    if value < 0 and not signed:
        raise _Flaw(f"{place} is {value}, less than 0")


# --- what belongs together -------------------------------------------------------------------


def _register(message: wire.Register) -> None:
    _info(message.info)
    _require(
        len(message.shards) <= MOST_SHARDS,
        f"shards has {len(message.shards)} items, {MOST_SHARDS} are the most",
    )
    for spec, status in message.shards:
        _shard(spec, status, message.info.id)
    keys = {spec.key for spec, _ in message.shards}
    _require(len(keys) == len(message.shards), "a shard stands twice in one registration")


def _shard(spec: ShardSpec, status: ShardStatus, node: str) -> None:
    _name(spec.replica, "replica")
    _name(spec.model, "model")
    what = f"rank {spec.rank} of {spec.replica}"
    _require(spec.rank < len(spec.peers), f"{what} has only {len(spec.peers)} peers")
    _require(
        all(peer.rank == place for place, peer in enumerate(spec.peers)),
        f"the peers of {what} are not in the order of their ranks",
    )
    for peer in spec.peers:
        last = peer.port + PORTS_PER_SHARD - 1
        _require(peer.port > 0 and last <= 65535, f"{what} has ports {peer.port} to {last}")
    _require(
        spec.key == status.key, f"{what} comes with the status of rank {status.rank} of {status.replica}"
    )
    _require(spec.node == node, f"{what} belongs to node {spec.node}, not to {node}")


def _info(info: NodeInfo) -> None:
    _name(info.id, "id")
    _name(info.name, "name")
    first, last = info.ports
    _require(0 < first <= last <= 65535, f"ports {first} to {last} are none")
    _require(all(port <= 65535 for port in info.ports_taken), "ports_taken goes beyond 65535")
    _require(len(info.gpus or ()) <= MOST_GPUS, f"gpus has {len(info.gpus or ())} items")


def _name(text: str, what: str) -> None:
    _require(
        0 < len(text) <= NAME and text.isprintable(),
        f"{what} {text[:40]!r} is no name of 1 to {NAME} printable characters",
    )
