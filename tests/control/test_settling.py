"""When a tree counts as written: by looks and times only."""

from llmgw.control.settling import Pace, Settling

PACE = Pace(settle=0.75, rescan=5.0, patience=60.0)


def test_one_look_settles_nothing() -> None:
    """A tree that was seen once may be in the middle of being written."""
    seen = Settling().saw("a", 10.0)
    assert not seen.settled(10.0, PACE, locked=False)
    assert seen.look_at(10.0, PACE) == 10.75


def test_two_equal_looks_settle() -> None:
    """The same bytes, `settle` seconds apart, are written."""
    seen = Settling().saw("a", 10.0).saw("a", 10.4).saw("a", 10.75)
    assert seen.settled(10.75, PACE, locked=False)


def test_another_tree_begins_anew() -> None:
    """A burst of edits settles once, on the last of them."""
    seen = Settling()
    for step in range(10):
        seen = seen.saw(f"edit {step}", 10.0 + step / 10)
        assert not seen.settled(10.0 + step / 10, PACE, locked=False)
    assert not seen.settled(11.6, PACE, locked=False)
    assert seen.saw("edit 9", 11.7).settled(11.7, PACE, locked=False)


def test_a_lock_delays_and_does_not_block() -> None:
    """While git holds its index we wait; a lock that a crash left behind is waited for no longer than that."""
    seen = Settling().saw("a", 10.0)
    assert not seen.settled(12.0, PACE, locked=True)
    assert seen.look_at(12.0, PACE) == 12.75
    assert seen.settled(70.0, PACE, locked=True)


def test_what_was_never_seen_has_not_settled() -> None:
    """A process that has just begun takes not even an unreadable catalog for a fact."""
    assert not Settling().saw("", 1000.0).settled(1000.0, PACE, locked=False)
