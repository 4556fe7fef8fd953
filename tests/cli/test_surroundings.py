"""What a command stands in: an output that takes nothing, a reader that is gone, a directory that was removed."""

import errno
import os
import pathlib
import re
import stat
import subprocess
import sys
import threading

import pytest

from llmgw.catalog.schema import FILE
from llmgw.cli.doing import schema
from llmgw.cli.exits import Exit
from llmgw.errors import Failed
from llmgw.kit.files import write_to
from tests.support.processes import LLMGW

HELP = ("apply", "--help")
CHECKED = ("validate", "catalog")


def _run(script: str, at: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A line of shell in which "$@" is the command."""
    env = {**os.environ, "LLMGW_SERVER": "127.0.0.1:1"}
    return subprocess.run(
        ["bash", "-c", script, "bash", str(LLMGW), *words], cwd=at, env=env, capture_output=True, text=True, timeout=60.0, check=False
    )  # fmt: skip


@pytest.fixture
def here(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory with a small catalog."""
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "p.yaml").write_text(
        "kind: profile\nname: p\nengine: llamacpp\ngpus_per_node: 0\ncpu: {cores: 1, memory: 1GiB}\n"
    )
    return tmp_path


@pytest.mark.parametrize("words", [HELP, CHECKED])
def test_a_full_output_is_a_failure_and_no_bug(words: tuple[str, ...], here: pathlib.Path) -> None:
    """It says what the matter is; nothing is written about it behind our back at the end."""
    done = _run('"$@" > /dev/full', here, *words)
    assert done.returncode == Exit.FAILED
    assert done.stderr == "error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("words", [HELP, CHECKED])
def test_a_closed_output_is_nobodys_trouble(words: tuple[str, ...], here: pathlib.Path) -> None:
    """Who closes it does not want to read."""
    done = _run('"$@" >&-', here, *words)
    assert (done.returncode, done.stderr) == (Exit.DONE, "")


def test_a_reader_that_is_gone(here: pathlib.Path) -> None:
    """What only shows is done; what judges or changes something did not come to its end, and says so."""
    gone = 'exec {out}> >(true); wait $!; "$@" >&$out'
    assert _run(gone, here, "status", "--help").returncode == Exit.DONE
    for words in (CHECKED, HELP):
        done = _run(gone, here, *words)
        assert done.returncode == Exit.FAILED
        assert done.stderr == "error: cannot write to standard output: nobody reads it any more\n"


def test_a_directory_that_was_removed(here: pathlib.Path) -> None:
    """What needs none of it goes on; what does says so."""
    lost = 'mkdir gone; cd gone; rmdir ../gone; "$@"'
    assert _run(lost, here, "status").returncode == Exit.UNREACHABLE
    done = _run(lost, here, *CHECKED)
    assert done.returncode == Exit.FAILED
    assert "bug" not in done.stderr


def test_what_people_point_at_stays_what_it_is(tmp_path: pathlib.Path) -> None:
    """A pipe is written into, a link is followed, a file is replaced whole."""
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    link.symlink_to(file)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_to(pipe, b"plan")
    reader.join()
    write_to(link, b"plan")

    assert read == [b"plan"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()
    assert file.read_bytes() == b"plan"


def test_a_first_ctrl_c_says_nothing() -> None:
    """Before anything is imported the signal ends the process as it ends any other."""
    asked = "import signal, llmgw.cli.entry; print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL, 'click' in __import__('sys').modules)"
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, timeout=60.0, check=True
    )
    assert done.stdout == "True False\n"


def test_a_disk_that_is_full_is_not_the_output(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that could not be written is named, though the system names none."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        write_to(tmp_path / "plan", b"plan")
    assert raised.value.filename == str(tmp_path / "plan")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Failed, match=re.escape(f"cannot write {tmp_path}/{FILE}: No space left on device")):
        schema.run(tmp_path, None)
