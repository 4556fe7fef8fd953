"""What an agent says, held against what is known of the others."""

from llmgw.catalog.model import Profile
from llmgw.catalog.sources import parse
from llmgw.control.translate import claimed_twice, not_known, own_words
from llmgw.fleet import events
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import Peer, ShardSpec, ShardStatus
from llmgw.fleet.world import Fleet
from llmgw.wire import messages

ONE, OTHER = NodeInfo("n1", "gpu-1"), NodeInfo("n2", "gpu-2")


def _shard(node: str) -> tuple[ShardSpec, ShardStatus]:
    source = parse("http://127.0.0.1/q.gguf", "ab" * 32)
    peers = (Peer(0, node, "127.0.0.1", 20000),)
    return ShardSpec("qwen/a", "qwen", 0, "g", Profile("p", "llamacpp"), source, peers), ShardStatus(
        "qwen/a", 0, "ready"
    )


def _fleet() -> Fleet:
    return Fleet().after([events.Registered(ONE, (_shard("n1"),)), events.Registered(OTHER)], 1.0)


def test_a_shard_has_one_node() -> None:
    """A second node that claims it would take a serving replica out of the table: both are named."""
    said = claimed_twice(messages.Register(info=OTHER, shards=(_shard("n2"),)), _fleet())
    assert said.startswith("node gpu-2 (n2) is refused: it claims rank 0 of qwen/a, which is on gpu-1 (n1)")


def test_its_own_node_comes_back() -> None:
    """A node that registers again says what it had."""
    assert claimed_twice(messages.Register(info=ONE, shards=(_shard("n1"),)), _fleet()) == ""


def test_nobody_is_kept_out_by_one_that_is_away() -> None:
    """What a node said that is not connected any more is held against nobody."""
    away = _fleet().apply(events.Disconnected("n1"), 2.0)
    assert claimed_twice(messages.Register(info=OTHER, shards=(_shard("n2"),)), away) == ""


def test_nobody_says_that_another_one_s_engine_is_idle() -> None:
    """That word would end a drain with requests in flight: it counts from the shard's own node only."""
    said = messages.Heartbeat(idle=((("qwen/a", 0), True), (("gone/b", 0), True)))
    assert own_words("n2", said, _fleet()) == messages.Heartbeat()
    assert own_words("n1", said, _fleet()) == messages.Heartbeat(idle=((("qwen/a", 0), True),))
    report = messages.Report()
    assert own_words("n2", report, _fleet()) is report


def test_a_shard_that_nobody_knows_is_not_passed_over() -> None:
    """What runs and is not in our books holds its cards: its node is asked for everything it has."""
    strange = messages.Report(statuses=(ShardStatus("qwen/z", 0, "ready"),))
    assert "rank 0 of qwen/z, which is not known here" in not_known("n1", strange, _fleet())
    for known in (
        messages.Report(statuses=(ShardStatus("qwen/a", 0, "ready"),)),
        messages.Report(statuses=(ShardStatus("qwen/z", 0, "gone"),)),
        messages.Heartbeat(),
    ):
        assert not_known("n1", known, _fleet()) == ""
    assert not_known("n9", strange, _fleet()) == ""
