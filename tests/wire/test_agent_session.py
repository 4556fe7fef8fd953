"""The agent's end of the conversation, as dialogues: what the control plane says, what the agent does."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.fleet.node import NodeInfo
from llmgw.kit.chance import Chance, seeded
from llmgw.wire import messages as wire
from llmgw.wire.session import Adopt, AgentOutput, AgentSession, Beat, End, Obey, Send

REGISTER = wire.Register(info=NodeInfo("n1", "gpu-1", "first"))
WELCOME = wire.Registered(epoch=3, revision=7, heartbeat=5.0)


def _stop(epoch: int, seq: int) -> wire.Stop:
    return wire.Stop(epoch=epoch, seq=seq, replica="m/x", rank=0, generation="g")


@dataclasses.dataclass
class Dialogue:
    """`opens`, `hears`, `waits` are what happens; each returns what the agent does."""

    session: AgentSession = dataclasses.field(default_factory=AgentSession)
    now: float = 1000.0
    chance: Chance = dataclasses.field(default_factory=lambda: seeded(1))

    def opens(self) -> wire.Register:
        self.session, register = self.session.opened(REGISTER, self.now, patience=10.0)
        return register

    def hears(self, message: wire.Message | bytes, *, stream: int | None = None) -> tuple[AgentOutput, ...]:
        data = message if isinstance(message, bytes) else wire.encode(message)
        number = self.session.stream if stream is None else stream
        self.session, outputs = self.session.received(number, data, self.now, self.chance)
        return outputs

    def waits(self, seconds: float) -> tuple[AgentOutput, ...]:
        self.now += seconds
        self.session, outputs = self.session.ticked(self.now, self.chance)
        return outputs

    def loses(self) -> None:
        self.session = self.session.ended(self.session.stream)


def _registered() -> Dialogue:
    dialogue = Dialogue()
    dialogue.opens()
    dialogue.hears(WELCOME)
    return dialogue


def test_registers() -> None:
    """The first word is Register with the epoch that the node obeys; the welcome is adopted."""
    dialogue = Dialogue(AgentSession(epoch=2))

    assert dialogue.opens() == REGISTER.model_copy(update={"epoch": 2})
    assert dialogue.hears(WELCOME) == (Adopt(epoch=3, revision=7),)
    assert dialogue.session.phase == "registered"


def test_obeys_in_order() -> None:
    """A command that is new is obeyed once."""
    dialogue = _registered()

    assert dialogue.hears(_stop(3, 1)) == (Obey(_stop(3, 1)),)
    assert dialogue.hears(_stop(3, 1)) == ()
    assert dialogue.hears(_stop(3, 5)) == (Obey(_stop(3, 5)),)
    assert dialogue.hears(_stop(3, 4)) == ()


@pytest.mark.parametrize("epoch", [2, 4])
def test_other_epoch(epoch: int) -> None:
    """A command of another epoch than the adopted one has no effect."""
    dialogue = _registered()

    assert dialogue.hears(_stop(epoch, 1)) == ()


def test_before_registered() -> None:
    """Nobody commands an agent that has not been welcomed."""
    dialogue = Dialogue(AgentSession(epoch=3))
    dialogue.opens()

    assert dialogue.hears(_stop(3, 1)) == ()


def test_sequence_outlives_stream() -> None:
    """What was obeyed on one stream is not obeyed again on the next one of the same control plane."""
    dialogue = _registered()
    dialogue.hears(_stop(3, 9))
    dialogue.loses()
    dialogue.opens()
    dialogue.hears(WELCOME)

    assert dialogue.hears(_stop(3, 9)) == ()
    assert dialogue.hears(_stop(3, 10)) == (Obey(_stop(3, 10)),)


def test_new_epoch_counts_anew() -> None:
    """A restarted control plane begins its sequence again, under a higher epoch."""
    dialogue = _registered()
    dialogue.hears(_stop(3, 9))
    dialogue.loses()
    dialogue.opens()
    dialogue.hears(WELCOME.model_copy(update={"epoch": 4}))

    assert dialogue.hears(_stop(4, 1)) == (Obey(_stop(4, 1)),)


def test_older_control_plane() -> None:
    """A control plane of an older epoch is told off, and commands nothing."""
    dialogue = Dialogue(AgentSession(epoch=5))
    dialogue.opens()

    assert dialogue.hears(WELCOME) == (
        End("the control plane is of epoch 3, and epoch 5 commands this node"),
    )
    assert dialogue.session.epoch == 5
    assert dialogue.hears(_stop(3, 1)) == ()


def test_refused() -> None:
    """A refusal ends the stream and says why."""
    dialogue = Dialogue()
    dialogue.opens()

    assert dialogue.hears(wire.Refused(said="another one is here")) == (End("another one is here"),)


def test_other_protocol() -> None:
    """Two releases that do not understand each other say which is which."""
    dialogue = Dialogue()
    dialogue.opens()
    (end,) = dialogue.hears(WELCOME.model_copy(update={"protocol": 2}))

    assert isinstance(end, End)
    assert "speaks protocol 2, this release 1" in end.said


def test_unknown_command() -> None:
    """A command of a newer control plane is answered, once, not dropped."""
    dialogue = _registered()
    future = b'{"kind":"dance","epoch":3,"seq":4,"steps":2}'
    answer = wire.Result(seq=4, ok=False, said="unsupported: this agent does not know 'dance'")

    assert dialogue.hears(future) == (Send(answer),)
    assert dialogue.hears(future) == ()


def test_unknown_keys() -> None:
    """Keys of a newer control plane do no harm."""
    dialogue = _registered()
    data = wire.encode(_stop(3, 1))[:-1] + b',"mood":"calm"}'
    (obey,) = dialogue.hears(data)

    assert isinstance(obey, Obey)
    assert obey.command.seq == 1


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"kind":"stop"}', b'{"kind":7}', b"\xff"])
def test_nonsense(data: bytes) -> None:
    """What cannot be read ends the stream: after the next Register both know everything again."""
    dialogue = _registered()
    (end,) = dialogue.hears(data)

    assert isinstance(end, End)
    assert end.said.startswith("cannot read what the control plane said")


def test_late_words_of_an_old_stream() -> None:
    """The end, the commands and the failures of an old stream touch nothing of the new one."""
    dialogue = _registered()
    old = dialogue.session.stream
    dialogue.opens()
    dialogue.hears(WELCOME)
    current = dialogue.session

    assert dialogue.hears(_stop(3, 1), stream=old) == ()
    assert dialogue.hears(wire.Refused(said="late"), stream=old) == ()
    assert dialogue.session.ended(old) == current


def test_no_answer() -> None:
    """A registration that nobody answers ends its stream at the deadline, not before."""
    dialogue = Dialogue()
    dialogue.opens()

    assert dialogue.waits(9.9) == ()
    assert dialogue.waits(0.2) == (End("the control plane did not answer the registration"),)
    assert dialogue.session.due == math.inf


@given(seed=st.integers(), heartbeat=st.floats(0.05, 60))
def test_heartbeats(seed: int, heartbeat: float) -> None:
    """Heartbeats come at the interval that the control plane asked for, ± 20 %."""
    dialogue = Dialogue(chance=seeded(seed))
    dialogue.opens()
    dialogue.hears(WELCOME.model_copy(update={"heartbeat": heartbeat}))

    for _ in range(5):
        wait = dialogue.session.due - dialogue.now
        assert 0.79 * heartbeat <= wait <= 1.21 * heartbeat
        assert dialogue.waits(wait * 0.99) == ()
        assert dialogue.waits(wait * 0.011) == (Beat(),)
