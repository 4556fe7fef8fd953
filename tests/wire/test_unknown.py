"""Keys of a newer release in a shard's spec: they come back as they came, whoever kept them meanwhile."""

import json
from typing import Any

import pytest

from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import ShardStatus
from llmgw.wire import messages as wire
from llmgw.wire.unknown import beyond, merged
from tests.agent.making import NODE, assign, spec

ALPHA = spec(nodes=(NODE, "node-b"), args=(("threads", 2),))


def of_tomorrow(**more: Any) -> dict[str, Any]:
    """An Assign with keys that nobody knows yet, at every depth of its spec."""
    said: dict[str, Any] = json.loads(wire.encode(assign(ALPHA)))
    said["spec"] |= {"priority": 7, "topology": {"rail": [1, 2]}, **more}
    said["spec"]["profile"]["speculative"] = {"model": "\u00e9", "tokens": 5}
    said["spec"]["source"]["mirror"] = None
    said["spec"]["peers"][1]["rack"] = "a1"
    return said


def understood(said: dict[str, Any]) -> wire.Assign:
    message = wire.decode_down(json.dumps(said).encode())
    assert isinstance(message, wire.Assign)
    return message


def test_a_spec_of_a_newer_release_comes_back_as_it_came() -> None:
    """Obeyed as far as it is understood, and said again with all its keys, to the last one."""
    said = of_tomorrow()
    message = understood(said)
    assert message.spec == ALPHA
    register = wire.Register(info=NodeInfo("n", "n"), shards=((ALPHA, ShardStatus(*ALPHA.key, "held")),))
    assert json.loads(wire.encode(register))["shards"][0][0] != said["spec"]
    whole = register.with_beyond({ALPHA.key: message.beyond}).model_copy(update={"epoch": 3})
    told = json.loads(wire.encode(whole))
    assert (told["shards"][0][0], told["epoch"]) == (said["spec"], 3)
    again = wire.decode_up(wire.encode(whole))
    assert again == register.model_copy(update={"epoch": 3})  # by who knows no more than this release


def test_a_spec_of_this_release_has_nothing_beyond() -> None:
    """And what is said of it is said as ever."""
    assert wire.decode_down(wire.encode(assign(ALPHA))) == assign(ALPHA)
    assert understood(json.loads(wire.encode(assign(ALPHA)))).beyond == {}


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_what_cannot_be_said_again_is_kept_by_nobody(odd: float) -> None:
    """No number that is none stops an order, a record or a registration."""
    message = understood(of_tomorrow(odd=odd))
    assert (message.spec, message.beyond) == (ALPHA, {})


@pytest.mark.parametrize(
    ("said", "known", "rest"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}),
        ({"a": [{"x": 1}, {"x": 2, "y": 3}]}, {"a": [{"x": 1}, {"x": 2}]}, {"a": [None, {"y": 3}]}),
        ({"a": [1, 2]}, {"a": [1]}, {}),  # as long as each other, or nobody knows which is which
        ({"a": {"x": 1}}, {"a": 5}, {}),
        ({}, {"a": 1}, {}),
    ],
)
def test_what_is_beyond_is_put_back_where_it_was(
    said: dict[str, Any], known: dict[str, Any], rest: dict[str, Any]
) -> None:
    """Down through mappings and lists; what is known is said as it is known now."""
    assert beyond(said, known) == rest
    assert merged(rest, known) == ({**known, **said} if rest else known)
