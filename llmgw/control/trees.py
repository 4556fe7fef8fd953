"""The directory that is followed as files: what stands in it now, and where to listen for changes.

Used by `watch`, from a thread. Its twin is `commits`, for a catalog that is followed by commits; both
give `Tree`s and raise `Unreadable`. What cannot be read is never an empty catalog.
"""

import dataclasses
import datetime
import hashlib
import os
import pathlib
from collections.abc import Mapping

from llmgw.catalog.diagnostics import concise
from llmgw.catalog.load import snapshot
from llmgw.errors import Failed
from llmgw.kit.clock import Clock

BELIEVED = datetime.timedelta(seconds=2)
"""How long unchanged stamps are taken for unchanged bytes: for a tree to settle, no longer."""


class Unreadable(Failed):
    """The catalog could not be read, so nothing is known about it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """What one look found. `mark` is of its bytes; `locked` says who is at work on them, or nothing.

    `commit`, `who` and `message` are those of the commit; `dirty` are files that no commit has.
    """

    mark: str
    locked: str = ""
    commit: str = ""
    who: str = ""
    message: str = ""
    dirty: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    """A place to listen at. Its identity is part of it: a directory that comes back is another one.

    `names` are the entries that matter there; none = all, in the directories below too.
    """

    path: pathlib.Path
    identity: tuple[int, int]
    names: frozenset[str] = frozenset()

    def matters(self, path: str) -> bool:
        """Whether something that happened at `path` is worth a look."""
        found = pathlib.PurePath(path)
        if self.names:
            return found.name in self.names
        return not any(part.startswith(".") for part in found.parts[len(self.path.parts) :])


Stamps = Mapping[str, tuple[int, int, int, int]]
"""File → inode, size, mtime and ctime in nanoseconds: what no write leaves as it was, once a tick has passed."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Reading:
    """One reading of everything. `stamps` were taken first; None where they would not tell."""

    mark: str
    files: Mapping[str, bytes]
    stamps: Stamps | None
    at: datetime.datetime


class Directory:
    """The YAML files below `path`, wherever that leads at the moment."""

    def __init__(self, path: pathlib.Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._last: _Reading | None = None

    @property
    def said(self) -> str:
        return f"files below {self._path}"

    def look(self) -> Tree:
        """Everything that stands there now. Raises Unreadable."""
        now, stamps = self._clock.wall(), stamped(self._path)
        last = self._last
        if last is None or last.stamps is None or last.stamps != stamps or not _recent(last.at, now):
            last = self._last = self._read(now, stamps)
        lock = index_lock(self._path)
        return Tree(last.mark, f"git is at work: {lock}" if lock else "")

    def _read(self, now: datetime.datetime, stamps: Stamps | None) -> _Reading:
        files, problems = snapshot(self._path, prefix=f"{self._path.as_posix().rstrip('/')}/")
        if problems:
            raise Unreadable(
                f"cannot read the catalog: {concise(problems[0])}", help="nothing was changed by it"
            )
        telling = stamps is not None and all(_tells(stamp[3], now) for stamp in stamps.values())
        return _Reading(digest(files), files, stamps if telling else None, now)

    def read(self, tree: Tree) -> Mapping[str, bytes]:
        """The files of the tree of the last look."""
        if self._last is None or self._last.mark != tree.mark:
            raise ValueError("only the tree of the last look can be read")
        return self._last.files

    def spots(self) -> frozenset[Spot]:
        """The tree itself, and each directory in which a part of its path could be swapped."""
        return frozenset(spot for spot in (spot_at(self._path), *map(_swap, _links(self._path))) if spot)


def stamped(root: pathlib.Path) -> Stamps | None:
    """The stamps of the YAML files below `root`; None where anything is neither a file nor a directory."""
    found: dict[str, tuple[int, int, int, int]] = {}
    waiting = [(str(root), "")]
    try:
        while waiting:
            directory, prefix = waiting.pop()
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, f"{prefix}{entry.name}/"))
                    elif not entry.is_file(follow_symlinks=False):
                        return None
                    elif entry.name.lower().endswith((".yaml", ".yml")):
                        seen = entry.stat(follow_symlinks=False)
                        stamp = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
                        found[prefix + entry.name] = stamp
    except OSError:
        return None
    return found


def _tells(changed: int, now: datetime.datetime) -> bool:
    """Whether a write after `now` would show in a ctime: the tick of the last one is over.

    A file system that only has whole seconds needs two of them.
    """
    tick = 0.02 if changed % 10**9 else 2.0
    return now.timestamp() - changed / 1e9 > tick


def _recent(at: datetime.datetime, now: datetime.datetime) -> bool:
    """Whether stamps may stand for a reading: the slow timer always reads."""
    return now - at < BELIEVED


def digest(files: Mapping[str, bytes]) -> str:
    """The mark of these files: names and bytes."""
    whole = hashlib.sha256()
    for name, data in sorted(files.items()):
        whole.update(f"{len(name)} {len(data)} {name}\n".encode())
        whole.update(data)
    return whole.hexdigest()


def spot_at(path: pathlib.Path, names: frozenset[str] = frozenset()) -> Spot | None:
    """The spot at a directory; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Spot(path, (found.st_dev, found.st_ino), names)


def work_tree(path: pathlib.Path) -> pathlib.Path | None:
    """The git work tree around `path`, whether or not `path` is there; found without asking git."""
    whole = pathlib.Path(os.path.realpath(path))
    return next((above for above in (whole, *whole.parents) if os.path.lexists(above / ".git")), None)


def git_directories(top: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """The git directory of a work tree, and the one that all its work trees share. Raises Unreadable."""
    own = top / ".git"
    try:
        if os.path.isfile(own):
            own = top / own.read_text().removeprefix("gitdir:").strip()
        shared = own / "commondir"
        return own, own / shared.read_text().strip() if os.path.isfile(shared) else own
    except OSError as error:
        raise Unreadable(f"cannot read {own}: {error.strerror}") from error


def index_lock(path: pathlib.Path) -> pathlib.Path | None:
    """The lock that git holds on the work tree around `path`. Raises Unreadable."""
    top = work_tree(path)
    lock = git_directories(top)[0] / "index.lock" if top is not None else None
    return lock if lock is not None and os.path.lexists(lock) else None


def _links(path: pathlib.Path) -> list[pathlib.Path]:
    """`path` itself, and everything above it that is a link: what can be swapped in one step."""
    whole = path.absolute()
    return [whole, *(above for above in whole.parents if os.path.islink(above))]


def _swap(path: pathlib.Path) -> Spot | None:
    return spot_at(path.parent, frozenset({path.name}))
