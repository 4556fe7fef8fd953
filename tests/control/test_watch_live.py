"""The watch by itself, over the real file system: what editors, git, deployments and bursts do to it.

The slow timer is set to a minute wherever the listeners must be what was heard, and the listeners are
given nothing to hear where it is the timer that must find it.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil

import pytest

from llmgw.control.commits import Commits
from llmgw.control.holding import Rules
from llmgw.control.trees import Directory, Spot
from llmgw.kit.clock import SystemClock
from llmgw.transport.http import Request
from tests.control.following import FAST, Followed, live, until, write
from tests.control.plane import files
from tests.control.repository import Repository

AUTO = Rules("files", "auto")
HEARD = dataclasses.replace(FAST, rescan=60.0)
"""Nothing is found by the timer."""


class Deaf(Directory):
    """A directory on a file system without events: NFS, or out of inotify watches."""

    def spots(self) -> frozenset[Spot]:
        return frozenset()


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A catalog of one model, on disk."""
    write(tmp_path / "catalog", files("qwen"))
    return tmp_path / "catalog"


def rename_over(path: pathlib.Path, text: str) -> int:
    """As editors save: written beside, renamed over. Returns the new inode."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)
    return path.stat().st_ino


async def stands(followed: Followed, replicas: int) -> None:
    await until(
        lambda: followed.number > 0 and followed.bound() == replicas, f"{replicas} replicas are wanted"
    )


async def applied(followed: Followed, replicas: int) -> None:
    """A person applies something else than what is followed."""
    body = json.dumps({"files": files("qwen", replicas=replicas), "who": "ada"}).encode()
    headers = {"host": "127.0.0.1:7600", "content-type": "application/json"}
    answer = await followed.plane.api.answer(Request("POST", "/v1/apply", {}, headers, body))
    assert answer.status == 200


def test_renames_are_followed_one_after_the_other(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The first save of an editor is heard, and so is every later one."""

    async def story() -> None:
        inodes = {(root / "qwen.yaml").stat().st_ino}
        async with live(tmp_path / "state", Directory(root, SystemClock()), AUTO, HEARD) as followed:
            await stands(followed, 1)
            for replicas in (2, 3, 4):
                inodes.add(rename_over(root / "qwen.yaml", files("qwen", replicas=replicas)["qwen.yaml"]))
                await stands(followed, replicas)
            (root / "qwen.yaml").write_text(files("qwen", replicas=5)["qwen.yaml"])
            await stands(followed, 5)
            assert followed.number == 5
        assert len(inodes) > 1

    asyncio.run(story())


def test_a_directory_that_comes_back_is_heard_again(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Moved away, another one in its place: what is written in the new one is followed."""

    async def story() -> None:
        async with live(tmp_path / "state", Directory(root, SystemClock()), AUTO, HEARD) as followed:
            await stands(followed, 1)
            shutil.move(root, tmp_path / "c2")
            await until(lambda: followed.watch._followed.blind is not None, "it is seen as gone")
            assert followed.models == ["qwen"]
            shutil.copytree(tmp_path / "c2", root)
            await until(lambda: followed.watch._followed.blind is None, "it is seen again")
            (root / "qwen.yaml").write_text(files("qwen", replicas=2)["qwen.yaml"])
            await stands(followed, 2)
            assert followed.stops == []

    asyncio.run(story())


def test_a_link_is_swapped(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A deployment points `current` elsewhere in one step: the path is followed, not what it was."""
    for number in (1, 2):
        write(tmp_path / f"v{number}" / "catalog", files("qwen", replicas=number))
    current = tmp_path / "current"
    current.symlink_to("v1")

    async def story() -> None:
        async with live(
            tmp_path / "state", Directory(current / "catalog", SystemClock()), AUTO, HEARD
        ) as followed:
            await stands(followed, 1)
            (tmp_path / "next").symlink_to("v2")
            (tmp_path / "next").replace(current)
            await stands(followed, 2)
            (tmp_path / "v2" / "catalog" / "qwen.yaml").write_text(files("qwen", replicas=3)["qwen.yaml"])
            await stands(followed, 3)

    asyncio.run(story())


def test_without_events_the_timer_finds_it(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Every event source can go quiet; none of them is relied upon."""

    async def story() -> None:
        async with live(tmp_path / "state", Deaf(root, SystemClock()), AUTO) as followed:
            await stands(followed, 1)
            write(root, files("qwen", replicas=2))
            await stands(followed, 2)

    asyncio.run(story())


def test_a_burst_ends_in_its_last(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Ten edits faster than they settle are one adoption: that of the newest."""

    async def story() -> None:
        pace = dataclasses.replace(HEARD, settle=0.3)
        async with live(tmp_path / "state", Directory(root, SystemClock()), AUTO, pace) as followed:
            await stands(followed, 1)
            for replicas in range(2, 12):
                rename_over(root / "qwen.yaml", files("qwen", replicas=min(replicas, 9))["qwen.yaml"])
                await asyncio.sleep(0.02)
            rename_over(root / "qwen.yaml", files("qwen", replicas=7)["qwen.yaml"])
            await stands(followed, 7)
            assert followed.number == 2

    asyncio.run(story())


def test_two_halves_of_one_update(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The model comes first, the profile that it uses 300 ms later: one adoption, and no error in between."""
    other = files("qwen")["small.yaml"].replace("name: small", "name: other")

    async def story() -> None:
        pace = dataclasses.replace(HEARD, settle=0.75)
        async with live(tmp_path / "state", Directory(root, SystemClock()), AUTO, pace) as followed:
            await stands(followed, 1)
            half = files("qwen", replicas=2)["qwen.yaml"].replace("[small]", "[small, other]")
            rename_over(root / "qwen.yaml", half)
            await asyncio.sleep(0.3)
            assert followed.watch._settling.mark != followed.watch._followed.mark, "the half was never seen"
            rename_over(root / "other.yaml", other)
            await stands(followed, 2)
            assert followed.number == 2
            assert not any("held" in entry.said for entry in followed.plane.journal.after(0))

    asyncio.run(story())


def test_a_commit_is_followed_while_the_tree_is_dirty(tmp_path: pathlib.Path) -> None:
    """git itself is heard; what was only written never stands."""
    repository = Repository(tmp_path / "fleet")
    repository.commit(files("qwen"))

    async def story() -> None:
        source = Commits(repository.catalog)
        async with live(tmp_path / "state", source, Rules("commits", "auto"), HEARD) as followed:
            await stands(followed, 1)
            repository.commit(files("qwen", replicas=2))
            repository.write({"qwen.yaml": "half of a"})
            await stands(followed, 2)
            repository.git("stash", "--quiet")
            repository.commit(files("qwen", replicas=3))
            repository.git("pack-refs", "--all")
            await stands(followed, 3)
            repository.git("reset", "--quiet", "--hard", "HEAD~1")
            await stands(followed, 2)
            assert followed.why == ""

    asyncio.run(story())


def test_an_edit_while_the_last_one_is_judged(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What is written while we plan is not lost: it is the next look's."""

    async def story() -> None:
        async with live(tmp_path / "state", Directory(root, SystemClock()), AUTO, HEARD) as followed:
            await stands(followed, 1)
            adopt = followed.plane.adoption.adopt

            def and_edit(*args: object) -> int:
                rename_over(root / "qwen.yaml", files("qwen", replicas=3)["qwen.yaml"])
                followed.plane.adoption.adopt = adopt  # type: ignore[method-assign]
                return adopt(*args)  # type: ignore[arg-type]

            followed.plane.adoption.adopt = and_edit  # type: ignore[method-assign]
            rename_over(root / "qwen.yaml", files("qwen", replicas=2)["qwen.yaml"])
            await stands(followed, 3)
            assert followed.number == 3

    asyncio.run(story())


def test_what_was_held_is_taken_where_it_takes_nothing_away(
    root: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Held for what stood then, over a restart; somebody applies less, and the same untouched files are more."""

    async def story() -> None:
        write(root, files("qwen", replicas=3))
        source = Directory(root, SystemClock())
        async with live(tmp_path / "state", source, AUTO) as followed:
            await stands(followed, 3)
            write(root, files("qwen", replicas=2))
            await until(lambda: followed.why == "removal", "fewer replicas are held")
        async with live(tmp_path / "state", source, AUTO) as followed:
            await asyncio.sleep(2 * FAST.rescan)
            assert (followed.why, followed.bound()) == ("removal", 3)
            await applied(followed, 1)
            await stands(followed, 2)
            await until(lambda: followed.why == "", "nothing is held any more")
            await applied(followed, 1)
            await asyncio.sleep(2 * FAST.rescan)
            assert (followed.why, followed.bound()) == ("left", 1)

    asyncio.run(story())


def test_it_closes_with_its_listeners(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """No thread and no inotify instance is left behind by a watch that ends."""

    def instances() -> int:
        found = 0
        for fd in pathlib.Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # another thread closed it meanwhile
                found += "inotify" in os.readlink(fd)
        return found

    async def story() -> None:
        before = instances()
        async with live(tmp_path / "state", Directory(root, SystemClock()), AUTO) as followed:
            await stands(followed, 1)
            await until(lambda: instances() > before, "it listens")
        await until(lambda: instances() == before, "it listens no more")

    asyncio.run(story())
