"""What is no regular file among an agent's own: an engine runs as the same user, and can put it there."""

import asyncio
import contextlib
import multiprocessing
import os
import pathlib
import socket
from collections.abc import Callable

import pytest

from llmgw.agent import logs, manifest, process
from llmgw.agent.engine_check import EngineCheck
from llmgw.agent.marks import Identity
from llmgw.agent.records import Records
from llmgw.agent.state import Obeyed, StateDir
from llmgw.agent.sweep import SweepTimers
from llmgw.engines.base import CommandLine
from llmgw.errors import Failed
from llmgw.kit.files import write_atomic
from tests.agent.test_records import RECORD

PATIENCE = 20.0
SECRET = "somebody else's"


def _socket(path: pathlib.Path) -> None:
    # The path of a socket is short.
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def _link(path: pathlib.Path) -> None:
    outside = path.parent.parent / "outside"
    outside.write_text(SECRET)
    path.symlink_to(outside)


ODD: dict[str, Callable[[pathlib.Path], None]] = {
    "FIFO": os.mkfifo,
    "directory": os.mkdir,
    "socket": _socket,
    "link": _link,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
}


def in_time(work: Callable[[], str]) -> str:
    """What `work` says, done in a process of its own: waiting on a FIFO cannot be interrupted."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=lambda: there.send(work()))
    child.start()
    try:
        assert here.poll(PATIENCE), "it waits for ever"
        return str(here.recv())
    finally:
        child.kill()
        child.join()


def refusal(work: Callable[[], object]) -> str:
    """Why `work` refuses."""
    try:
        return f"done: {work()}"
    except (OSError, Failed) as error:
        return str(error)


def checks(root: pathlib.Path) -> object:
    return EngineCheck("n", root, cgroups=None, inherited={}, timers=SweepTimers(), within=1.0)


WORKS: dict[str, tuple[str, Callable[[pathlib.Path], object], str]] = {
    "a record": ("a.0.json", lambda path: Records(path.parent).read().problems, "as "),
    "an identity": ("node-id", lambda path: StateDir(path.parent).node(), "no regular file"),
    "an epoch": ("obeyed", lambda path: StateDir(path.parent).obeyed(), "no regular file"),
    "an epoch to keep": ("obeyed", lambda path: StateDir(path.parent).obey(Obeyed(1, 1)), "no regular file"),
    "a lock": ("lock", lambda path: StateDir(path.parent).held().__enter__(), "no regular file"),
    "what was checked": ("checks.json", lambda path: checks(path.parent) and "made", "done: made"),
    "a manifest": ("manifest.json", lambda path: manifest.read(path.parent), "done: None"),
    "the end of a log": ("a.0.log", logs.tail, "done: "),
    "a log to trim": ("a.0.log", lambda path: logs.trim(path, 0), "done: None"),
    "a piece of a log": ("a.0.log", lambda path: logs.piece(path, 0, 100), "no regular file"),
    "lines of a log": ("a.0.log", lambda path: logs.tail_offset(path, 3), "no regular file"),
    "a log to write": (
        "a.0.log",
        lambda path: process.launch(CommandLine(("/bin/echo", "written")), {}, Identity("c"), path),
        "no regular file",
    ),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("what", WORKS)
def test_what_is_no_file_is_neither_waited_for_nor_followed(
    tmp_path: pathlib.Path, odd: str, what: str
) -> None:
    """It is set aside, passed over or said; nothing outside is read or written."""
    name, work, said = WORKS[what]
    root = tmp_path / "state"
    root.mkdir()
    path = root / name
    ODD[odd](path)
    heard = in_time(lambda: refusal(lambda: work(path)))
    assert (said in heard) or (odd == "directory" and "s a directory" in heard)
    assert SECRET not in heard
    if odd == "link":
        assert (tmp_path / "outside").read_text() == SECRET
    if what == "a record":
        assert os.path.lexists(root / "quarantine" / heard.rpartition("/")[2].partition(":")[0])


@pytest.mark.parametrize("odd", ["FIFO", "link"])
def test_a_write_follows_nothing_that_lies_where_it_begins(tmp_path: pathlib.Path, odd: str) -> None:
    """The name beside is no secret: it is refused once, removed, and the next write goes through."""
    root = tmp_path / "state"
    root.mkdir()

    def work() -> str:
        ODD[odd](root / f".x.{os.getpid()}.tmp")
        said = refusal(lambda: write_atomic(root / "x", b"new"))
        write_atomic(root / "x", b"new")
        return said

    assert "no regular file" in in_time(work)
    assert (root / "x").read_bytes() == b"new"
    if odd == "link":
        assert (tmp_path / "outside").read_text() == SECRET


@pytest.mark.parametrize("odd", ODD)
def test_old_logs_go_whatever_lies_among_them(tmp_path: pathlib.Path, odd: str) -> None:
    """One that cannot be looked at or removed keeps no other."""
    root = tmp_path / "logs"
    root.mkdir()
    for n in range(4):
        (root / f"old{n}.0.log").touch()
        os.utime(root / f"old{n}.0.log", (n, n))
    ODD[odd](root / "odd.0.log")
    os.utime(root / "odd.0.log", (1, 1), follow_symlinks=False)
    logs.prune(root, 2, 2**20)
    assert {path.name for path in root.iterdir()} >= {"old3.0.log", "old2.0.log"}
    assert not {"old0.0.log", "old1.0.log"} & {path.name for path in root.iterdir()}


def test_a_record_beside_what_is_none_is_read(tmp_path: pathlib.Path) -> None:
    """One FIFO costs no shard."""
    Records(tmp_path).write(RECORD)
    os.mkfifo(tmp_path / "a.0.json")
    assert asyncio.run(asyncio.wait_for(asyncio.to_thread(Records(tmp_path).read), PATIENCE)).records == (
        RECORD,
    )
