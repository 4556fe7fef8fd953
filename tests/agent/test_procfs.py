"""What /proc and the disk say in bytes that are no text: paths are bytes, and people choose them."""

import asyncio
import contextlib
import os
import pathlib
import resource
import subprocess
from collections.abc import Callable, Iterator

import pytest

from llmgw.agent import cgroups, procfs
from llmgw.agent.kernel import Linux
from llmgw.agent.marks import Identity
from llmgw.agent.sweep import Tree
from tests.agent.house import House, gone, launched, ready

ODD = b"/user.slice/x\xff"
STAT = b"7 (a\xff) S 1 7 7 " + b"0 " * 15 + b"99 0"


@pytest.fixture
def proc(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A /proc of one process, 7, and of this one; nothing in it is UTF-8."""
    root = tmp_path / "proc"
    for name in ("7", "self", str(os.getpid()), "net"):
        (root / name).mkdir(parents=True)
    for name in ("7", str(os.getpid())):
        (root / name / "stat").write_bytes(STAT)
        (root / name / "environ").write_bytes(b"A=\xff\0B=c\0")
        (root / name / "cgroup").write_bytes(b"1:name=x\xfe:/y\n0::" + ODD + b"\n")
    (root / "net" / "tcp").write_bytes(b"\xff\n\xff\n")
    monkeypatch.setattr(procfs, "PROC", root)
    return root


def test_a_process_of_no_text_is_a_process(proc: pathlib.Path) -> None:
    """Its group keeps its bytes: it is compared, and it is a path."""
    with pytest.raises(UnicodeDecodeError):
        (proc / "7" / "cgroup").read_text()
    assert os.fsencode(procfs.cgroup(7)) == ODD
    assert procfs.environ(7)["B"] == "c"
    assert procfs.stat(7) == procfs.Stat(7, "S", 1, 7, 99)
    assert procfs.sockets() == []


def test_a_mount_of_no_text_is_passed_over(proc: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Another file system's name keeps no agent from its groups, nor does the name of its own."""
    groups = tmp_path / "cgroup"
    base = groups / os.fsdecode(ODD[1:]) / "llmgw-n"
    base.mkdir(parents=True)
    (base / "cgroup.kill").touch()
    lines = b"1 2 0:1 / /m\xff rw - tmpfs none rw\n2 2 0:2 / %s rw - cgroup2 none rw\n" % os.fsencode(groups)
    (proc / "self" / "mountinfo").write_bytes(lines)
    found = cgroups.find("n")
    assert found is not None
    assert (found.mount, os.fsencode(found.base)) == (groups, ODD + b"/llmgw-n")


def test_a_state_directory_of_no_text_loses_no_engine(tmp_path: pathlib.Path) -> None:
    """Its path is in the records: the next agent reads them, and what it tells of a file there is text."""
    root = pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b"/st\xff"))
    root.mkdir()
    house = House(root)

    async def story() -> None:
        shard = house.spec()
        async with house.agent() as first:
            pid = await ready(house, first, shard)
        (root / "shards" / os.fsdecode(b"\xff.json")).write_bytes(b"{")
        async with house.agent() as second:
            assert second.state.shards[shard.key].pid == pid
            (said,) = house.problems
            assert said.isprintable()
            bad = house.spec("alpha/full")
            (root / "shards" / "alpha%2Ffull.0.json").mkdir()
            await launched(second, bad)
            assert house.last(bad.key).reason.startswith("cannot record its launch in ")
            assert house.last(bad.key).reason.isprintable()
            await gone(second, shard)

    try:
        asyncio.run(story())
    finally:
        house.clean()


@contextlib.contextmanager
def no_files() -> Iterator[None]:
    """Nothing can be opened."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("look", [procfs.stat, procfs.live, procfs.environ, procfs.cgroup])
def test_whom_nobody_can_look_at_is_not_therefore_gone(look: Callable[[int], object]) -> None:
    """Without a file left this process is still there, and a stranger that is gone is gone."""
    with no_files(), pytest.raises(OSError, match="Too many open files"):
        look(os.getpid())
    assert look(os.getpid())
    assert not look(2**22 + 1)


def test_a_sweep_that_cannot_look_is_not_over() -> None:
    """A living engine behind a /proc that cannot be read is no clean look: its card is not free."""
    engine = subprocess.Popen(["/bin/sleep", "60"])
    found = procfs.stat(engine.pid)
    assert found is not None
    tree = Tree(Identity("c" * 32, "", procfs.boot_id(), engine.pid, found.ticks), None, kernel=Listed())

    async def scenario() -> str:
        return await tree._round(set(), free)

    try:
        assert "cannot look at its processes: Too many open files" in asyncio.run(scenario())
        assert procfs.live(engine.pid) is not None
    finally:
        engine.kill()
        engine.wait()


class Listed(Linux):
    """Whose processes can be listed; nothing more can be opened then."""

    def pids(self) -> list[int]:
        return [os.getpid()]

    def stat(self, pid: int) -> procfs.Stat | None:
        with no_files():
            return super().stat(pid)


async def free(_: frozenset[int]) -> str:
    """No card charges anybody."""
    return ""
