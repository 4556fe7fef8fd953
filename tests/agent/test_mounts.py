"""A mount that hangs: who looks at it waits in a thread of its own, and everybody else goes on."""

import asyncio
import contextlib
import os
import pathlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from llmgw.agent import serve
from llmgw.agent.cache import Cache
from llmgw.agent.mounts import Mounts, MountTimers, Seen
from llmgw.catalog.sources import parse
from llmgw.fleet.node import NodeInfo
from llmgw.wire import messages as wire
from tests.agent import fetching
from tests.agent.entries import make_entry
from tests.agent.house import CLOCK, PATIENCE, House, gone, ready, until
from tests.agent.test_connection import Control
from tests.agent.test_engine_check import checks, engine
from tests.agent.test_probe import script
from tests.transport.harness import listening

SOURCE = parse("hf://org/model@main")
OLD = "cannot look at its weights and programs"
SHORT = MountTimers(within=0.2)


class Mount:
    """A function of the kernel that answers for `below` only while the mount does."""

    def __init__(self, right: Callable[..., Any], below: pathlib.Path) -> None:
        self._right, self._below = right, below
        self._answers = threading.Event()
        self._answers.set()
        self.asked = 0
        self.said: Any = None
        """Its last answer."""
        self.given_up = False
        """Whether somebody waited as long as a test may take: our own loop did."""

    def __call__(self, path: Any, *more: Any, **named: Any) -> Any:
        if isinstance(path, str | os.PathLike) and pathlib.Path(path).is_relative_to(self._below):
            self.asked += 1
            self.given_up |= not self._answers.wait(PATIENCE)
            self.said = self._right(path, *more, **named)
            return self.said
        return self._right(path, *more, **named)

    def hang(self) -> None:
        """From now on nothing is answered."""
        self.asked = 0
        self._answers.clear()

    def answer(self) -> None:
        """All that waits, and all that comes."""
        self._answers.set()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any, str, pathlib.Path], Mount]]:
    """Puts a mount in the place of a function. Whatever waits there at the end of the test goes on."""
    made: list[Mount] = []

    def put(place: Any, name: str, below: pathlib.Path) -> Mount:
        mount = Mount(getattr(place, name), below)
        monkeypatch.setattr(place, name, mount)
        made.append(mount)
        return mount

    yield put
    for mount in made:
        mount.answer()


@contextlib.asynccontextmanager
async def mounts(root: pathlib.Path, changes: list[str]) -> AsyncIterator[tuple[Mounts, Cache]]:
    """What looks at a cache in `root`; each change with its trouble."""
    cache = Cache(root)
    made = Mounts(cache, lambda: (), CLOCK, SHORT, lambda: changes.append(made.trouble))
    try:
        yield made, cache
    finally:
        made.close()
        cache.close()


def test_what_was_seen_last_stands_and_is_said_to_be_old(
    tmp_path: pathlib.Path, hanging: Callable[..., Mount]
) -> None:
    """Twenty who ask while it hangs wait for one bound together; one thread looks, and once."""
    changes: list[str] = []

    async def story() -> None:
        async with mounts(tmp_path, changes) as (made, cache):
            assert made.seen == Seen()
            make_entry(cache.root, SOURCE, {"a.gguf": b"x"})
            assert await made.look()
            before = made.seen
            assert ([entry.source for entry in before.weights or ()], before.free) != ([], None)
            mount.hang()
            make_entry(cache.root, parse("hf://org/other@main"), {"a.gguf": b"x"})
            looks = await asyncio.wait_for(asyncio.gather(*(made.look() for _ in range(20))), PATIENCE / 2)
            assert set(looks) == {False}
            assert (mount.asked, made.seen) == (1, before)
            assert made.trouble == f"{cache.root} has not answered for 200ms"
            await until(lambda: "400ms" in made.trouble, "it is said to be older")
            mount.answer()
            await until(lambda: not made.trouble, "it answers")
            assert await made.look()
            assert len(made.seen.weights or ()) == 2
            assert [bool(said) for said in changes] == [True, False]

    mount = hanging(os, "statvfs", tmp_path)
    asyncio.run(story())
    assert not mount.given_up


def test_a_mount_that_says_no_is_no_empty_cache(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error is told, and the entries of the last look stand."""

    async def story() -> None:
        async with mounts(tmp_path, []) as (made, cache):
            make_entry(cache.root, SOURCE, {"a.gguf": b"x"})
            await made.look()
            before = made.seen.weights
            with monkeypatch.context() as patch:
                patch.setattr(Cache, "list_entries", stale)
                assert await made.look()
                assert (made.seen.weights, made.seen.free) == (before, None)
                assert made.trouble == f"{cache.root}: Stale file handle"
            assert await made.look()
            assert (made.seen.weights, made.trouble) == (before, "")

    def stale(_: Cache) -> None:
        raise OSError(116, os.strerror(116))

    asyncio.run(story())


def test_an_agent_whose_cache_hangs_goes_on(tmp_path: pathlib.Path, hanging: Callable[..., Mount]) -> None:
    """Heartbeats come, and it registers again, with what it saw last and that this is old."""
    control = Control(heartbeat=0.05)

    def beats() -> int:
        return control.kinds().count("heartbeat") if control.streams else 0

    def info() -> NodeInfo:
        said = [m.info for m in control.streams[-1] if isinstance(m, wire.Register | wire.Report) and m.info]
        return said[-1]

    async def story() -> None:
        async with listening(control.serve) as (_, port):
            settings = serve.Settings(
                tmp_path / "state", control_port=port, inventory_every=0.1, mounts=SHORT, engines={}
            )
            work = asyncio.ensure_future(serve.run(settings))
            try:
                await until(lambda: beats() >= 2, "heartbeats")
                assert (info().disk_free is not None, info().warnings) == (True, ())
                mount.hang()
                await until(lambda: mount.asked, "it looks")
                before = beats()
                await until(lambda: beats() >= before + 10, "heartbeats while it hangs")
                await until(lambda: info().warnings, "it is told")
                control.channels[-1].abort("cut")
                await until(lambda: len(control.streams) == 2 and beats() >= 10, "the second stream")
                assert (info().disk_free, info().weights) == (mount.said.f_bavail * mount.said.f_frsize, ())
                at = tmp_path / "state" / "cache"
                assert info().warnings[0].startswith(f"{OLD}: {at} has not answered for ")
                mount.answer()
                await until(lambda: not info().warnings, "it is well again")
                assert len(control.streams) == 2
            finally:
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work

    mount = hanging(os, "statvfs", tmp_path / "state" / "cache")
    asyncio.run(story())
    assert not mount.given_up


def test_whoever_looks_at_weights_takes_nobody_elses_thread(
    tmp_path: pathlib.Path, hanging: Callable[..., Mount]
) -> None:
    """A hundred shards wait for one mount; probes and logs have threads as ever."""

    async def story() -> None:
        async with fetching.store(tmp_path / "cache") as held:
            mount.hang()
            asked = [asyncio.ensure_future(held.weights.holds(source)) for _ in range(100)]
            await until(lambda: mount.asked, "they look")
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "a thread"), PATIENCE / 2) == "a thread"
            mount.answer()
            assert set(await asyncio.gather(*asked)) == {False}

    source = parse(f"file://{tmp_path}/mounted/w.gguf")
    mount = hanging(os, "stat", tmp_path / "mounted")
    asyncio.run(story())
    assert not mount.given_up


@pytest.mark.parametrize("what", ["bin", "model"])
def test_a_launch_from_a_mount_that_hangs_holds_up_nobody(
    tmp_path: pathlib.Path, hanging: Callable[..., Mount], what: str
) -> None:
    """The engine's program, or its weights: the launch waits beside the loop, and goes on once the mount answers."""
    house = House(tmp_path)

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            mount.hang()
            launching = asyncio.ensure_future(ready(house, agent, shard))
            await until(lambda: mount.asked, "it looks")
            assert not launching.done()
            mount.answer()
            await launching
            await gone(agent, shard)

    place = {"bin": (os, "access", tmp_path / "bin"), "model": (os, "stat", tmp_path / "model.gguf")}
    mount = hanging(*place[what])
    try:
        asyncio.run(story())
    finally:
        house.clean()
    assert not mount.given_up


def test_a_check_of_a_program_that_hangs_holds_up_nobody(
    tmp_path: pathlib.Path, hanging: Callable[..., Mount]
) -> None:
    """It waits beside the loop to know which file it is."""
    program = engine(script(tmp_path / "vllm", "#!/bin/sh\necho 0.33.0\n"), "vllm")

    async def story() -> None:
        mount.hang()
        checking = asyncio.ensure_future(checks(tmp_path, None).run([program]))
        await until(lambda: mount.asked, "it looks")
        mount.answer()
        ((works, said),) = [(each.works, each.checked) for each in await checking]
        assert (works, said) == (True, "0.33.0")

    mount = hanging(os, "stat", tmp_path / "vllm")
    asyncio.run(story())
    assert not mount.given_up
