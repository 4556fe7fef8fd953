"""What is not believed of a peer, as dialogues: its stream ends with the reason, and nobody else hears of it."""

import dataclasses
import json
from typing import Any

import pytest

from llmgw.catalog.model import Profile
from llmgw.catalog.sources import parse
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import Peer, ShardSpec, ShardStatus
from llmgw.wire import bounds
from llmgw.wire import messages as wire
from llmgw.wire.session import Admit, ControlSession, Deliver, End, Outranked, Send

INFO = NodeInfo("n1", "gpu-1", "first", ports=(20000, 20999))
SPEC = ShardSpec(
    replica="qwen/abcd",
    model="qwen",
    rank=1,
    generation="g",
    profile=Profile("small", "llamacpp", args=(("temp", -1), ("bias", -0.5))),
    source=parse("http://127.0.0.1/qwen.gguf", "ab" * 32),
    peers=(Peer(0, "n0", "10.0.0.1", 20000), Peer(1, "n1", "10.0.0.2", 20010)),
)
STATUS = ShardStatus("qwen/abcd", 1, "ready")
REGISTER = wire.Register(info=INFO, shards=((SPEC, STATUS),))


def _spoken(message: wire.Message, *path: str | int, value: Any) -> bytes:
    """`message` as bytes, with `value` in one place; `1e400` stands as that number."""
    said: Any = json.loads(wire.encode(message))
    place = said
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(said).replace('"1e400"', "1e400").encode()


def _joined() -> ControlSession:
    session, outputs = ControlSession(epoch=3, due=10.0).received(wire.encode(REGISTER))
    assert outputs == (Admit(REGISTER),)
    return session.admitted(revision=7, heartbeat=5.0)[0]


SHARD = ("shards", 0, 0)


@pytest.mark.parametrize(
    ("path", "value", "because"),
    [
        ((*SHARD, "peers"), [], "rank 1 of qwen/abcd has only 0 peers"),
        ((*SHARD, "rank"), 2, "rank 2 of qwen/abcd has only 2 peers"),
        ((*SHARD, "rank"), -1, "rank is -1, less than 0"),
        ((*SHARD, "peers", 0, "rank"), 1, "not in the order of their ranks"),
        ((*SHARD, "peers", 1, "port"), 0, "has ports 0 to 9"),
        ((*SHARD, "peers", 1, "port"), 65530, "has ports 65530 to 65539"),
        ((*SHARD, "peers", 1, "node"), "n7", "belongs to node n7, not to n1"),
        ((*SHARD, "replica"), "", "replica '' is no name"),
        ((*SHARD, "model"), "q" * 256, "is no name of 1 to 255"),
        ((*SHARD, "profile", "cpu_cores"), float("nan"), "cpu_cores is nan"),
        ((*SHARD, "profile", "nodes"), -1, "nodes is -1"),
        ((*SHARD, "source_bytes"), 1 << 63, "source_bytes has more than 63 bits"),
        (("shards", 0, 1, "replica"), "other", "comes with the status of rank 1 of other"),
        (("shards", 0, 1, "age"), float("inf"), "age is inf"),
        (("shards", 0, 1, "age"), float("nan"), "age is nan"),
        (("shards", 0, 1, "age"), "1e400", "age is inf"),
        (("shards", 0, 1, "age"), 1e14, "age is 100000000000000.0, 1e+13 is the most"),
        (("shards", 0, 1, "age"), -0.1, "age is -0.1, less than 0"),
        (("shards", 0, 1, "reason"), "x" * 70_000, "reason has 70000 characters"),
        (("info", "ports"), [1, 10**12], "ports 1 to 1000000000000 are none"),
        (("info", "ports"), [9, 5], "ports 9 to 5 are none"),
        (("info", "ports"), [0, 5], "ports 0 to 5 are none"),
        (("info", "ports_taken"), [70_000], "ports_taken goes beyond 65535"),
        (("info", "cpu_cores"), float("-inf"), "cpu_cores is -inf"),
        (("info", "disk_free"), -1, "disk_free is -1"),
        (("info", "memory_total"), 10**30, "memory_total has more than 63 bits"),
        (("info", "name"), "\x1b[31mgpu", "is no name"),
        (("info", "id"), "", "id '' is no name"),
        (("info", "labels"), [["a", "b"]] * 70_000, "labels has 70000 items"),
        (("info", "gpus"), [{"uuid": "g", "name": "H100"}] * 2000, "gpus has 2000 items"),
        (("failures",), [{"model": "m", "generation": "g", "count": 1, "age": float("nan")}], "age is nan"),
        (("progress",), [{"cache_name": "c", "received": 1, "rate": float("inf")}], "rate is inf"),
        (("revision",), 1 << 64, "revision has more than 63 bits"),
        (("epoch",), 1 << 64, "epoch has more than 63 bits"),
        (("epoch",), bounds.NEWEST_EPOCH + 1, "is out of all bounds"),
    ],
)
def test_a_registration_that_cannot_be_believed(
    path: tuple[str | int, ...], value: Any, because: str
) -> None:
    """One malformed registration ended the control plane: now it ends its stream, and says which field."""
    session, outputs = ControlSession(epoch=3, due=10.0).received(_spoken(REGISTER, *path, value=value))

    assert session.phase == "over"
    assert isinstance(outputs[0], Send)
    assert isinstance(outputs[0].message, wire.Refused)
    assert isinstance(outputs[1], End)
    assert outputs[0].message.said == outputs[1].said
    assert because in outputs[1].said
    assert len(outputs) == 2


def test_a_shard_twice() -> None:
    """The second one would take the place of the first without a word."""
    twice = REGISTER.model_copy(update={"shards": REGISTER.shards * 2})
    assert "a shard stands twice" in bounds.flaw(twice)


def test_too_many_shards() -> None:
    """A machine has a bounded number of them, and so has its registration."""
    many = tuple(
        (dataclasses.replace(SPEC, replica=f"qwen/{n}"), dataclasses.replace(STATUS, replica=f"qwen/{n}"))
        for n in range(bounds.MOST_SHARDS + 1)
    )
    assert bounds.flaw(REGISTER.model_copy(update={"shards": many[:-1]})) == ""
    assert "shards has 4097 items" in bounds.flaw(REGISTER.model_copy(update={"shards": many}))


@pytest.mark.parametrize(
    ("message", "path", "value", "because"),
    [
        (wire.Report(statuses=(STATUS,)), ("statuses", 0, "age"), float("nan"), "age is nan"),
        (wire.Report(info=INFO), ("info", "id"), "n2", "gpu-1 calls itself gpu-1 now"),
        (wire.Report(info=INFO), ("info", "name"), "other", "gpu-1 calls itself other now"),
        (wire.Report(info=INFO), ("info", "ports"), [1, 10**9], "are none"),
        (wire.Result(seq=1), ("seq",), 1 << 63, "seq has more than 63 bits"),
        (wire.Result(seq=1), ("data",), {"a": float("inf")}, "data is inf"),
    ],
)
def test_later_words_are_held_to_the_same(
    message: wire.Message, path: tuple[str | int, ...], value: Any, because: str
) -> None:
    """A welcome peer is believed no more than a new one."""
    session, outputs = _joined().received(_spoken(message, *path, value=value))
    assert session.phase == "over"
    assert isinstance(outputs[-1], End)
    assert because in outputs[-1].said


def test_gateways_too() -> None:
    """Ages of a gateway become times here: none of them may be no number."""
    session, _ = ControlSession(epoch=3, due=10.0).received(wire.encode(wire.Subscribe(gateway="door")))
    session, _ = session.admitted(revision=7, heartbeat=5.0)
    load = wire.Load(acked=1, green=(("qwen/abcd", float("nan")),))
    said = wire.encode(load).replace(b"null", b"NaN")
    assert b"NaN" in said
    _, outputs = session.received(said)
    assert isinstance(outputs[-1], End)
    assert "green is nan" in outputs[-1].said
    far = wire.Subscribe(gateway="door", version=(bounds.NEWEST_EPOCH + 1) << 24)
    _, outputs = ControlSession(epoch=3, due=10.0).received(wire.encode(far))
    assert isinstance(outputs[-1], End)
    assert "is out of all bounds" in outputs[-1].said
    assert "gateway '' is no name" in bounds.flaw(wire.Subscribe(gateway=""))


@pytest.mark.parametrize("later", [wire.Report(statuses=(STATUS,), info=INFO), wire.Heartbeat()])
def test_sound_words_are_heard(later: wire.Report | wire.Heartbeat) -> None:
    """An engine whose flags are negative numbers is as sound as any."""
    assert _joined().received(wire.encode(later))[1] == (Deliver(later),)


def test_our_own_epoch_is_always_believed() -> None:
    """A control plane that was driven to the highest epoch still commands the nodes that obey it."""
    obeyed = REGISTER.model_copy(update={"epoch": bounds.NEWEST_EPOCH + 5})
    _, outputs = ControlSession(epoch=bounds.NEWEST_EPOCH + 5, due=10.0).received(wire.encode(obeyed))
    assert outputs == (Admit(obeyed),)
    highest = REGISTER.model_copy(update={"epoch": bounds.NEWEST_EPOCH})
    assert ControlSession(epoch=3, due=10.0).received(wire.encode(highest))[1][0] == Outranked(1 << 38)
