"""Engines' output: bounded on the disk, whole for the engine, safe to read at any time."""

import os
import pathlib

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
    logs.prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alpha%2Fr3.0.log", "alpha%2Fr4.0.log"]
