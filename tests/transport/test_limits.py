"""How much silence is too much, told without a socket."""

from llmgw.transport.limits import Limits, Silence

LIMITS = Limits(ping=5.0, timeout=15.0)


def test_silence() -> None:
    """A peer that says nothing is pinged every 5 s and is dead after 15."""
    silence = Silence(LIMITS, now=0.0)

    assert silence.check(5.0) == 5.0
    assert silence.check(10.0) == 5.0
    assert silence.check(15.0) is None


def test_heard() -> None:
    """Every byte counts as life, and the last check comes when the time is up, not a ping later."""
    silence = Silence(LIMITS, now=0.0)
    silence.check(5.0)
    silence.heard(7.0)

    assert silence.check(10.0) == 5.0
    assert silence.check(15.0) == 5.0
    assert silence.check(20.0) == 2.0
    assert silence.check(22.0) is None


def test_suspended() -> None:
    """An hour in which we were asleep is not the peer's silence, but the silence before it still counts."""
    silence = Silence(LIMITS, now=0.0)
    silence.check(5.0)

    assert silence.check(3610.0) == 5.0
    assert silence.check(3615.0) is None
