"""The directory that is followed as files: what stands in it now, and where to listen for changes.

Used by `watch`, from a thread. Its twin is `commits`, for a catalog that is followed by commits; both
give `Tree`s and raise `Unreadable`. What cannot be read is never an empty catalog.
"""

import dataclasses
import datetime
import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping

from llmgw.catalog.load import MAX_FILES, MAX_TOTAL, file_bytes, snapshot
from llmgw.errors import Failed
from llmgw.kit.clock import Clock
from llmgw.kit.text import safe

BELIEVED = datetime.timedelta(seconds=8)
"""How long unchanged stamps are taken for unchanged bytes, from one reading of everything to the next."""
AT_WORK = datetime.timedelta(seconds=2)
"""How long after a change the next reading of everything is put off: people wait for their edit then."""


class Unreadable(Failed):
    """The catalog could not be read, so nothing is known about it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """What one look found. `mark` is of its bytes; `locked` says who is at work on them, or nothing.

    `commit`, `who` and `message` are those of the commit, `parents` the commits before it.
    """

    mark: str
    locked: str = ""
    commit: str = ""
    who: str = ""
    message: str = ""
    parents: tuple[str, ...] = ()


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
    """What the files held, each with its own mark. `stamps` were taken first, and are only those that tell.

    `whole` is when everything was read last, `since` when this was seen first.
    """

    files: Mapping[str, bytes]
    marks: Mapping[str, bytes]
    stamps: Stamps
    whole: datetime.datetime
    since: datetime.datetime
    mark: str

    def believed(self, now: datetime.datetime) -> bool:
        """Whether what has the same stamps now holds the same bytes. A wall clock that went back proves nothing."""
        at_work = now - self.since < AT_WORK
        return datetime.timedelta() <= now - self.whole < (2 * BELIEVED if at_work else BELIEVED)


class Directory:
    """The YAML files below `path`, wherever that leads at the moment."""

    def __init__(self, path: pathlib.Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._prefix = f"{path.as_posix().rstrip('/')}/"
        self._last: _Reading | None = None

    @property
    def said(self) -> str:
        return f"files below {self._path}"

    def look(self) -> Tree:
        """Everything that stands there now. Raises Unreadable."""
        now, stamps = self._clock.wall(), stamped(self._path, self._prefix)
        last = self._last = self._partly(now, stamps) or self._wholly(now, stamps or {})
        lock = index_lock(self._path)
        return Tree(last.mark, f"git is at work: {lock}" if lock else "")

    def _partly(self, now: datetime.datetime, stamps: Stamps | None) -> _Reading | None:
        """What was read before, where the stamps say that it is still so, with the rest; None where all must be read."""
        last = self._last
        if last is None or stamps is None or not last.believed(now):
            return None
        if len(stamps) == len(last.files) and stamps == last.stamps:
            return last
        old = {name for name, stamp in stamps.items() if last.stamps.get(name) == stamp}
        new = _read([name for name in stamps if name not in old])
        if new is None:
            return None
        files = {name: new[name] if name in new else last.files[name] for name in sorted(stamps)}
        if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_TOTAL:
            return None
        marks = {name: _mark(name, new[name]) if name in new else last.marks[name] for name in files}
        telling = {name: stamp for name, stamp in stamps.items() if name in old or _tells(stamp[3], now)}
        return self._reading(files, marks, telling, last.whole, now)

    def _wholly(self, now: datetime.datetime, stamps: Stamps) -> _Reading:
        files, problems = snapshot(self._path, prefix=self._prefix)
        if problems and not self._path.is_dir():
            raise Unreadable(
                f"cannot read the catalog: there is no directory {self._path.absolute()}",
                help="it is waited for: put the catalog there, or name another --catalog",
            )
        if problems:
            first = problems[0]
            raise Unreadable(
                f"cannot read the catalog: {first.place.file}: {safe(first.said)}",
                help="nothing was changed by it",
            )
        marks = {name: _mark(name, data) for name, data in files.items()}
        telling = {name: stamp for name, stamp in stamps.items() if _tells(stamp[3], now)}
        return self._reading(files, marks, telling, now, now)

    def _reading(
        self,
        files: Mapping[str, bytes],
        marks: Mapping[str, bytes],
        stamps: Stamps,
        whole: datetime.datetime,
        now: datetime.datetime,
    ) -> _Reading:
        mark, last = _together(marks), self._last
        since = last.since if last is not None and last.mark == mark else now
        return _Reading(files, marks, stamps, whole, since, mark)

    def dirty(self) -> tuple[str, ...]:
        """Nothing: every file is followed as it stands."""
        return ()

    def read(self, tree: Tree) -> Mapping[str, bytes]:
        """The files of the tree of the last look."""
        if self._last is None or self._last.mark != tree.mark:
            raise ValueError("only the tree of the last look can be read")
        return self._last.files

    def spots(self) -> frozenset[Spot]:
        """The tree itself, and each directory in which a part of its path could be swapped."""
        return frozenset(spot for spot in (spot_at(self._path), *map(_swap, _links(self._path))) if spot)


def stamped(root: pathlib.Path, prefix: str = "") -> Stamps | None:
    """The stamps of the YAML files below `root`, by names that begin with `prefix`; None where anything is neither a file nor a directory."""
    found: dict[str, tuple[int, int, int, int]] = {}
    waiting = [(str(root), prefix)]
    try:
        while waiting:
            directory, within = waiting.pop()
            below = _stamp_files(directory, within, found)
            if below is None:
                return None
            waiting += [(f"{directory}/{name}", f"{within}{name}/") for name in below]
    except OSError:
        return None
    return found


def _stamp_files(
    directory: str, within: str, found: dict[str, tuple[int, int, int, int]]
) -> list[str] | None:
    """Add the stamps of the YAML files of one directory; the names of those in it, or None as `stamped`."""
    below: list[str] = []
    # By its descriptor: a path that is walked anew for each of ten thousand files is a fifth of the look.
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.append(name)
                elif not entry.is_file(follow_symlinks=False):
                    return None
                elif name.lower().endswith((".yaml", ".yml")):
                    seen = entry.stat(follow_symlinks=False)
                    found[within + name] = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    finally:
        os.close(fd)
    return below


def _tells(changed: int, now: datetime.datetime) -> bool:
    """Whether a write after `now` would show in a ctime: the tick of the last one is over.

    A file system that only has whole seconds needs two of them.
    """
    tick = 0.02 if changed % 10**9 else 2.0
    return now.timestamp() - changed / 1e9 > tick


def _read(names: Iterable[str]) -> dict[str, bytes] | None:
    """The bytes of these files; None where one of them is none that can be read."""
    found: dict[str, bytes] = {}
    try:
        for name in names:
            data = file_bytes(name)
            if isinstance(data, str) or not name.isprintable():
                return None
            found[name] = data
    except OSError:
        return None
    return found


def _mark(name: str, data: bytes) -> bytes:
    return hashlib.sha256(f"{len(name)} {name}\n".encode() + data).digest()


def _together(marks: Mapping[str, bytes]) -> str:
    """The mark of all files, which are in the order of their names."""
    return hashlib.sha256(b"".join(marks.values())).hexdigest()


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
