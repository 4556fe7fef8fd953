"""The directory that is followed as files: what stands in it now, and where to listen for changes.

Used by `watch`, from a thread. Its twin is `commits`, for a catalog that is followed by commits; both
give `Tree`s and raise `Unreadable`. What cannot be read is never an empty catalog.
"""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Mapping

from llmgw.catalog.diagnostics import concise
from llmgw.catalog.load import snapshot
from llmgw.errors import Failed


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


class Directory:
    """The YAML files below `path`, wherever that leads at the moment."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._files: tuple[str, Mapping[str, bytes]] = ("", {})

    @property
    def said(self) -> str:
        return f"files below {self._path}"

    def look(self) -> Tree:
        """Everything that stands there now. Raises Unreadable."""
        files, problems = snapshot(self._path, prefix=f"{self._path.as_posix().rstrip('/')}/")
        if problems:
            raise Unreadable(
                f"cannot read the catalog: {concise(problems[0])}", help="nothing was changed by it"
            )
        mark = digest(files)
        self._files = mark, files
        lock = index_lock(self._path)
        return Tree(mark, f"git is at work: {lock}" if lock else "")

    def read(self, tree: Tree) -> Mapping[str, bytes]:
        """The files of the tree of the last look."""
        mark, files = self._files
        if mark != tree.mark:
            raise ValueError("only the tree of the last look can be read")
        return files

    def spots(self) -> frozenset[Spot]:
        """The tree itself, and each directory in which a part of its path could be swapped."""
        return frozenset(spot for spot in (spot_at(self._path), *map(_swap, _links(self._path))) if spot)


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
