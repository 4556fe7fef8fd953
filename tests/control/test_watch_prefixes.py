"""No beginning of any file stops an engine: a few of what the lab `watch` takes all of."""

import asyncio
import logging
import pathlib
from typing import Any

import pytest

from tests.control import prefixes

CATALOG = pathlib.Path(__file__).parents[2] / "catalog"
EVERY = 41


@pytest.mark.parametrize("follow", [prefixes.by_files, prefixes.by_commits], ids=["files", "commits"])
def test_no_beginning_of_a_file_stops_an_engine(
    tmp_path: pathlib.Path, follow: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is seen while everything runs; some would stop something if they were applied, and none is."""
    caplog.set_level(logging.ERROR, "llmgw.control.watch")
    counts = asyncio.run(follow(tmp_path, prefixes.samples(CATALOG), EVERY))
    assert counts.looked_at == counts.written > 40
    assert (counts.stops, counts.adopted) == (0, 0)
    if follow is prefixes.by_files:
        assert counts.would_stop
        assert counts.held
