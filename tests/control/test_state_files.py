"""A state directory that somebody else was in: the start says which file, why, and what would help."""

import os
import pathlib
import re
from collections.abc import Callable

import pytest

from llmgw.agent.state import StateDir
from llmgw.cli.main import run
from llmgw.control.holding import Followed
from llmgw.control.store import Revision, Store
from llmgw.control.tokens import Tokens
from llmgw.errors import Failed
from llmgw.gateway.store import Damaged, RouteStore
from tests.agent.test_odd_files import in_time
from tests.control.plane import Clock

SINCE = "2026-01-01T00:00:00"
FILES = {
    "epoch": ("99999999999999999999999999", "-4", ""),
    "roster.json": (f'{{"nodes": {{"n": {{"heard": "{SINCE}"}}}}}}', '{"gateways": {"g": {}}}'),
    "followed.json": (f'{{"blind": {{"said": "x", "since": "{SINCE}"}}}}',),
    "marks.json": (
        f'{{"marks": [{{"kind": "paused", "about": "m", "name": "m", "since": "{SINCE}Z", "until": "{SINCE}"}}]}}',
    ),
    "hold.json": (f'{{"who": "a", "reason": "b", "since": "{SINCE}"}}',),
    "revisions/00000007.json": (
        f'{{"number": 7, "files": {{}}, "digest": "x", "at": "{SINCE}"}}',
        f'{{"number": 6, "files": {{}}, "digest": "x", "at": "{SINCE}Z"}}',
    ),
}
EVERYWHERE = ("", '{"number": 1,', "\ufffd", "[" * 100_000, '{"a":' * 500 + "1" + "}" * 500, "[]", "null")
READERS: dict[str, Callable[[Store], object]] = {
    "epoch": lambda store: store.next_epoch(Clock().wall()),
    "roster.json": Store.roster,
    "followed.json": Store.followed,
    "marks.json": Store.marks,
    "hold.json": Store.on_hold,
    "revisions/00000007.json": Store.newest,
}


def refused(read: Callable[[], object], path: pathlib.Path) -> None:
    """`read` says where, why and what would help."""
    with pytest.raises(Failed) as failed:
        read()
    assert re.match(rf"cannot read {re.escape(str(path))}: \S", failed.value.said)
    assert "\n" not in failed.value.said
    assert failed.value.help


@pytest.mark.parametrize("name", READERS)
def test_what_the_control_plane_stands_on(tmp_path: pathlib.Path, name: str) -> None:
    """Torn, empty, of bytes, nested, a directory, a link to itself, a time without its zone: each is a sentence."""
    store, path = Store(tmp_path), tmp_path / name
    path.parent.mkdir(exist_ok=True)
    for text in (*EVERYWHERE, *FILES[name]):
        path.write_text(text)
        refused(lambda: READERS[name](store), path)
    path.write_bytes(b"\xff\xfe\x00")
    refused(lambda: READERS[name](store), path)
    path.unlink()
    path.symlink_to(path.name)
    refused(lambda: READERS[name](store), path)
    path.unlink()
    path.mkdir()
    refused(lambda: READERS[name](store), path)


@pytest.mark.parametrize("name", ["obeyed", "node-id"])
def test_what_an_agent_stands_on(tmp_path: pathlib.Path, name: str) -> None:
    """An agent that cannot read whom it obeyed, or who it is, does not start as somebody else."""
    state, path = StateDir(tmp_path), tmp_path / name
    read = state.obeyed if name == "obeyed" else state.node
    path.mkdir()
    refused(read, path)
    path.rmdir()
    path.write_bytes(b"\xff\xfe")
    refused(read, path)
    for text in ("[" * 100_000, '{"epoch": -1, "revision": 1}', '{"epoch": 1e400}', "{"):
        path.write_text(text if name == "obeyed" else "\x1b[2J")
        refused(read, path)


def test_what_a_gateway_stands_on(tmp_path: pathlib.Path) -> None:
    """A gateway goes on without, and says so: a table will come."""
    store = RouteStore(tmp_path)
    for text in (*EVERYWHERE, '{"version": "x"}'):
        store.path.write_text(text)
        with pytest.raises(Damaged, match=re.escape(str(store.path))):
            store.load()


WAITED: dict[str, Callable[[pathlib.Path], object]] = {
    "applies/00000001.record.json": lambda root: Store(root).record(1),
    "applies/00000001.plan.json": lambda root: Store(root).plan(1),
    "revisions/00000001.json": lambda root: list(Store(root).kept()),
    "followed.json": lambda root: Store(root).save_followed(Followed()),
    "tokens.json": lambda root: Tokens(root, Clock().wall).rows(),
    "tokens.lock": lambda root: Tokens(root, Clock().wall).create("node", "n", None),
    "routes.json": lambda root: RouteStore(root).load(),
}


@pytest.mark.parametrize("name", WAITED)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: pathlib.Path, name: str) -> None:
    """Nobody writes to it: a process that opened it would wait for ever, and SIGTERM would not end it."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)

    def work() -> str:
        try:
            WAITED[name](tmp_path)
        except (Failed, Damaged) as refused:
            return str(refused)
        return "passed over"

    said = in_time(work)
    assert said == "passed over" or "no regular file" in said


def test_tokens_without_a_zone(tmp_path: pathlib.Path) -> None:
    """A time that cannot be compared with now lets nobody in, in words."""
    token = f'{{"id": "a", "kind": "api", "sha256": "b", "created": "{SINCE}"}}'
    (tmp_path / "tokens.json").write_text(f'{{"tokens": [{token}]}}')
    with pytest.raises(Failed, match="timezone"):
        Tokens(tmp_path, Clock().wall).rows()


def test_files_that_are_no_revisions(tmp_path: pathlib.Path) -> None:
    """A copy beside the original, a backup, a note: they are not ours, and nothing stands by them."""
    store = Store(tmp_path)
    store.add(Revision(number=1, files={}, digest="x", at=Clock().wall()))
    written = (tmp_path / "revisions/00000001.json").read_text()
    for name in ("00000001 (copy).json", "00000002.old.json", "2.json", "\u0662" * 8 + ".json", "README"):
        (tmp_path / "revisions" / name).write_text(written)
    assert store.revisions() == [1]
    newest = store.newest()
    assert newest is not None
    assert newest.number == 1


def test_a_file_in_the_place_of_all_revisions(tmp_path: pathlib.Path) -> None:
    """No catalog was ever adopted, it would seem, and every engine would be one too many."""
    (tmp_path / "revisions").write_text("")
    with pytest.raises(Failed, match=r"cannot read .*revisions: not a directory"):
        Store(tmp_path).newest()


@pytest.mark.parametrize("name", ["revisions/00000001.json", "marks.json", "tokens.json"])
def test_a_start_ends_with_a_sentence(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Exit 1, and no bug report."""
    (tmp_path / name).mkdir(parents=True)
    where = ("--listen", "127.0.0.1:0", "--metrics", "off", "--state-dir", str(tmp_path), "--require-tokens")
    assert run(["serve", *where]) == 1
    assert f"error: cannot read {tmp_path / name}: is a directory" in capsys.readouterr().err
