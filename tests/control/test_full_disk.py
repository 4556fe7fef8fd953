"""A disk that takes nothing more: it is said, nothing is lost that stood, and nobody is sent away."""

import asyncio
import errno
import pathlib
import resource
from collections.abc import Callable

import pytest

from llmgw.control import serve as control
from llmgw.control import store as store_module
from llmgw.control.keeping import Keeping
from llmgw.control.store import Roster, Store
from llmgw.errors import Failed
from llmgw.kit.files import write_atomic
from llmgw.wire import messages as wire
from tests.control.plane import Clock, Plane, files
from tests.control.test_peers import agent, hear
from tests.transport.harness import until


class Disk:
    """`write_atomic` on a disk that is full while `full` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self.refused = False, 0
        monkeypatch.setattr(store_module, "write_atomic", self._write)

    def _write(self, path: pathlib.Path, data: bytes) -> None:
        if self.full:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_atomic(path, data)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_apply_says_why(tmp_path: pathlib.Path, disk: Disk) -> None:
    """What cannot be kept is not adopted; it is once there is room."""
    plane = Plane(tmp_path)
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    disk.full = True
    status, answer = plane.call("POST", "/v1/apply", {"files": files("other")})
    path = tmp_path / "revisions" / "00000002.json"
    said = f"cannot keep revision 2: no space left on device at {path}. Nothing was changed"
    assert (status, answer["error"]["said"]) == (500, said)
    assert (plane.adoption.number, plane.store.revisions()) == (1, [1])
    assert list(plane.loop.desired.catalog.models) == ["qwen"]  # type: ignore[union-attr]
    disk.full = False
    assert plane.call("POST", "/v1/apply", {"files": files("other")})[1]["revision"] == 2


def test_the_kernel_s_own_words(tmp_path: pathlib.Path) -> None:
    """A write that the kernel refuses names no file by itself: the sentence does."""
    store = Store(tmp_path)
    with store.held():
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            with pytest.raises(Failed) as failed:
                store.next_epoch(Clock().wall())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert failed.value.said == (
        f"cannot start: the epoch cannot be kept: file too large at {tmp_path / 'epoch'}"
    )


@pytest.mark.parametrize(
    ("name", "read"),
    [("epoch", lambda store: store.next_epoch(Clock().wall())), ("roster.json", Store.roster)],
)
def test_half_a_file(tmp_path: pathlib.Path, name: str, read: Callable[[Store], object]) -> None:
    """What another program left there is refused in one sentence with what to do."""
    (tmp_path / name).write_text("")
    with pytest.raises(Failed, match=name) as failed:
        read(Store(tmp_path))
    assert failed.value.help.startswith("remove it")


def test_a_directory_that_cannot_be_made(tmp_path: pathlib.Path) -> None:
    """A state directory below a file is an answer, not a traceback."""
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(Failed, match=r"cannot use .*: not a directory"),
        Store(tmp_path / "file" / "x").held(),
    ):
        pass


def test_nobody_is_sent_away(tmp_path: pathlib.Path, disk: Disk) -> None:
    """Agents are welcome while the roster cannot be kept; it is one alarm, and kept when there is room."""

    async def story() -> None:
        listens: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        settings = control.Settings(tmp_path, port=0)
        plane = asyncio.ensure_future(control.run(settings, ready=lambda _, port: listens.set_result(port)))
        port = await listens
        disk.full = True
        first, second = [await agent(port, f"i{n}", id=f"n{n}", name=f"gpu-{n}") for n in range(2)]
        assert isinstance(await hear(first), wire.Registered)
        assert isinstance(await hear(second), wire.Registered)
        await until(lambda: disk.refused >= 3, "it is tried again")
        assert not plane.done()
        disk.full = False
        await until(lambda: Store(tmp_path).roster().nodes.keys() == {"n0", "n1"}, "the roster is kept")
        for channel in (first, second):
            await channel.close()
        plane.cancel()
        await asyncio.wait([plane])

    asyncio.run(story())


def test_one_alarm(tmp_path: pathlib.Path, disk: Disk) -> None:
    """Each reason is said once, and the end of it too."""
    plane, store = Plane(tmp_path), Store(tmp_path)
    keeping = Keeping(plane.journal)
    disk.full = True
    keeping.keep("the roster", lambda: store.save_roster(Roster()))
    keeping.again()
    disk.full = False
    keeping.again()
    keeping.again()
    path = tmp_path / "roster.json"
    assert [(entry.kind, entry.said) for entry in plane.journal.after(0)] == [
        ("alarm", f"cannot keep the roster: No space left on device: {path}"),
        ("alarm", "kept the roster again"),
    ]
