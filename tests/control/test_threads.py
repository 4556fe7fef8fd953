"""A control plane at the limit of its processes goes on, and follows its catalog again once it may."""

import asyncio
import pathlib

import pytest

from llmgw.control import serve as control
from llmgw.control.store import Store
from tests.control.following import FAST, until, write
from tests.control.plane import files
from tests.support.no_threads import no_threads


def test_a_catalog_that_no_thread_reads_is_read_later(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, nobody ends, and what was written meanwhile is adopted."""
    catalog = tmp_path / "catalog"
    write(catalog, files("qwen"))
    following = control.Following(catalog, "files", "auto", pace=FAST)
    settings = control.Settings(tmp_path / "state", port=0, following=following)

    async def story() -> None:
        plane = asyncio.ensure_future(control.run(settings))
        store = Store(tmp_path / "state")
        await until(lambda: store.revisions() == [1], "the first revision")
        with no_threads() as asked:
            begun = len(asked)
            write(catalog, files("qwen", replicas=2))
            await until(lambda: len(asked) > begun + 3, "threads are asked for")
            await until(
                lambda: "cannot look at it: no thread for it (can't start new thread)" in caplog.text,
                "it is said",
            )
            assert not plane.done()
        await until(lambda: store.revisions() == [1, 2], "the second revision")
        plane.cancel()
        await asyncio.wait([plane])

    asyncio.run(story())
