"""The node's weights: one download however many ask, seen by all, resumed by whoever comes next."""

import asyncio
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import random
import subprocess
import sys

import pytest

from llmgw.agent import manifest
from llmgw.agent.partial import Partial
from llmgw.catalog.sources import cache_name, parse
from llmgw.errors import Failed, LlmgwError
from tests.agent.fetching import LIMITS, noise, pinned, store, unpinned, until
from tests.support.weights_server import Answer, WeightsServer

BODY = noise(400_000)
PATH = "/m.gguf"


def test_eight_shards_make_one_download(tmp_path: pathlib.Path) -> None:
    """Eight callers share one GET, all see its progress, all get the same path."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            source = pinned(server.url(PATH), BODY)
            callers = [asyncio.create_task(held.weights.ensure(source)) for _ in range(8)]
            await until(lambda: any(each.received for each in held.weights.progress()), "progress")
            (progress,) = held.weights.progress()
            assert progress.cache_name == cache_name(source)
            assert progress.total == len(BODY)
            assert len(set(await asyncio.gather(*callers))) == 1
            assert held.weights.progress() == ()

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(pace=0.02))
        asyncio.run(story(server))
        assert server.count(PATH) == 1
        assert server.sent == len(BODY)


def test_what_is_here_is_not_fetched_again(tmp_path: pathlib.Path) -> None:
    """Weights that are whole cost no request, also for the next process."""

    async def story(server: WeightsServer) -> None:
        source = pinned(server.url(PATH), BODY)
        for _ in range(2):
            async with store(tmp_path) as held:
                path = await held.weights.ensure(source)
                assert path == await held.weights.ensure(source) == held.weights.model_path(source)
                assert await held.weights.holds(source)
                assert path.name == "m.gguf"

    with WeightsServer({PATH: BODY}) as server:
        asyncio.run(story(server))
        assert server.count(PATH) == 1


def test_one_that_leaves_does_not_stop_the_others(tmp_path: pathlib.Path) -> None:
    """Cancelling seven of eight callers changes nothing for the eighth."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            source = pinned(server.url(PATH), BODY)
            callers = [asyncio.create_task(held.weights.ensure(source)) for _ in range(8)]
            await until(held.weights.progress, "the download")
            for caller in callers[:7]:
                caller.cancel()
            assert (await callers[7]).read_bytes() == BODY
            assert all(caller.cancelled() for caller in callers[:7])

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(pace=0.02))
        asyncio.run(story(server))
        assert server.count(PATH) == 1


def test_a_download_nobody_wants_ends_and_is_resumed_later(tmp_path: pathlib.Path) -> None:
    """When the last caller leaves, the download ends at once and what came is used by the next."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path, dataclasses.replace(LIMITS, stall=30.0)) as held:
            source = pinned(server.url(PATH), BODY)
            caller = asyncio.create_task(held.weights.ensure(source))
            await until(lambda: any(p.received == 150_000 for p in held.weights.progress()), "a part")
            caller.cancel()
            await until(lambda: not held.weights.progress(), "the end of the download", within=2.0)
            (entry,) = held.cache.list_entries()
            assert not entry.whole
            assert (await held.weights.ensure(source)).read_bytes() == BODY

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(stall=150_000), Answer())
        asyncio.run(story(server))
        assert server.sent == len(BODY)


def test_who_comes_while_a_download_is_given_up_starts_the_next(tmp_path: pathlib.Path) -> None:
    """A caller in the moment after the last one left neither fails nor hangs."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path, dataclasses.replace(LIMITS, stall=30.0)) as held:
            source = pinned(server.url(PATH), BODY)
            first = asyncio.create_task(held.weights.ensure(source))
            await until(lambda: any(p.received for p in held.weights.progress()), "a part")
            first.cancel()
            await asyncio.sleep(0)
            assert (await held.weights.ensure(source)).read_bytes() == BODY

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(stall=150_000), Answer())
        asyncio.run(story(server))
        assert server.count(PATH) == 2


def test_all_callers_are_told_why_it_failed(tmp_path: pathlib.Path) -> None:
    """One failed download is one reason for everybody, and no memory of it stays."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            source = pinned(server.url(PATH), BODY)
            told = await asyncio.gather(
                *(held.weights.ensure(source) for _ in range(4)), return_exceptions=True
            )
            assert {type(each) for each in told} == {Failed}
            assert {str(each) for each in told} == {str(told[0])}
            server.files[PATH] = BODY
            assert (await held.weights.ensure(source)).read_bytes() == BODY

    with WeightsServer() as server:
        asyncio.run(story(server))
        assert server.count(PATH) == 2


def test_a_length_nobody_said_is_not_made_up(tmp_path: pathlib.Path) -> None:
    """Without Content-Length the total is None, never a guess and never the received bytes."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            caller = asyncio.create_task(held.weights.ensure(pinned(server.url(PATH), BODY)))
            await until(lambda: any(p.received >= 100_000 for p in held.weights.progress()), "progress")
            (progress,) = held.weights.progress()
            assert progress.total is None
            assert progress.rate > 0
            await caller

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(framing="chunked", pace=0.03))
        asyncio.run(story(server))


def test_a_silent_source_shows_how_long_it_is_silent(tmp_path: pathlib.Path) -> None:
    """`idle` counts from the last byte, and the rate falls to nothing with it."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path, dataclasses.replace(LIMITS, stall=30.0)) as held:
            caller = asyncio.create_task(held.weights.ensure(pinned(server.url(PATH), BODY)))
            await until(lambda: any(p.idle > 0.2 for p in held.weights.progress()), "silence")
            (progress,) = held.weights.progress()
            assert progress.received == 100_000
            caller.cancel()

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(stall=100_000))
        asyncio.run(story(server))


def test_killed_at_any_byte_it_is_resumed(tmp_path: pathlib.Path) -> None:
    """SIGKILL at random bytes, again and again: right bytes in the end, and hardly one fetched twice."""
    body = noise(20 * 2**20)
    chance = random.Random(20)
    with WeightsServer({PATH: body}) as server:
        server.behave(PATH, Answer(pace=0.004))
        argv = [sys.executable, "-m", "tests.agent.fetch_once", str(tmp_path), server.url(PATH)]
        argv.append(hashlib.sha256(body).hexdigest())
        kills = 4
        for _ in range(kills):
            server.wait_sent(0)
            goal = server.sent + chance.randrange(2**20, 4 * 2**20)
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
                server.wait_sent(goal, within=20.0)
                child.kill()
                assert child.wait() == -9
            assert not any(path.name == "manifest.json" for path in tmp_path.glob("*/*")), (
                "not taken as whole"
            )
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
        assert pathlib.Path(done.stdout.strip()).read_bytes() == body
        # What was on the wire when a process died is all that may come twice.
        assert len(body) < server.sent < 1.2 * len(body)
        assert sum("range" in asked.headers for asked in server.asked) >= kills - 1
    assert [path.name for path in tmp_path.iterdir()] == [cache_name(parse(argv[4], argv[5]))]


def _reboot(root: pathlib.Path, boot: str) -> None:
    (note,) = root.glob("*/partial.json")
    assert boot in note.read_text()
    note.write_text(note.read_text().replace(boot, "an-earlier-boot"))


def _rot(root: pathlib.Path) -> None:
    (file,) = root.glob("*/files/m.gguf")
    with file.open("r+b") as damaged:
        damaged.write(b"rot")


def test_bytes_from_before_a_reboot_count_only_with_a_digest(tmp_path: pathlib.Path) -> None:
    """A crash of the machine may have lost what the file's length claims: unpinned, it starts again."""

    async def part(server: WeightsServer, root: pathlib.Path, *, pin: bool) -> None:
        async with store(root, dataclasses.replace(LIMITS, attempts=1)) as held:
            source = pinned(server.url(PATH), BODY) if pin else unpinned(server.url(PATH))
            with pytest.raises(LlmgwError):
                await held.weights.ensure(source)
            _reboot(root, held.weights._boot)
            assert (await held.weights.ensure(source)).read_bytes() == BODY

    for pin in (True, False):
        with WeightsServer({PATH: BODY}) as server:
            server.behave(PATH, Answer(cut=150_000), Answer())
            asyncio.run(part(server, tmp_path / str(pin), pin=pin))
            assert ("range" in server.asked[1].headers) == pin


def test_a_prefix_that_rotted_on_the_disk_is_found_out(tmp_path: pathlib.Path) -> None:
    """A resumed file with a wrong digest is removed and fetched once more, whole."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path, dataclasses.replace(LIMITS, attempts=1)) as held:
            source = pinned(server.url(PATH), BODY)
            with pytest.raises(LlmgwError):
                await held.weights.ensure(source)
            _rot(tmp_path)
        async with store(tmp_path) as held:
            assert (await held.weights.ensure(source)).read_bytes() == BODY

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(cut=150_000), Answer())
        asyncio.run(story(server))
        assert ["range" in asked.headers for asked in server.asked] == [False, True, False]


def test_a_file_removed_by_hand_is_fetched_by_the_next_start(tmp_path: pathlib.Path) -> None:
    """What is here is looked up, not remembered."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            source = pinned(server.url(PATH), BODY)
            (await held.weights.ensure(source)).unlink()
            assert not await held.weights.holds(source)
            assert [entry.whole for entry in held.cache.list_entries()] == [False]
            with pytest.raises(Failed, match=r"m\.gguf cannot be read"):
                held.weights.model_path(source)
            assert (await held.weights.ensure(source)).read_bytes() == BODY
            assert held.names() == [cache_name(source)]

    with WeightsServer({PATH: BODY}) as server:
        asyncio.run(story(server))
        assert server.count(PATH) == 2


def test_another_process_that_fetches_is_waited_for(tmp_path: pathlib.Path) -> None:
    """Two agents with one cache make one download: the second waits for the lock, not for a file."""

    async def story(server: WeightsServer) -> None:
        source = pinned(server.url(PATH), BODY)
        async with store(tmp_path) as one, store(tmp_path) as two:
            first = asyncio.create_task(one.weights.ensure(source))
            await until(lambda: server.sent, "the first download")
            assert (await two.weights.ensure(source)) == await first

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(pace=0.02))
        asyncio.run(story(server))
        assert server.count(PATH) == 1


def test_a_lock_ends_with_its_holder(tmp_path: pathlib.Path) -> None:
    """No left-over of a dead process holds a fetch up: a lock is held by somebody or by nobody."""
    first = Partial.open(tmp_path, "https://h/m.gguf", "boot")
    assert first is not None
    assert Partial.open(tmp_path, "https://h/m.gguf", "boot") is None
    first.close()
    again = Partial.open(tmp_path, "https://h/m.gguf", "boot")
    assert again is not None
    again.close()


def test_a_lock_on_what_has_become_an_entry_is_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waited for a directory that was renamed meanwhile does not hold the one of its name."""
    directory = tmp_path / f"{manifest.name_of('https://h/m.gguf')}.partial"
    flock = fcntl.flock

    def rename_then_lock(fd: int, how: int) -> None:
        directory.rename(tmp_path / "renamed")
        directory.mkdir()
        flock(fd, how)

    monkeypatch.setattr("llmgw.agent.partial.fcntl.flock", rename_then_lock)
    assert Partial.open(tmp_path, "https://h/m.gguf", "boot") is None


def test_a_process_that_died_between_manifest_and_rename_has_fetched(tmp_path: pathlib.Path) -> None:
    """The last step is done by whoever comes next, without a request."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            source = pinned(server.url(PATH), BODY)
            await held.weights.ensure(source)
            entry = tmp_path / cache_name(source)
            entry.rename(entry.with_name(f"{entry.name}.partial"))
            assert not await held.weights.holds(source)
            assert (await held.weights.ensure(source)).read_bytes() == BODY

    with WeightsServer({PATH: BODY}) as server:
        asyncio.run(story(server))
        assert server.count(PATH) == 1


def test_a_full_disk_takes_its_own_partial_away(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC ends the fetch with numbers, at once, and gives back what it had used."""
    full = OSError(28, "No space left on device")
    writes = iter([None, None])

    def write(fd: int, data: memoryview, real: object = os.write) -> int:
        if next(writes, full) is full:
            raise full
        return real(fd, data)  # type: ignore[operator, no-any-return]

    async def story(server: WeightsServer) -> str:
        async with store(tmp_path) as held:
            monkeypatch.setattr("llmgw.agent.fetch.os.write", write)
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned(server.url(PATH), BODY))
            monkeypatch.undo()
            assert held.names() == []
            return caught.value.said

    with WeightsServer({PATH: BODY}) as server:
        said = asyncio.run(story(server))
        assert server.count(PATH) == 1
    assert "is full after" in said
    assert "of 400.0 KB" in said


def test_the_operators_own_file_is_used_as_it_is(tmp_path: pathlib.Path) -> None:
    """file:// is never copied, never an entry; where it is missing, the message says whose it is."""

    async def story() -> None:
        async with store(tmp_path / "cache") as held:
            own = tmp_path / "own.gguf"
            source = parse(f"file://{own}")
            assert not await held.weights.holds(source)
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(source)
            assert "llmgw never fetches a file:// source" in str(caught.value)
            own.write_bytes(BODY)
            assert await held.weights.holds(source)
            assert await held.weights.ensure(source) == own
            assert held.cache.list_entries() == ()

    asyncio.run(story())
