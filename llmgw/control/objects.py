"""What git has in its object database, asked of one `git cat-file --batch`. Used by `commits`, from a thread.

One process a look, and it ends with it: a caller asks for the commit, for the trees that are new to it and
for the blobs that are new, and nothing is listed or read that it knows already.
"""

import contextlib
import dataclasses
import pathlib
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import IO

from llmgw.control.trees import Unreadable
from llmgw.kit.children import git_environment
from llmgw.kit.text import safe

PATIENCE = 30.0
"""Seconds for everything that is asked in one look."""

AT_ONCE = 128
"""Names asked before the first answer is read: fewer than fill a pipe."""

DIRECTORY = "40000"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One line of a tree: mode in octal as git writes it, its name in its directory, its object."""

    mode: str
    name: str
    object: str


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """What git says of an object before its bytes. `name` is empty where it has no such object."""

    asked: str
    name: str = ""
    kind: str = ""
    size: int = 0


class Objects:
    """Answers while the process lives. Raises Unreadable with git's own words where it ends too early."""

    def __init__(self, top: pathlib.Path, git: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
        self._top, self._git, self._said = top, git, said
        self._late = False

    def one(self, name: str, most: int) -> tuple[Header, bytes]:
        """The object that `name` means, of at most `most` bytes; no bytes where there is none or it has more."""
        return next(self.each([name], most))

    def each(self, names: Sequence[str], most: int) -> Iterator[tuple[Header, bytes]]:
        """The objects that `names` mean, in their order. After one of more than `most` bytes nothing follows."""
        for first in range(0, len(names), AT_ONCE):
            some = names[first : first + AT_ONCE]
            self._ask(some)
            for name in some:
                header = self._header(name)
                if header.size > most:
                    self._git.kill()
                    yield header, b""
                    return
                yield header, self._bytes(header) if header.name else b""

    def tree(self, name: str, most: int) -> tuple[Entry, ...] | None:
        """The entries of a tree; None where git has lost it."""
        header, data = self.one(name, most)
        return tuple(_entries(data, len(header.name) // 2)) if header.kind == "tree" else None

    def hurry(self) -> None:
        """Patience is at its end."""
        self._late = True
        self._git.kill()

    def _ask(self, names: Sequence[str]) -> None:
        assert self._git.stdin is not None
        try:
            self._git.stdin.write("".join(f"{name}\n" for name in names).encode(errors="surrogateescape"))
            self._git.stdin.flush()
        except OSError:
            raise self._ended() from None

    def _header(self, asked: str) -> Header:
        assert self._git.stdout is not None
        line = self._git.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._ended()
        words = line.decode(errors="replace").rsplit(maxsplit=2)
        if len(words) == 3 and words[2].isdecimal():
            return Header(asked, words[0], words[1], int(words[2]))
        return Header(asked)

    def _bytes(self, header: Header) -> bytes:
        assert self._git.stdout is not None
        data = self._git.stdout.read(header.size + 1)
        if len(data) <= header.size:
            raise self._ended()
        return data[:-1]

    def _ended(self) -> Unreadable:
        """Why there is no answer."""
        if self._late:
            return Unreadable(f"cannot read {self._top}: git cat-file took longer than {PATIENCE:.0f}s")
        self._git.wait()
        self._said.seek(0)
        words = " ".join(self._said.read(4096).decode(errors="replace").split())
        return Unreadable(
            f"cannot read {self._top}: git cat-file: {safe(words[:300])}", help="nothing was changed by it"
        )


@contextlib.contextmanager
def asked(top: pathlib.Path) -> Iterator[Objects]:
    """The objects of the repository around the work tree `top`. Raises Unreadable where git cannot be run."""
    with tempfile.TemporaryFile() as said:
        try:
            git = subprocess.Popen(
                command(top, "cat-file", "--batch"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=git_environment(),
            )
        except OSError as error:
            raise cannot_run(top, error) from error
        objects = Objects(top, git, said)
        patience = threading.Timer(PATIENCE, objects.hurry)
        patience.start()
        try:
            yield objects
        finally:
            patience.cancel()
            git.kill()
            git.communicate()


def command(top: pathlib.Path, *arguments: str) -> list[str]:
    """One call of git's plumbing that takes no lock."""
    return ["git", "--no-optional-locks", "-C", str(top), *arguments]


def cannot_run(top: pathlib.Path, error: OSError) -> Unreadable:
    """That there is no git to run."""
    return Unreadable(f"cannot read {top}: git cannot be run: {error.strerror}", help="install git")


def _entries(data: bytes, width: int) -> Iterator[Entry]:
    """The entries of a raw tree whose object names have `width` bytes."""
    at = 0
    while at < len(data):
        space, end = data.index(b" ", at), data.index(b"\0", at)
        name = data[space + 1 : end].decode(errors="surrogateescape")
        yield Entry(data[at:space].decode(), name, data[end + 1 : end + 1 + width].hex())
        at = end + 1 + width
