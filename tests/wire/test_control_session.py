"""The control plane's end of the conversation, as dialogues with one peer."""

import math

import pytest

from llmgw.fleet.node import NodeInfo
from llmgw.wire import messages as wire
from llmgw.wire.session import Admit, ControlOutput, ControlSession, Deliver, End, Outranked, Send

REGISTER = wire.Register(info=NodeInfo("n1", "gpu-1", "first"), epoch=3)
SUBSCRIBE = wire.Subscribe(gateway="door-1", instance="first")


def _said(session: ControlSession, *said: wire.Message) -> tuple[ControlSession, tuple[ControlOutput, ...]]:
    outputs: tuple[ControlOutput, ...] = ()
    for message in said:
        session, outputs = session.received(wire.encode(message))
    return session, outputs


def _new(epoch: int = 3) -> ControlSession:
    return ControlSession(epoch=epoch, due=10.0)


def _joined(introduction: wire.Register | wire.Subscribe) -> ControlSession:
    session, _ = _said(_new(), introduction)
    session, _ = session.admitted(revision=7, heartbeat=5.0)
    return session


def test_agent_joins() -> None:
    """An agent is welcomed with the epoch, and heard from then on."""
    session, outputs = _said(_new(), REGISTER)
    assert outputs == (Admit(REGISTER),)

    session, outputs = session.admitted(revision=7, heartbeat=6.0)
    assert outputs == (Send(wire.Registered(epoch=3, revision=7, heartbeat=6.0)),)
    assert session.due == math.inf

    _, outputs = _said(session, wire.Heartbeat())
    assert outputs == (Deliver(wire.Heartbeat()),)


def test_heartbeats_alike() -> None:
    """What was understood once counts for every agent that is welcome, and for nobody else."""
    beat = wire.Heartbeat(idle=(((("alpha/1"), 0), True),))
    for _ in range(2):
        assert _said(_joined(REGISTER), beat)[1] == (Deliver(beat),)
    assert _said(_new(), beat)[1] == (End("the peer said 'heartbeat' before it was welcome"),)
    assert _said(_joined(SUBSCRIBE), beat)[1] == (End("'heartbeat' is not for this kind of peer to say"),)

    strange = wire.encode(wire.Heartbeat(idle=((("alpha/1", -1), True),)))
    for _ in range(2):
        session, outputs = _joined(REGISTER).received(strange)
        assert session.phase == "over"
        assert any(
            "cannot believe this heartbeat" in output.said for output in outputs if isinstance(output, End)
        )


def test_gateway_joins() -> None:
    """A gateway's welcome is its first routing table; it tells its load."""
    session, outputs = _said(_new(), SUBSCRIBE)
    assert outputs == (Admit(SUBSCRIBE),)

    session, outputs = session.admitted(revision=7, heartbeat=5.0)
    assert outputs == ()

    _, outputs = _said(session, wire.Load(acked=1))
    assert outputs == (Deliver(wire.Load(acked=1)),)


@pytest.mark.parametrize("early", [wire.Heartbeat(), wire.Report(), wire.Load(acked=1), wire.Leave()])
def test_introduction_first(early: wire.Message) -> None:
    """Whoever talks before it has said who it is, is not heard."""
    session, outputs = _said(_new(), early)

    assert outputs == (End(f"the peer said {early.kind!r} before it was welcome"),)  # type: ignore[attr-defined]
    assert session.phase == "over"


def test_impatient_agent() -> None:
    """What comes before the welcome was sent is as early as what comes before the introduction."""
    _, outputs = _said(_new(), REGISTER, wire.Heartbeat())

    assert isinstance(outputs[0], End)


def test_silent_peer() -> None:
    """A peer that never says who it is is let go at the deadline."""
    session = _new()

    assert session.ticked(9.9) == (session, ())
    assert session.ticked(10.0)[1] == (End("the peer did not say who it is"),)


def test_newer_epoch() -> None:
    """Meeting an agent of a newer epoch is told to everybody: to it, and to ourselves."""
    session, outputs = _said(_new(epoch=2), REGISTER)
    said = "epoch 3 commands this node, and this control plane is of epoch 2"

    assert outputs == (Outranked(3), Send(wire.Refused(said=said)), End(said))
    assert session.phase == "over"


@pytest.mark.parametrize("introduction", [REGISTER, SUBSCRIBE])
def test_other_protocol(introduction: wire.Message) -> None:
    """A peer of another protocol hears which release to upgrade."""
    _, outputs = _said(_new(), introduction.model_copy(update={"protocol": 9}))

    assert isinstance(outputs[0], Send)
    assert "protocol 9, this release 1: upgrade the older one" in outputs[0].message.said  # type: ignore[attr-defined]


def test_refused() -> None:
    """A refusal says why on the wire, ends the stream, and nothing after it counts."""
    session, _ = _said(_new(), REGISTER)
    session, outputs = session.refused("another one is here")

    assert outputs == (Send(wire.Refused(said="another one is here")), End("another one is here"))
    assert _said(session, REGISTER)[1] == ()


@pytest.mark.parametrize(
    ("introduction", "foreign"),
    [
        (REGISTER, wire.Load(acked=1)),
        (REGISTER, wire.Leave()),
        (SUBSCRIBE, wire.Heartbeat()),
        (SUBSCRIBE, wire.Report()),
        (SUBSCRIBE, wire.Result(seq=1)),
    ],
)
def test_other_peers_words(
    introduction: wire.Register | wire.Subscribe, foreign: wire.Report | wire.Load
) -> None:
    """An agent cannot speak as a gateway, nor a gateway as an agent."""
    _, outputs = _said(_joined(introduction), foreign)

    assert outputs == (End(f"{foreign.kind!r} is not for this kind of peer to say"),)


def test_twice() -> None:
    """One stream, one introduction."""
    assert _said(_joined(REGISTER), REGISTER)[1] == (End("the peer introduced itself twice"),)


def test_kind_of_a_newer_release() -> None:
    """A message that only a newer release knows is passed over; the peer stays."""
    session = _joined(REGISTER)

    assert session.received(b'{"kind":"weather","sky":"blue"}') == (session, ())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"kind":"result"}', b'{"no":"kind"}', b"\xff"])
def test_nonsense(data: bytes) -> None:
    """A known message that cannot be read may have been a transition: only a new Register mends that."""
    _, outputs = _joined(REGISTER).received(data)

    assert isinstance(outputs[0], End)
    assert outputs[0].said.startswith("cannot read what the peer said")
