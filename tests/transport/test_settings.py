"""The small settings mean to h2 what its own do."""

import sys
from collections import deque
from collections.abc import Iterable

import h2.settings
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.transport.settings import Settings

VALUES = {SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20, SettingCodes.MAX_CONCURRENT_STREAMS: 16}
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(
                [
                    SettingCodes.INITIAL_WINDOW_SIZE,
                    SettingCodes.MAX_HEADER_LIST_SIZE,
                    SettingCodes.MAX_FRAME_SIZE,
                ]
            ),
            st.integers(16_384, 65_535),
        ),
        st.none(),
    )
)


@settings(max_examples=30)
@given(STEPS)
def test_like_its_own(steps: list[tuple[SettingCodes, int] | None]) -> None:
    """Announced and acknowledged in any order, each setting has the value that it has in h2's own."""
    ours = Settings(client=True, initial_values=VALUES)
    theirs = h2.settings.Settings(client=True, initial_values=dict(VALUES))
    for step in steps:
        if step is None:
            assert [repr(change) for change in ours.acknowledge().values()] == [
                repr(change) for change in theirs.acknowledge().values()
            ]
        else:
            ours[step[0]] = theirs[step[0]] = step[1]
        assert {code: ours.get(code) for code in SettingCodes} == {
            code: theirs.get(code) for code in SettingCodes
        }


def test_small() -> None:
    """They take less than a fifth of the memory, whether the peer announced something or not."""
    ours = Settings(client=False, initial_values=VALUES)
    theirs = h2.settings.Settings(client=False, initial_values=dict(VALUES))
    for each in (ours, theirs):
        each[SettingCodes.MAX_HEADER_LIST_SIZE] = 4096
        each.acknowledge()
    assert _size(ours._settings.values()) * 5 < _size(theirs._settings.values())


def _size(values: Iterable[deque[int]]) -> int:
    return sum(map(sys.getsizeof, values))
