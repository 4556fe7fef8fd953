"""What is drawn from the code is drawn from the code of today."""

import pytest

from llmgw.fleet import lifecycle
from tests.support import generated


def test_generated_files_are_current() -> None:
    """Schemas and tables are what the code says; `make docs` rewrites them."""
    assert generated.stale() == []


def test_the_state_table_has_every_state() -> None:
    """No state is left out of the picture, and each names exactly what may follow."""
    rows = generated.states().splitlines()[2:]

    assert len(rows) == len(lifecycle.NEXT)
    for row, (state, following) in zip(rows, lifecycle.NEXT.items(), strict=True):
        assert row.startswith(f"| `{state}` |")
        assert all(f"`{name}`" in row for name in following)


def test_a_table_keeps_the_text_around_it() -> None:
    """Only what stands between the markers is rewritten."""
    text = "before\n<!-- t: generated -->\nold\nolder\n<!-- end t -->\nafter\n"

    assert generated.replaced(text, "t", "new") == text.replace("old\nolder", "new")


def test_a_missing_marker_is_an_error() -> None:
    """A table whose place was edited away is noticed, not lost."""
    with pytest.raises(ValueError, match="cannot place t"):
        generated.replaced("no markers here", "t", "new")
