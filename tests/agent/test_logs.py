"""Engines' output: bounded on the disk, whole for the engine, safe to read at any time."""

import os
import pathlib

import pytest

from llmgw.agent import logs


def write(path: pathlib.Path, lines: int) -> int:
    """Numbered lines, appended as an engine would. Returns the size."""
    with path.open("ab") as file:
        for number in range(lines):
            file.write(b"line %08d of an engine that says a lot\n" % number)
    return path.stat().st_size


def test_a_trimmed_log_keeps_its_newest_lines_and_its_length(tmp_path: pathlib.Path) -> None:
    """The head goes back to the disk; an engine that appends notices nothing."""
    log = tmp_path / "x.log"
    size = write(log, 50_000)
    logs.trim(log, 64 * 1024)
    assert log.stat().st_size == size
    assert log.stat().st_blocks * 512 <= 72 * 1024
    write(log, 1)
    assert logs.tail(log).endswith("line 00000000 of an engine that says a lot\n")
    assert "line 00049999" in logs.tail(log)


def test_a_log_below_its_bound_is_left_alone(tmp_path: pathlib.Path) -> None:
    """Nothing is cut before the bound."""
    log = tmp_path / "x.log"
    write(log, 100)
    before = log.read_bytes()
    logs.trim(log, 64 * 1024)
    assert log.read_bytes() == before


def test_the_tail_never_shows_the_hole(tmp_path: pathlib.Path) -> None:
    """Where the hole reaches into the tail, text begins after it."""
    log = tmp_path / "x.log"
    write(log, 50_000)
    logs.trim(log, 4096)
    assert "\0" not in logs.tail(log, 65536)


def test_a_log_that_is_missing_is_empty(tmp_path: pathlib.Path) -> None:
    """Somebody removed it: no error, nothing to read and nothing to trim."""
    assert logs.tail(tmp_path / "x.log") == ""
    logs.trim(tmp_path / "x.log", 1)


def test_only_the_newest_logs_are_kept(tmp_path: pathlib.Path) -> None:
    """Logs of shards that are gone stay for a while, and are bounded in number."""
    for n in range(5):
        path = logs.path_of(tmp_path, (f"alpha/r{n}", 0))
        path.touch()
        os.utime(path, (n, n))
    logs.prune(tmp_path, 2, 2**20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alpha%2Fr3.0.log", "alpha%2Fr4.0.log"]


def test_a_live_log_stays_however_silent_its_engine(tmp_path: pathlib.Path) -> None:
    """An engine that said nothing for long has the oldest log, and it is not the one to go."""
    for n in range(5):
        path = logs.path_of(tmp_path, (f"alpha/r{n}", 0))
        path.touch()
        os.utime(path, (n, n))
    logs.prune(tmp_path, 1, 2**20, [("alpha/r0", 0)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alpha%2Fr0.0.log", "alpha%2Fr4.0.log"]


def on_disk(directory: pathlib.Path) -> dict[str, int]:
    """KiB that each log takes of the disk, by replica."""
    found = {path.name: path.stat().st_blocks // 2 for path in directory.glob("*.log")}
    return {
        name.removeprefix("alpha%2F").removesuffix(".0.log"): size for name, size in sorted(found.items())
    }


def test_logs_are_bounded_together_whoever_wrote_them(tmp_path: pathlib.Path) -> None:
    """Each is cut, also of who has ended; the oldest of those go by their bytes on the disk, not by their length."""
    for n in range(5):
        path = logs.path_of(tmp_path, (f"alpha/r{n}", 0))
        path.write_bytes(b"x" * 2**20)
        os.utime(path, (n, n))
    assert set(on_disk(tmp_path).values()) == {1024}
    logs.trim_all(tmp_path, 2**18)
    logs.prune(tmp_path, 64, 2**19 + 2**16, [("alpha/r0", 0)])
    assert on_disk(tmp_path) == {"r0": 256, "r3": 256, "r4": 256}


def test_a_log_that_is_still_written_is_not_removed(tmp_path: pathlib.Path) -> None:
    """Without a name it would grow where nobody sees it: who writes it may be an engine that nothing describes."""
    for n in range(3):
        path = logs.path_of(tmp_path, (f"alpha/r{n}", 0))
        path.write_bytes(b"x" * 4096)
        os.utime(path, (n, n))
    with logs.path_of(tmp_path, ("alpha/r0", 0)).open("ab"):
        logs.prune(tmp_path, 1, 2**20)
        assert list(on_disk(tmp_path)) == ["r0", "r2"]
    logs.prune(tmp_path, 1, 2**20)
    assert list(on_disk(tmp_path)) == ["r2"]


def test_a_log_at_its_bound_is_not_cut_again_and_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look every second is a look, not a hole of one block each time."""
    log, cuts = tmp_path / "x.log", list[int]()
    write(log, 50_000)
    logs.trim(log, 64 * 1024)
    monkeypatch.setattr(logs._libc, "fallocate", lambda *of: cuts.append(of[3].value))
    write(log, 30)
    logs.trim(log, 64 * 1024)
    assert cuts == []
    write(log, 1000)
    logs.trim(log, 64 * 1024)
    assert len(cuts) == 1


@pytest.mark.parametrize(
    ("lines", "first"), [(0, b""), (1, b"line 00000099"), (100, b"line 00000000"), (7000, b"line 00000000")]
)
def test_the_last_lines_begin_where_they_begin(tmp_path: pathlib.Path, lines: int, first: bytes) -> None:
    """So many lines before the end; all of them where there are fewer; none where none is asked for."""
    log = tmp_path / "x.log"
    size = write(log, 100)
    found = logs.piece(log, logs.tail_offset(log, lines), 1 << 20)
    assert found.data[:13] == first
    assert found.size == size
    assert found.data.count(b"\n") == min(lines, 100)


def test_pieces_make_the_whole(tmp_path: pathlib.Path) -> None:
    """One after the other, each where the one before ended: every byte once."""
    log = tmp_path / "x.log"
    write(log, 5000)
    got, at = b"", 0
    while (found := logs.piece(log, at, 4097)).data:
        assert found.offset == at
        got, at = got + found.data, at + len(found.data)
    assert got == log.read_bytes()


def test_what_was_cut_is_told_and_not_shown(tmp_path: pathlib.Path) -> None:
    """A reader who comes to the hole goes on at the first whole line behind it, and hears how much is gone."""
    log = tmp_path / "x.log"
    write(log, 50_000)
    whole = log.read_bytes()
    logs.trim(log, 64 * 1024)
    found = logs.piece(log, 0, 1000)
    assert found.lost == found.offset > 1_000_000
    assert found.data.startswith(b"line ")
    assert found.data == whole[found.offset : found.offset + len(found.data)]


def test_what_is_cut_while_it_is_read_is_never_shown(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hole that opens between the look and the read would read as zeros: it is read anew behind it, and told."""
    log = tmp_path / "x.log"
    write(log, 50_000)
    whole, read, cuts = log.read_bytes(), os.pread, list[int]()

    def reads(descriptor: int, most: int, start: int) -> bytes:
        if not cuts:
            cuts.append(start)
            logs.trim(log, 64 * 1024)
        return read(descriptor, most, start)

    monkeypatch.setattr(os, "pread", reads)
    found = logs.piece(log, 0, 1000)
    assert cuts == [0]
    assert found.lost == found.offset > 1_000_000
    assert found.data == whole[found.offset : found.offset + len(found.data)]


def test_the_previous_log_is_the_one_that_ended_last(tmp_path: pathlib.Path) -> None:
    """Of the same model and rank, not the one that runs, not a sibling that lives, not a later one."""
    for n, name in enumerate(
        ("alpha/old", "alpha/dead", "beta/dead", "alpha/live", "alpha/now", "alpha/later")
    ):
        path = logs.path_of(tmp_path, (name, 0))
        path.touch()
        os.utime(path, (n, n))
    live = {("alpha/live", 0), ("alpha/now", 0)}
    assert logs.previous(tmp_path, "alpha", 0, "alpha/now", live) == ("alpha/dead", 0)
    assert logs.previous(tmp_path, "alpha", 0, "alpha/dead", live) == ("alpha/old", 0)
    assert logs.previous(tmp_path, "alpha", 0, "", live) == ("alpha/later", 0)
    assert logs.previous(tmp_path, "alpha", 1, "", live) is None
    assert logs.previous(tmp_path, "gamma", 0, "", live) is None
