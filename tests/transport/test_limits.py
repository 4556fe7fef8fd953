"""How much silence is too much, told without a socket."""

from llmgw.transport.limits import Limits, Seldom, Silence

LIMITS = Limits(ping=5.0, timeout=15.0)


def test_silence() -> None:
    """A peer that says nothing is pinged every 5 s and is dead after 15."""
    silence = Silence(LIMITS, now=0.0)

    assert silence.check(5.0) == 5.0
    assert silence.check(10.0) == 5.0
    assert silence.check(15.0) is None


def test_heard() -> None:
    """Every byte counts as life: who spoke is asked a ping later, and is dead a timeout later."""
    silence = Silence(LIMITS, now=0.0)
    assert silence.doubtful(5.0)
    silence.check(5.0)
    silence.heard(7.0)

    assert not silence.doubtful(10.0), "whoever talks needs no PING"
    assert silence.check(10.0) == 2.0
    assert silence.doubtful(12.0)
    assert silence.check(12.0) == 5.0
    assert silence.check(17.0) == 5.0
    assert silence.check(22.0) is None


def test_time_is_up() -> None:
    """The last check comes when the time is up, not a ping later."""
    silence = Silence(Limits(ping=5.0, timeout=12.0), now=0.0)

    assert [silence.check(5.0), silence.check(10.0), silence.check(12.0)] == [5.0, 2.0, None]


def test_suspended() -> None:
    """An hour in which we were asleep is not the peer's silence, but the silence before it still counts."""
    silence = Silence(LIMITS, now=0.0)
    silence.check(5.0)

    assert silence.check(3610.0) == 5.0
    assert silence.check(3615.0) is None


def test_a_ping_rides_along() -> None:
    """What is sent to a peer that is silent takes one PING along, before one would go by itself; no second one soon."""
    silence = Silence(LIMITS, now=0.0)
    assert [silence.rides(now) for now in (1.0, 3.0, 4.0, 4.1, 5.0)] == [False, False, True, False, False]
    silence.heard(4.2)

    assert not silence.doubtful(5.0), "its answer is a word like any other"
    assert [silence.rides(now) for now in (5.0, 7.0, 8.0)] == [False, False, True]


def test_lines_alike_are_said_seldom() -> None:
    """The first at once, then one a minute with how many were left out."""
    seldom = Seldom(60.0)

    assert [seldom.said("no", now) for now in (5.0, 6.0, 64.9)] == ["no", "", ""]
    assert seldom.said("no", 65.0) == "no (2 more like this since the last line)"
    assert seldom.said("no", 130.0) == "no"
