"""A token opens for its own node only: nobody comes in as somebody whom another token has let in."""

import asyncio
import datetime
import pathlib

import pytest

from llmgw.control.joining import Joining
from llmgw.control.peers import Peers
from llmgw.control.tokens import Token, Tokens, Who, gateway
from llmgw.fleet.node import NodeInfo
from llmgw.kit.clock import SystemClock
from llmgw.transport.channel import Channel
from llmgw.transport.client import bearer, connect
from llmgw.wire import messages as wire
from tests.transport.harness import HOST, ended, listening

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def kept(directory: pathlib.Path) -> Tokens:
    """The tokens of `directory`, by a clock that stands."""
    return Tokens(directory, lambda: NOW)


def row(tokens: Tokens, number: str) -> Token:
    """A token as it is kept."""
    return next(token for token in tokens.rows() if token.id == number)


@pytest.mark.parametrize("made_for", ["gpu-a", ""])
def test_a_node_that_is_in_is_nobody_elses(tmp_path: pathlib.Path, made_for: str) -> None:
    """Its id, under any name, is refused with what would help; the other token stays free for its own node."""
    tokens = kept(tmp_path)
    _, b = tokens.create("node", "", None)
    _, a = tokens.create("node", made_for, None)
    assert tokens.claim(b.id, Who("id-b", "gpu-b")) == ""
    assert tokens.claim(a.id, Who("id-b", "gpu-a")) == (
        f"id id-b belongs to token {b.id} of node gpu-b; "
        f"`llmgw token revoke {b.id}` gives it free, or give gpu-a a state directory of its own"
    )
    assert row(tokens, a.id).bound == ""
    assert tokens.claim(a.id, Who("id-a", "gpu-a")) == ""
    assert tokens.claim(b.id, Who("id-b", "gpu-b")) == ""


def test_a_name_is_nobody_elses_either(tmp_path: pathlib.Path) -> None:
    """A name that a token was made for or came with: neither at the first time nor by a change of name."""
    tokens = kept(tmp_path)
    _, b = tokens.create("node", "gpu-b", None)
    _, c = tokens.create("node", "", None)
    _, a = tokens.create("node", "", None)
    said = f"name gpu-b belongs to token {b.id}; `llmgw token revoke {b.id}` gives it free, or choose another"
    assert tokens.claim(a.id, Who("id-a", "gpu-b")) == said, "before its node has come"
    assert tokens.claim(a.id, Who("id-a", "gpu-a")) == ""
    assert tokens.claim(c.id, Who("id-c", "gpu-c")) == ""
    assert tokens.claim(a.id, Who("id-a", "gpu-b")) == said, "by a change of name"
    assert "name gpu-c belongs to" in tokens.claim(a.id, Who("id-a", "gpu-c"))
    assert tokens.claim(c.id, Who("id-c", "gpu-d")) == "", "a name that is nobody's"
    assert tokens.claim(a.id, Who("id-a", "gpu-c")) == "", "a name that was given up"
    assert row(tokens, c.id).bound_name == "gpu-d"


def test_a_new_token_for_the_same_node_is_no_theft(tmp_path: pathlib.Path) -> None:
    """Who makes a token for a name means it: with the node's id (a new token), or with another one (a new disk)."""
    tokens = kept(tmp_path)
    _, first = tokens.create("node", "gpu-1", None)
    assert tokens.claim(first.id, Who("id-1", "gpu-1")) == ""
    _, second = tokens.create("node", "gpu-1", None)
    assert tokens.claim(second.id, Who("id-1", "gpu-1")) == ""
    assert tokens.claim(first.id, Who("id-1", "gpu-1")) == ""
    _, third = tokens.create("node", "gpu-1", None)
    assert tokens.claim(third.id, Who("id-2", "gpu-1")) == ""


def test_what_was_revoked_or_ran_out_holds_nothing(tmp_path: pathlib.Path) -> None:
    """Only a token that still opens keeps others out."""
    tokens = kept(tmp_path)
    _, gone = tokens.create("node", "", None)
    _, a = tokens.create("node", "", None)
    assert tokens.claim(gone.id, Who("id-1", "gpu-1")) == ""
    assert tokens.claim(a.id, Who("id-1", "gpu-1"))
    tokens.revoke(gone.id)
    tokens.create("node", "gpu-1", 1.0)
    later = Tokens(tmp_path, lambda: NOW + datetime.timedelta(seconds=2))
    assert later.claim(a.id, Who("id-1", "gpu-1")) == ""


def test_gateways_are_told_apart_too(tmp_path: pathlib.Path) -> None:
    """Processes of one port share a token, gateways with a number in their names do not take each other's."""
    tokens = kept(tmp_path)
    _, front = tokens.create("gateway", "", None)
    _, other = tokens.create("gateway", "", None)
    assert tokens.claim(front.id, gateway("front:8000-17")) == ""
    assert tokens.claim(front.id, gateway("front:8000-18")) == ""
    assert f"belongs to token {front.id}" in tokens.claim(other.id, gateway("front:8000-19"))
    for name in ("door-1", "door-2"):
        _, own = tokens.create("gateway", name, None)
        assert tokens.claim(own.id, gateway(name)) == ""
    _, shared = tokens.create("gateway", "hall", None)
    assert [tokens.claim(shared.id, gateway(name)) for name in ("hall-1", "hall-2")] == ["", ""]
    _, hall = tokens.create("gateway", "door", None)
    assert "name door-1 belongs to" in tokens.claim(hall.id, gateway("door-1"))


async def joined(port: int, token: str, id: str, name: str) -> Channel:  # noqa: A002 - the node's word
    """A channel on which this was said; every time as the same process."""
    channel = await connect(HOST, port, "/agent", headers=bearer(token))
    await channel.send(wire.encode(wire.Register(info=NodeInfo(id, name, "instance"))))
    return channel


def test_the_stream_of_who_is_in_stays(tmp_path: pathlib.Path) -> None:
    """Whoever names another node's id and instance with a token of his own ends nobody's stream."""
    tokens = kept(tmp_path)
    mine, theirs = tokens.create("node", "gpu-a", None)[0], tokens.create("node", "gpu-b", None)[0]
    closed: list[str] = []

    async def story() -> None:
        peers = Peers(
            1,
            lambda: 1,
            lambda *_: None,
            lambda _, said: closed.append(said),
            SystemClock(),
            joining=Joining(tokens, required=True),
        )
        async with listening(peers.serve) as (_, port):
            legit = await joined(port, theirs, "id-b", "gpu-b")
            assert isinstance(wire.decode_down(await legit.receive()), wire.Registered)
            thief = await joined(port, mine, "id-b", "gpu-a")
            refused = wire.decode_down(await thief.receive())
            assert isinstance(refused, wire.Refused)
            assert "id id-b belongs to token" in refused.said
            assert await ended(thief)
            assert closed == []
            assert [(peer.id, peer.name) for peer in peers] == [("id-b", "gpu-b")]
            assert await legit.ping(5.0)

    asyncio.run(story())
