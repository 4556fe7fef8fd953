"""A link where an agent has a directory of its own: an engine runs as the same user, and can put it there."""

import asyncio
import os
import pathlib

import pytest

from llmgw.agent import logs, serve
from llmgw.agent.cache import Cache
from llmgw.agent.manifest import FILES
from llmgw.agent.partial import SUFFIX, Partial
from llmgw.agent.records import Records
from llmgw.catalog.sources import cache_name, parse
from llmgw.errors import Failed
from tests.agent.entries import make_entry
from tests.agent.test_records import RECORD

SOURCE = parse("hf://org/model@main")
LINK = "it is a link, and none is followed here"


@pytest.fixture
def elsewhere(tmp_path: pathlib.Path) -> pathlib.Path:
    """Somebody else's directory, and what an agent would remove in one of its own."""
    made = tmp_path / "elsewhere"
    made.mkdir()
    for name in (".profile", "bad.json", "old.log", "w.gguf"):
        (made / name).write_text("somebody else's" * 1000)
    return made


def untouched(elsewhere: pathlib.Path) -> None:
    """AssertionError unless all of it is as it was."""
    assert {path.name for path in elsewhere.iterdir()} == {".profile", "bad.json", "old.log", "w.gguf"}
    for path in elsewhere.iterdir():
        assert path.read_text() == "somebody else's" * 1000


@pytest.mark.parametrize("leads", ["elsewhere", "nowhere"])
@pytest.mark.parametrize("name", ["shards", "logs", "cache"])
def test_an_agent_refuses_to_start_on_a_link(
    tmp_path: pathlib.Path, elsewhere: pathlib.Path, name: str, leads: str
) -> None:
    """It says which, and what would help; what it leads to is as it was."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / name).symlink_to(tmp_path / leads)

    def started(_: str) -> None:
        raise AssertionError("it started")

    with pytest.raises(Failed) as caught:
        asyncio.run(serve.run(serve.Settings(tmp_path / "state"), ready=started))
    assert caught.value.said == f"cannot use {tmp_path / 'state' / name}: {LINK}"
    assert "mount on it what the link leads to" in caught.value.help
    untouched(elsewhere)


def test_a_cache_that_was_named_may_be_a_link(tmp_path: pathlib.Path, elsewhere: pathlib.Path) -> None:
    """Where `--cache` leads is the operator's."""
    (tmp_path / "named").symlink_to(elsewhere)
    settings = serve.Settings(tmp_path / "state", cache=tmp_path / "named")

    async def story() -> None:
        up = asyncio.Event()
        work = asyncio.ensure_future(serve.run(settings, ready=lambda _: up.set()))
        asked = asyncio.ensure_future(up.wait())
        await asyncio.wait((work, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(story())
    untouched(elsewhere)


def test_a_quarantine_that_is_a_link_takes_nothing(tmp_path: pathlib.Path, elsewhere: pathlib.Path) -> None:
    """The bad record stays where it is, and is said; the others are read."""
    records = Records(tmp_path / "shards")
    records.write(RECORD)
    (tmp_path / "shards" / "torn.0.json").write_text("{")
    (tmp_path / "shards" / "quarantine").symlink_to(elsewhere)
    found = records.read()
    assert found.records == (RECORD,)
    assert found.problems[0].endswith(f"nor set it aside: {LINK}")
    assert (tmp_path / "shards" / "torn.0.json").exists()
    untouched(elsewhere)


def test_no_log_is_cut_or_removed_behind_a_link(tmp_path: pathlib.Path, elsewhere: pathlib.Path) -> None:
    """The directory became one while the agent ran."""
    (tmp_path / "logs").symlink_to(elsewhere)
    before = (elsewhere / "old.log").stat().st_blocks
    logs.trim_all(tmp_path / "logs", 4096)
    logs.prune(tmp_path / "logs", 0, 0)
    assert (elsewhere / "old.log").stat().st_blocks == before
    untouched(elsewhere)


@pytest.mark.parametrize("link", [FILES, f"{FILES}/sub"])
def test_a_fetch_follows_no_directory_of_its_own(
    tmp_path: pathlib.Path, elsewhere: pathlib.Path, link: str
) -> None:
    """Files below it would be replaced, and those that the source does not have removed."""
    directory = tmp_path / (cache_name(SOURCE) + SUFFIX)
    (directory / link).parent.mkdir(parents=True)
    (directory / link).symlink_to(elsewhere)
    with pytest.raises(NotADirectoryError, match=LINK):
        fetch_into(tmp_path)
    untouched(elsewhere)


def fetch_into(root: pathlib.Path) -> None:
    """What a fetch does with its directory."""
    partial = Partial.open(root, SOURCE.canonical, "boot")
    assert partial is not None
    try:
        partial.expect(("sub/w.gguf",))
        partial.begin("sub/w.gguf", 5, "")
        os.close(partial.open_file("sub/w.gguf"))
    finally:
        partial.close()


@pytest.mark.parametrize("link", ["", FILES, f"{FILES}/sub"])
def test_weights_behind_a_link_are_not_whole(
    tmp_path: pathlib.Path, elsewhere: pathlib.Path, link: str
) -> None:
    """The names and the sizes are right, the place is not."""
    cache = Cache(tmp_path / "cache")
    entry = make_entry(cache.root, SOURCE, {"sub/w.gguf": b"right"})
    assert cache.whole(SOURCE) is not None
    (entry / link).rename(elsewhere / "moved")
    (entry / link).symlink_to(elsewhere / "moved")
    assert cache.whole(SOURCE) is None
    assert not any(listed.whole for listed in cache.list_entries())
    cache.close()
